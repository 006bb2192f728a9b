"""Everything a three-letter model can say within a few tokens, written down: means become exact sums.

With all completions of a prompt in one batch, an expectation over the policy is a sum weighted with the policy's own
probabilities, so what estimators and losses promise on average can be checked to the last digit. All in float64.
"""

import math

import pytest
import torch
from torch import Tensor
from toys import BOS, EOS, A, B, C, all_with_prompt, every_completion, gradients, tiny_lstm

from core.advantages import gae, group_advantages, rloo_advantages
from core.logprobs import entropy, exact_kl, kl_estimate, masked_sum, token_logprobs
from core.losses import dpo_loss, ppo_policy_loss
from core.models.language_model import LanguageModel
from core.sampling import Completions, completion_logits

CAP = 3
PROMPT = [BOS, B, A, BOS]


def close(left: Tensor, right: Tensor) -> None:
    torch.testing.assert_close(left, right, rtol=1e-9, atol=1e-10)


class World:
    """A policy, a reference, every completion of one prompt, and a reward for each."""

    def __init__(self, prompt: list[int] = PROMPT, temperature: float = 1.0) -> None:
        self.policy, reference = tiny_lstm(1), tiny_lstm(2)
        self.batch = all_with_prompt(prompt, CAP)
        self.mask = self.batch.mask
        self.logits = completion_logits(self.policy, self.batch, temperature)
        self.reference_logits = completion_logits(reference, self.batch, temperature).detach()
        self.logprobs = token_logprobs(self.logits, self.batch.tokens)
        self.reference_logprobs = token_logprobs(self.reference_logits, self.batch.tokens)
        self.log_p = masked_sum(self.logprobs, self.mask, 1)
        self.log_q = masked_sum(self.reference_logprobs, self.mask, 1)
        self.p = self.log_p.exp()
        generator = torch.Generator().manual_seed(3)
        self.reward = torch.randn(len(self.batch), generator=generator, dtype=torch.float64)

    @property
    def weight(self) -> Tensor:
        """The probability of each completion, as a constant, beside each of its tokens."""
        return self.p.detach().unsqueeze(1)

    def at_the_end(self, reward: Tensor) -> Tensor:
        """The reward at each completion's last real token."""
        last = self.mask.sum(1, keepdim=True) - 1
        return torch.zeros_like(self.logprobs).detach().scatter(1, last, reward.unsqueeze(1))

    def starts(self, of: int) -> list[tuple[int, ...]]:
        """What has been written before the token at ``of``, for each completion."""
        return [tuple(row[:of]) for row in self.batch.tokens.tolist()]

    def values(self, reward: Tensor) -> Tensor:
        """E[reward to come | what has been written], before each token, by enumeration."""
        values = torch.zeros_like(self.logprobs).detach()
        for t in range(values.shape[1]):
            starts = self.starts(t)
            for start in set(starts):
                same = torch.tensor([each == start for each in starts]) & self.mask[:, t]
                if same.any():
                    p = self.p.detach()[same]
                    values[same, t] = (p * reward[same]).sum() / p.sum()
        return values


@pytest.fixture(scope="module")
def world() -> World:
    return World()


@pytest.fixture(scope="module")
def policy_gradient(world: World) -> Tensor:
    """∇E[r], through the probabilities themselves."""
    return gradients((world.p * world.reward).sum(), world.policy)


# --- the model and its probabilities ---


def test_there_are_40_completions_of_up_to_3_tokens():
    """1 + 3 + 9 end with EOS, 27 are cut off; no two alike."""
    completions = every_completion(CAP)
    assert len(completions) == len({tuple(each) for each in completions}) == 1 + 3 + 9 + 27
    assert sum(each[-1] == EOS for each in completions) == 13


@pytest.mark.parametrize("temperature", [1.0, 0.5, 3.0])
@pytest.mark.parametrize("prompt", [PROMPT, [BOS, C, BOS], [BOS, EOS, A, BOS]])
def test_probabilities_sum_to_1(prompt, temperature):
    close(World(prompt, temperature).p.sum(), torch.ones((), dtype=torch.float64))


def test_completions_depend_on_the_prompt_beyond_its_last_letter():
    """Log-probs of a response without its prompt, or after its last token only, would be equal here."""
    here, there = World([BOS, A, C, BOS]), World([BOS, B, C, BOS])
    assert (here.p - there.p).abs().sum() > 0.01


def test_a_row_among_other_prompts_has_the_probability_it_has_alone():
    here, there = World([BOS, A, BOS]), World([BOS, B, C, C, BOS])
    prompts = torch.nn.functional.pad(here.batch.prompts, (0, 2))
    both = Completions(
        torch.cat([prompts, there.batch.prompts]),
        torch.cat([prompts > 0, there.batch.prompt_mask]),
        torch.cat([here.batch.tokens, there.batch.tokens]),
        torch.cat([here.mask, there.mask]),
    )
    logprobs = token_logprobs(completion_logits(here.policy, both), both.tokens)
    close(masked_sum(logprobs, both.mask, 1), torch.cat([here.log_p, there.log_p]))


def test_temperature_flattens_every_position():
    cold, hot = World(temperature=0.5), World(temperature=2.0)
    assert (entropy(cold.logits)[cold.mask] < entropy(hot.logits)[hot.mask]).all()
    sharpened = (World().logits[:, :, 2:].softmax(-1) ** 2)[..., [0, 2, 3, 4]]
    close(
        cold.logits.softmax(-1)[..., [2, 4, 5, 6]][cold.mask],
        (sharpened / sharpened.sum(-1, keepdim=True))[cold.mask],
    )


# --- KL ---


def sequence_kl(world: World) -> Tensor:
    """Σ p (log p − log q) over whole completions: the definition."""
    return (world.p * (world.log_p - world.log_q)).sum()


def test_exact_kl_summed_over_positions_is_the_kl_of_completions(world):
    per_position = exact_kl(world.logits, world.reference_logits)
    summed = (world.p * masked_sum(per_position, world.mask, 1)).sum()
    close(summed, sequence_kl(world))
    assert summed > 0.1


def test_entropy_summed_over_positions_is_the_entropy_of_completions(world):
    summed = (world.p * masked_sum(entropy(world.logits), world.mask, 1)).sum()
    close(summed, -(world.p * world.log_p).sum())


@pytest.mark.parametrize("kind", ["k1", "k3"])
def test_k1_and_k3_are_right_on_average(world, kind):
    """Per token: the mean over the next token, weighted with how often its position is reached."""
    estimates = kl_estimate(world.logprobs, world.reference_logprobs, kind)
    close((world.weight * torch.where(world.mask, estimates, 0)).sum(), sequence_kl(world))


def test_k2_is_not_right_on_average(world):
    estimates = kl_estimate(world.logprobs, world.reference_logprobs, "k2")
    found = (world.weight * torch.where(world.mask, estimates, 0)).sum()
    assert (found - sequence_kl(world)).abs() > 1e-3


def test_k2_of_whole_completions_pulls_on_average_along_the_kl(world):
    close(
        gradients((world.p.detach() * kl_estimate(world.log_p, world.log_q, "k2")).sum(), world.policy),
        gradients(sequence_kl(world), world.policy),
    )


def test_k3_of_whole_completions_pulls_on_average_along_the_kl_the_other_way_round(world):
    """∇ of KL(π_ref ‖ π)."""
    close(
        gradients((world.p.detach() * kl_estimate(world.log_p, world.log_q, "k3")).sum(), world.policy),
        gradients((world.log_q.exp() * (world.log_q - world.log_p)).sum(), world.policy),
    )


def test_k1_in_the_loss_pulls_nowhere(world):
    """The mistake of many tutorials: its gradient is Σ p ∇log p = 0."""
    in_the_loss = gradients((world.p.detach() * kl_estimate(world.log_p, world.log_q, "k1")).sum(), world.policy)
    assert in_the_loss.abs().max() < 1e-12
    assert gradients(sequence_kl(world), world.policy).abs().max() > 1e-3


# --- the policy gradient ---


def ppo_gradient(world: World, advantages: Tensor) -> Tensor:
    """−∇ of the expected PPO loss at ratio 1, summed over tokens."""
    loss, stats = ppo_policy_loss(world.logprobs, world.logprobs, world.weight * advantages, world.mask, 0.2, 1.0)
    close(stats.ratio, torch.ones((), dtype=torch.float64))
    assert stats.clip_fraction == 0
    return -gradients(loss, world.policy)


def test_ppo_at_ratio_1_follows_the_policy_gradient(world, policy_gradient):
    close(ppo_gradient(world, world.reward.unsqueeze(1).expand_as(world.logprobs)), policy_gradient)
    assert policy_gradient.abs().max() > 1e-3


def test_a_baseline_that_has_not_seen_the_token_changes_nothing_on_average(world, policy_gradient):
    """GAE at λ 1 with values that are any function of what was written before."""
    values = torch.zeros_like(world.logprobs).detach()
    for t in range(CAP):
        values[:, t] = torch.tensor([math.sin(sum(start) + 2 * t) for start in world.starts(t)])
    advantages, _ = gae(world.at_the_end(world.reward), values, world.mask, 1.0, 1.0)
    close(ppo_gradient(world, advantages), policy_gradient)


@pytest.mark.parametrize("lam", [0.0, 0.5, 0.95, 1.0])
def test_gae_with_true_values_follows_the_policy_gradient_at_any_lambda(world, policy_gradient, lam):
    advantages, _ = gae(world.at_the_end(world.reward), world.values(world.reward), world.mask, 1.0, lam)
    close(ppo_gradient(world, advantages), policy_gradient)


def test_true_values_leave_nothing_to_expect(world):
    """E[A] = 0 at each position, and the λ-return of the first token is E[r] there."""
    values = world.values(world.reward)
    advantages, returns = gae(world.at_the_end(world.reward), values, world.mask, 1.0, 0.7)
    zero = torch.zeros(CAP, dtype=torch.float64)
    close((world.weight * advantages).sum(0), zero)
    close((world.p.detach() * returns[:, 0]).sum(), (world.p.detach() * world.reward).sum())


@pytest.mark.parametrize(
    ("advantages", "factor"), [(rloo_advantages, 1.0), (lambda r: group_advantages(r, "none"), 0.5)]
)
def test_groups_of_two_follow_the_policy_gradient_on_average(world, policy_gradient, advantages, factor):
    """All 1,600 pairs. Against the mean of the others it is exact; a mean that counts the member takes off 1/G."""
    n = len(world.batch)
    pairs = torch.cartesian_prod(torch.arange(n), torch.arange(n))
    weight = world.p.detach()[pairs].prod(1, keepdim=True)
    per_member = weight * advantages(world.reward[pairs]) / 2
    per_row = torch.zeros(n, dtype=torch.float64).index_add(0, pairs.flatten(), per_member.flatten())
    loss, _ = ppo_policy_loss(
        world.logprobs, world.logprobs, per_row.unsqueeze(1).expand_as(world.logprobs), world.mask, 0.2, 1.0
    )
    close(-gradients(loss, world.policy), factor * policy_gradient)


BETA = 0.4


def objective(world: World) -> Tensor:
    """J = E[r] − β·KL(π ‖ π_ref)."""
    return (world.p * world.reward).sum() - BETA * sequence_kl(world)


def test_k1_in_the_reward_needs_nothing_more(world):
    k1 = kl_estimate(world.logprobs, world.reference_logprobs).detach()
    rewards = world.at_the_end(world.reward) - BETA * k1
    advantages, _ = gae(rewards, torch.zeros_like(rewards), world.mask, 1.0, 1.0)
    close(ppo_gradient(world, advantages), gradients(objective(world), world.policy))


def test_exact_kl_in_the_reward_needs_its_direct_gradient_too(world):
    """The KL of a position does not depend on the token drawn there: the reward alone leaves out its own pull."""
    kl = exact_kl(world.logits, world.reference_logits)
    rewards = world.at_the_end(world.reward) - BETA * kl.detach()
    advantages, _ = gae(rewards, torch.zeros_like(rewards), world.mask, 1.0, 1.0)
    reward_alone = ppo_gradient(world, advantages)
    direct = gradients((world.weight * torch.where(world.mask, kl, 0)).sum(), world.policy)
    close(reward_alone - BETA * direct, gradients(objective(world), world.policy))
    assert (BETA * direct).abs().max() > 1e-3


# --- the best that is possible ---


def best_policy(world: World) -> tuple[Tensor, Tensor]:
    """log π*(y) = log π_ref(y) + r(y)/β − log Z, and J* = β·log Z."""
    tilted = world.log_q + world.reward / BETA
    log_z = tilted.logsumexp(0)
    return tilted - log_z, BETA * log_z


def test_a_tabular_policy_reaches_the_optimum_with_ppo_and_exact_kl(world):
    """One row of logits for each beginning, followed uphill by L-BFGS along the gradient of core's own pieces."""
    beginnings = {start: i for i, start in enumerate(sorted({s for t in range(CAP) for s in world.starts(t)}))}
    which = torch.tensor([[beginnings[s[:t]] for t in range(CAP)] for s in world.starts(CAP)])
    allowed = torch.full((7,), -1e9, dtype=torch.float64)
    allowed[[EOS, A, B, C]] = 0
    table = torch.zeros(len(beginnings), 7, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([table], lr=1, max_iter=40, tolerance_grad=1e-12, tolerance_change=1e-16,
                                  line_search_fn="strong_wolfe")  # fmt: skip

    def expected_loss() -> tuple[Tensor, Tensor, Tensor]:
        logits = table[which] + allowed
        logprobs = token_logprobs(logits, world.batch.tokens)
        p = masked_sum(logprobs, world.mask, 1).exp()
        kl = exact_kl(logits, world.reference_logits)
        rewards = world.at_the_end(world.reward) - BETA * kl.detach()
        advantages, _ = gae(rewards, torch.zeros_like(rewards), world.mask, 1.0, 1.0)
        weight = p.detach().unsqueeze(1)
        loss, _ = ppo_policy_loss(logprobs, logprobs, weight * advantages, world.mask, 0.2, 1.0)
        value = (p * world.reward).sum() - BETA * (p * masked_sum(kl, world.mask, 1)).sum()
        return loss + BETA * (weight * torch.where(world.mask, kl, 0)).sum(), value, p

    def closure() -> Tensor:
        optimizer.zero_grad()
        surrogate, value, _ = expected_loss()
        surrogate.backward()
        return -value.detach()

    optimizer.step(closure)
    _, value, p = expected_loss()
    log_best, best = best_policy(world)
    torch.testing.assert_close(value.detach(), best, rtol=0, atol=1e-4)
    torch.testing.assert_close(p.detach(), log_best.exp(), rtol=0, atol=5e-3)


def test_dpo_on_bradley_terry_preferences_is_at_rest_at_the_optimum(world):
    """At π* the implicit rewards differ by r_w − r_l, so every pair's pulls cancel – and away from it they do not."""
    n = len(world.batch)
    w, l_ = torch.cartesian_prod(torch.arange(n), torch.arange(n)).unbind(1)
    preferred = torch.sigmoid(world.reward[w] - world.reward[l_])

    def pull(log_policy: Tensor) -> Tensor:
        log_policy = log_policy.detach().requires_grad_()
        loss = dpo_loss(log_policy[w], log_policy[l_], world.log_q.detach()[w], world.log_q.detach()[l_], BETA)
        (gradient,) = torch.autograd.grad((preferred * loss).sum(), log_policy)
        return gradient

    log_best, _ = best_policy(world)
    assert pull(log_best).abs().max() < 1e-12
    assert pull(world.log_q).abs().max() > 0.1


def test_a_language_model_of_this_size_is_causal(world):
    """Log-probs of the first token agree among all completions that begin with it."""
    assert isinstance(world.policy, LanguageModel)
    for token in (EOS, A, B, C):
        first = world.logprobs[:, 0][world.batch.tokens[:, 0] == token]
        close(first, first[:1].expand_as(first))
