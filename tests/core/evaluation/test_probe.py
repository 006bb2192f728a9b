"""What a sample says of a policy: means with their errors, exact KL, diversity, win rate."""

import math

import pytest
import torch
from trainer_toys import (
    CAP,
    TabularModel,
    completion_logprobs,
    enumerable_task,
    every_completion_in_proportion,
    gold,
    table_of_eighths,
    texts,
)

from core.evaluation.diversity import distinct_2, unique_fraction
from core.evaluation.probe import Measured, batches, measure, probe_rollout, sequence_kl, win_rate
from core.rewards.sources import GoldReward


def tabular(seed: int, temperature: float = 1.0) -> TabularModel:
    model = TabularModel()
    model.load_state_dict(table_of_eighths(seed, temperature))
    return model.requires_grad_(False)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_mean_sequence_kl_is_that_of_whole_completions(temperature):
    """Σ π(y)·log(π(y)/π_ref(y)), temperature on both sides."""
    policy, reference = tabular(1, temperature), tabular(2)
    p, q = (completion_logprobs(model.table.double(), temperature) for model in (policy, reference))
    expected = (p.exp() * (p - q)).sum(1)
    rollout = every_completion_in_proportion(policy, temperature)
    found = sequence_kl(rollout, reference, temperature).view(2, 512)
    torch.testing.assert_close(found.mean(1).double(), expected, atol=1e-5, rtol=0)
    assert (found >= -1e-6).all()


def test_kl_to_itself_is_0():
    rollout = every_completion_in_proportion(tabular(1))
    assert sequence_kl(rollout, tabular(1)).abs().max() < 1e-6


def test_measured_by_hand():
    """1, 2, 3, 6: mean 3, variance (4 + 1 + 0 + 9)/3."""
    found = Measured.of(torch.tensor([1.0, 2.0, 3.0, 6.0]))
    assert found.mean == 3.0
    assert found.standard_error == pytest.approx(math.sqrt(14 / 3) / 2)
    assert Measured.of(torch.tensor([4.0])) == Measured(4.0, 0.0)


def test_what_is_measured_is_what_the_texts_say():
    task = enumerable_task()
    rollout = every_completion_in_proportion(tabular(1))
    found = measure(rollout, task, GoldReward(task), None, tabular(2))
    rows = texts(rollout, task)
    assert found.completions == 1024
    assert found.gold_reward.mean == pytest.approx(sum(gold(*row) for row in rows) / 1024)
    assert found.mean_length == pytest.approx(sum(len(text) for _, text in rows) / 1024)
    assert found.follows_prompt == pytest.approx(sum(text[:1] == prompt[-1:] for prompt, text in rows) / 1024)
    assert found.ended == pytest.approx(sum(len(text) < CAP for _, text in rows) / 1024)
    assert found.learned_reward is None
    pooled = [text for _, text in rows[:256]]
    assert found.unique_fraction == len(set(pooled)) / 256, "over 256 of them: it depends on the number"
    assert found.distinct_2 == distinct_2(pooled)


def test_metrics_have_their_names_and_leave_out_what_is_not_known():
    task = enumerable_task()
    rollout = every_completion_in_proportion(tabular(1))
    full = measure(rollout, task, GoldReward(task), None, tabular(2)).metrics()
    assert full["completions/clipped_ratio"] == pytest.approx(1 - rollout.ended.float().mean().item())
    assert set(full) == {
        "gold_reward", "gold_reward_error", "objective/kl", "objective/kl_error", "follows_prompt",
        "completions/mean_length", "completions/clipped_ratio", "distinct_2", "unique_fraction",
    }  # fmt: skip
    bare = measure(rollout, task, None, None, None).metrics()
    assert set(full) - set(bare) == {"gold_reward", "gold_reward_error", "objective/kl", "objective/kl_error"}


def test_a_probe_asks_the_prompts_in_turn_and_repeats_itself():
    task = enumerable_task()
    first, second = (probe_rollout(tabular(1), task, task.prompts, 7, seed=3) for _ in range(2))
    assert [prompt for prompt, _ in texts(first, task)] == ["a", "b", "a", "b", "a", "b", "a"]
    assert texts(first, task) == texts(second, task)
    assert texts(first, task) != texts(probe_rollout(tabular(1), task, task.prompts, 7, seed=4), task)
    assert first.logits is not None


def test_win_rate_by_hand():
    """Two wins, a tie, a loss of four: (2 + ½)/4."""
    assert win_rate(torch.tensor([3.0, 2.0, 1.0, 0.0]), torch.tensor([1.0, 1.0, 1.0, 1.0])) == 0.625


def test_diversity_by_hand():
    """ab, bc, ca | ab, bb | – : five pairs, four different."""
    assert distinct_2(["abca", "abb", "a", ""]) == 4 / 5
    assert unique_fraction(["ab", "ab", "", "b"]) == 3 / 4
    assert distinct_2(["a", ""]) == unique_fraction([]) == 0.0


def test_batches_add_up():
    assert batches(10, 4) == [4, 4, 2]
    assert batches(8, 4) == [4, 4]
    assert batches(3, 4) == [3]
