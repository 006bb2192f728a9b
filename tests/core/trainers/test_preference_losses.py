"""Losses on preferences as trainers use them: which log-probs go in, what the knobs change."""

import math
import sys
import types

import pytest
import torch
from method_toys import make
from trainer_toys import inputs, judged_pairs, micro_task, one_step, with_bias

from core.config import ConfigError
from core.preferences.pair import PreferencePair, UnpairedExample
from core.sampling import completion_logits, completions_of
from core.trainers.kto import encode_examples
from core.trust import trust

POLICY = torch.tensor([[-0.5, -10.0, -1.0], [-0.1, -30.0, -21.0]])  # RLHF papers' example: gaps 0, 10, 20
REFERENCE = torch.tensor([[-0.5, -10.1, -0.1], [-0.1, -20.1, -0.1]])
LENGTHS = torch.tensor([[1, 2, 4], [1, 5, 10]])


@pytest.mark.parametrize(
    ("knobs", "expected"),
    [
        ({"loss": "dpo"}, [0.693147, 0.313262, 0.126928]),
        ({"loss": "dpo", "label_smoothing": 0.1}, [0.693147, 0.413262, 0.326928]),
        ({"loss": "hinge"}, [1.0, 0.0, 0.0]),
        ({"loss": "ipo", "tau": 0.1, "ipo_logprobs": "sum"}, [25.0, 25.0, 225.0]),
        # mean log-ratios: 0.05 − (−1.98) = 2.03 and −0.225 − (−2.09) = 1.865, drawn to 5
        ({"loss": "ipo", "tau": 0.1, "ipo_logprobs": "mean"}, [25.0, 2.97**2, 3.135**2]),
        # 0.5 − 2·(l̄_w − l̄_l): 1.3, 0.5 − 2·(−5 + 6), 0.5 − 2·(−0.25 + 2.1)
        ({"loss": "simpo"}, [math.log1p(math.exp(1.3)), math.log1p(math.exp(-1.5)), math.log1p(math.exp(-3.2))]),
    ],
    ids=str,
)
def test_losses_by_hand(sft_weights, knobs, expected):
    trainer = make("dpo robust", sft_weights, **{"label_smoothing": 0.0, "beta": 0.1} | knobs)
    losses, _ = trainer.losses(POLICY, REFERENCE, LENGTHS)
    torch.testing.assert_close(losses, torch.tensor(expected), atol=1e-5, rtol=1e-5)


def test_robust_loss_by_hand(sft_weights):
    """ε = 0.2, βh = 1: (0.8·0.313262 − 0.2·1.313262) / 0.6."""
    trainer = make("dpo robust", sft_weights, beta=0.1)
    losses, _ = trainer.losses(POLICY, REFERENCE, LENGTHS)
    assert losses[1].item() == pytest.approx((0.8 * 0.3132617 - 0.2 * 1.3132617) / 0.6, abs=1e-5)


@pytest.mark.parametrize(
    ("variant", "loss"), [("dpo robust", math.log(2)), ("dpo hinge", 1.0), ("dpo ipo", 0.25), ("kto", 0.5)]
)
def test_where_policy_and_reference_agree(sft_weights, variant, loss):
    """ln 2 – for the robust loss too: (1 − 2ε)·ln 2 / (1 − 2ε) –, 1, (1/(2τ))² with τ 1, and ½."""
    assert one_step(make(variant, sft_weights))["loss"] == pytest.approx(loss, abs=1e-5)


def test_simpo_does_not_know_the_reference(sft_weights):
    losses = {
        one_step(make("dpo simpo", sft_weights, inputs(policy=sft_weights, reference=each, pairs=judged_pairs())))[
            "loss"
        ]
        for each in (sft_weights, with_bias(sft_weights, a=2.0))
    }
    assert len(losses) == 1


def test_a_loss_from_outside(monkeypatch, sft_weights):
    """The loss that is named gives what the one that is built in gives."""
    built_in, named = make("dpo hinge", sft_weights), make("dpo custom", sft_weights, beta_start=1.0)
    assert [one_step(built_in) for _ in range(2)] == [one_step(named) for _ in range(2)]


def test_a_loss_from_outside_that_does_not_fit_is_named(monkeypatch, sft_weights):
    module = types.ModuleType("my_losses")
    module.total = lambda *arguments: arguments[0].sum()
    module.number = 3
    monkeypatch.setitem(sys.modules, "my_losses", module)
    for name in ("total", "totl", "number"):
        trust(f"my_losses:{name}")
    with pytest.raises(ValueError, match=r"my_losses:total must return one loss per pair, not shape \(\)"):
        one_step(make("dpo custom", sft_weights, custom_loss="my_losses:total"))
    for path, message in (
        ("my_losses:totl", "my_losses has no 'totl' (did you mean 'total'?)"),
        ("my_losses:number", "my_losses:number is no function but int"),
        ("my_losses", "expected module:name, as in my_losses:focal_loss, not 'my_losses'"),
    ):
        with pytest.raises(ConfigError) as caught:
            make("dpo custom", sft_weights, custom_loss=path)
        assert str(caught.value) == message


def test_the_sft_mix_adds_its_weight_times_the_loss_on_demonstrations(sft_weights):
    """With learning rate 0 everything but the gradient is as it was; that gradient is the sum of the two."""
    norms = {}
    for weight, sft_from in ((0.0, "demonstrations"), (5.0, "demonstrations"), (5.0, "chosen")):
        trainer = make("dpo sft", sft_weights, sft_weight=weight, sft_from=sft_from, learning_rate=0.0)
        batch = trainer.some_demonstrations()
        metrics = one_step(trainer)
        norms[weight, sft_from] = metrics["grad_norm"]
        assert metrics["loss"] == pytest.approx(math.log(2), abs=1e-5)
        assert ("loss/sft" in metrics) == (weight > 0)
        if weight and sft_from == "demonstrations":
            logits = completion_logits(trainer.policy, batch).detach()
            each = torch.log_softmax(logits, -1).gather(-1, batch.tokens.unsqueeze(-1)).squeeze(-1)
            assert metrics["loss/sft"] == pytest.approx(-each[batch.mask].mean().item(), abs=1e-5)
    assert norms[5.0, "demonstrations"] > 2 * norms[0.0, "demonstrations"]
    assert norms[5.0, "chosen"] != norms[5.0, "demonstrations"]


def test_chosen_texts_are_the_sft_targets_when_asked_for(sft_weights):
    """Per token, over the batch: Σ −log π(chosen) / Σ tokens, ends included."""
    pairs = (PreferencePair("a", "abc", ""), PreferencePair("bc", "b", "cab"))
    given = inputs(policy=sft_weights, pairs=pairs)
    metrics = one_step(make("dpo sft chosen", sft_weights, given, batch_size=2, learning_rate=0.0))
    assert metrics["loss/sft"] == pytest.approx(-metrics["logps/chosen"] * 2 / (4 + 2), abs=1e-5)


def test_a_task_without_demonstrations_is_named(sft_weights):
    given = inputs(task=micro_task(demonstrations=()), policy=sft_weights, pairs=judged_pairs())
    with pytest.raises(ValueError, match="has no demonstrations; mix with sft_from=chosen"):
        make("dpo sft", sft_weights, given)


# --- KTO ---


def test_ktos_baseline_is_the_drift_on_mismatched_completions(sft_weights):
    """z₀ from each prompt with the completion of the row before, one by one; never below 0."""
    examples = [UnpairedExample(p, y, True) for p, y in (("a", "abc"), ("bc", ""), ("ab", "ca"), ("cb", "bbb"))]
    for drift in ({"b": 0.5}, {"eos": -2.0}):
        drifted = with_bias(sft_weights, **drift)
        given = inputs(policy=drifted, reference=sft_weights, unpaired=tuple(examples))
        trainer = make("kto", drifted, given)
        task = trainer.inputs.task
        found = trainer.drift(encode_examples(task, examples, trainer.inputs.device))
        ratios = []
        for number, example in enumerate(examples):
            text = task.encode_completion(examples[number - 1].completion)
            batch = completions_of([task.encode_prompt(example.prompt)], [text])
            with torch.no_grad():
                here, there = (
                    torch.log_softmax(completion_logits(model, batch), -1)[0, range(len(text)), text].sum().item()
                    for model in (trainer.policy, trainer.reference)
                )
            ratios.append(here - there)
        mean = sum(ratios) / len(ratios)
        assert (mean > 0.01) == ("b" in drift)
        assert found.item() == pytest.approx(max(0.0, mean), abs=1e-5)


def test_kto_raises_good_and_lowers_bad(sft_weights):
    examples = (UnpairedExample("a", "abc", True), UnpairedExample("a", "cc", False)) * 3
    trainer = make("kto", sft_weights, inputs(policy=sft_weights, unpaired=examples), steps=20)
    found = [one_step(trainer) for _ in range(10)]
    assert found[-1]["logps/chosen"] > found[0]["logps/chosen"] + 0.5
    assert found[-1]["logps/rejected"] < found[0]["logps/rejected"] - 0.5


def test_pairs_are_split_in_two_and_single_judgements_join_them(sft_weights):
    pairs = judged_pairs(10)
    decided = [each for each in pairs if each.target == 1.0]
    given = inputs(policy=sft_weights, pairs=pairs, unpaired=(UnpairedExample("a", "ccc", False),))
    trainer = make("kto", sft_weights, given)
    one_step(trainer)
    assert len(trainer.fixed) == 2 * len(decided) + 1
    assert trainer.labels.sum() == len(decided)
    texts = trainer.fixed.texts(trainer.inputs.task.tokenizer)
    judged = set(zip(texts, trainer.labels.tolist(), strict=True))
    assert {(each.chosen, True) for each in decided} <= judged
    assert {(each.rejected, False) for each in decided} <= judged
    assert ("ccc", False) in judged


def test_beta_of_a_preference_method_falls_too(sft_weights):
    trainer = make("dpo hinge", sft_weights, beta_start=1.0, beta=0.2, steps=5)
    found = []
    for _ in range(5):
        found.append(trainer.beta)
        one_step(trainer)
    assert found == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2])


def test_after_a_refresh_margins_count_from_there(sft_weights):
    trainer = make("dpo refreshed", sft_weights, steps=8, learning_rate=3e-2)
    margins = [one_step(trainer)["rewards/margins"] for _ in range(4)]
    assert abs(margins[1]) > 1e-4
    assert margins[2] == pytest.approx(0.0, abs=1e-5)
