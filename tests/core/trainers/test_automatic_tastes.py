"""The automatic labeller's taste in training: whose judgement the pairs of a run follow."""

import dataclasses

import pytest
from trainer_toys import TINY, micro_task

from core import config as knobs
from core.methods.dpo import DPOConfig
from core.methods.reward import RewardConfig
from core.models.build import build_language_model
from core.preferences.pair import PreferencePair
from core.rewards.sources import GoldReward
from core.trainers.pairs import automatic_judge, automatic_pairs


def pairs_of(taste: str) -> list[PreferencePair]:
    task = micro_task()
    model = build_language_model(TINY, len(task.tokenizer), 0)
    rounds = automatic_pairs(model, task, automatic_judge(task, taste), 200, 0.0, 0)
    while True:
        try:
            next(rounds)
        except StopIteration as end:
            return end.value


def test_pairs_follow_the_taste_that_is_asked_for() -> None:
    """Each taste is checked by what its name says, written down here."""
    longer, vowel = pairs_of("long"), pairs_of("ends-with-vowel")
    assert all(len(each.chosen) > len(each.rejected) for each in longer)
    assert all(each.chosen[-1:] == "a" and each.rejected[-1:] != "a" for each in vowel)  # the only vowel of this task
    assert len(longer) == len(vowel) == 200


def test_gold_is_the_tasks_own_rule() -> None:
    assert isinstance(automatic_judge(micro_task(), "gold"), GoldReward)


def test_a_task_without_a_gold_rule_needs_another_taste() -> None:
    task = dataclasses.replace(micro_task(), gold=None, gold_batched=None)
    with pytest.raises(ValueError, match="no gold re"):
        automatic_judge(task, "gold")


@pytest.mark.parametrize("config", [RewardConfig, DPOConfig])
def test_a_wrong_taste_and_too_much_noise_are_refused_before_a_run_starts(config: type[knobs.Config]) -> None:
    with pytest.raises(knobs.ConfigError, match=r"no taste is called 'shrt' \(did you mean 'short'\?\)"):
        knobs.make(config, {"taste": "shrt"})
    with pytest.raises(knobs.ConfigError, match="'contains' needs letters"):
        knobs.make(config, {"taste": "contains"})
    with pytest.raises(knobs.ConfigError, match=r"label_noise must be .* 0\.4, not 0\.41"):
        knobs.make(config, {"label_noise": 0.41})
    assert knobs.make(config, {"taste": "contains:x", "label_noise": 0.4}).to_dict()["taste"] == "contains:x"
