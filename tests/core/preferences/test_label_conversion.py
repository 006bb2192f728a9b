"""The table of what each answer becomes, row by row."""

import pytest
from label_makers import label

from core.preferences.best_worst import best_worst_labels, best_worst_orders
from core.preferences.conversion import (
    count_labels,
    decided_pairs,
    for_measuring,
    for_training,
    pairs_with_ties,
    training_effect,
    unpaired_examples,
    unpaired_from_pairs,
)
from core.preferences.labels import Answer, LabelError, Side
from core.preferences.pair import PreferencePair, UnpairedExample


@pytest.mark.parametrize(
    ("answer", "chosen", "rejected", "strength"),
    [(Answer.LEFT_MUCH, "l", "r", 1.0), (Answer.LEFT, "l", "r", 0.5), (Answer.LEFT_SLIGHTLY, "l", "r", 0.0),
     (Answer.RIGHT_SLIGHTLY, "r", "l", 0.0), (Answer.RIGHT, "r", "l", 0.5), (Answer.RIGHT_MUCH, "r", "l", 1.0)],
)  # fmt: skip
def test_a_decision_is_a_pair_for_reward_model_dpo_and_export(
    answer: Answer, chosen: str, rejected: str, strength: float
) -> None:
    pair = PreferencePair("p", chosen, rejected, strength=strength, target=1.0, source="labels")
    assert decided_pairs([label("l", "r", answer)]) == [pair]
    assert pairs_with_ties([label("l", "r", answer)]) == [pair]
    assert unpaired_examples([label("l", "r", answer)]) == []


def test_a_tie_is_target_one_half_for_the_reward_model_and_nothing_else() -> None:
    tie = [label("l", "r", Answer.TIE)]
    assert pairs_with_ties(tie) == [PreferencePair("p", "l", "r", strength=0.0, target=0.5, source="labels")]
    assert decided_pairs(tie) == []
    assert unpaired_examples(tie) == []


def test_both_bad_is_two_unpaired_examples_with_label_false_and_no_pair() -> None:
    bad = [label("l", "r", Answer.BOTH_BAD)]
    assert unpaired_examples(bad) == [UnpairedExample("p", "l", False), UnpairedExample("p", "r", False)]
    assert pairs_with_ties(bad) == []


def test_a_skip_is_nothing() -> None:
    skip = [label("l", "r", Answer.SKIP)]
    assert pairs_with_ties(skip) == decided_pairs(skip) == unpaired_examples(skip) == []


def test_judgements_of_one_text_are_unpaired_examples() -> None:
    single = [label("l", None, Answer.GOOD), label("l", None, Answer.BAD)]
    assert unpaired_examples(single) == [UnpairedExample("p", "l", True), UnpairedExample("p", "l", False)]
    assert pairs_with_ties(single) == []


def test_pairs_for_kto_are_a_good_and_a_bad_example_each_without_ties() -> None:
    pairs = pairs_with_ties([label("l", "r", Answer.RIGHT), label("x", "y", Answer.TIE)])
    assert unpaired_from_pairs(pairs) == [UnpairedExample("p", "r", True), UnpairedExample("p", "l", False)]


def test_held_out_labels_are_measured_on_and_never_trained_on() -> None:
    kept, trained = label(held_out=True), label()
    assert for_training([kept, trained]) == [trained]
    assert for_measuring([kept, trained]) == [kept]


def test_counts_are_said_without_what_there_is_none_of() -> None:
    labels = [label(), label(held_out=True), label(answer=Answer.TIE), label(answer=Answer.BOTH_BAD)]
    assert count_labels(labels).line() == "2 decided, 1 tie, 1 both bad, 1 held out"
    assert count_labels([]).line() == "no labels"


@pytest.mark.parametrize("answer", list(Answer))
def test_every_answer_has_a_line_for_the_footer(answer: Answer) -> None:
    assert len(training_effect(answer)) > 10


def test_best_and_worst_of_four_give_the_five_pairs_that_follow() -> None:
    # Best C, worst A of A B C D: C>A, C>B, C>D, B>A, D>A; B and D are not compared.
    assert set(best_worst_orders(2, 0)) == {(2, 0), (2, 1), (2, 3), (1, 0), (3, 0)}


@pytest.mark.parametrize("best", range(4))
@pytest.mark.parametrize("worst", range(4))
def test_best_and_worst_labels_keep_the_sides_of_the_screen(best: int, worst: int) -> None:
    shown = [Side(text) for text in "ABCD"]
    if best == worst:
        with pytest.raises(LabelError, match="two different ones of 4"):
            best_worst_labels("p", shown, best, worst, time=0.0, annotator="me")
        return
    labels = best_worst_labels("p", shown, best, worst, time=0.0, annotator="me")
    assert len({each.id for each in labels}) == 5 and len({each.group for each in labels}) == 1
    assert all(each.right is not None and each.left.text < each.right.text for each in labels)
    pairs = {(pair.chosen, pair.rejected) for pair in decided_pairs(labels)}
    middle = [text for text in "ABCD" if text not in ("ABCD"[best], "ABCD"[worst])]
    assert pairs == {("ABCD"[best], "ABCD"[worst])} | {("ABCD"[best], each) for each in middle} | {
        (each, "ABCD"[worst]) for each in middle
    }


def test_four_of_which_two_are_the_same_are_refused() -> None:
    with pytest.raises(LabelError, match="the same"):
        best_worst_labels("p", [Side(text) for text in "ABCA"], 0, 1, time=0.0, annotator="me")
