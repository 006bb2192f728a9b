"""The reward model's trainer and the automatic labeller."""

import dataclasses
import math

import pytest
import torch
from trainer_toys import TINY, copied, gold, inputs, judged_pairs, micro_task, one_step, same, spy, steps, texts

import core.trainers.reward as reward_module
from core.methods.reward import RewardConfig
from core.models.build import build_language_model
from core.preferences.pair import PreferencePair
from core.randomness import generator_for
from core.rewards.sources import GoldReward
from core.sampling import generate
from core.trainers.pairs import PairBatch, automatic_pairs
from core.trainers.reward import RewardTrainer


def config(**knobs) -> RewardConfig:
    settings = {
        "steps": 20, "batch_size": 16, "learning_rate": 1e-2, "warmup": 0.0, "evaluate_every": 5, "pairs": "automatic",
        "pair_count": 120, "validation_share": 0.25,
    }  # fmt: skip
    return RewardConfig(**settings | knobs)


def listed(batch: PairBatch, task) -> list[tuple[str, str, str]]:
    """(prompt, chosen, rejected) of each pair."""
    sides = zip(texts(batch.chosen, task), texts(batch.rejected, task), strict=True)
    return [(prompt, chosen, rejected) for (prompt, chosen), (_, rejected) in sides]


def unordered(pairs) -> set[tuple[str, frozenset[str]]]:
    return {(prompt, frozenset((chosen, rejected))) for prompt, chosen, rejected in pairs}


@pytest.mark.parametrize("pairs", ["automatic", "labels", "mixed"])
def test_held_out_pairs_are_never_trained_on(monkeypatch, sft_weights, pairs):
    """Nor is another judgement of the same two texts, and nothing is lost."""
    trainer = RewardTrainer(
        config(pairs=pairs, ensemble=2), inputs(policy=sft_weights, pairs=judged_pairs() + judged_pairs()[::2])
    )
    read = spy(monkeypatch, RewardTrainer, "loss")
    steps(trainer, 1)
    task = trainer.inputs.task
    trained = listed(trainer.training, task)
    held_out = listed(trainer.held_out, task)
    assert not unordered(trained) & unordered(held_out)
    expected = {"automatic": 120, "labels": 60, "mixed": 180}[pairs]
    assert len(trained) + len(held_out) == expected
    assert 0.1 * expected < len(held_out) < 0.45 * expected
    seen = set()
    for args, _, _ in read[:2]:
        seen |= unordered(listed(args[3], task))
    assert seen <= unordered(trained)


def test_a_tasks_own_pairs_are_learned_from_even_where_a_gold_rule_audits(sft_weights):
    own = tuple(judged_pairs()[:12])
    given = inputs(policy=sft_weights)
    assert given.task.gold is not None
    trainer = RewardTrainer(config(), dataclasses.replace(given, task=dataclasses.replace(given.task, pairs=own)))
    steps(trainer, 1)
    seen = listed(trainer.training, given.task) + listed(trainer.held_out, given.task)
    assert unordered(seen) == unordered((each.prompt, each.chosen, each.rejected) for each in own)
    assert not trainer.alerts


def test_accuracy_is_measured_on_the_held_out_pairs(sft_weights):
    """Worked out again from the texts, one by one; ties are not counted."""
    trainer = RewardTrainer(config(pairs="labels", batch_size=8), inputs(policy=sft_weights, pairs=judged_pairs()))
    found = steps(trainer, 5)
    assert "validation_accuracy" not in found[3]
    task, right, losses = trainer.inputs.task, [], []
    by_text = {(p.prompt, p.chosen, p.rejected): p for p in judged_pairs()}
    held_out = listed(trainer.held_out, task)
    assert any(by_text[each].target == 0.5 for each in held_out), "a tie is among them"
    for prompt, chosen, rejected in held_out:
        scores = []
        for text in (chosen, rejected):
            tokens = torch.tensor([[*task.encode_prompt(prompt), *task.encode_completion(text)]])
            member = trainer.model.members[0]
            hidden = member.backbone.hidden(tokens, torch.tensor([tokens.shape[1]]))
            completion = hidden[0, len(task.encode_prompt(prompt)) :]
            scores.append(member.head(torch.cat([hidden[0, -1], completion.mean(0)])).item())
        gap = scores[0] - scores[1]
        target = by_text[prompt, chosen, rejected].target
        losses.append(target * math.log1p(math.exp(-gap)) + (1 - target) * math.log1p(math.exp(gap)))
        if target != 0.5:
            right.append(gap > 0)
    assert found[4]["validation_accuracy"] == pytest.approx(sum(right) / len(right))
    assert found[4]["validation_loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-4)


def test_random_judgements_are_learned_by_heart_and_held_out_accuracy_tells(sft_weights):
    dice = torch.Generator().manual_seed(1)
    words = ["".join("abc"[i] for i in torch.randint(3, (5,), generator=dice).tolist()) for _ in range(160)]
    pairs = tuple(PreferencePair("a", x, y) for x, y in zip(words[::2], words[1::2], strict=True) if x != y)
    trainer = RewardTrainer(
        config(
            pairs="labels", steps=100, batch_size=32, validation_share=0.5, learning_rate=2e-2, weight_decay=0.0,
            keep_best=False, evaluate_every=1000,
        ),
        inputs(policy=sft_weights, pairs=pairs),
    )  # fmt: skip
    last = steps(trainer, 100)[-1]
    assert last["accuracy"] > 0.95
    assert last["validation_accuracy"] < 0.75


def test_what_the_gold_rule_prefers_is_learned(sft_weights):
    task = micro_task(lambda _prompt, text: text.count("c") / max(1, len(text)))
    trainer = RewardTrainer(
        config(steps=40, pair_count=300, batch_size=48, evaluate_every=40, learning_rate=2e-2),
        inputs(task=task, policy=sft_weights),
    )
    found = steps(trainer, 40)
    assert found[0]["loss"] == pytest.approx(math.log(2), abs=0.05)
    assert found[-1]["validation_accuracy"] > 0.85


@pytest.mark.parametrize("ensemble", [1, 3])
def test_scores_of_reference_completions_have_mean_0_and_deviation_1(sft_weights, ensemble):
    """Each member's, on completions that it was not normalised on."""
    trainer = RewardTrainer(config(ensemble=ensemble), inputs(policy=sft_weights))
    steps(trainer, 5)
    task = trainer.inputs.task
    prompts = [task.encode_prompt(task.prompts[i % len(task.prompts)]) for i in range(1500)]
    fresh = generate(trainer.reference, prompts, task.max_new_tokens, generator=generator_for(99, "fresh"))
    with torch.no_grad():
        scores = trainer.model.each(fresh)
        assert scores.shape == (ensemble, 1500)
        torch.testing.assert_close(trainer.model(fresh), scores.mean(0))
    assert scores.mean(1).abs().max() < 0.15
    assert (scores.std(1) - 1).abs().max() < 0.12
    assert trainer.model.members[0].scale.item() != 1.0


def test_normalising_keeps_the_order(sft_weights):
    trainer = RewardTrainer(config(), inputs(policy=sft_weights))
    steps(trainer, 5)
    both = trainer.held_out.both()
    with torch.no_grad():
        raw, score = trainer.model.members[0].raw(both), trainer.model(both)
    assert torch.equal(raw.argsort(), score.argsort())


def test_loss_of_equal_scores_is_ln_2(sft_weights):
    trainer = RewardTrainer(config(ensemble=2, pairs="labels"), inputs(policy=sft_weights, pairs=judged_pairs()))
    for member in trainer.model.members:
        torch.nn.init.zeros_(member.head.weight)
    assert one_step(trainer)["loss"] == pytest.approx(math.log(2), abs=1e-6)


def test_margin_goes_by_strength_and_ties_have_target_a_half_and_none(monkeypatch, sft_weights):
    trainer = RewardTrainer(
        config(pairs="labels", margin=0.8, center=0.02, batch_size=40),
        inputs(policy=sft_weights, pairs=judged_pairs()),
    )
    calls, pairs = spy(monkeypatch, reward_module, "reward_loss"), spy(monkeypatch, RewardTrainer, "loss")
    one_step(trainer)
    (chosen, rejected, margin, target, center), _, losses = calls[0]
    assert center == 0.02
    by_text = {(p.prompt, p.chosen, p.rejected): p for p in judged_pairs()}
    batch = [by_text[each] for each in listed(pairs[0][0][3], trainer.inputs.task)]
    assert target.tolist() == [pair.target for pair in batch]
    demanded = [0.0 if pair.target == 0.5 else 0.8 * pair.strength for pair in batch]
    assert margin.tolist() == pytest.approx(demanded)
    assert {0.0, 0.4, 0.8} <= {round(each, 6) for each in demanded}
    by_hand = [
        t * math.log1p(math.exp(-(w - r - m))) + (1 - t) * math.log1p(math.exp(w - r - m)) + 0.02 * (w + r) ** 2
        for w, r, m, t in zip(chosen.tolist(), rejected.tolist(), demanded, target.tolist(), strict=True)
    ]
    assert losses.tolist() == pytest.approx(by_hand, rel=1e-4)


def test_members_of_an_ensemble_have_heads_and_orders_of_their_own(monkeypatch, sft_weights):
    trainer = RewardTrainer(config(ensemble=3), inputs(policy=sft_weights))
    heads = [member.head.weight.detach().clone() for member in trainer.model.members]
    for member in trainer.model.members:
        assert same(copied(member.backbone.state_dict()), sft_weights), "all begin at the SFT weights"
    pairs = spy(monkeypatch, RewardTrainer, "loss")
    one_step(trainer)
    orders = [args[3].chosen.tokens.tolist() for args, _, _ in pairs[:3]]
    for left, right in ((0, 1), (0, 2), (1, 2)):
        assert not torch.equal(heads[left], heads[right])
        assert orders[left] != orders[right]


def test_a_seed_gives_the_same_run_whatever_torch_drew_before(sft_weights):
    """And the run leaves torch's global generator as it was."""
    ends = []
    for noise in (1, 2):
        torch.manual_seed(noise)
        before = torch.get_rng_state()
        trainer = RewardTrainer(config(steps=2), inputs(policy=sft_weights))
        steps(trainer, 2)
        assert torch.equal(torch.get_rng_state(), before)
        ends.append(copied(trainer.weights()))
    assert same(*ends)


def test_reference_stays_as_it_was(sft_weights):
    given = copied(sft_weights)
    trainer = RewardTrainer(config(), inputs(policy=sft_weights))
    steps(trainer, 5)
    assert same(copied(trainer.reference.state_dict()), given)
    assert same(sft_weights, given)


def test_too_few_pairs_and_pairs_of_one_kind_are_said(sft_weights):
    with pytest.raises(ValueError, match=r"^3 preference pairs are too few to train on; give at least 4$"):
        one_step(RewardTrainer(config(pairs="labels"), inputs(policy=sft_weights, pairs=judged_pairs()[:3])))
    with pytest.raises(ValueError, match="compare the same two texts"):
        same_texts = (PreferencePair("a", "ab", "b"), PreferencePair("a", "b", "ab")) * 5
        one_step(RewardTrainer(config(pairs="labels"), inputs(policy=sft_weights, pairs=same_texts)))


# --- the automatic labeller ---


def label(sft_weights, count: int, noise: float, seed: int = 0) -> list[PreferencePair]:
    task = micro_task()
    model = build_language_model(TINY, len(task.tokenizer), 0)
    model.load_state_dict(sft_weights)
    rounds = automatic_pairs(model, task, GoldReward(task), count, noise, seed)
    while True:
        try:
            next(rounds)
        except StopIteration as end:
            return end.value


def gap(pair: PreferencePair) -> float:
    return gold(pair.prompt, pair.chosen) - gold(pair.prompt, pair.rejected)


def test_without_noise_the_labeller_is_right(sft_weights):
    pairs = label(sft_weights, 300, 0.0)
    assert len(pairs) == 300
    assert all(gap(pair) > 0 and pair.chosen != pair.rejected for pair in pairs)
    assert {pair.prompt for pair in pairs} == set(micro_task().prompts)
    assert {(pair.target, pair.source) for pair in pairs} == {(1.0, "automatic")}


@pytest.mark.parametrize("noise", [0.1, 0.4])
def test_noise_turns_that_share_of_judgements_round(sft_weights, noise):
    """Within four standard errors; the texts are those of the labeller without noise."""
    pairs, clean = label(sft_weights, 2000, noise), label(sft_weights, 2000, 0.0)
    wrong = sum(gap(pair) < 0 for pair in pairs) / 2000
    assert abs(wrong - noise) < 4 * math.sqrt(noise * (1 - noise) / 2000)
    assert [(p.prompt, {p.chosen, p.rejected}) for p in pairs] == [(p.prompt, {p.chosen, p.rejected}) for p in clean]


def test_labels_depend_on_the_seed_alone(sft_weights):
    assert label(sft_weights, 50, 0.2, seed=1) == label(sft_weights, 50, 0.2, seed=1)
    assert label(sft_weights, 50, 0.2, seed=1) != label(sft_weights, 50, 0.2, seed=2)
