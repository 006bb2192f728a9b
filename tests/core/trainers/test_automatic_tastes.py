"""The automatic labeller's taste in training: whose judgement the pairs of a run follow."""

import dataclasses

import pytest
from trainer_toys import TINY, inputs, micro_task

from core import config as knobs
from core.methods.dpo import DPOConfig
from core.methods.kto import KTOConfig
from core.methods.reward import RewardConfig
from core.models.build import build_language_model
from core.preferences.pair import PreferencePair
from core.rewards.sources import GoldReward
from core.trainers.kto import KTOTrainer
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
    with pytest.raises(ValueError, match="no gold rule"):
        automatic_judge(task, "gold")


@pytest.mark.parametrize("config", [RewardConfig, DPOConfig, KTOConfig])
def test_a_wrong_taste_and_too_much_noise_are_refused_before_a_run_starts(config: type[knobs.Config]) -> None:
    with pytest.raises(knobs.ConfigError, match=r"no taste is called 'shrt' \(did you mean 'short'\?\)"):
        knobs.make(config, {"taste": "shrt"})
    with pytest.raises(knobs.ConfigError, match="'contains' needs letters"):
        knobs.make(config, {"taste": "contains"})
    with pytest.raises(knobs.ConfigError, match=r"label_noise must be .* 0\.4, not 0\.41"):
        knobs.make(config, {"label_noise": 0.41})
    assert knobs.make(config, {"taste": "contains:x", "label_noise": 0.4}).to_dict()["taste"] == "contains:x"


def judged_by_kto(noise: float) -> list[tuple[str, bool]]:
    """The automatic judgements that a KTO run learns from: each text, and whether it was called good."""
    policy = build_language_model(TINY, len(micro_task().tokenizer), 0).state_dict()
    config = KTOConfig(pairs="automatic", taste="ends-with-vowel", pair_count=200, label_noise=noise)
    trainer = KTOTrainer(config, inputs(policy=policy))
    preparing = trainer.prepare()
    while True:
        try:
            next(preparing)
        except StopIteration as end:
            batch, good = end.value
            break
    decode = trainer.inputs.task.tokenizer.decode
    texts = [decode(row[mask].tolist()) for row, mask in zip(batch.tokens, batch.mask, strict=True)]
    return list(zip(texts, good.tolist(), strict=True))


def test_kto_learns_from_a_taste_and_its_noise() -> None:
    clean = judged_by_kto(0.0)
    assert len(clean) == 400 and sum(good for _, good in clean) == 200
    assert all(text.endswith("a") == good for text, good in clean)  # the only vowel of this task
    wrong = sum(text.endswith("a") != good for text, good in judged_by_kto(0.25)) / 2  # both sides of a pair
    assert abs(wrong - 0.25 * 200) <= 3 * (200 * 0.25 * 0.75) ** 0.5
