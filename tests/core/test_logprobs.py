"""Expected values: by hand, or with mpmath and numpy from the definition."""

import math

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.logprobs import (
    entropy,
    exact_kl,
    kl_estimate,
    masked_mean,
    masked_sum,
    masked_whiten,
    token_logprobs,
)

HALF_AND_QUARTERS = torch.log(torch.tensor([0.5, 0.25, 0.25]))
distributions = st.lists(st.floats(-30, 30), min_size=4, max_size=4)


def softmax(logits: list[float]) -> list[mpmath.mpf]:
    exponentials = [mpmath.exp(each) for each in logits]
    return [each / mpmath.fsum(exponentials) for each in exponentials]


def test_token_logprobs_position_t_predicts_token_t():
    logits = torch.stack([HALF_AND_QUARTERS, torch.log(torch.tensor([0.1, 0.2, 0.7]))]).unsqueeze(0) + 5.0
    found = token_logprobs(logits, torch.tensor([[1, 2]]))
    torch.testing.assert_close(found, torch.tensor([[math.log(0.25), math.log(0.7)]]))


@given(distributions)
def test_token_logprobs_of_any_logits(logits):
    found = token_logprobs(torch.tensor([logits] * 4).unsqueeze(0), torch.tensor([[0, 1, 2, 3]]))
    torch.testing.assert_close(found[0], torch.tensor([float(mpmath.log(p)) for p in softmax(logits)]))


def test_entropy_by_hand():
    torch.testing.assert_close(entropy(torch.zeros(2, 3, 5)), torch.full((2, 3), math.log(5)))
    torch.testing.assert_close(entropy(HALF_AND_QUARTERS), torch.tensor(1.5 * math.log(2)))
    assert entropy(torch.tensor([0.0, 200.0])) == 0


@given(distributions)
def test_entropy_of_any_logits(logits):
    expected = float(-mpmath.fsum(p * mpmath.log(p) for p in softmax(logits)))
    assert float(entropy(torch.tensor(logits, dtype=torch.float64))) == pytest.approx(expected, abs=1e-9)


def test_entropy_is_not_the_surprise_of_what_was_drawn():
    """A sure model that drew its unlikely letter: −log p is 4.6, the entropy is small."""
    logits = torch.log(torch.tensor([[[0.99, 0.01]]]))
    surprise = -token_logprobs(logits, torch.tensor([[1]]))
    assert surprise.item() == pytest.approx(-math.log(0.01), rel=1e-5)
    expected = -0.99 * math.log(0.99) - 0.01 * math.log(0.01)
    assert entropy(logits).item() == pytest.approx(expected, rel=1e-4)


def test_exact_kl_is_of_policy_to_reference_not_the_other_way():
    policy, reference = torch.log(torch.tensor([0.5, 0.5])), torch.log(torch.tensor([0.9, 0.1]))
    there = 0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1)
    back = 0.9 * math.log(0.9 / 0.5) + 0.1 * math.log(0.1 / 0.5)
    assert exact_kl(policy, reference).item() == pytest.approx(there, rel=1e-5)
    assert exact_kl(reference, policy).item() == pytest.approx(back, rel=1e-5)
    assert exact_kl(torch.zeros(2, 3, 4), torch.zeros(2, 3, 4)).shape == (2, 3)


@given(distributions, distributions)
def test_exact_kl_of_any_two_distributions(policy, reference):
    expected = float(
        mpmath.fsum(p * mpmath.log(p / q) for p, q in zip(softmax(policy), softmax(reference), strict=True))
    )
    found = float(exact_kl(torch.tensor(policy, dtype=torch.float64), torch.tensor(reference, dtype=torch.float64)))
    assert found == pytest.approx(expected, abs=1e-9)
    assert found >= -1e-12


def test_kl_and_entropy_are_taken_over_the_last_axis_of_any_shape():
    generator = torch.Generator().manual_seed(0)
    policy, reference = torch.randn(2, 2, 3, 4, generator=generator).unbind(0)
    kl, surprise = exact_kl(policy, reference), entropy(policy)
    for row in range(2):
        for t in range(3):
            p, q = softmax(policy[row, t].tolist()), softmax(reference[row, t].tolist())
            expected = float(mpmath.fsum(a * mpmath.log(a / b) for a, b in zip(p, q, strict=True)))
            assert kl[row, t].item() == pytest.approx(expected, rel=1e-4)
            assert surprise[row, t].item() == pytest.approx(float(-mpmath.fsum(a * mpmath.log(a) for a in p)), rel=1e-4)


def test_forbidden_letters_leave_kl_and_entropy_finite_gradients_too():
    """Logits of −1e9, as a model gives for PAD, BOS and UNK; with −inf these gradients are NaN."""
    allowed = torch.tensor([[0.3, -1.2, 2.0]], dtype=torch.float64)
    other = torch.tensor([[1.0, 0.5, -0.5]], dtype=torch.float64)

    def measured(width: int) -> tuple[float, float, torch.Tensor]:
        pads = torch.full((1, width), -1e9, dtype=torch.float64)
        logits = torch.cat([pads, allowed], 1).requires_grad_()
        kl = exact_kl(logits, torch.cat([pads, other], 1)).sum()
        surprise = entropy(logits).sum()
        (gradient,) = torch.autograd.grad(kl + surprise, logits)
        return kl.item(), surprise.item(), gradient

    kl, surprise, gradient = measured(width=2)
    kl_alone, surprise_alone, gradient_alone = measured(width=0)
    assert (kl, surprise) == pytest.approx((kl_alone, surprise_alone), rel=1e-12)
    assert torch.equal(gradient[:, :2], torch.zeros(1, 2, dtype=torch.float64))
    torch.testing.assert_close(gradient[:, 2:], gradient_alone)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("k1", math.log(2)), ("k2", math.log(2) ** 2 / 2), ("k3", 0.5 - 1 + math.log(2))],
)
def test_kl_estimates_by_hand(kind, expected):
    """π gives the drawn token ½, the reference ¼: d = ln 2, e^(−d) = ½. With d reversed k3 would be 2 − 1 − ln 2."""
    policy, reference = torch.full((2, 3), math.log(0.5)), torch.full((2, 3), math.log(0.25))
    torch.testing.assert_close(kl_estimate(policy, reference, kind), torch.full((2, 3), expected))


def test_k1_is_the_default():
    assert kl_estimate(torch.tensor(-1.0), torch.tensor(-3.0)).item() == 2.0


def test_k3_keeps_its_digits_near_0():
    """e^(−d) − 1 + d ≈ d²/2; computed with exp in float32 it would be 0 or 6e-8."""
    found = kl_estimate(torch.tensor(1e-4), torch.tensor(0.0), "k3").item()
    assert found == pytest.approx(5e-9, rel=1e-2)


@given(st.floats(-20, 20))
def test_k2_and_k3_are_never_negative(d):
    for kind in ("k2", "k3"):
        assert kl_estimate(torch.tensor(d, dtype=torch.float64), torch.zeros((), dtype=torch.float64), kind) >= 0


def test_another_kind_of_estimate_is_refused():
    with pytest.raises(ValueError, match=r"^kind must be k1, k2 or k3, not 'k4'$"):
        kl_estimate(torch.zeros(1), torch.zeros(1), "k4")


X = torch.tensor([[1.0, 2.0, math.nan], [4.0, 1e6, -math.inf]])
MASK = torch.tensor([[True, True, False], [True, False, False]])


def test_masked_sum_and_mean_take_what_counts():
    assert masked_sum(X, MASK) == 7
    assert masked_sum(X, MASK, 1).tolist() == [3, 4]
    assert masked_sum(X, MASK, 0).tolist() == [5, 2, 0]
    assert masked_mean(X, MASK).item() == pytest.approx(7 / 3)
    assert masked_mean(X, MASK, 1).tolist() == [1.5, 4]
    assert masked_mean(X, MASK, 0).tolist() == [2.5, 2, 0]


def test_the_mean_of_nothing_is_0():
    nothing = torch.zeros(2, 3, dtype=torch.bool)
    assert masked_mean(X, nothing) == 0
    assert masked_mean(X, nothing, 1).tolist() == [0, 0]
    assert masked_sum(X, nothing) == 0


def test_masked_slots_get_no_gradient_whatever_they_hold():
    x = X.clone().requires_grad_()
    (masked_mean(x, MASK) + masked_sum(x, MASK)).backward()
    torch.testing.assert_close(x.grad, torch.where(MASK, 1 / 3 + 1, 0.0))


def test_means_keep_the_dtype():
    doubles = torch.ones(1, 2, dtype=torch.float64)
    everywhere = torch.ones(1, 2, dtype=torch.bool)
    for each in (masked_sum, masked_mean, masked_whiten):
        assert each(doubles, everywhere).dtype == torch.float64


def test_whiten_by_hand():
    x = torch.tensor([[1.0, 2.0, math.nan], [3.0, 1e6, 1e6]])
    torch.testing.assert_close(masked_whiten(x, MASK), torch.tensor([[-1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]))
    torch.testing.assert_close(masked_whiten(x, MASK, keep_mean=True), torch.tensor([[1.0, 2.0, 0.0], [3.0, 0.0, 0.0]]))


def test_whiten_divides_by_n_minus_1():
    """0 and 4: squares 4 + 4 over 1 = 8, not 4."""
    both = torch.ones(2, dtype=torch.bool)
    torch.testing.assert_close(masked_whiten(torch.tensor([0.0, 4.0]), both), torch.tensor([-0.5, 0.5]) * math.sqrt(2))
    kept = masked_whiten(torch.tensor([0.0, 4.0]), both, keep_mean=True)
    torch.testing.assert_close(kept, 2 + torch.tensor([-0.5, 0.5]) * math.sqrt(2))


def test_whiten_adds_1e_8_to_the_variance():
    """±1e-4 have variance 2e-8; with the 1e-8 they come out at 1e-4/√3e-8 = ±0.57735."""
    x = torch.tensor([-1e-4, 1e-4], dtype=torch.float64)
    torch.testing.assert_close(
        masked_whiten(x, torch.ones(2, dtype=torch.bool)), torch.tensor([-1.0, 1.0], dtype=torch.float64) / 3**0.5
    )


def test_whiten_of_fewer_than_two_is_0():
    one = torch.tensor([[False, True, False]])
    for keep_mean in (False, True):
        assert masked_whiten(torch.tensor([[math.nan, 5.0, 1.0]]), one, keep_mean).tolist() == [[0, 0, 0]]
        assert masked_whiten(torch.ones(1, 3), torch.zeros(1, 3, dtype=torch.bool), keep_mean).tolist() == [[0, 0, 0]]


def test_whiten_of_equal_values_is_0():
    assert masked_whiten(torch.full((2, 4), 3.0), torch.ones(2, 4, dtype=torch.bool)).abs().max() == 0


@given(st.lists(st.lists(st.tuples(st.floats(-100, 100), st.booleans()), min_size=3, max_size=3), min_size=1))
def test_whiten_equals_numpys_on_what_counts(rows):
    x = torch.tensor([[value for value, _ in row] for row in rows], dtype=torch.float64)
    mask = torch.tensor([[counts for _, counts in row] for row in rows])
    whitened = masked_whiten(torch.where(mask, x, math.nan), mask)
    assert (whitened[~mask] == 0).all()
    kept = x[mask].numpy()
    if len(kept) >= 2:
        expected = (kept - kept.mean()) / np.sqrt(kept.var(ddof=1) + 1e-8)
        np.testing.assert_allclose(whitened[mask].numpy(), expected, atol=1e-8)
    else:
        assert (whitened == 0).all()
