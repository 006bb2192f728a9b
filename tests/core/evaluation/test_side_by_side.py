"""Averages of two sides, counted by hand."""

import pytest

from core.engine.protocol import SampleText
from core.evaluation.side_by_side import length_shares, letter_shares, summarise, win_rate


def text(
    text: str, gold: float | None = None, learned: float | None = None, kl: float | None = None, ended: bool = True
):
    return SampleText(prompt="p", text=text, ended=ended, gold_reward=gold, learned_reward=learned, kl=kl)


def test_averages_by_hand() -> None:
    side = [text("abab", 1.0, 4.0, 0.5), text("ab", 2.0, None, 1.5, ended=False), text("ab", 6.0)]
    found = summarise(side)
    assert (found.count, found.gold_reward, found.learned_reward, found.kl) == (3, 3.0, 4.0, 1.0)
    assert found.distinct_2 == pytest.approx(2 / 5)  # ab ba ab, ab, ab: two different ones of five
    assert found.unique == pytest.approx(2 / 3)
    assert (found.length, found.ended) == (pytest.approx(8 / 3), pytest.approx(2 / 3))


def test_nothing_has_no_averages() -> None:
    found = summarise([])
    assert (found.count, found.gold_reward, found.length, found.unique) == (0, None, 0.0, 0.0)
    assert win_rate([], []) is None


def test_a_win_is_a_higher_gold_reward_at_the_same_place_and_a_tie_half_of_one() -> None:
    ours = [text("a", 2.0), text("b", 1.0), text("c", 1.0), text("d")]
    theirs = [text("x", 1.0), text("y", 1.0), text("z", 3.0), text("w", 9.0)]
    assert win_rate(ours, theirs) == pytest.approx((1 + 0.5 + 0) / 3)
    assert win_rate(theirs, ours) == pytest.approx(1 - (1 + 0.5 + 0) / 3)


def test_the_learned_reward_decides_where_there_is_no_rule_and_gold_where_there_is() -> None:
    assert win_rate([text("a", None, 2.0)], [text("b", None, 1.0)]) == 1.0
    assert win_rate([text("a", 0.0, 9.0)], [text("b", 1.0, 0.0)]) == 0.0


def test_letters_and_lengths_are_shares() -> None:
    assert letter_shares(["aab", "b"]) == {"a": 0.5, "b": 0.5}
    assert length_shares(["aab", "b", "c", ""]) == {3: 0.25, 1: 0.5, 0: 0.25}
    assert letter_shares([""]) == {}
