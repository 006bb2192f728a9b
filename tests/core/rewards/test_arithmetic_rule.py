"""The verifiable reward of sums, by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.rewards.arithmetic import arithmetic_rule, is_right, numbers, working


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (2, 3, "2+3"), (0, 0, "0+0"), (4, 6, "4+6"), (7, 8, "7+3+5"), (9, 9, "9+1+8"), (9, 2, "9+1+1"),
        (47, 38, "70+15"), (40, 50, "90+0"), (10, 7, "10+7"),
    ],
)  # fmt: skip
def test_working_goes_by_way_of_ten_or_by_columns(a, b, expected):
    assert working(a, b) == expected


@given(st.integers(0, 99), st.integers(0, 99))
def test_working_adds_up(a, b):
    assert sum(map(int, working(a, b).split("+"))) == a + b


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        ("<7+3+5>[15]", 12), ("<7+8>[15]", 10), ("<>[15]", 10), ("<7+3+5>[14]", 7), ("<9>[16]", 5), ("<7+3+5>[13]", 2),
        ("<7+8>[17]", 0), ("[15]", 0), ("15", 0), ("", 0), ("<7+3+5>[15]9", 0), ("<7+3+5>[015]", 0), ("<7+3+5>15", 0),
        ("<7+3+5>[15", 0), ("<<7+3+5>[15]", 0), ("<7+3+5>[]", 0),
    ],
)  # fmt: skip
def test_ten_for_right_five_beside_it_two_for_working_nothing_without_the_form(completion, expected):
    assert arithmetic_rule("7+8=", completion) == expected
    assert arithmetic_rule("7+8=", completion, scaled=True) == pytest.approx(expected / 10)
    assert is_right("7+8=", completion) == (expected >= 10)


def test_the_reward_for_working_can_be_set():
    assert arithmetic_rule("7+8=", "<7+3+5>[15]", working_reward=0) == 10
    assert arithmetic_rule("7+8=", "<7+3+5>[1]", working_reward=4.5) == 4.5


def test_what_is_no_sum_has_no_right_answer():
    for prompt in ("", "7+8", "7-8=", "x+8=", "07+8=", "7+8=15", "700+8="):
        assert numbers(prompt) is None
        assert arithmetic_rule(prompt, "<7+3+5>[15]") == 0
        assert not is_right(prompt, "<7+3+5>[15]")
    assert numbers("47+0=") == (47, 0)
