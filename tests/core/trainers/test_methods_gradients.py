"""The gradient each policy method follows, against enumeration and against numbers worked out by hand."""

import math

import pytest
import torch
from method_toys import make
from torch import Tensor
from trainer_toys import (
    COMPLETIONS,
    EOS,
    HISTORIES,
    LETTERS,
    PROMPTS,
    all_rewards,
    completion_logprobs,
    enumerable_task,
    every_completion_in_proportion,
    inputs,
    one_step,
    table_of_eighths,
    tabular_inputs,
)

from core.sampling import completions_of
from core.trainers import rollouts
from core.trainers.experience import Experience

BETA = 0.3
WHOLE = {"batch_size": 1024, "learning_rate": 0.0, "beta": BETA, "max_grad_norm": 1e9, "average": 0.0}
GROUPS = {"group_size": 512, "minibatch_size": 1024}  # all completions of a prompt are one group


def followed(monkeypatch, variant, policy, reference, **knobs) -> Tensor:
    """Downhill direction of the first update on a batch of all completions, each as often as it is likely."""
    trainer = make(variant, policy, tabular_inputs(monkeypatch, policy, reference, task=enumerable_task()), **knobs)
    batch = every_completion_in_proportion(trainer.policy)
    monkeypatch.setattr(rollouts, "generate", lambda *args, **named: batch)
    one_step(trainer)
    return -trainer.policy.table.grad.double()


def expected_length(table: Tensor) -> Tensor:
    lengths = torch.tensor([float(len(y)) for y in COMPLETIONS], dtype=torch.float64)
    return (completion_logprobs(table.double()).exp() * lengths).sum(1).mean()


def reward_gradient(table: Tensor, reference: Tensor | None = None) -> Tensor:
    """∇ (E[r] − β·KL) per token, by enumeration; without a reference ∇ E[r]."""
    table = table.double().requires_grad_()
    policy = completion_logprobs(table)
    value = all_rewards()
    if reference is not None:
        value = value - BETA * (policy - completion_logprobs(reference.double()))
    objective = (policy.exp() * value).sum(1).mean()
    return torch.autograd.grad(objective, table)[0] / expected_length(table.detach())


def direct_kl_gradient(table: Tensor, reference: Tensor, reverse: bool) -> Tensor:
    """∇ of the mean over visited tokens of KL(π‖π_ref), or KL(π_ref‖π), with the visits held fixed."""
    probabilities = completion_logprobs(table.double()).exp()
    visits = torch.zeros(len(table), dtype=torch.float64)
    for row, (prompt, prefix) in enumerate(HISTORIES, 1):
        through = [y[: len(prefix)] == prefix and len(y) > len(prefix) for y in COMPLETIONS]
        visits[row] = probabilities[PROMPTS.index(prompt)][torch.tensor(through)].sum()
    columns = [EOS, *LETTERS]
    table = table.double().requires_grad_()
    p, q = (torch.log_softmax(each[:, columns], -1) for each in (table, reference.double()))
    kl = (q.exp() * (q - p)).sum(1) if reverse else (p.exp() * (p - q)).sum(1)
    return torch.autograd.grad((visits * kl).sum() / visits.sum(), table)[0]


@pytest.mark.parametrize("penalty", ["exact", "k1"])
@pytest.mark.parametrize("variant", ["reinforce none", "reinforce running"])
def test_reinforce_follows_the_true_gradient_whatever_the_baseline(monkeypatch, variant, penalty):
    policy, reference = table_of_eighths(1), table_of_eighths(2)
    found = followed(monkeypatch, variant, policy, reference, kl_penalty=penalty, **WHOLE)
    expected = reward_gradient(policy["table"], reference["table"])
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=1e-4)


@pytest.mark.parametrize("penalty", ["exact", "k1"])
@pytest.mark.parametrize(("variant", "groups"), [("reinforce", {}), ("rloo", GROUPS)])
def test_leaving_one_out_does_too(monkeypatch, variant, groups, penalty):
    """In one batch the mean of the others makes advantages n/(n−1) times as large, here by 2 in a thousand."""
    policy, reference = table_of_eighths(1), table_of_eighths(2)
    found = followed(monkeypatch, variant, policy, reference, kl_penalty=penalty, **WHOLE | groups)
    expected = reward_gradient(policy["table"], reference["table"])
    assert (found - expected).norm() < 4e-3 * expected.norm()


@pytest.mark.parametrize("penalty", ["exact", "k1"])
def test_a2c_follows_it_up_to_the_factor_of_whitening(monkeypatch, penalty):
    policy, reference = table_of_eighths(1), table_of_eighths(2)
    found = followed(monkeypatch, "a2c", policy, reference, kl_penalty=penalty, lam=1.0, **WHOLE)
    expected = reward_gradient(policy["table"], reference["table"])
    factor = (found * expected).sum() / expected.square().sum()
    assert factor > 0
    assert (found - factor * expected).norm() < 1e-5 * found.norm()


@pytest.mark.parametrize(("kl", "reverse"), [("k3", True), ("k2", False), ("exact", False)])
def test_the_kl_in_grpos_loss_pulls_as_its_kind_says(monkeypatch, kl, reverse):
    """k3 along the gradient of KL(π_ref‖π), k2 and the exact KL along that of KL(π‖π_ref)."""
    policy, reference = table_of_eighths(1), table_of_eighths(2)
    found = followed(monkeypatch, "grpo", policy, reference, **WHOLE | GROUPS | {"kl": kl, "scale": "none"})
    expected = reward_gradient(policy["table"])
    expected = expected - BETA * direct_kl_gradient(policy["table"], reference["table"], reverse)
    torch.testing.assert_close(found, expected, atol=3e-6, rtol=1e-3)


# --- losses by hand ---


def two_completions(advantages=(1.0, -1.0), moved=((0.0, 0.0), (0.0, 0.0))) -> tuple[Tensor, Experience]:
    """Completions of two letters and of one; log-probs of the policy that moved by ``moved`` from the old one."""
    batch = completions_of([[1, 4, 1], [1, 5, 1]], [[4, 2], [2]])
    old = torch.tensor([[-1.0, -2.0], [-0.5, math.nan]])
    logits = torch.zeros(2, 2, 7)
    experience = Experience(batch, old, torch.tensor(advantages).unsqueeze(1).expand(2, 2), logits, None)
    return old + torch.tensor(moved), experience


@pytest.mark.parametrize(("loss_type", "expected"), [("dapo", -1 / 3), ("grpo", 0.0), ("dr_grpo", -0.1)])
def test_what_a_token_counts_for(sft_weights, loss_type, expected):
    """Ratios are 1: tokens of advantages +1, +1 and −1. Mean of all; mean of means; sum over 2 · 5 letters at most."""
    trainer = make("grpo", sft_weights, loss_type=loss_type, beta=0.0)
    trainer.tokens_per_completion = torch.tensor(1.5)
    logprobs, experience = two_completions()
    loss, _ = trainer.policy_loss(experience.reference_logits, logprobs, experience)
    assert loss.item() == pytest.approx(expected, abs=1e-6)


def test_minibatches_add_up_to_the_mean_over_the_whole_batch(sft_weights):
    trainer = make("grpo", sft_weights, beta=0.0)
    trainer.tokens_per_completion = torch.tensor(1.5)
    logprobs, experience = two_completions((1.0, 1.0))
    parts = []
    for row in (torch.tensor([0]), torch.tensor([1])):
        some = experience.rows(row)
        width = some.batch.tokens.shape[1]
        parts.append(trainer.policy_loss(some.reference_logits, logprobs[row, :width], some)[0].item())
    assert sum(parts) / 2 == pytest.approx(-1.0)


def test_higher_clip_lets_rare_letters_rise(sft_weights):
    """Ratio e^0.25 = 1.284 at advantage 1: clipped at 1.2 it has no gradient, below 1.3 it has."""
    for high, expected in ((0.2, -1.2), (0.3, -math.exp(0.25))):
        trainer = make("grpo", sft_weights, clip_high=high, beta=0.0, loss_type="grpo")
        logprobs, experience = two_completions((1.0, 0.0), ((0.25, 0.25), (0.0, 0.0)))
        loss, metrics = trainer.policy_loss(experience.reference_logits, logprobs, experience)
        assert loss.item() == pytest.approx(expected / 2, abs=1e-6)
        assert metrics["policy/clipfrac_avg"] == pytest.approx(2 / 3 if high == 0.2 else 0.0)


def test_gspo_clips_the_geometric_mean_of_a_completions_ratios(sft_weights):
    """Moves (0.2, 0) and (−0.3): ratios e^0.1 = 1.105 and e^−0.3 = 0.741, at ±0.05 clipped to 1.05 and 0.95."""
    trainer = make("gspo", sft_weights, beta=0.0, clip_low=0.05, clip_high=0.05)
    logprobs, experience = two_completions((1.0, -1.0), ((0.2, 0.0), (-0.3, 0.0)))
    loss, metrics = trainer.policy_loss(experience.reference_logits, logprobs, experience)
    assert loss.item() == pytest.approx((-1.05 + 0.95) / 2, abs=1e-6)
    assert metrics["policy/clipfrac_avg"] == 1
    logprobs, experience = two_completions((1.0, -1.0), ((0.06, -0.02), (0.01, 0.0)))
    loss, metrics = trainer.policy_loss(experience.reference_logits, logprobs, experience)
    assert loss.item() == pytest.approx((-math.exp(0.02) + math.exp(0.01)) / 2, abs=1e-6)
    assert metrics["policy/clipfrac_avg"] == 0


def test_raft_imitates_the_best_of_each_group_and_no_other(sft_weights):
    trainer = make("raft", sft_weights, beta=0.0)
    scored, _ = trainer.score(trainer.rollout())
    experience, _ = trainer.estimate(scored)
    groups = scored.scores.view(3, 4)
    assert len(experience) == 3
    torch.testing.assert_close(trainer.reward(experience.batch), groups.amax(1))


# --- TRPO ---


def test_fisher_products_are_those_of_the_softmax(monkeypatch):
    """For a table of logits F is (diag p − p·pᵀ) at each row, times the share of tokens drawn there."""
    policy = table_of_eighths(1)
    trainer = make(
        "trpo", policy, tabular_inputs(monkeypatch, policy, policy, task=enumerable_task()), fisher_completions=1024,
        damping=0.5, batch_size=1024,
    )  # fmt: skip
    batch = every_completion_in_proportion(trainer.policy)
    monkeypatch.setattr(rollouts, "generate", lambda *args, **named: batch)
    scored, _ = trainer.score(trainer.rollout())
    experience, _ = trainer.estimate(scored)
    table = trainer.policy.table
    vector = torch.randn(table.numel(), generator=torch.Generator().manual_seed(3))
    found = trainer.fisher(experience)(vector).view_as(table).double()
    probabilities = completion_logprobs(policy["table"].double()).exp()
    expected = 0.5 * vector.view_as(table).double()
    tokens = 2 * expected_length(policy["table"])
    for row, (prompt, prefix) in enumerate(HISTORIES, 1):
        through = [y[: len(prefix)] == prefix and len(y) > len(prefix) for y in COMPLETIONS]
        share = probabilities[PROMPTS.index(prompt)][torch.tensor(through)].sum() / tokens
        columns = [EOS, *LETTERS]
        p = torch.softmax(policy["table"][row, columns].double(), -1)
        v = vector.view_as(table)[row, columns].double()
        expected[row, columns] += share * (p * v - p * p.dot(v))
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-4)


def test_trpo_steps_as_far_as_the_bound_allows(monkeypatch):
    policy, reference = table_of_eighths(1), table_of_eighths(2)
    trainer = make(
        "trpo", policy, tabular_inputs(monkeypatch, policy, reference, task=enumerable_task()), fisher_completions=1024,
        damping=1e-3, batch_size=1024, max_kl=1e-3, cg_iterations=30, average=0.0, beta=0.05,
    )  # fmt: skip
    batch = every_completion_in_proportion(trainer.policy)
    monkeypatch.setattr(rollouts, "generate", lambda *args, **named: batch)
    metrics = one_step(trainer)
    assert 0.2e-3 < metrics["policy/kl"] <= 1e-3
    before, after = (
        (completion_logprobs(table.double()).exp() * all_rewards()).sum(1).mean()
        for table in (policy["table"], trainer.policy.table.detach())
    )
    assert after > before + 0.01


# --- options ---


def test_beta_falls_in_a_straight_line(sft_weights):
    trainer = make("reinforce", sft_weights, beta_start=1.0, beta=0.2, steps=5)
    assert [one_step(trainer)["kl_coef"] for _ in range(5)] == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2])


def test_the_reference_becomes_the_policy_every_n_steps(sft_weights):
    trainer = make("reinforce", sft_weights, reference_refresh=2, average=0.0)
    kl = [one_step(trainer)["objective/kl"] for _ in range(5)]
    assert kl[1] > 1e-3
    assert kl[2] == pytest.approx(0.0, abs=1e-6)
    assert kl[3] > 1e-3
    assert kl[4] == pytest.approx(0.0, abs=1e-6)
    assert [each.message for each in trainer.alerts] == [
        "step 2 is the reference now: KL counts from here", "step 4 is the reference now: KL counts from here",
    ]  # fmt: skip


def test_the_minimum_of_an_ensemble_is_what_no_member_objects_to(sft_weights, reward_weights):
    given = inputs(policy=sft_weights, reward_model=reward_weights)
    trainers = {kind: make("ppo minimum", sft_weights, given, ensemble=kind) for kind in ("mean", "minimum")}
    batch = trainers["mean"].rollout()
    each = trainers["mean"].reward_model.each(batch)
    assert (each[0] != each[1]).any()
    torch.testing.assert_close(trainers["minimum"].reward(batch), torch.minimum(each[0], each[1]))
    torch.testing.assert_close(trainers["mean"].reward(batch), (each[0] + each[1]) / 2)
