"""Pace, bias, consistency and agreement, against counts by hand."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from label_makers import label

from core.preferences.labels import Answer, LabelRecord, Reason
from core.preferences.quality import (
    Cycle,
    Rate,
    gold_agreement,
    intransitive_triples,
    label_quality,
    labels_per_minute,
    left_pick_rate,
    model_change,
    next_label_accuracy,
    self_agreement,
    wilson_interval,
)


@pytest.mark.parametrize(
    ("successes", "count", "low", "high"),
    [(0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1.0), (81, 263, 0.2553, 0.3662)],
)
def test_wilson_intervals_are_those_of_the_literature(successes: int, count: int, low: float, high: float) -> None:
    # 81 of 263: Newcombe 1998 (Stat. Med. 17, 857–872), table I, method 3; the others solve (p̂−p)² = z²p(1−p)/n.
    assert wilson_interval(successes, count) == pytest.approx((low, high), abs=1e-4)


@given(st.integers(1, 500), st.data())
def test_wilson_bounds_solve_the_score_equation(count: int, data: st.DataObject) -> None:
    successes = data.draw(st.integers(0, count))
    share = successes / count
    for bound in wilson_interval(successes, count):
        assert (share - bound) ** 2 == pytest.approx(1.959964**2 * bound * (1 - bound) / count, abs=1e-9)


def test_a_rate_of_nothing_is_a_dash() -> None:
    assert str(Rate(0, 0)) == "–" and math.isnan(Rate(0, 0).value) and Rate(0, 0).interval == (0.0, 1.0)
    assert str(Rate(5, 10)) == "50% (24%–76%, n=10)"


def test_pace_counts_looking_time_and_not_breaks() -> None:
    # 2 + 4 + an hour away, which counts as a minute: 3 labels in 66 seconds.
    assert labels_per_minute([label(latency=each) for each in (2.0, 4.0, 3600.0)]) == pytest.approx(180 / 66)
    assert math.isnan(labels_per_minute([label()]))


def test_a_correction_keeps_the_repeat_of_what_it_corrects() -> None:
    first = label("aa", "bb", Answer.LEFT, id="a")
    again = label("bb", "aa", Answer.RIGHT, id="r", reason=Reason.REPEAT, repeats="a")  # aa preferred both times
    assert self_agreement([first, again]) == Rate(1, 1)
    once = first.corrected("b", 1.0, answer=Answer.RIGHT)
    assert self_agreement([once, again]) == Rate(0, 1)
    twice = once.corrected("c", 2.0, answer=Answer.LEFT_MUCH)
    assert (twice.replaces, twice.original, twice.root) == ("b", "a", "a")
    assert self_agreement([twice, again]) == Rate(1, 1)
    # The repeat, too, may be corrected.
    assert self_agreement([twice, again.corrected("s", 3.0, answer=Answer.LEFT)]) == Rate(0, 1)


def test_left_picks_count_decided_labels() -> None:
    answers = (Answer.LEFT, Answer.LEFT_MUCH, Answer.RIGHT_SLIGHTLY, Answer.TIE, Answer.SKIP, Answer.BOTH_BAD)
    assert left_pick_rate([label(answer=each) for each in answers]) == Rate(2, 3)


@pytest.mark.parametrize(
    ("first", "again", "agrees"),
    [(Answer.LEFT, Answer.RIGHT, True), (Answer.LEFT_MUCH, Answer.RIGHT_SLIGHTLY, True),
     (Answer.LEFT, Answer.LEFT, False), (Answer.TIE, Answer.TIE, True), (Answer.TIE, Answer.LEFT, False),
     (Answer.BOTH_BAD, Answer.BOTH_BAD, True), (Answer.BOTH_BAD, Answer.TIE, False)],
)  # fmt: skip
def test_agreement_with_oneself_is_about_texts_not_sides(first: Answer, again: Answer, agrees: bool) -> None:
    labels = [
        label("a", "b", first, id="one"),
        label("b", "a", again, reason=Reason.REPEAT, repeats="one"),
        label("b", "a", again, reason=Reason.REPEAT, repeats="deleted"),
        label("b", "a", Answer.SKIP, reason=Reason.REPEAT, repeats="one"),
    ]
    assert self_agreement(labels) == Rate(int(agrees), 1)


def _tournament(orders: str, prompt: str = "p") -> list[LabelRecord]:
    return [label(each[0], each[2], prompt=prompt) for each in orders.split()]


def test_a_cycle_is_found_once_and_a_ranking_is_none() -> None:
    assert intransitive_triples(_tournament("a>b b>c c>a")) == ([Cycle("p", ("a", "b", "c"))], 1)
    assert intransitive_triples(_tournament("a>b b>c a>c")) == ([], 1)
    assert intransitive_triples(_tournament("a>b b>c")) == ([], 0)
    assert intransitive_triples(_tournament("a>b b>c") + _tournament("c>a", "q")) == ([], 0)


def test_a_pair_judged_both_ways_counts_by_its_majority() -> None:
    assert intransitive_triples(_tournament("a>b b>c c>a a>c"))[0] == []
    assert len(intransitive_triples(_tournament("a>b b>c c>a c>a a>c"))[0]) == 1


@given(st.lists(st.booleans(), min_size=15, max_size=15))
def test_cycles_of_a_tournament_of_six_agree_with_enumeration(outcomes: list[bool]) -> None:
    beats = {
        (one, other) if first else (other, one)
        for (one, other), first in zip(itertools.combinations("abcdef", 2), outcomes, strict=True)
    }
    expected = sum(
        {(a, b), (b, c), (c, a)} <= beats or {(b, a), (c, b), (a, c)} <= beats
        for a, b, c in itertools.combinations("abcdef", 3)
    )
    cycles, triples = intransitive_triples(label(better, worse) for better, worse in beats)
    assert (len(cycles), triples) == (expected, 20)
    for each in cycles:
        a, b, c = each.texts
        assert {(a, b), (b, c), (c, a)} <= beats


def test_agreement_with_the_gold_rule_counts_equal_scores_half() -> None:
    labels = [label("aaa", "b"), label("b", "aaa"), label("bb", "cc"), label("a", "bb", Answer.TIE)]
    assert gold_agreement(labels, lambda _, text: float(len(text))) == Rate(1.5, 3)


def test_next_label_accuracy_leaves_out_repeats_and_unscored_labels() -> None:
    right = {"left_score": 1.0, "right_score": 0.0}
    labels = [
        label(answer=Answer.LEFT, **right),
        label(answer=Answer.RIGHT, **right),
        label(answer=Answer.RIGHT, reason=Reason.UNCERTAIN, **right),
        label(answer=Answer.LEFT, left_score=1.0, right_score=1.0),
        label(answer=Answer.LEFT, reason=Reason.REPEAT, repeats="x", **right),
        label(answer=Answer.TIE, **right),
        label(answer=Answer.LEFT),
    ]
    assert next_label_accuracy(labels) == Rate(1.5, 4)
    assert next_label_accuracy(labels, (Reason.RANDOM,)) == Rate(1.5, 3)


def test_the_panel_has_a_line_for_each_measure_and_warns_of_a_side() -> None:
    labels = [label(f"a{number}", f"b{number}", latency=2.0) for number in range(30)]
    quality = label_quality(labels, gold=lambda _, text: 0.0)
    lines = "\n".join(quality.lines())
    assert "labels per minute         30.0" in lines
    assert "left preferred            100% (89%–100%, n=30)  (a side is favoured)" in lines
    assert "agreement with yourself   –" in lines
    assert "agreement with gold rule  50%" in lines
    assert "gold" not in "\n".join(label_quality([]).lines())


def test_what_retraining_did_to_the_labels_is_one_line() -> None:
    labels = [label(id="a"), label(id="b"), label(id="c", answer=Answer.RIGHT), label(id="d", answer=Answer.TIE)]
    before = {"a": (0.0, 1.0), "b": (1.0, 0.0), "c": (0.0, 1.0), "d": (0.0, 1.0)}
    after = {"a": (1.0, 0.0), "b": (1.0, 0.0), "c": (1.0, 0.0), "d": (1.0, 0.0)}
    change = model_change(labels, before, after)
    assert change.line() == "accuracy 67% → 67% on 3 labels; 2 pairs flipped, 1 of them to agree with you"
    assert [each.id for each in change.flipped] == ["a", "c"]
    assert model_change(labels, before, before).line() == "accuracy 67% → 67% on 3 labels; no pair flipped"
    assert model_change([], {}, {}).line() == "no decided labels to measure the reward model on"
