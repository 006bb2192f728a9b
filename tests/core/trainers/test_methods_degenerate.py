"""Where there is nothing to learn, or nothing to learn from: finite everywhere, and no step where none is due."""

import math

import pytest
import torch
from method_toys import VARIANTS, make
from trainer_toys import copied, inputs, judged_pairs, micro_task, same, steps, with_bias

from core.preferences.pair import PreferencePair, UnpairedExample

NOTHING = lambda _prompt, _text: 1.5  # noqa: E731 - all rewards are equal
GROUPED = [
    name for name, (method, _) in VARIANTS.items() if method in ("rloo", "grpo", "gspo", "raft", "custom", "best-of-n")
]
NO_KL = {"beta": 0.0}


def finite(found) -> bool:
    return all(math.isfinite(value) for metrics in found for value in metrics.values())


def finite_weights(trainer) -> bool:
    return all(bool(value.isfinite().all()) for value in trainer.state().tensors.values())


@pytest.mark.parametrize("policy", ["cut off", "empty", "one word"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_policies_at_the_edge(sft_weights, reward_weights, variant, policy):
    bias = {"cut off": {"eos": -40.0}, "empty": {"eos": 40.0}, "one word": {"a": 8.0, "eos": 9.0}}[policy]
    weights = with_bias(sft_weights, **bias)
    given = inputs(policy=weights, reference=sft_weights, reward_model=reward_weights, pairs=judged_pairs())
    if variant in ("dpo refreshed", "kto automatic"):  # pairs are the reference's: this needs one that writes some
        given = inputs(policy=weights, reference=with_bias(sft_weights, a=1.0), pairs=judged_pairs())
    trainer = make(variant, weights, given)
    assert finite(steps(trainer, 2))
    assert finite_weights(trainer)


@pytest.mark.parametrize(
    "variant", ["reinforce", "reinforce running", "rloo", "grpo", "gspo", "dr grpo exact", "custom"]
)
def test_equal_rewards_and_no_price_on_kl_move_nothing(sft_weights, variant):
    trainer = make(variant, sft_weights, inputs(policy=sft_weights, task=micro_task(NOTHING)), **NO_KL)
    found = steps(trainer, 2)
    assert finite(found)
    assert same(copied(trainer.policy.state_dict()), sft_weights)


@pytest.mark.parametrize("variant", GROUPED)
def test_a_group_of_one(sft_weights, variant):
    trainer = make(variant, sft_weights, group_size=1)
    found = steps(trainer, 2)
    assert finite(found)
    assert all(metrics.get("frac_reward_zero_std", 1.0) == 1.0 for metrics in found)
    assert finite_weights(trainer)


@pytest.mark.parametrize("variant", ["rloo", "grpo", "gspo", "custom"])
def test_a_group_of_one_has_no_advantage(sft_weights, variant):
    trainer = make(variant, sft_weights, group_size=1, **NO_KL)
    steps(trainer, 2)
    assert same(copied(trainer.policy.state_dict()), sft_weights)


@pytest.mark.parametrize("variant", GROUPED)
def test_groups_that_do_not_fill_a_batch_are_refused(sft_weights, variant):
    with pytest.raises(ValueError, match=r"^batch_size must be a multiple of group_size, and 12 is none of 5$"):
        make(variant, sft_weights, group_size=5)


@pytest.mark.parametrize("variant", ["reinforce", "reinforce running", "a2c", "trpo"])
def test_a_batch_of_one(sft_weights, variant):
    trainer = make(variant, sft_weights, batch_size=1)
    assert finite(steps(trainer, 3))
    assert finite_weights(trainer)


@pytest.mark.parametrize("label", [True, False])
def test_kto_with_one_class(sft_weights, label):
    examples = tuple(UnpairedExample("a", text, label) for text in ("ab", "c", ""))
    trainer = make("kto", sft_weights, inputs(policy=sft_weights, unpaired=examples))
    found = steps(trainer, 3)
    assert finite(found)
    present, absent = ("chosen", "rejected") if label else ("rejected", "chosen")
    assert f"rewards/{present}" in found[0]
    assert f"rewards/{absent}" not in found[0]
    up = found[-1][f"logps/{present}"] - found[0][f"logps/{present}"]
    assert (up > 0) == label
    assert finite_weights(trainer)


def test_kto_with_a_batch_of_one(sft_weights):
    found = steps(make("kto", sft_weights, batch_size=1), 3)
    assert finite(found)
    assert all(metrics["kl"] == 0 for metrics in found)


def test_kto_mixes_one_class_with_sft_on_what_is_not_there(sft_weights):
    examples = tuple(UnpairedExample("a", text, False) for text in ("ab", "c"))
    trainer = make("kto", sft_weights, inputs(policy=sft_weights, unpaired=examples), sft_weight=1.0, sft_from="chosen")
    assert steps(trainer, 1)[0]["loss/sft"] == 0


def test_too_few_judgements_are_named(sft_weights):
    trainer = make("kto", sft_weights, inputs(policy=sft_weights, unpaired=(UnpairedExample("a", "b", True),)))
    with pytest.raises(ValueError, match=r"^1 judged completions are too few to train on; give at least 2$"):
        steps(trainer, 1)


@pytest.mark.parametrize(
    "variant", [name for name in VARIANTS if name.startswith("dpo") and "labels" in str(VARIANTS[name])]
)
def test_pairs_of_an_empty_completion_and_of_equal_texts(sft_weights, variant):
    pairs = (PreferencePair("a", "", "abcab"), PreferencePair("b", "c", "c"), PreferencePair("ab", "abcab", ""))
    trainer = make(variant, sft_weights, inputs(policy=sft_weights, pairs=pairs))
    assert finite(steps(trainer, 2))
    assert finite_weights(trainer)


def test_a_prompt_longer_than_any_seen_is_read(sft_weights):
    task = micro_task(prompts=("abc" * 40, "a"), held_out_prompts=())
    for variant in ("reinforce", "grpo", "raft", "dpo online simpo"):
        assert finite(steps(make(variant, sft_weights, inputs(policy=sft_weights, task=task)), 1))


def test_trpo_keeps_its_bound_and_gives_up_rather_than_break_it(sft_weights):
    trainer = make("trpo", sft_weights, max_kl=1e-4)
    for metrics in steps(trainer, 3):
        assert metrics["policy/kl"] <= metrics["policy/kl_bound"] + 1e-9
    still = make("trpo", sft_weights, learning_rate=0.0)
    assert steps(still, 1)[0]["policy/kl"] == 0
    torch.testing.assert_close(still.policy.state_dict(), dict(sft_weights), atol=0, rtol=0)
