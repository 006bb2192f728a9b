"""Expected values: by hand, or by the double sum Σ (γλ)^l δ_{t+l} written out in plain Python."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.advantages import gae, group_advantages, rloo_advantages


def all_true(x: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(x, dtype=torch.bool)


def gae_by_sums(rewards: list[float], values: list[float], gamma: float, lam: float) -> list[float]:
    n = len(rewards)
    following = [*values[1:], 0.0]
    delta = [rewards[t] + gamma * following[t] - values[t] for t in range(n)]
    return [sum((gamma * lam) ** (k - t) * delta[k] for k in range(t, n)) for t in range(n)]


def test_gae_of_the_textbook_example():
    rewards = torch.tensor([[0.0, 0.0, 0.0, 1.0]])
    advantages, returns = gae(rewards, rewards, all_true(rewards), gamma=0.9, lam=0.95)
    torch.testing.assert_close(advantages, torch.tensor([[0.657923, 0.7695, 0.9, 0.0]]), atol=1e-6, rtol=0)
    torch.testing.assert_close(returns, torch.tensor([[0.657923, 0.7695, 0.9, 1.0]]), atol=1e-6, rtol=0)


def test_lambda_0_gives_the_one_step_error():
    rewards, values = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[0.5, -1.0, 4.0]])
    advantages, _ = gae(rewards, values, all_true(values), gamma=0.5, lam=0.0)
    assert advantages.tolist() == [[1 - 0.5 - 0.5, 2 + 2 + 1, 3 - 4]]


def test_lambda_1_gives_discounted_return_minus_value():
    rewards, values = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[0.5, -1.0, 4.0]])
    advantages, returns = gae(rewards, values, all_true(values), gamma=0.5, lam=1.0)
    assert returns.tolist() == [[1 + 1 + 0.75, 2 + 1.5, 3]]
    assert advantages.tolist() == [[2.75 - 0.5, 3.5 + 1, 3 - 4]]


def test_without_discount_or_values_it_is_the_reward_to_come():
    rewards = torch.tensor([[1.0, -2.0, 3.0, 0.5]])
    advantages, returns = gae(rewards, torch.zeros_like(rewards), all_true(rewards), 1.0, 1.0)
    assert advantages.tolist() == returns.tolist() == [[2.5, 1.5, 3.5, 0.5]]


def test_no_value_is_read_behind_the_end():
    """The value that a critic gives on padding, or that ends a cut-off row, is not bootstrapped from."""
    rewards, values = torch.tensor([[0.0, 1.0, 77.0]]), torch.tensor([[0.25, 0.5, 99.0]])
    mask = torch.tensor([[True, True, False]])
    advantages, returns = gae(rewards, values, mask, 1.0, 1.0)
    assert advantages.tolist() == [[0.75, 0.5, 0]]
    assert returns.tolist() == [[1, 1, 0]]


def test_gae_of_a_single_token_is_reward_minus_value():
    advantages, returns = gae(torch.tensor([[2.0]]), torch.tensor([[0.5]]), torch.tensor([[True]]), 0.9, 0.9)
    assert (advantages.item(), returns.item()) == (1.5, 2)


row = st.integers(0, 6).flatmap(
    lambda n: st.tuples(
        st.lists(st.floats(-5, 5), min_size=n, max_size=n), st.lists(st.floats(-5, 5), min_size=n, max_size=n)
    )
)


@given(st.lists(row, min_size=1, max_size=4), st.floats(0, 1), st.floats(0, 1), st.sampled_from([0.0, 1e6, math.nan]))
def test_gae_of_any_batch_is_each_rows_double_sum_whatever_padding_holds(rows, gamma, lam, filler):
    longest = max(1, *(len(rewards) for rewards, _ in rows)) + 1
    rewards = torch.full((len(rows), longest), filler, dtype=torch.float64)
    values, mask = rewards.clone(), torch.zeros(len(rows), longest, dtype=torch.bool)
    for i, (r, v) in enumerate(rows):
        rewards[i, : len(r)], values[i, : len(v)] = torch.tensor(r).double(), torch.tensor(v).double()
        mask[i, : len(r)] = True
    before = rewards.clone(), values.clone()
    advantages, returns = gae(rewards, values, mask, gamma, lam)
    assert torch.equal(torch.nan_to_num(rewards), torch.nan_to_num(before[0]))
    assert torch.equal(torch.nan_to_num(values), torch.nan_to_num(before[1]))
    for i, (r, v) in enumerate(rows):
        expected = gae_by_sums(rewards[i, : len(r)].tolist(), values[i, : len(v)].tolist(), gamma, lam)
        assert advantages[i].tolist() == pytest.approx(expected + [0] * (longest - len(r)), abs=1e-9)
        with_values = [a + b for a, b in zip(expected, values[i].tolist(), strict=False)]
        assert returns[i].tolist() == pytest.approx(with_values + [0] * (longest - len(r)), abs=1e-9)


def test_gae_of_rows_in_another_order_is_in_that_order():
    rewards, values = torch.randn(5, 4), torch.randn(5, 4)
    mask = torch.arange(4) < torch.tensor([4, 1, 0, 3, 2]).unsqueeze(1)
    order = torch.tensor([3, 0, 4, 2, 1])
    for whole, permuted in zip(
        gae(rewards, values, mask, 0.9, 0.8),
        gae(rewards[order], values[order], mask[order], 0.9, 0.8),
        strict=True,
    ):
        assert torch.equal(whole[order], permuted)


def test_group_advantages_by_hand():
    """1, 2, 3, 6: mean 3, variance (4 + 1 + 0 + 9)/3 with n − 1, not 14/4."""
    rewards = torch.tensor([[1.0, 2.0, 3.0, 6.0]])
    centred = torch.tensor([[-2.0, -1.0, 0.0, 3.0]])
    torch.testing.assert_close(group_advantages(rewards), centred / (math.sqrt(14 / 3) + 1e-4), rtol=1e-6, atol=0)
    torch.testing.assert_close(group_advantages(rewards, scale="none"), centred)


def test_group_std_gets_1e_4_added():
    """±1e-4/√2 has a standard deviation of exactly 1e-4, so the result is ±½/√2 and not ±1/√2."""
    rewards = torch.tensor([[-1e-4, 1e-4]], dtype=torch.float64) / math.sqrt(2)
    torch.testing.assert_close(
        group_advantages(rewards), torch.tensor([[-0.5, 0.5]], dtype=torch.float64) / math.sqrt(2)
    )


def test_rloo_advantages_by_hand():
    found = rloo_advantages(torch.tensor([[1.0, 2.0, 6.0], [0.0, 0.0, 3.0]]))
    torch.testing.assert_close(found, torch.tensor([[1 - 4.0, 2 - 3.5, 6 - 1.5], [-1.5, -1.5, 3.0]]))
    torch.testing.assert_close(rloo_advantages(torch.tensor([[1.0, 5.0]])), torch.tensor([[-4.0, 4.0]]))


@pytest.mark.parametrize("reward", [0.1, 1e6 + 0.1, -3.3, 0.0])
@pytest.mark.parametrize("members", [1, 2, 3, 7, 9])
def test_groups_without_difference_give_exactly_0(reward, members):
    """0.1 has no exact float: a mean off by one bit over a deviation of 0 is how advantages of 10⁶ come about."""
    rewards = torch.full((2, members), reward)
    for found in (group_advantages(rewards), group_advantages(rewards, scale="none"), rloo_advantages(rewards)):
        assert found.tolist() == [[0] * members] * 2


def test_a_degenerate_group_is_told_from_its_neighbours():
    """Nine times 0.1 in float32 has a mean one bit off."""
    rewards = torch.stack([torch.full((9,), 0.1), torch.arange(9.0)])
    assert (rewards[0] - rewards[0].mean()).abs().max() > 0
    for advantages in (group_advantages, rloo_advantages):
        found = advantages(rewards)
        assert found[0].tolist() == [0] * 9
        torch.testing.assert_close(found[1:], advantages(rewards[1:]))
        assert found[1, 0] < 0 < found[1, 8]


def test_members_that_share_only_their_first_rewards_are_not_equal():
    assert group_advantages(torch.tensor([[1.0, 1.0, 2.0]]))[0, 2] > 0
    assert rloo_advantages(torch.tensor([[1.0, 1.0, 2.0]]))[0].tolist() == [-0.5, -0.5, 1.0]


@given(st.lists(st.lists(st.floats(-50, 50), min_size=4, max_size=4), min_size=1, max_size=3), st.floats(-50, 50))
def test_a_groups_advantages_sum_to_0_and_do_not_feel_a_shift(rows, shift):
    rewards = torch.tensor(rows, dtype=torch.float64)
    for found, shifted in (
        (group_advantages(rewards, "none"), group_advantages(rewards + shift, "none")),
        (rloo_advantages(rewards), rloo_advantages(rewards + shift)),
    ):
        assert found.sum(1).abs().max() < 1e-9
        torch.testing.assert_close(found, shifted, atol=1e-9, rtol=1e-9)
    assert torch.isfinite(group_advantages(rewards)).all()
    assert group_advantages(rewards).abs().max() <= 3 / 2 + 1e-9  # the most there is among four: (n − 1)/√n


def test_another_scale_is_refused():
    with pytest.raises(ValueError, match=r"^scale must be std or none, not 'var'$"):
        group_advantages(torch.ones(1, 2), scale="var")
