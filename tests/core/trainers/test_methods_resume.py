"""N steps + save + M steps equal N + M steps, bit for bit, for every method and option; nothing given is touched."""

import pytest
from method_toys import VARIANTS, make
from trainer_toys import copied, inputs, judged_pairs, same, steps

from core.store.tensors import from_bytes, to_bytes
from core.trainers.base import TrainerState

BEFORE, AFTER = 3, 2


def given(sft_weights, reward_weights):
    return inputs(policy=sft_weights, reward_model=reward_weights, pairs=judged_pairs())


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_resumed_run_goes_on_bit_for_bit(sft_weights, reward_weights, variant):
    start, model = copied(sft_weights), copied(reward_weights)
    straight = make(variant, sft_weights, given(sft_weights, reward_weights))
    expected = steps(straight, BEFORE + AFTER)[BEFORE:]

    first = make(variant, sft_weights, given(sft_weights, reward_weights))
    steps(first, BEFORE)
    saved = first.state()
    tensors, values = from_bytes(to_bytes(saved.tensors, saved.values))
    second = make(variant, sft_weights, given(sft_weights, reward_weights))
    second.load_state(TrainerState(tensors, values))
    assert steps(second, AFTER) == expected
    assert same(second.state().tensors, straight.state().tensors)
    assert second.state().values == straight.state().values
    assert same(sft_weights, start)
    assert same(reward_weights, model)


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name != "best-of-n"])
def test_a_run_learns_and_its_reference_stays(sft_weights, reward_weights, variant):
    trainer = make(variant, sft_weights, given(sft_weights, reward_weights))
    steps(trainer, 1)
    assert same(copied(trainer.reference.state_dict()), sft_weights)
    assert not same(copied(trainer.policy.state_dict()), sft_weights)
    assert all(not w.requires_grad for w in trainer.reference.parameters())


def test_best_of_n_trains_nothing(sft_weights):
    trainer = make("best-of-n", sft_weights)
    steps(trainer, 2)
    assert same(copied(trainer.weights()), sft_weights)
    assert same(copied(trainer.policy.state_dict()), sft_weights)


def test_best_of_n_measures_its_kl_anew_at_another_temperature(sft_weights):
    """What it draws from is flatter then; a trainer that has always been there says how far it goes."""
    turned = make("best-of-n", sft_weights, temperature=1.0)
    always = make("best-of-n", sft_weights, temperature=3.0)
    before = steps(turned, 1)[0]
    turned.set_knob("temperature", 3.0)
    steps(always, 1)
    after, expected = steps(turned, 1)[0], steps(always, 1)[0]
    assert after["objective/kl"] == expected["objective/kl"] != before["objective/kl"]
