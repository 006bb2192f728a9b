"""Warnings about sets of pairs that would spoil training."""

import pytest

from core.preferences.pair import PreferencePair
from core.preferences.pair_checks import check_pairs

GOOD = [PreferencePair(f"p{n}", f"good{n * 37}", f"unlike{n * 91}") for n in range(60)]


def _kinds(pairs: list[PreferencePair]) -> set[str]:
    return {each.kind for each in check_pairs(pairs)}


def test_good_pairs_have_no_warning() -> None:
    assert check_pairs(GOOD) == []


def test_few_pairs() -> None:
    assert _kinds(GOOD[:49]) == {"few"}
    assert _kinds(GOOD[:50]) == set()
    assert _kinds([]) == {"few"}


def test_ties_do_not_count_as_decided() -> None:
    ties = [PreferencePair(f"q{n}", f"x{n}yz", f"other{n}", target=0.5) for n in range(60)]
    assert _kinds(ties) == {"few"}
    assert _kinds(GOOD[:49] + ties) == {"few"}


@pytest.mark.parametrize(("same", "warned"), [(60, True), (48, True), (47, False)])
def test_all_chosen_are_one_answer(same: int, warned: bool) -> None:
    pairs = [
        PreferencePair(each.prompt, "yes" if n < same else each.chosen, each.rejected) for n, each in enumerate(GOOD)
    ]
    assert ("one_answer" in _kinds(pairs)) == warned


def test_chosen_and_rejected_hardly_differ() -> None:
    alike = [PreferencePair(f"p{n}", f"the long answer {n}!", f"the long answer {n}?") for n in range(60)]
    assert _kinds(alike) == {"alike"}
    assert _kinds(alike[:29] + GOOD[:31]) == set()
    assert _kinds(alike[:30] + GOOD[:30]) == {"alike"}


def test_judgements_contradict() -> None:
    first = GOOD[0]
    pairs = [*GOOD, PreferencePair(first.prompt, first.rejected, first.chosen)]
    warning = check_pairs(pairs)
    assert [each.kind for each in warning] == ["contradiction"]
    assert warning[0].message.startswith("1 pair was judged both ways")
    elsewhere = [*GOOD, PreferencePair("another prompt", first.rejected, first.chosen)]
    assert check_pairs(elsewhere) == []


def test_each_message_is_one_short_line_even_for_long_texts() -> None:
    pairs = [PreferencePair("p" * 500, "a" * 5000, "a" * 4999 + "b") for _ in range(5)]
    pairs.append(PreferencePair("p" * 500, "a" * 4999 + "b", "a" * 5000))
    warnings = check_pairs(pairs)
    assert {each.kind for each in warnings} == {"few", "one_answer", "alike", "contradiction"}
    assert all(len(each.message) < 200 and "\n" not in each.message for each in warnings)
