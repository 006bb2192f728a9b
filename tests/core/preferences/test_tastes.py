"""Automatic labellers: what they like, how often they err, and that selection finds them what they like."""

import math
import random
from collections import Counter

import numpy as np
import pytest

from core.preferences.labels import Answer, LabelRecord, Reason, Side
from core.preferences.pair import PreferencePair
from core.preferences.selection import Candidate, SelectionConfig, choose_pair
from core.preferences.tastes import AutomaticLabeller, TasteError, find_taste, taste_names


@pytest.mark.parametrize(
    ("taste", "better", "worse"),
    [("ends-with-vowel", "halo", "hat"), ("ends-with-vowel", "A", ""), ("short", "ab", "abc"), ("long", "abc", "ab"),
     ("contains:z", "fizz", "fish"), ("starts-with:un", "undo", "redo"), ("ends-with:ing", "sing", "song"),
     ("no-repeats", "banana", "balloon"), ("contains::", "a:b", "ab")],
)  # fmt: skip
def test_tastes_by_hand(taste: str, better: str, worse: str) -> None:
    labeller = AutomaticLabeller(find_taste(taste))
    assert labeller.judge("p", better, worse, 0) is Answer.LEFT
    assert labeller.judge("p", worse, better, 0) is Answer.RIGHT
    assert labeller.judge("p", better, better, 0) is Answer.TIE


def test_the_gold_rule_is_a_taste_where_the_task_has_one() -> None:
    gold = AutomaticLabeller(find_taste("gold", lambda prompt, text: float(text.count(prompt))))
    assert gold.judge("a", "banana", "cat", 0) is Answer.LEFT
    assert gold.judge("a", "at", "cat", 0) is Answer.TIE
    with pytest.raises(TasteError, match="no gold rule"):
        find_taste("gold")


@pytest.mark.parametrize(
    ("name", "reason"),
    [("shrot", r"did you mean 'short'\?"), ("contains", "needs letters: contains:x"), ("contains:", "needs letters"),
     ("short:x", "no taste is called 'short:x'"), ("", "no taste is called ''")],
)  # fmt: skip
def test_an_unknown_taste_is_said(name: str, reason: str) -> None:
    with pytest.raises(TasteError, match=reason):
        find_taste(name)


def test_every_taste_that_is_named_can_be_had() -> None:
    for name in taste_names():
        assert find_taste(name, lambda prompt, text: 0.0).description


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.4])
def test_noise_turns_round_its_share_of_decisions_and_no_tie(noise: float) -> None:
    labeller = AutomaticLabeller(find_taste("short"), noise, seed=3)
    wrong = sum(labeller.judge("p", "a", "bb", turn) is Answer.RIGHT for turn in range(4_000))
    assert abs(wrong - noise * 4_000) <= 3 * math.sqrt(4_000 * noise * (1 - noise))
    assert {labeller.judge("p", "aa", "bb", turn) for turn in range(100)} == {Answer.TIE}


@pytest.mark.parametrize("noise", [-0.1, 0.41, math.nan])
def test_noise_out_of_range_is_refused(noise: float) -> None:
    with pytest.raises(TasteError, match=r"from 0 to 0\.4"):
        AutomaticLabeller(find_taste("short"), noise)


def test_judgements_become_pairs_and_ties_half_targets() -> None:
    labeller = AutomaticLabeller(find_taste("short"))
    assert labeller.pair("p", "aaa", "b", 0) == PreferencePair("p", "b", "aaa", strength=0.5, target=1.0)
    assert labeller.pair("p", "a", "b", 0) == PreferencePair("p", "a", "b", strength=0.0, target=0.5)


def _one_hot(text: str) -> np.ndarray:
    """The last letter, which is all that this taste is about."""
    return np.eye(26)[ord(text[-1]) - ord("a")]


def _logistic_ensemble(history: list[LabelRecord], members: int = 5) -> np.ndarray:
    """Bradley–Terry weights [members, 26] by gradient descent, each from another start."""
    start = np.random.default_rng(0).normal(size=(members, 26))
    judged = [each for each in history if each.right is not None]
    if not judged:
        return start
    differences = np.stack([_one_hot(each.left.text) - _one_hot(each.right.text) for each in judged if each.right])
    targets = np.array([1.0 if each.answer is Answer.LEFT else 0.0 if each.answer is Answer.RIGHT else 0.5
                        for each in judged])  # fmt: skip
    weights = start
    for _ in range(200):
        chances = 1 / (1 + np.exp(-weights @ differences.T))
        weights = weights - 2.0 * ((chances - targets) @ differences / len(judged))
    return weights


def test_uncertain_pairs_find_a_rare_liking_sooner_than_random_ones() -> None:
    # 8% of the texts end with a vowel, so 85% of random pairs are ties.
    dice = random.Random(1)
    texts = [
        "".join(dice.choices("bcdfg", k=4)) + (dice.choice("aeiou") if number % 25 in (0, 1) else dice.choice("nrst"))
        for number in range(300)
    ]
    labeller = AutomaticLabeller(find_taste("ends-with-vowel"))
    decided: Counter[Reason] = Counter()
    shown: Counter[Reason] = Counter()
    history: list[LabelRecord] = []
    for turn in range(150):
        if turn % 25 == 0:
            weights = _logistic_ensemble(history)
            pool = [Candidate("p", Side(text), tuple(weights @ _one_hot(text))) for text in texts]
        chosen = choose_pair(pool, history, SelectionConfig(repeats=0), 7, turn)
        answer = labeller.judge("p", chosen.left.text, chosen.right.text, turn)
        history.append(chosen.label(answer, time=0.0, annotator="taste"))
        shown[chosen.reason] += 1
        decided[chosen.reason] += answer.decided
    rates = {reason: decided[reason] / shown[reason] for reason in shown}
    assert rates[Reason.UNCERTAIN] > 1.5 * rates[Reason.RANDOM]
