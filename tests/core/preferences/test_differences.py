"""Where two texts differ."""

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.preferences.differences import Span, differing_spans, similarity


def _without(text: str, spans: tuple[Span, ...]) -> str:
    inside = {position for low, high in spans for position in range(low, high)}
    return "".join(letter for position, letter in enumerate(text) if position not in inside)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [("hello", "hello", ((), ())), ("hello", "hallo", (((1, 2),), ((1, 2),))), ("", "ab", ((), ((0, 2),))),
     ("cat", "cart", ((), ((2, 3),))), ("天气很好", "天气不好", (((2, 3),), ((2, 3),))),
     ("abcd", "xbcy", (((0, 1), (3, 4)), ((0, 1), (3, 4)))), ("aa", "aaa", ((), ((2, 3),)))],
)  # fmt: skip
def test_spans_by_hand(left: str, right: str, expected: tuple) -> None:
    assert differing_spans(left, right) == expected


@given(st.text("abc", max_size=30), st.text("abc", max_size=30))
def test_without_the_spans_both_are_the_same_text(left: str, right: str) -> None:
    ours, theirs = differing_spans(left, right)
    assert _without(left, ours) == _without(right, theirs)
    for spans, text in ((ours, left), (theirs, right)):
        assert all(low < high <= len(text) for low, high in spans)
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(spans))
    assert (similarity(left, right) == 1) == (left == right)


def test_a_long_pair_takes_no_time() -> None:
    started = time.process_time()
    left, right = "a" + "xy" * 50_000 + "b", "a" + "yx" * 50_000 + "b"
    assert differing_spans(left, right) == (((1, 100_001),), ((1, 100_001),))
    assert time.process_time() - started < 1


def test_similarity_is_the_share_of_letters_in_common() -> None:
    assert similarity("hello", "hallo") == 0.8
    assert similarity("abc", "xyz") == 0
    assert similarity("", "") == 1
