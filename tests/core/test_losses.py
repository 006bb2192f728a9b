"""Expected values: the papers' formulas worked out by hand, and finite differences for the gradients."""

import itertools
import math

import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.logprobs import token_logprobs
from core.losses import (
    dpo_loss,
    hinge_loss,
    ipo_loss,
    kto_loss,
    ppo_policy_loss,
    ppo_value_loss,
    reward_loss,
    robust_dpo_loss,
    sft_loss,
    simpo_loss,
)

LN2 = math.log(2)
# h = (−.5+.5) − (−.1+.1) = 0, (−10+10.1) − (−30+20.1) = 10, (−1+.1) − (−21+.1) = 20
PAIRS = (
    torch.tensor([-0.5, -10.0, -1.0]),
    torch.tensor([-0.1, -30.0, -21.0]),
    torch.tensor([-0.5, -10.1, -0.1]),
    torch.tensor([-0.1, -20.1, -0.1]),
)


def softplus(x: float) -> float:
    return float(mpmath.log1p(mpmath.exp(x)))


def double(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


# --- preference losses ---


def test_dpo_of_the_worked_example():
    torch.testing.assert_close(dpo_loss(*PAIRS, beta=0.1), torch.tensor([0.693147, 0.313262, 0.126928]))


def test_dpo_with_label_smoothing_of_the_worked_example():
    found = dpo_loss(*PAIRS, beta=0.1, label_smoothing=0.1)
    torch.testing.assert_close(found, torch.tensor([0.693147, 0.413262, 0.326928]))


def test_ipo_of_the_worked_example():
    torch.testing.assert_close(ipo_loss(*PAIRS, tau=0.1), torch.tensor([25.0, 25.0, 225.0]))


def test_hinge_of_the_worked_example():
    """1 − βh = 1, 0, −1 at β 0.1; at β 0.05: 1, ½, 0."""
    torch.testing.assert_close(hinge_loss(*PAIRS, beta=0.1), torch.tensor([1.0, 0.0, 0.0]), atol=1e-6, rtol=0)
    torch.testing.assert_close(hinge_loss(*PAIRS, beta=0.05), torch.tensor([1.0, 0.5, 0.0]), atol=1e-6, rtol=0)


def test_robust_dpo_of_the_worked_example():
    """ε 0.1: (0.9·sp(−x) − 0.1·sp(x)) / 0.8 at x = 0, 1, 2; negative for large x."""
    expected = [(0.9 * softplus(-x) - 0.1 * softplus(x)) / 0.8 for x in (0, 1, 2)]
    torch.testing.assert_close(robust_dpo_loss(*PAIRS, 0.1, 0.1), torch.tensor(expected))
    assert expected[2] < 0


def test_robust_dpo_is_right_on_average_when_labels_are_flipped():
    flip, beta = 0.3, 0.2
    chosen, rejected, was_chosen, was_rejected = PAIRS
    right = robust_dpo_loss(chosen, rejected, was_chosen, was_rejected, beta, flip)
    wrong = robust_dpo_loss(rejected, chosen, was_rejected, was_chosen, beta, flip)
    average = (1 - flip) * right + flip * wrong
    torch.testing.assert_close(average, dpo_loss(*PAIRS, beta=beta))


def test_robust_dpo_without_flips_is_dpo():
    torch.testing.assert_close(robust_dpo_loss(*PAIRS, 0.1, 0.0), dpo_loss(*PAIRS, beta=0.1))


@pytest.mark.parametrize("share", [-0.1, 0.5, 0.7, math.nan])
def test_robust_dpo_refuses_a_share_it_cannot_undo(share):
    with pytest.raises(ValueError, match=f"^label_smoothing must be at least 0 and below 0.5, not {share}$"):
        robust_dpo_loss(*PAIRS, 0.1, share)


def test_simpo_by_hand():
    """β(l̄_w − l̄_l) − γ = 2·(−1 + 1.5) − 0.5 = 0.5; no reference, γ absolute."""
    found = simpo_loss(torch.tensor([-1.0, -1.0]), torch.tensor([-1.5, -1.0]), beta=2.0, gamma=0.5)
    torch.testing.assert_close(found, torch.tensor([softplus(-0.5), softplus(0.5)]))


def test_kto_by_hand():
    """a = log 4 for the first and third, log ¼ for the others; z0 = log 2, β 1: σ(log 2) = ⅔, σ(log 8) = 8/9."""
    policy = torch.log(torch.tensor([0.4, 0.1, 0.4, 0.1]))
    reference = torch.log(torch.tensor([0.1, 0.4, 0.1, 0.4]))
    label = torch.tensor([True, True, False, False])
    plain = kto_loss(policy, reference, label, LN2, beta=1.0)
    torch.testing.assert_close(plain, torch.tensor([1 / 3, 8 / 9, 2 / 3, 1 / 9]))
    weighted = kto_loss(policy, reference, label, torch.tensor(LN2), 1.0, desirable_weight=3, undesirable_weight=9)
    torch.testing.assert_close(weighted, torch.tensor([1.0, 8 / 3, 6.0, 1.0]))
    halved = kto_loss(policy, reference, label, LN2, beta=0.5)
    root = math.sqrt(2)
    expected = [1 / (1 + root), 1 - 1 / (1 + 8**0.5), root / (1 + root), 1 / (1 + 8**0.5)]
    torch.testing.assert_close(halved, torch.tensor(expected))


def test_kto_gives_its_baseline_no_gradient():
    policy = torch.tensor([0.3, -0.2], requires_grad=True)
    z0 = policy.mean()
    kto_loss(policy, torch.zeros(2), torch.tensor([True, False]), z0, beta=1.0).sum().backward()
    a = policy.detach() - 0.05
    slope = torch.sigmoid(a) * torch.sigmoid(-a)
    torch.testing.assert_close(policy.grad, torch.stack([-slope[0], slope[1]]))


@pytest.mark.parametrize("label", [True, False])
def test_kto_with_one_class_absent_is_finite(label):
    policy = torch.tensor([0.0, 1.0], requires_grad=True)
    loss = kto_loss(policy, torch.zeros(2), torch.full((2,), label), 0.0, 0.1)
    loss.mean().backward()
    assert torch.isfinite(loss).all()
    assert torch.isfinite(policy.grad).all()
    assert (policy.grad < 0).all() if label else (policy.grad > 0).all()


def test_dpo_is_ln_2_where_policy_and_reference_agree_with_slope_half_beta():
    logprobs = [double(-3.0, -50.0).requires_grad_() for _ in range(2)]
    chosen, rejected = logprobs
    loss = dpo_loss(chosen, rejected, chosen.detach(), rejected.detach(), beta=0.3)
    torch.testing.assert_close(loss, double(LN2, LN2))
    loss.sum().backward()
    torch.testing.assert_close(chosen.grad, double(-0.15, -0.15))
    torch.testing.assert_close(rejected.grad, double(0.15, 0.15))


def test_reward_loss_is_ln_2_where_scores_are_equal():
    same = torch.tensor([0.0, 1e4, -7.0])
    torch.testing.assert_close(reward_loss(same, same), torch.full((3,), LN2))


def test_reward_loss_by_hand():
    chosen, rejected = torch.tensor([2.0, 0.0]), torch.tensor([1.0, 3.0])
    torch.testing.assert_close(reward_loss(chosen, rejected), torch.tensor([softplus(-1), softplus(3)]))
    with_margin = reward_loss(chosen, rejected, margin=torch.tensor([0.5, 1.0]))
    torch.testing.assert_close(with_margin, torch.tensor([softplus(-0.5), softplus(4)]))
    soft = reward_loss(chosen, rejected, target=torch.tensor([0.5, 0.2]))
    expected = [0.5 * softplus(-1) + 0.5 * softplus(1), 0.2 * softplus(3) + 0.8 * softplus(-3)]
    torch.testing.assert_close(soft, torch.tensor(expected))
    torch.testing.assert_close(
        reward_loss(chosen, rejected, center=0.01), torch.tensor([softplus(-1) + 0.09, softplus(3) + 0.09])
    )
    everything = reward_loss(chosen, rejected, margin=1.0, target=0.9, center=0.1)
    expected = [0.9 * softplus(0) + 0.1 * softplus(0) + 0.9, 0.9 * softplus(4) + 0.1 * softplus(-4) + 0.9]
    torch.testing.assert_close(everything, torch.tensor(expected))


def test_a_tie_pulls_two_scores_together():
    scores = torch.tensor([1.0, -1.0], requires_grad=True)
    reward_loss(scores[:1], scores[1:], target=0.5).sum().backward()
    assert scores.grad[0] > 0 > scores.grad[1]
    level = torch.zeros(2, requires_grad=True)
    reward_loss(level[:1], level[1:], target=0.5).sum().backward()
    assert level.grad.tolist() == [0, 0]


@pytest.mark.parametrize("gap", [-1e4, 1e4])
def test_huge_gaps_stay_finite(gap):
    """−log(sigmoid(x)) is infinite at x = −1e4; softplus(−x) is 1e4 and keeps its slope."""
    for loss in (
        lambda x: reward_loss(x, torch.zeros(1)),
        lambda x: dpo_loss(x, *torch.zeros(3, 1), beta=1.0),
        lambda x: simpo_loss(x, torch.zeros(1), beta=1.0, gamma=0.0),
    ):
        x = torch.tensor([gap], requires_grad=True)
        value = loss(x)
        value.sum().backward()
        assert value.item() == pytest.approx(max(0, -gap))
        assert x.grad.item() == (-1 if gap < 0 else 0)


FIXED = [double(-3.0, -1.0, -2.5), double(-2.0, -4.0, -2.2), double(-2.7, -1.4, -2.4), double(-2.5, -3.1, -2.6)]


@pytest.mark.parametrize(
    ("loss", "learned"),
    [
        (lambda *x: dpo_loss(*x, beta=0.7), 4),
        (lambda *x: dpo_loss(*x, beta=0.7, label_smoothing=0.2), 4),
        (lambda *x: robust_dpo_loss(*x, beta=0.7, label_smoothing=0.2), 4),
        (lambda *x: hinge_loss(*x, beta=0.7), 4),
        (lambda *x: ipo_loss(*x, tau=0.3), 4),
        (lambda *x: simpo_loss(*x, beta=2.0, gamma=0.5), 2),
        (lambda *x: reward_loss(*x, margin=0.2, target=0.8, center=0.1), 2),
        (lambda *x: kto_loss(*x, torch.tensor([True, False, True]), 0.1, 0.7, 1.5, 0.5), 2),
    ],
    ids=["dpo", "cdpo", "robust", "hinge", "ipo", "simpo", "reward", "kto"],
)
def test_gradients_of_preference_losses_are_those_of_finite_differences(loss, learned):
    inputs = [each.clone().requires_grad_() for each in FIXED[:learned]]
    assert torch.autograd.gradcheck(loss, inputs)


def test_preference_losses_are_per_example():
    """One value each, so that pairs in another order give theirs in that order."""
    order = torch.tensor([2, 0, 1])
    permuted = [each[order] for each in PAIRS]
    for loss in (
        lambda *x: dpo_loss(*x, beta=0.1), lambda *x: robust_dpo_loss(*x, 0.1, 0.2),
        lambda *x: hinge_loss(*x, beta=0.1), lambda *x: ipo_loss(*x, tau=0.1),
    ):  # fmt: skip
        assert torch.equal(loss(*PAIRS)[order], loss(*permuted))


# --- token losses: what holds for all three ---

VOCABULARY = 5


def token_batch(rows: int = 6, longest: int = 5, seed: int = 0) -> dict[str, Tensor]:
    """Uneven completions, one of them empty."""
    g = torch.Generator().manual_seed(seed)
    lengths = torch.tensor([longest, 1, 0, 3, 2, longest])[:rows]

    def noise(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    return {
        "logits": noise(rows, longest, VOCABULARY),
        "tokens": torch.randint(0, VOCABULARY, (rows, longest), generator=g),
        "logprobs": -noise(rows, longest).abs(), "old_logprobs": -noise(rows, longest).abs(),
        "advantages": noise(rows, longest), "values": noise(rows, longest), "old_values": noise(rows, longest),
        "returns": noise(rows, longest), "mask": torch.arange(longest) < lengths.unsqueeze(1),
    }  # fmt: skip


def sft(b: dict[str, Tensor], normalizer: float | Tensor | None = None) -> Tensor:
    return sft_loss(b["logits"], b["tokens"], b["mask"], normalizer)


def policy(b: dict[str, Tensor], normalizer: float | Tensor | None = None) -> Tensor:
    return ppo_policy_loss(b["logprobs"], b["old_logprobs"], b["advantages"], b["mask"], 0.2, normalizer)[0]


def value(b: dict[str, Tensor], normalizer: float | Tensor | None = None) -> Tensor:
    return ppo_value_loss(b["values"], b["old_values"], b["returns"], b["mask"], 0.2, normalizer)[0]


TOKEN_LOSSES = [(sft, "logits"), (policy, "logprobs"), (value, "values")]
token_losses = pytest.mark.parametrize(("loss", "learned"), TOKEN_LOSSES, ids=["sft", "policy", "value"])


def with_gradient(loss, batch, learned, normalizer=None) -> tuple[Tensor, Tensor]:
    x = batch[learned].clone().requires_grad_()
    found = loss(batch | {learned: x}, normalizer)
    (gradient,) = torch.autograd.grad(found, x)
    return found.detach(), gradient


@token_losses
@pytest.mark.parametrize("filler", [1e6, math.nan, math.inf])
def test_masked_slots_change_neither_loss_nor_gradient(loss, learned, filler):
    batch = token_batch()
    dirty = {
        name: each if name in ("mask", "tokens") else torch.where(
            batch["mask"].reshape(*batch["mask"].shape, *[1] * (each.dim() - 2)), each, filler
        )
        for name, each in batch.items()
    } | {"tokens": torch.where(batch["mask"], batch["tokens"], -100)}  # fmt: skip
    clean_loss, clean_gradient = with_gradient(loss, batch, learned)
    dirty_loss, dirty_gradient = with_gradient(loss, dirty, learned)
    assert clean_loss == dirty_loss
    assert torch.equal(clean_gradient, dirty_gradient)
    assert (clean_gradient[~batch["mask"]] == 0).all()


@token_losses
def test_more_padding_changes_neither_loss_nor_gradient(loss, learned):
    batch = token_batch()
    longer = {name: torch.cat([each, each[:, :2]], 1) for name, each in batch.items()}
    longer["mask"][:, -2:] = False
    (short_loss, short), (long_loss, long) = (with_gradient(loss, each, learned) for each in (batch, longer))
    torch.testing.assert_close(long_loss, short_loss, rtol=1e-12, atol=0)
    torch.testing.assert_close(long[:, :-2], short, rtol=1e-12, atol=0)


@token_losses
def test_rows_in_another_order_give_the_same_loss(loss, learned):
    batch, order = token_batch(), torch.tensor([4, 2, 0, 5, 1, 3])
    loss_here, gradient = with_gradient(loss, batch, learned)
    loss_there, permuted = with_gradient(loss, {name: each[order] for name, each in batch.items()}, learned)
    torch.testing.assert_close(loss_there, loss_here, rtol=1e-12, atol=0)
    torch.testing.assert_close(permuted, gradient[order], rtol=1e-12, atol=0)


@token_losses
def test_uneven_micro_batches_add_up(loss, learned):
    """Over the whole batch's number of tokens; a mean of the parts' means would weigh short parts too much."""
    batch = token_batch()
    whole_loss, whole = with_gradient(loss, batch, learned)
    count = batch["mask"].sum()
    parts = [
        with_gradient(loss, {name: each[rows] for name, each in batch.items()}, learned, count)
        for rows in (slice(0, 1), slice(1, 3), slice(3, 6))
    ]
    torch.testing.assert_close(sum(each for each, _ in parts), whole_loss)
    torch.testing.assert_close(torch.cat([each for _, each in parts]), whole)


@token_losses
def test_a_batch_without_any_token_gives_0_and_no_gradient(loss, learned):
    batch = token_batch() | {"mask": torch.zeros(6, 5, dtype=torch.bool)}
    found, gradient = with_gradient(loss, batch, learned)
    assert found == 0
    assert (gradient == 0).all()


@token_losses
def test_the_normalizer_divides(loss, learned):
    batch = token_batch()
    assert loss(batch, 4.0).item() == pytest.approx(loss(batch).item() * batch["mask"].sum().item() / 4)


@token_losses
def test_gradients_of_token_losses_are_those_of_finite_differences(loss, learned):
    batch = token_batch()
    x = batch[learned].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: loss(batch | {learned: x}), (x,))


tenths = st.integers(-30, 30).map(lambda n: n / 10)


@given(
    st.lists(
        st.lists(st.tuples(st.booleans(), tenths, tenths, tenths), min_size=2, max_size=2), min_size=1, max_size=3
    ),
    st.sampled_from([0.15, 0.33, 0.8]),
)
@settings(max_examples=25)
def test_token_losses_of_any_mask_are_loops_over_what_counts(rows, clip):
    """Policy and value loss written out in plain Python, token by token."""
    mask = torch.tensor([[slot[0] for slot in row] for row in rows])
    slots = torch.tensor([[slot[1:] for slot in row] for row in rows]).double()
    x, old, target = torch.where(mask.unsqueeze(-1), slots, math.nan).unbind(-1)
    kept = [slot[1:] for row in rows for slot in row if slot[0]]
    count = max(1, len(kept))

    policy_terms, value_terms, clipped = [], [], 0
    for new, was, aim in kept:
        ratio = math.exp(new - was)
        held = min(max(ratio, 1 - clip), 1 + clip)
        policy_terms.append(max(-aim * ratio, -aim * held))
        clipped += -aim * held > -aim * ratio
        moved = min(max(new, was - clip), was + clip)
        value_terms.append(max((new - aim) ** 2, (moved - aim) ** 2) / 2)
    policy_loss, stats = ppo_policy_loss(x, old, target, mask, clip)
    value_loss, _ = ppo_value_loss(x, old, target, mask, clip)
    assert policy_loss.item() == pytest.approx(sum(policy_terms) / count)
    assert value_loss.item() == pytest.approx(sum(value_terms) / count)
    assert stats.clip_fraction.item() == pytest.approx(clipped / count)


# --- SFT ---


def test_sft_is_the_mean_surprise_of_tokens_that_count():
    """p = ½, ¼, ⅛ where it counts: (1 + 2 + 3)·ln 2 / 3."""
    p = torch.tensor([[[0.5, 0.5, 1e-9], [0.25, 0.5, 0.25]], [[0.5, 0.375, 0.125], [1 / 3, 1 / 3, 1 / 3]]])
    mask = torch.tensor([[True, True], [True, False]])
    found = sft_loss(p.log() + 3, torch.tensor([[0, 0], [2, 1]]), mask)
    assert found.item() == pytest.approx(2 * LN2)


def test_sft_of_a_model_that_knows_nothing_is_ln_v():
    everywhere = torch.ones(2, 3, dtype=torch.bool)
    assert sft_loss(torch.zeros(2, 3, 8), torch.ones(2, 3, dtype=torch.long), everywhere).item() == pytest.approx(
        3 * LN2
    )


def test_sft_pushes_the_demonstrated_token_up_and_the_others_down():
    """∂/∂logit = (p − 1[token])/n."""
    logits = torch.zeros(1, 2, 4, dtype=torch.float64, requires_grad=True)
    sft_loss(logits, torch.tensor([[2, 0]]), torch.tensor([[True, True]])).backward()
    expected = [[[0.125, 0.125, -0.375, 0.125], [-0.375, 0.125, 0.125, 0.125]]]
    assert logits.grad.tolist() == expected


# --- PPO ---


def one_row(*values: float) -> Tensor:
    return double(*values).unsqueeze(0)


def ppo(new, old, advantages, clip=0.2):
    new, old = one_row(*new).requires_grad_(), one_row(*old)
    loss, stats = ppo_policy_loss(new, old, one_row(*advantages), torch.ones_like(new, dtype=torch.bool), clip)
    (gradient,) = torch.autograd.grad(loss, new)
    return loss.item(), stats, gradient[0].tolist()


def test_ppo_of_the_worked_examples():
    loss, stats, _ = ppo([1.5, 1.8, 2.2], [0.5, 0.8, 1.2], [1, 1, 1])
    assert (loss, stats.clip_fraction.item()) == (pytest.approx(-1.2), 1)
    loss, stats, _ = ppo([-0.5, -0.2, 0.2], [0.5, 0.8, 1.2], [1, 1, 1])
    assert (loss, stats.clip_fraction.item()) == (pytest.approx(-0.367879, abs=1e-6), 0)


def test_ppo_before_any_update_has_ratio_1_and_clips_nothing():
    logprobs = [-1.0, -0.3, -7.0]
    loss, stats, gradient = ppo(logprobs, logprobs, [1, -2, 4])
    assert loss == pytest.approx(-1)
    assert (stats.ratio, stats.clip_fraction, stats.approx_kl) == (1, 0, 0)
    assert gradient == pytest.approx([-1 / 3, 2 / 3, -4 / 3])


UP, DOWN = math.log(1.5), math.log(0.5)


@pytest.mark.parametrize(
    ("advantage", "step", "gradient"),
    [
        (1.0, 0.0, -1.0),  # a good token's probability goes up
        (-1.0, 0.0, 1.0),
        (1.0, UP, 0.0),  # good and already up by more than ε: enough
        (-1.0, DOWN, 0.0),  # bad and already down by more than ε: enough
        (-1.0, UP, 1.5),  # bad and up: pulled back with its whole ratio
        (1.0, DOWN, -0.5),  # good and down: pulled back
    ],
)
def test_ppo_lets_go_only_of_what_went_far_enough_the_right_way(advantage, step, gradient):
    _, stats, found = ppo([-1 + step], [-1.0], [advantage])
    assert found == pytest.approx([gradient])
    assert stats.clip_fraction.item() == (1 if gradient == 0 else 0)


def test_ppo_takes_the_ratio_to_the_old_policy_per_token():
    """A = 1: ratios 2 and ½ clipped to 1.2 and ½; a ratio of means over the row would be 1."""
    loss, stats, _ = ppo([-1 + LN2, -1 - LN2], [-1.0, -1.0], [1, 1])
    assert loss == pytest.approx(-(1.2 + 0.5) / 2)
    assert stats.ratio.item() == pytest.approx(1.25)
    assert stats.clip_fraction.item() == 0.5
    assert stats.approx_kl.item() == pytest.approx(LN2**2 / 2)


def test_ppo_can_clip_unevenly():
    """ε_low 0.1, ε_high 0.4: ratio 1.5 with A 1 is clipped at 1.4, ratio ½ with A −1 at 0.9."""
    loss, _, gradient = ppo([UP, DOWN], [0.0, 0.0], [1, -1], clip=(0.1, 0.4))
    assert loss == pytest.approx((-1.4 + 0.9) / 2)
    assert gradient == [0, 0]
    loss, _, gradient = ppo([math.log(1.3), math.log(0.95)], [0.0, 0.0], [1, -1], clip=(0.1, 0.4))
    assert loss == pytest.approx((-1.3 + 0.95) / 2)
    assert gradient == pytest.approx([-0.65, 0.475])


def test_old_logprobs_and_advantages_are_constants():
    new = one_row(-1.0, -2.0)
    old, advantages = one_row(-1.1, -1.9).requires_grad_(), one_row(1.0, -1.0).requires_grad_()
    learned = new.clone().requires_grad_()
    loss, stats = ppo_policy_loss(learned, old, advantages, torch.ones(1, 2, dtype=torch.bool), 0.2)
    loss.backward()
    assert old.grad is None
    assert advantages.grad is None
    assert not any(each.requires_grad for each in stats)


def test_ppo_stats_count_only_real_tokens():
    new, old = one_row(UP, 50.0, math.nan), one_row(0.0, 0.0, 0.0)
    loss, stats = ppo_policy_loss(new, old, one_row(1.0, 1.0, 1.0), torch.tensor([[True, False, False]]), 0.2)
    assert loss.item() == pytest.approx(-1.2)
    assert stats.clip_fraction.item() == 1
    assert stats.ratio.item() == pytest.approx(1.5)
    assert stats.approx_kl.item() == pytest.approx(UP**2 / 2)


def test_ppo_raises_the_probability_of_a_token_that_did_well():
    for advantage in (1.0, -1.0):
        logits = torch.zeros(1, 1, 4, requires_grad=True)
        token = torch.tensor([[2]])
        logprobs = token_logprobs(logits, token)
        mask = torch.ones(1, 1, dtype=torch.bool)
        loss, _ = ppo_policy_loss(logprobs, logprobs, torch.tensor([[advantage]]), mask, 0.2)
        loss.backward()
        moved = token_logprobs(logits.detach() - 0.1 * logits.grad, token)
        assert (moved > logprobs).item() == (advantage > 0)


def test_value_loss_by_hand():
    """V_old 0, c 0.2. V 1, R 1: clipped to 0.2, error 0.64. V ½, R 2: 2.25 against 3.24. V −1, R 1: 4 against 0.64.
    V 0.1, R 0: inside, 0.01."""
    values, returns = one_row(1.0, 0.5, -1.0, 0.1), one_row(1.0, 2.0, 1.0, 0.0)
    everywhere = torch.ones(1, 4, dtype=torch.bool)
    loss, stats = ppo_value_loss(values, torch.zeros_like(values), returns, everywhere, 0.2)
    assert loss.item() == pytest.approx((0.64 + 3.24 + 4 + 0.01) / 8)
    assert stats.clip_fraction.item() == 0.5
    assert stats.error.item() == pytest.approx((0 + 2.25 + 4 + 0.01) / 4)


def test_value_loss_can_clip_unevenly():
    """V_old 1, c (0.1, 0.5): 2 → 1.5 and 0 → 0.9; returns equal to V, so only the clipped errors are left."""
    values = one_row(2.0, 0.0)
    everywhere = torch.ones(1, 2, dtype=torch.bool)
    loss, stats = ppo_value_loss(values, torch.ones_like(values), values, everywhere, (0.1, 0.5))
    assert loss.item() == pytest.approx((0.25 + 0.81) / 4)
    assert stats.clip_fraction.item() == 1


def test_value_stats_count_only_real_tokens_and_carry_no_gradient():
    values = one_row(1.0, math.nan, 5.0).requires_grad_()
    old, returns = one_row(1.0, 0.0, 0.0).requires_grad_(), one_row(3.0, math.nan, 1e6).requires_grad_()
    loss, stats = ppo_value_loss(values, old, returns, torch.tensor([[True, False, False]]), 0.2)
    loss.backward()
    assert loss.item() == 2
    assert (stats.error.item(), stats.clip_fraction.item()) == (4, 0)
    assert values.grad.tolist() == [[-2, 0, 0]]
    assert old.grad is None
    assert returns.grad is None
    assert not any(each.requires_grad for each in stats)


def test_value_clip_holds_an_error_that_would_grow_less():
    """V moved from 0 to 1 towards R = 1 in one step: the clipped error 0.64 counts and has no gradient."""
    for value_, gradient in ((1.0, 0.0), (0.1, -0.9), (-1.0, -2.0)):
        x = one_row(value_).requires_grad_()
        loss, _ = ppo_value_loss(x, one_row(0.0), one_row(1.0), torch.ones(1, 1, dtype=torch.bool), 0.2)
        loss.backward()
        assert x.grad.item() == pytest.approx(gradient)


def test_losses_keep_the_dtype():
    for dtype in (torch.float32, torch.float64):
        batch = {n: x.to(dtype) if x.is_floating_point() else x for n, x in token_batch().items()}
        for (loss, _), normalizer in itertools.product(TOKEN_LOSSES, (None, 3.0)):
            assert loss(batch, normalizer).dtype == dtype
