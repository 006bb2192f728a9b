"""The plane of reward against KL, against every completion of a three-letter toy written down."""

import itertools
import math

import pytest
import torch
from trainer_toys import (
    COMPLETIONS,
    PROMPTS,
    all_rewards,
    best_table,
    completion_logprobs,
    enumerable_task,
    every_completion_in_proportion,
    steps,
    table_of_eighths,
    tabular_inputs,
)

from core.evaluation.best_of_n import BestOf, best_of_n, best_of_n_optimality, best_of_n_point, kl_bound
from core.evaluation.frontier import BETAS, frontier, sampled_frontier
from core.evaluation.optimal import ReferenceSample
from core.methods.ppo import PPOConfig
from core.randomness import generator_for
from core.rewards.sources import GoldReward
from core.trainers.ppo import PPOTrainer

REFERENCE = table_of_eighths(2)
LOGPROBS = completion_logprobs(REFERENCE["table"].double())


def finish(work):
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value


@pytest.fixture
def model(monkeypatch):
    trainer = PPOTrainer(PPOConfig(), tabular_inputs(monkeypatch, REFERENCE, REFERENCE))
    return trainer.reference


@pytest.fixture
def proportional(model):
    """Rewards of 512 completions a prompt that hold each one as often as it is likely."""
    return GoldReward(enumerable_task())(every_completion_in_proportion(model)).view(len(PROMPTS), 512)


def exact_best_of(n: int) -> tuple[float, float]:
    """(reward, KL) of best of n, one of equals at random, from all n-tuples of completions."""
    rewards, kls = [], []
    for logprobs, scores in zip(LOGPROBS, all_rewards(), strict=True):
        p, q = logprobs.exp().tolist(), [0.0] * len(COMPLETIONS)
        for draws in itertools.product(range(len(COMPLETIONS)), repeat=n):
            likely = math.prod(p[each] for each in draws)
            best = max(scores[each].item() for each in draws)
            winners = [each for each in draws if scores[each].item() == best]
            for each in winners:
                q[each] += likely / len(winners)
        rewards.append(sum(share * score for share, score in zip(q, scores.tolist(), strict=True)))
        kls.append(sum(share * math.log(share / likely) for share, likely in zip(q, p, strict=True) if share > 0))
    return sum(rewards) / len(rewards), sum(kls) / len(kls)


def test_best_of_two_is_that_of_all_pairs(proportional):
    """The KL exactly. The reward is that of two *different* draws of the 512, which are a little more often unequal."""
    reward, kl = exact_best_of(2)
    found = best_of_n_point(proportional, 2)
    assert found.kl == pytest.approx(kl, abs=1e-9)
    assert found.kl < found.kl_bound == kl_bound(2) == pytest.approx(math.log(2) - 0.5)
    with_itself = proportional.double().mean().item()  # the pairs of a draw with itself, 1 in 512
    assert found.reward * 511 / 512 + with_itself / 512 == pytest.approx(reward, abs=1e-9)


def test_the_reward_of_best_of_n_is_the_mean_over_subsets():
    draws = torch.tensor([[3.0, -1.0, 0.5, 3.0, 2.0, 7.0]])
    for n in range(1, 7):
        subsets = [max(each) for each in itertools.combinations(draws[0].tolist(), n)]
        assert best_of_n_point(draws, n).reward == pytest.approx(sum(subsets) / len(subsets))


def test_best_of_n_at_its_ends(proportional):
    one = best_of_n_point(proportional, 1)
    assert (one.kl, one.kl_bound) == (pytest.approx(0.0, abs=1e-12), 0.0)
    assert one.reward == pytest.approx(proportional.double().mean().item())
    equal = best_of_n_point(torch.full((3, 50), 2.5), 8)
    assert (equal.reward, equal.kl) == (pytest.approx(2.5), pytest.approx(0.0, abs=1e-12))
    different = best_of_n_point(torch.arange(20_000.0).unsqueeze(0), 16)
    assert different.kl == pytest.approx(kl_bound(16), rel=1e-2)
    for n in (0, 51):
        with pytest.raises(
            ValueError, match=f"n must be at least 1 and at most the 50 completions of a prompt, not {n}"
        ):
            best_of_n_point(torch.zeros(1, 50), n)


def test_what_best_of_n_writes(model):
    """Its mean reward is that of the estimate, and n = 1 is the model itself."""
    task = enumerable_task()
    gold = GoldReward(task)
    prompts = [task.encode_prompt(p) for p in PROMPTS] * 1500
    written = best_of_n(model, prompts, 4, gold, task.max_new_tokens, generator=generator_for(0, "test"))
    assert torch.equal(written.prompts[:2], written.prompts[2:4])
    rewards = all_rewards()
    expected = 0.0
    for logprobs, scores in zip(LOGPROBS, rewards, strict=True):
        values, where = scores.unique(return_inverse=True)
        shares = torch.zeros(len(values), dtype=torch.float64).index_add(0, where, logprobs.exp())
        up_to = shares.cumsum(0)
        expected += (values * (up_to**4 - (up_to - shares) ** 4)).sum().item() / len(PROMPTS)
    assert gold(written).mean().item() == pytest.approx(expected, abs=4 * gold(written).std().item() / 3000**0.5)


def test_the_frontier_is_exact_where_everything_is_drawn_in_proportion(proportional):
    found = frontier(proportional, betas=(0.3, 2.0, 0.8), sizes=(2, 8, 64))
    assert [each.beta for each in found.optimal] == [2.0, 0.8, 0.3]
    assert [each.n for each in found.best_of_n] == [2, 8], "64 wants 1,024 completions"
    assert found.reference_reward == pytest.approx((LOGPROBS.exp() * all_rewards()).sum(1).mean().item(), abs=1e-6)
    for each in found.optimal:
        best = torch.softmax(LOGPROBS + all_rewards() / each.beta, 1)
        assert each.reward == pytest.approx((best * all_rewards()).sum(1).mean().item(), abs=1e-6)
        assert each.kl == pytest.approx((best * (best.log() - LOGPROBS)).sum(1).mean().item(), abs=1e-6)


def test_no_best_of_n_lies_above_the_frontier(proportional):
    """At the KL of each, the optimal policy of the β that gives that KL has at least its reward."""
    found = frontier(proportional, betas=[0.05 * 1.1**k for k in range(60)])
    for each in found.best_of_n:
        ceiling = min(point.objective + point.beta * each.kl for point in found.optimal)
        assert each.reward <= ceiling + 5e-3


def test_weights_make_another_policys_completions_count_as_the_references(proportional):
    doubled = torch.cat([proportional, proportional], 1)
    weights = torch.cat([torch.zeros_like(proportional), torch.full_like(proportional, -1e9)], 1)
    weighted = frontier(doubled, betas=(0.5,), log_weights=weights + math.log(2))
    plain = frontier(proportional, betas=(0.5,))
    assert weighted.best_of_n == ()
    assert weighted.reference_reward == pytest.approx(plain.reference_reward)
    assert weighted.optimal[0].reward == pytest.approx(plain.optimal[0].reward)
    assert weighted.optimal[0].kl == pytest.approx(plain.optimal[0].kl)


def test_a_sampled_frontier_of_a_learned_reward_as_well(model):
    """Any source of rewards; kept are the points that many completions speak for."""
    task = enumerable_task()
    found = finish(sampled_frontier(model, task, lambda batch: batch.mask.sum(1).float(), per_prompt=2000))
    lengths = torch.tensor([float(len(y)) for y in COMPLETIONS], dtype=torch.float64)
    assert len(found.optimal) == len(BETAS)
    for each in found.trusted:
        best = torch.softmax(LOGPROBS + lengths / each.beta, 1)
        assert each.reward == pytest.approx((best * lengths).sum(1).mean().item(), abs=0.1)
    kls = [each.kl for each in found.optimal]
    assert kls == sorted(kls)


def test_ppo_brings_a_table_to_the_best_there_is(monkeypatch):
    """The project's own PPO, every completion's probability at hand: at least 0.98 of the way, for both penalties."""
    beta, reward = 0.5, all_rewards()
    start = (LOGPROBS.exp() * reward).sum(1).mean()
    best = (beta * (LOGPROBS + reward / beta).logsumexp(1)).mean()
    for penalty in ("exact", "k1"):
        config = PPOConfig(
            steps=60, batch_size=256, minibatch_size=128, beta=beta, kl_penalty=penalty, learning_rate=0.1, lam=1.0,
            average=0.9, evaluate_every=1000, max_grad_norm=10.0, critic="policy", value_clip=10.0,
        )  # fmt: skip
        trainer = PPOTrainer(config, tabular_inputs(monkeypatch, REFERENCE, REFERENCE, task=enumerable_task()))
        steps(trainer, config.steps)
        policy = completion_logprobs(trainer.final_policy().table.double())
        reached = (policy.exp() * (reward - beta * (policy - LOGPROBS))).sum(1).mean()
        assert (reached - start) / (best - start) >= 0.98, penalty
    ideal = completion_logprobs(best_table(REFERENCE, reward, beta)["table"].double())
    assert (ideal.exp() * (reward - beta * (ideal - LOGPROBS))).sum(1).mean() == pytest.approx(best.item(), abs=1e-5)


def test_best_of_n_by_one_reward_is_measured_by_another():
    """All pairs of four draws: the one that the first reward prefers, read from the second."""
    picked_by = torch.tensor([[3.0, 1.0, 4.0, 2.0], [0.0, -1.0, 5.0, 6.0]])
    judged = torch.tensor([[10.0, 20.0, 30.0, 40.0], [1.0, 2.0, 3.0, 5.0]])
    expected = [
        sum(max((p[i], j[i]), (p[k], j[k]))[1] for i, k in itertools.combinations(range(4), 2)) / 6
        for p, j in zip(picked_by.tolist(), judged.tolist(), strict=True)
    ]
    point = best_of_n_point(picked_by, 2, judged)
    assert point.reward == pytest.approx(sum(expected) / 2)
    assert point.kl == pytest.approx(best_of_n_point(picked_by, 2).kl), "how far it goes depends on what it picks by"


def test_the_optimality_of_best_of_n_is_exact_where_every_completion_is_there(model, proportional):
    task, n, beta = enumerable_task(), 2, 1.0
    rollout = every_completion_in_proportion(model)
    order = torch.randperm(512, generator=generator_for(0, "order"))
    batches = tuple(rollout.rows(rows[order]) for rows in torch.arange(1024).split(512))
    sample = ReferenceSample(batches, proportional[:, order], torch.zeros_like(proportional))
    found = finish(best_of_n_optimality(BestOf(n, GoldReward(task)), beta, sample))
    reward, kl = exact_best_of(n)
    best = (beta * (LOGPROBS + all_rewards() / beta).logsumexp(1)).mean().item()
    start = (LOGPROBS.exp() * all_rewards()).sum(1).mean().item()
    # Pairs are drawn without replacement from 512: the rest of the difference to pairs of the whole distribution.
    assert found.kl == pytest.approx(kl, abs=1e-6)
    assert found.reward == pytest.approx(reward, abs=2e-3)
    assert found.best.objective == pytest.approx(best, abs=1e-5)
    assert found.value == pytest.approx((reward - beta * kl - start) / (best - start), abs=0.01)
    assert 0.005 < found.objective_error < 0.05, "2 × 256 pairs of rewards whose deviation is about 0.5"


def test_best_of_n_needs_more_draws_than_n(proportional):
    few = ReferenceSample((), proportional[:, :6], proportional[:, :6])
    with pytest.raises(ValueError, match=r"^best of 4 needs at least 8 completions of the reference a prompt, not 6$"):
        finish(best_of_n_optimality(BestOf(4, lambda batch: batch), 1.0, few))
