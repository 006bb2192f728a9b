import dataclasses

import pytest
import torch

from core.models.build import build_language_model
from core.models.config import BackboneConfig
from core.models.reward_model import RewardEnsemble
from core.rewards import word_rule
from core.rewards.sources import GoldReward, LearnedReward, WeightedSum
from core.sampling import Completions, completions_of
from core.tasks.base import Task
from core.tasks.table import load_task

PAIRS = [("hello", "opera"), ("thank", "k"), ("sea", ""), ("light", "ttt")]


@pytest.fixture(scope="module")
def task() -> Task:
    return load_task("words", 42)


def batch(task: Task) -> Completions:
    return completions_of(
        [task.encode_prompt(prompt) for prompt, _ in PAIRS],
        [task.encode_completion(completion) for _, completion in PAIRS],
    )


def test_the_gold_reward_is_the_tasks_rule_in_batches_and_text_by_text(task):
    expected = torch.tensor([word_rule(completion) for _, completion in PAIRS])
    by_text = dataclasses.replace(task, gold_batched=None)
    for each in (task, by_text):
        found = GoldReward(each)(batch(each))
        torch.testing.assert_close(found, expected)
        assert found.dtype == torch.float32


def test_a_rule_by_text_is_given_prompt_and_completion(task):
    seen = []

    def gold(prompt: str, completion: str) -> float:
        seen.append((prompt, completion))
        return float(len(seen))

    source = GoldReward(dataclasses.replace(task, gold=gold, gold_batched=None))
    assert source(batch(task)).tolist() == [1, 2, 3, 4]
    assert seen == PAIRS


def test_a_task_without_a_rule_has_no_gold_reward(task):
    with pytest.raises(ValueError, match="words has no gold rule"):
        GoldReward(dataclasses.replace(task, gold=None))


def test_a_learned_reward_is_the_models_score_without_gradient(task):
    model = RewardEnsemble([build_language_model(BackboneConfig(embedding=4, hidden=6), len(task.tokenizer), seed=0)])
    found = LearnedReward(model)(batch(task))
    assert torch.equal(found, model(batch(task)).detach())
    assert not found.requires_grad


def test_a_weighted_sum_gives_the_rest_of_the_weight_to_the_second(task):
    def constant(value: float):
        return lambda completions: torch.full((len(completions),), value)

    mixed = WeightedSum(constant(1.0), constant(5.0), weight=0.25)
    assert mixed(batch(task)).tolist() == [0.25 * 1 + 0.75 * 5] * 4
