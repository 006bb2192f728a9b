"""Every entry of the table where there is nothing to learn, nothing written, or no end: finite, and right."""

import importlib
import math

import pytest
from trainer_toys import copied, inputs, judged_pairs, micro_task, same, steps, with_bias

from core.config import knobs
from core.methods.table import METHODS
from core.models.config import BackboneConfig
from core.preferences.pair import PreferencePair, UnpairedExample
from core.tasks.base import Demonstration

CAP = 5  # letters at most
SMALL = {
    "steps": 4, "batch_size": 12, "minibatch_size": 8, "group_size": 4, "evaluate_every": 1, "probe_completions": 16,
    "learning_rate": 1e-2, "warmup": 0.0, "pairs": "labels", "judge": "gold",
}  # fmt: skip
LEARNS_FROM_REWARDS = [name for name, method in METHODS.items() if "reward" in {k.name for k in knobs(method.config)}]


def make(name, given, **changes):
    method = METHODS[name]
    known = {knob.name for knob in knobs(method.config)}
    module, _, trainer = method.trainer.partition(":")
    config = method.config(**{knob: value for knob, value in {**SMALL, **changes}.items() if knob in known})
    return getattr(importlib.import_module(module), trainer)(config, given)


def checked(trainer, count=2):
    """The metrics of some steps, all of them finite, as are the weights after."""
    found = steps(trainer, count)
    for metrics in found:
        assert not {name: value for name, value in metrics.items() if not math.isfinite(value)}
    assert all(value.isfinite().all() for value in trainer.state().tensors.values())
    return found


@pytest.mark.parametrize("name", METHODS)
def test_all_completions_are_cut_off(sft_weights, reward_weights, name):
    full = "abcab"
    pairs = (*judged_pairs(), PreferencePair("a", full, "bcabc"))
    weights = with_bias(sft_weights, eos=-40.0)
    (first, *_) = checked(make(name, inputs(policy=weights, reward_model=reward_weights, pairs=pairs)))
    if name in LEARNS_FROM_REWARDS:
        assert first["completions/clipped_ratio"] == 1
        assert first["completions/mean_length"] == CAP
        assert first.get("val/num_eos_tokens", 0) == 0


@pytest.mark.parametrize("name", METHODS)
def test_completions_are_empty(sft_weights, reward_weights, name):
    """Only EOS is written: the reward is that of nothing at all, −1 by the micro task's rule."""
    pairs = (PreferencePair("a", "", "ab"), PreferencePair("b", "b", ""), *judged_pairs())
    task = micro_task(demonstrations=(Demonstration("a", ""), Demonstration("b", "")))
    given = inputs(policy=with_bias(sft_weights, eos=40.0), reward_model=reward_weights, pairs=pairs, task=task)
    (first, *_) = checked(make(name, given))
    if name in LEARNS_FROM_REWARDS:
        assert first["completions/mean_length"] == 0
        assert first["completions/clipped_ratio"] == 0
        assert first["gold_reward"] == -1


@pytest.mark.parametrize("name", METHODS)
def test_all_rewards_are_equal(sft_weights, reward_weights, name):
    task = micro_task(lambda _prompt, _text: 0.3)
    given = inputs(policy=sft_weights, reward_model=reward_weights, pairs=judged_pairs(), task=task)
    trainer = make(name, given, beta=1e-9, sft_weight=0.0)
    found = checked(trainer)
    if name in LEARNS_FROM_REWARDS:
        assert found[0]["gold_reward"] == pytest.approx(0.3)
        assert found[0].get("frac_reward_zero_std", 1.0) == 1.0
    if name in ("reinforce", "rloo", "grpo", "gspo", "custom", "best-of-n"):  # they compare, and nothing else
        assert all((value - sft_weights[each]).abs().max() < 1e-3 for each, value in trainer.weights().items())


@pytest.mark.parametrize("name", METHODS)
def test_prompts_are_longer_than_any_seen_or_than_the_context(sft_weights, reward_weights, name):
    long = "abc" * 40
    task = micro_task(prompts=(long, "a"), held_out_prompts=(), held_out_demonstrations=())
    pairs = (PreferencePair(long, "ab", "c"), *judged_pairs())
    checked(make(name, inputs(policy=sft_weights, reward_model=reward_weights, pairs=pairs, task=task)), 1)
    small = BackboneConfig(kind="transformer", hidden=8, heads=2, layers=1, context=64)
    with pytest.raises(ValueError, match=r"takes \d+ tokens, more than the context of 64; .* and so has the lstm$"):
        make(name, inputs(backbone=small, pairs=pairs, task=task))


@pytest.mark.parametrize("name", METHODS)
def test_a_batch_of_one(sft_weights, reward_weights, name):
    given = inputs(policy=sft_weights, reward_model=reward_weights, pairs=judged_pairs())
    checked(make(name, given, batch_size=1, minibatch_size=1, group_size=1), 3)


def test_sft_without_anything_held_out_has_no_validation_loss_and_without_demonstrations_does_not_start():
    (first, _) = checked(make("sft", inputs(task=micro_task(held_out_demonstrations=()))))
    assert "validation_loss" not in first and "gold_reward" in first
    with pytest.raises(ValueError, match=r"^the task micro has no demonstrations to imitate$"):
        make("sft", inputs(task=micro_task(demonstrations=())))


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.unpaired])
@pytest.mark.parametrize("label", [True, False])
def test_judgements_are_of_one_class(sft_weights, name, label):
    examples = tuple(UnpairedExample("a", text, label) for text in ("ab", "c", ""))
    trainer = make(name, inputs(policy=sft_weights, unpaired=examples))
    checked(trainer)
    assert not same(copied(trainer.policy.state_dict()), sft_weights)
