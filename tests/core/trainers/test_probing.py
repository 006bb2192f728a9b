"""What a validation measures: diversity always of the same kind of sample, KL from where it is counted."""

import pytest
import torch
from method_toys import make
from trainer_toys import copied, inputs, judged_pairs, one_step, steps

from core.evaluation.diversity import distinct_2, unique_fraction
from core.evaluation.probe import probe_rollout, sequence_kl

ALIGNING = ["reinforce", "grpo", "dpo sft", "dpo online simpo", "kto"]


@pytest.mark.parametrize("variant", ALIGNING)
@pytest.mark.parametrize(("count", "temperature"), [(16, 1.0), (300, 1.0), (256, 0.5)])
def test_diversity_is_that_of_256_completions_at_temperature_1(sft_weights, variant, count, temperature):
    trainer = make(
        variant, sft_weights, evaluate_every=1, probe_completions=count, temperature=temperature, reference_refresh=0
    )
    metrics = one_step(trainer)
    task = trainer.inputs.task
    texts = probe_rollout(trainer.sampler(), task, task.probe_prompts, 256, 0).texts(task.tokenizer)
    assert metrics["distinct_2"] == distinct_2(texts)
    assert metrics["unique_fraction"] == unique_fraction(texts)
    asked = probe_rollout(trainer.sampler(), task, task.probe_prompts, count, 0, temperature)
    assert metrics["probe/completions/clipped_ratio"] == pytest.approx(1 - asked.ended.float().mean().item())


def test_best_of_ns_diversity_is_that_of_256_picks(sft_weights):
    few, many = (
        one_step(make("best-of-n", sft_weights, evaluate_every=1, probe_completions=count)) for count in (16, 256)
    )
    for name in ("distinct_2", "unique_fraction"):
        assert few[name] == many[name]
    assert few["probe/gold_reward"] != many["probe/gold_reward"]


@pytest.mark.parametrize("variant", ["ppo options", "dpo refreshed", "kto automatic"])
def test_after_a_refresh_kl_is_counted_from_there_and_the_drift_from_the_start_is_seen(sft_weights, variant):
    trainer = make(variant, sft_weights, evaluate_every=1, reference_refresh=2, beta_start=0.0)
    task = trainer.inputs.task
    found = []
    for step in range(1, 6):
        found.append(one_step(trainer))
        assert trainer.reference_step == step // 2 * 2
        rollout = probe_rollout(trainer.sampler(), task, task.probe_prompts, 16, 0)
        start = make(variant, sft_weights).reference
        expected = sequence_kl(rollout, start).mean().item()
        assert found[-1]["objective/kl_from_start"] == pytest.approx(expected, abs=1e-5)
    assert found[0]["probe/objective/kl"] == pytest.approx(found[0]["objective/kl_from_start"], abs=1e-6)
    assert found[4]["probe/objective/kl"] != pytest.approx(found[4]["objective/kl_from_start"], rel=0.01)


@pytest.mark.parametrize("variant", ["ppo options", "dpo refreshed"])
def test_a_resumed_run_knows_where_its_reference_stands(sft_weights, variant):
    trainer = make(variant, sft_weights, reference_refresh=2)
    steps(trainer, 3)
    resumed = make(variant, sft_weights, reference_refresh=2)
    resumed.load_state(trainer.state())
    assert resumed.reference_step == 2
    older = trainer.state()
    del older.values["reference_step"]
    resumed = make(variant, sft_weights, reference_refresh=2)
    resumed.load_state(older)
    assert resumed.reference_step == 0


def test_fixed_pairs_are_held_against_the_reference_of_the_moment(sft_weights):
    """What is cached of the old reference goes with it: the first update after a refresh has implicit rewards of 0."""
    trainer = make("dpo sft", sft_weights, inputs(policy=sft_weights, pairs=judged_pairs()), reference_refresh=2)
    found = steps(trainer, 3)
    assert abs(found[1]["rewards/margins"]) > 1e-4
    assert abs(found[2]["rewards/margins"]) < 1e-6
    assert not torch.equal(copied(trainer.reference.state_dict())["head.bias"], sft_weights["head.bias"])
