"""The best policy by enumeration: every completion of a toy has a known probability and a known reward."""

import math

import pytest
import torch
from torch import Tensor
from trainer_toys import (
    COMPLETIONS,
    PROMPTS,
    TabularModel,
    all_rewards,
    best_table,
    completion_logprobs,
    enumerable_task,
    every_completion_in_proportion,
    gold,
    table_of_eighths,
    text_of,
    texts,
)

from core.evaluation.optimal import Optimality, ReferenceSample, optimal_point, optimality, reference_sample
from core.rewards.sources import GoldReward

BETAS = [0.2, 0.5, 2.0]


def tabular(weights) -> TabularModel:
    model = TabularModel()
    model.load_state_dict(weights)
    return model.requires_grad_(False)


def finish(steps):
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def by_enumeration(reference: Tensor, beta: float) -> tuple[Tensor, Tensor, Tensor]:
    """J*, reward and KL of π* for each prompt, from π* written down and normalised."""
    log_ref = completion_logprobs(reference.double())
    rewards = all_rewards()
    unnormalised = log_ref.exp() * (rewards / beta).exp()
    best = unnormalised / unnormalised.sum(1, keepdim=True)
    reward = (best * rewards).sum(1)
    kl = (best * (best.log() - log_ref)).sum(1)
    return reward - beta * kl, reward, kl


@pytest.fixture(scope="module")
def reference():
    return table_of_eighths(2)


@pytest.fixture(scope="module")
def exact(reference) -> ReferenceSample:
    """512 reference completions of each prompt, each as often as its probability says."""
    batch = every_completion_in_proportion(tabular(reference))
    rewards = torch.tensor([gold(*each) for each in texts(batch, enumerable_task())])
    logprobs = torch.where(batch.mask, batch.logprobs, 0.0).sum(1)
    parts = tuple(batch.rows(rows) for rows in torch.arange(1024).split(512))
    return ReferenceSample(parts, rewards.view(2, 512), logprobs.view(2, 512))


@pytest.mark.parametrize("beta", BETAS)
def test_optimal_point_is_exact_on_the_whole_reference(reference, exact, beta):
    objective, reward, kl = by_enumeration(reference["table"], beta)
    found = optimal_point(exact.rewards, beta)
    assert found.beta == beta
    assert found.objective == pytest.approx(objective.mean().item(), rel=1e-7)
    assert found.reward == pytest.approx(reward.mean().item(), rel=1e-7)
    assert found.kl == pytest.approx(kl.mean().item(), rel=1e-7)
    assert found.objective == pytest.approx(found.reward - beta * found.kl)


@pytest.mark.parametrize("beta", BETAS)
def test_no_policy_does_better(reference, beta):
    """Neither 50 random tables nor small steps from π*."""
    log_ref, rewards = completion_logprobs(reference["table"].double()), all_rewards()

    def value(table):
        p = completion_logprobs(table.double())
        return (p.exp() * (rewards - beta * (p - log_ref))).sum(1).mean().item()

    best = by_enumeration(reference["table"], beta)[0].mean().item()
    table = best_table(reference, rewards, beta)["table"]
    assert value(table) == pytest.approx(best, rel=1e-5)
    generator = torch.Generator().manual_seed(0)
    for spread in (0.05, 0.5, 3.0):
        for _ in range(15):
            assert value(table + spread * torch.randn(table.shape, generator=generator)) < best


def test_effective_sample_size_by_hand():
    """Weights ∝ e^(r/β): equal rewards count fully, one that outweighs all counts as one; the smallest prompt's."""
    assert optimal_point(torch.zeros(1, 40), 1.0).effective_sample_size == pytest.approx(40)
    rewards = torch.tensor([[0.0, 0.0, 0.0, math.log(3)]])  # weights 1/6, 1/6, 1/6, 1/2
    assert optimal_point(rewards, 1.0).effective_sample_size == pytest.approx(1 / (3 / 36 + 1 / 4))
    assert optimal_point(torch.tensor([[0.0] * 4, [0.0, 0.0, 0.0, 900.0]]), 1.0).effective_sample_size == 1.0


@pytest.mark.parametrize("beta", [0.0, -1.0, math.nan])
def test_without_a_price_there_is_no_best_policy(beta):
    with pytest.raises(ValueError, match="β must be positive for an optimal policy to exist"):
        optimal_point(torch.zeros(1, 4), beta)


def test_large_rewards_and_small_prices_do_not_overflow():
    found = optimal_point(torch.tensor([[0.0, 1000.0]]), 1e-3)
    assert found.reward == 1000.0
    assert found.kl == pytest.approx(math.log(2))


@pytest.mark.parametrize("beta", BETAS)
def test_weights_make_up_for_completions_that_another_policy_wrote(reference, exact, beta):
    """Half of them by π_ref, half by another table, each exactly in proportion: the same point, exactly."""
    other = every_completion_in_proportion(tabular(table_of_eighths(9)))
    rewards = torch.tensor([gold(*each) for each in texts(other, enumerable_task())]).view(2, 512)
    log_ref, log_other = (
        completion_logprobs(weights["table"].double()) for weights in (reference, table_of_eighths(9))
    )
    place = {(prompt, text_of(y)): (p, n) for p, prompt in enumerate(PROMPTS) for n, y in enumerate(COMPLETIONS)}
    log_weights = []
    for p in range(2):
        rows = [
            *texts(exact.completions[p], enumerable_task()),
            *texts(other, enumerable_task())[512 * p : 512 * p + 512],
        ]
        under = [[logprobs[place[row]] for row in rows] for logprobs in (log_ref, log_other)]
        ref, drawn = (torch.stack(each) for each in under)
        log_weights.append(ref - torch.log((ref.exp() + drawn.exp()) / 2))
    found = optimal_point(torch.cat([exact.rewards, rewards], 1), beta, torch.stack(log_weights))
    objective, reward, kl = by_enumeration(reference["table"], beta)
    assert found.objective == pytest.approx(objective.mean().item(), rel=1e-6)
    assert found.reward == pytest.approx(reward.mean().item(), rel=1e-6)
    assert found.kl == pytest.approx(kl.mean().item(), rel=1e-6)


def test_sampled_estimate_converges(reference):
    """With 8,192 completions a prompt; the error of β·log mean e^(r/β) by the delta method."""
    task = enumerable_task()
    sample = finish(reference_sample(tabular(reference), task, GoldReward(task), per_prompt=8192))
    assert sample.rewards.shape == sample.logprobs.shape == (2, 8192)
    objective, reward, kl = by_enumeration(reference["table"], 0.5)
    weights = (sample.rewards / 0.5).double().exp()
    error = 0.5 * ((weights.std(1) / weights.mean(1)).square().sum() / 8192).sqrt().item() / 2
    found = optimal_point(sample.rewards, 0.5)
    assert error < 0.02
    assert abs(found.objective - objective.mean().item()) < 4 * error
    assert found.reward == pytest.approx(reward.mean().item(), abs=0.05)
    assert found.kl == pytest.approx(kl.mean().item(), abs=0.05)
    assert found.effective_sample_size > 1000


def test_a_reference_sample_knows_its_texts_rewards_and_probabilities(reference):
    task = enumerable_task()
    sample = finish(reference_sample(tabular(reference), task, GoldReward(task), per_prompt=50))
    log_ref = completion_logprobs(reference["table"])
    for p, prompt in enumerate(PROMPTS):
        rows = texts(sample.completions[p], task)
        assert {each for each, _ in rows} == {prompt}
        assert sample.rewards[p].tolist() == pytest.approx([gold(*row) for row in rows])
        expected = [log_ref[p, [text_of(y) for y in COMPLETIONS].index(text)].item() for _, text in rows]
        assert sample.logprobs[p].tolist() == pytest.approx(expected, abs=1e-5)


def measured(policy, reference, sample, beta, per_prompt=2048) -> Optimality:
    task = enumerable_task()
    return finish(
        optimality(tabular(policy), tabular(reference), task, GoldReward(task), beta, sample, per_prompt=per_prompt)
    )


@pytest.mark.parametrize("beta", BETAS)
def test_optimality_of_the_best_policy_is_1_and_of_the_reference_0(reference, exact, beta):
    best = measured(best_table(reference, all_rewards(), beta), reference, exact, beta)
    objective, reward, kl = by_enumeration(reference["table"], beta)
    assert best.value == pytest.approx(1, abs=max(1e-3, 4 * best.standard_error))
    assert best.standard_error < 0.25
    assert best.objective == pytest.approx(objective.mean().item(), abs=4 * best.objective_error)
    assert best.reward == pytest.approx(reward.mean().item(), abs=0.05)
    assert best.kl == pytest.approx(kl.mean().item(), abs=0.05)
    assert best.best.objective == pytest.approx(objective.mean().item(), abs=0.02)
    none = measured(reference, reference, exact, beta)
    assert none.value == pytest.approx(0, abs=4 * none.standard_error)
    assert none.kl == pytest.approx(0, abs=1e-6)
    log_ref = completion_logprobs(reference["table"].double())
    assert none.reference_reward == pytest.approx((log_ref.exp() * all_rewards()).sum(1).mean().item(), rel=1e-6)


def test_optimality_of_another_policy_is_its_share_of_the_way(reference, exact):
    """(J − R_ref) / (J* − R_ref), all three by enumeration; below 0 for a policy worse than the reference."""
    other = table_of_eighths(9)
    log_ref, p = (completion_logprobs(weights["table"].double()) for weights in (reference, other))
    reached = (p.exp() * (all_rewards() - 0.5 * (p - log_ref))).sum(1).mean().item()
    start = (log_ref.exp() * all_rewards()).sum(1).mean().item()
    best = by_enumeration(reference["table"], 0.5)[0].mean().item()
    found = measured(other, reference, exact, 0.5)
    assert found.value == pytest.approx((reached - start) / (best - start), abs=5 * found.standard_error)
    assert found.best.objective == pytest.approx(best, abs=0.02)


def test_a_policy_near_the_best_makes_a_thin_sample_trustworthy(reference):
    """Its own completions are what π* writes; the reference's alone were not enough."""
    task, beta = enumerable_task(), 0.1
    thin = finish(reference_sample(tabular(reference), task, GoldReward(task), per_prompt=16))
    assert optimal_point(thin.rewards, beta).effective_sample_size < 30
    near = best_table(reference, all_rewards(), beta)
    found = measured(near, reference, thin, beta, per_prompt=2048)
    assert found.best.effective_sample_size > 1000
    objective = by_enumeration(reference["table"], beta)[0].mean().item()
    assert found.best.objective == pytest.approx(objective, abs=0.03)
    assert found.value == pytest.approx(
        (found.objective - found.reference_reward) / (objective - found.reference_reward), abs=0.05
    )


def test_no_optimality_is_given_where_the_sample_is_too_thin(reference):
    task = enumerable_task()
    thin = finish(reference_sample(tabular(reference), task, GoldReward(task), per_prompt=12))
    assert measured(reference, reference, thin, 0.05, per_prompt=12).value is None


def test_no_optimality_where_nothing_can_be_gained(reference, exact):
    task = enumerable_task(lambda _prompt, _text: 1.0)
    sample = ReferenceSample(exact.completions, torch.ones(2, 512), exact.logprobs)
    steps = optimality(tabular(reference), tabular(reference), task, GoldReward(task), 0.5, sample, per_prompt=64)
    assert finish(steps).value is None


def test_sampling_goes_by_the_seed_and_hands_control_back(reference):
    task = enumerable_task()

    def draw(seed):
        return finish(reference_sample(tabular(reference), task, GoldReward(task), 100, seed)).rewards

    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))
    assert len(list(reference_sample(tabular(reference), task, GoldReward(task), 100))) == 2
    # So many at once would keep a command waiting.
    assert len(list(reference_sample(tabular(reference), task, GoldReward(task), 600))) == 4
    assert finish(reference_sample(tabular(reference), task, GoldReward(task), 600)).rewards.shape == (2, 600)
