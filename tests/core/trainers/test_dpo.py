"""DPO: what its loss sees, offline and online."""

import math
from collections import defaultdict

import pytest
import torch
from trainer_toys import (
    copied,
    gold,
    inputs,
    judged_pairs,
    micro_task,
    one_step,
    same,
    spy,
    steps,
    texts,
    with_bias,
)

import core.trainers.dpo as dpo_module
from core.methods.dpo import DPOConfig
from core.preferences.pair import PreferencePair
from core.tasks.base import TaskError
from core.trainers.dpo import DPOTrainer

LN2 = math.log(2)


def config(**knobs) -> DPOConfig:
    settings = {
        "steps": 20, "batch_size": 16, "learning_rate": 1e-2, "warmup": 0.0, "evaluate_every": 100,
        "probe_completions": 32, "judge": "gold", "pairs": "labels", "pair_count": 40,
    }  # fmt: skip
    return DPOConfig(**settings | knobs)


def by_hand(model, task, prompt: str, completion: str, temperature: float = 1.0) -> float:
    """Σ log p of a completion's letters and its EOS, one prefix after another."""
    prefix, total = task.encode_prompt(prompt), 0.0
    with torch.no_grad():
        for token in task.encode_completion(completion):
            logits = model(torch.tensor([prefix]))[0, -1] / temperature
            total += torch.log_softmax(logits, -1)[token].item()
            prefix = [*prefix, token]
    return total


@pytest.mark.parametrize("pairs", ["labels", "automatic", "mixed", "online"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_first_loss_is_ln_2_and_implicit_rewards_are_0(sft_weights, pairs, temperature):
    """Policy and reference are one; no dropout, no missing temperature, no missing prompt makes them differ."""
    trainer = DPOTrainer(config(pairs=pairs, temperature=temperature), inputs(policy=sft_weights, pairs=judged_pairs()))
    metrics, *later = steps(trainer, 3)
    assert metrics["loss"] == pytest.approx(LN2, abs=1e-6)
    for name in ("rewards/chosen", "rewards/rejected", "rewards/margins"):
        assert metrics[name] == pytest.approx(0, abs=1e-6)
    assert all(abs(each["rewards/margins"]) > 1e-3 for each in later)


def test_log_probabilities_are_sums_over_the_completion_given_its_prompt(monkeypatch, sft_weights):
    """Of policy and reference, EOS included, prompt excluded – also after the policy has moved."""
    reference = with_bias(sft_weights, b=0.5, eos=-0.3)
    pairs = (PreferencePair("ab", "bca", ""), PreferencePair("c", "c", "abcab"), PreferencePair("bba", "a", "bb"))
    trainer = DPOTrainer(
        config(temperature=0.8, batch_size=3, label_smoothing=0.1, beta=0.3),
        inputs(policy=sft_weights, reference=reference, pairs=pairs),
    )
    calls, batches = spy(monkeypatch, dpo_module, "dpo_loss"), spy(monkeypatch, trainer, "update")
    steps(trainer, 2)
    policy = copied(trainer.policy.state_dict())
    metrics = one_step(trainer)
    args, _, _ = calls[-1]
    batch = batches[-1][0][0]
    trainer.policy.load_state_dict(policy)
    task = trainer.inputs.task
    expected = [
        [by_hand(model, task, *each, temperature=0.8) for each in texts(side, task)]
        for model in (trainer.policy, trainer.reference)
        for side in (batch.chosen, batch.rejected)
    ]
    torch.testing.assert_close(torch.stack(args[:4]), torch.tensor(expected), atol=1e-5, rtol=1e-5)
    assert args[4:] == (0.3, 0.1)
    assert {(p, c) for p, c in texts(batch.chosen, task)} == {(each.prompt, each.chosen) for each in pairs}
    gaps = 0.3 * (torch.tensor(expected[:2]) - torch.tensor(expected[2:]))
    assert metrics["rewards/chosen"] == pytest.approx(gaps[0].mean().item(), abs=1e-5)
    assert metrics["rewards/margins"] == pytest.approx((gaps[0] - gaps[1]).mean().item(), abs=1e-5)
    assert metrics["rewards/accuracies"] == pytest.approx((gaps[0] > gaps[1]).float().mean().item())
    assert metrics["logps/rejected"] == pytest.approx(sum(expected[1]) / 3, abs=1e-5)


def test_reference_log_probabilities_of_fixed_pairs_are_computed_once(monkeypatch, sft_weights):
    trainer = DPOTrainer(config(), inputs(policy=sft_weights, pairs=judged_pairs()))
    reads = spy(monkeypatch, trainer.reference, "hidden_at")
    one_step(trainer)
    assert reads
    reads.clear()
    steps(trainer, 4)
    assert not reads


def test_temperature_turned_in_a_run_divides_the_reference_too(monkeypatch, sft_weights):
    trainer = DPOTrainer(config(learning_rate=0.0), inputs(policy=sft_weights, pairs=judged_pairs()))
    first = one_step(trainer)
    trainer.set_knob("temperature", 0.5)
    second = one_step(trainer)
    for metrics in (first, second):
        assert metrics["loss"] == pytest.approx(LN2, abs=1e-6), "the policy has not moved"
    assert second["logps/chosen"] != pytest.approx(first["logps/chosen"], abs=0.1)


@pytest.mark.parametrize("pairs", ["labels", "online"])
def test_reference_stays_as_it_was(sft_weights, reward_weights, pairs):
    given = copied(sft_weights)
    trainer = DPOTrainer(
        config(pairs=pairs, judge="learned"),
        inputs(policy=sft_weights, pairs=judged_pairs(), reward_model=reward_weights),
    )
    before = copied(reward_weights)
    steps(trainer, 5)
    assert same(copied(trainer.reference.state_dict()), given)
    assert same(copied(trainer.reward_model.state_dict()), before)
    assert same(sft_weights, given)
    assert not same(copied(trainer.policy.state_dict()), given)
    assert all(not w.requires_grad and w.grad is None for w in trainer.reference.parameters())


def test_training_raises_the_chosen_against_the_rejected(sft_weights):
    trainer = DPOTrainer(
        config(batch_size=32, steps=30, learning_rate=3e-2), inputs(policy=sft_weights, pairs=judged_pairs())
    )
    last = steps(trainer, 30)[-1]
    assert last["rewards/accuracies"] > 0.8
    assert last["loss"] < 0.5


def test_ties_are_left_out_of_fixed_pairs(sft_weights):
    pairs = judged_pairs()
    ties = {(pair.prompt, pair.chosen, pair.rejected) for pair in pairs if pair.target == 0.5}
    assert ties
    trainer = DPOTrainer(config(), inputs(policy=sft_weights, pairs=pairs))
    one_step(trainer)
    task = trainer.inputs.task
    used = {
        (prompt, chosen, rejected)
        for (prompt, chosen), (_, rejected) in zip(
            texts(trainer.fixed.chosen, task), texts(trainer.fixed.rejected, task), strict=True
        )
    }
    assert used == {(pair.prompt, pair.chosen, pair.rejected) for pair in pairs} - ties


def test_too_few_decided_pairs_are_said(sft_weights):
    pairs = (PreferencePair("a", "ab", "b"), *(PreferencePair("a", "ab", "c", target=0.5) for _ in range(9)))
    with pytest.raises(ValueError, match=r"^1 decided pairs are too few to train on; give at least 2$"):
        one_step(DPOTrainer(config(), inputs(policy=sft_weights, pairs=pairs)))


def test_a_letter_outside_the_alphabet_is_refused(sft_weights):
    pairs = (PreferencePair("a", "ab", "b"), PreferencePair("a", "äb", "b"))
    with pytest.raises(TaskError, match="'äb' has letters outside the alphabet: ä"):
        one_step(DPOTrainer(config(), inputs(policy=sft_weights, pairs=pairs)))


@pytest.mark.parametrize("candidates", [2, 5])
def test_online_pairs_are_the_best_and_the_worst_of_each_prompts_candidates(monkeypatch, sft_weights, candidates):
    trainer = DPOTrainer(config(pairs="online", candidates=candidates, batch_size=30), inputs(policy=sft_weights))
    rollouts, batches = spy(monkeypatch, dpo_module, "generate"), spy(monkeypatch, trainer, "update")
    one_step(trainer)
    task, written, pairs = trainer.inputs.task, rollouts[0][2], batches[0][0][0]
    groups = defaultdict(list)
    for row, each in enumerate(texts(written, task)):
        groups[row // candidates].append(each)
    expected = []
    for group in groups.values():
        assert len({prompt for prompt, _ in group}) == 1
        scores = [gold(*each) for each in group]
        if max(scores) > min(scores):
            expected.append((group[0][0], max(scores), min(scores)))
    found = [
        (prompt, gold(prompt, chosen), gold(prompt, rejected))
        for (prompt, chosen), (_, rejected) in zip(texts(pairs.chosen, task), texts(pairs.rejected, task), strict=True)
    ]
    assert found == expected
    assert 0 < len(found) <= 30
    drawn = {(p, t) for group in groups.values() for p, t in group}
    assert set(texts(pairs.chosen, task)) | set(texts(pairs.rejected, task)) <= drawn


def test_online_candidates_that_all_tie_change_nothing_and_say_so(sft_weights):
    task = micro_task(lambda _prompt, _text: 1.0)
    trainer = DPOTrainer(config(pairs="online", weight_decay=0.1), inputs(task=task, policy=sft_weights))
    metrics = one_step(trainer)
    assert same(copied(trainer.policy.state_dict()), sft_weights)
    assert [alert.kind for alert in trainer.alerts] == ["pairs"]
    assert trainer.step_number == 1
    assert metrics["gold_reward"] == 1.0
    assert all(math.isfinite(value) for value in metrics.values())


def test_online_with_a_judge_improves(sft_weights):
    trainer = DPOTrainer(
        config(pairs="online", learning_rate=5e-3, batch_size=32, beta=0.1), inputs(policy=sft_weights)
    )
    found = [each["gold_reward"] for each in steps(trainer, 15)]
    assert found[-1] > found[0] + 0.3


def test_online_kl_is_measured_by_sampling(sft_weights):
    drifted = with_bias(sft_weights, a=1.5)
    trainer = DPOTrainer(
        config(pairs="online", learning_rate=0.0, batch_size=64), inputs(policy=drifted, reference=sft_weights)
    )
    metrics = one_step(trainer)
    probed, _ = trainer.validate(0.1)
    assert metrics["objective/kl"] == pytest.approx(probed["probe/objective/kl"], rel=0.4)
    assert metrics["objective/kl"] > 0.3


def test_offline_validation_measures_kl_and_reward_by_sampling(sft_weights):
    trainer = DPOTrainer(config(evaluate_every=2), inputs(policy=sft_weights, pairs=judged_pairs()))
    first, second = steps(trainer, 2)
    assert "objective/kl" not in first
    assert second["objective/kl"] == second["probe/objective/kl"]
    assert second["gold_reward"] == second["probe/gold_reward"]


def test_a_judge_that_is_not_there_is_named(sft_weights):
    with pytest.raises(ValueError, match=r"^judge=learned needs a learned reward, and there is none$"):
        DPOTrainer(config(pairs="online", judge="learned"), inputs(policy=sft_weights))
