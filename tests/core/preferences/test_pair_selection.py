"""Which pair comes next: shares, sides, the held-out slice, repeats, and an end that is said."""

import math
import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from label_makers import label

from core.config import ConfigError
from core.preferences.labels import Answer, LabelRecord, Reason, Side
from core.preferences.selection import (
    Candidate,
    NothingToLabelError,
    SelectionConfig,
    choose_four,
    choose_pair,
    duplicates_line,
    is_held_out,
    uncertainty,
)


def _pool(texts: dict[str, list[str]], source: str = "policy") -> list[Candidate]:
    return [Candidate(prompt, Side(text, source)) for prompt, each in texts.items() for text in each]


def _words(count: int, prompt: str = "p", source: str = "policy") -> list[Candidate]:
    return _pool({prompt: [f"{source}-{number}" for number in range(count)]}, source)


def _scored(count: int, prompt: str = "p") -> list[Candidate]:
    return [Candidate(prompt, Side(f"w{number}"), (number / 7, number % 5 / 3)) for number in range(count)]


def _label(pool: list[Candidate], turns: int, config: SelectionConfig, seed: int = 1) -> list[LabelRecord]:
    history: list[LabelRecord] = []
    for turn in range(turns):
        chosen = choose_pair(pool, history, config, seed, turn)
        history.append(chosen.label(Answer.LEFT, time=float(turn), annotator="me"))
    return history


def test_each_source_stands_left_half_of_the_time() -> None:
    ours, theirs = _words(60, source="policy"), _words(60, source="reference")
    config = SelectionConfig()
    left = Counter(
        choose_pair(ours + theirs, [], config, seed=5, turn=turn).left.source for turn in range(2_000)
    )  # fmt: skip
    three_sigma = 3 * math.sqrt(2_000 * 0.25)
    assert set(left) == {"policy", "reference"}
    assert abs(left["policy"] - 1_000) <= three_sigma


def test_the_side_does_not_depend_on_the_order_of_the_pool_or_on_the_text() -> None:
    pool = _pool({"p": ["aaa", "zzz"]})
    lefts = [choose_pair(pool, [], SelectionConfig(), seed=3, turn=turn).left.text for turn in range(2_000)]
    assert lefts == [
        choose_pair(pool[::-1], [], SelectionConfig(), seed=3, turn=turn).left.text for turn in range(2_000)
    ]
    assert abs(lefts.count("aaa") - 1_000) <= 3 * math.sqrt(500)


def test_the_reasons_come_in_the_shares_of_the_config() -> None:
    # A history that is never judged upon: 300 old pairs to repeat, and a pool of scored texts that stay fresh.
    history = [label(f"x{number}", f"y{number}") for number in range(300)]
    pool = _scored(40)
    reasons = Counter(choose_pair(pool, history, SelectionConfig(), 2, turn).reason for turn in range(1_000))
    for reason, share in ((Reason.RANDOM, 0.5), (Reason.UNCERTAIN, 0.4), (Reason.REPEAT, 0.1)):
        assert abs(reasons[reason] - 1_000 * share) <= 3 * math.sqrt(1_000 * share * (1 - share))


def test_the_shares_can_be_set_and_cannot_all_be_nothing() -> None:
    pool = _scored(30)
    only = SelectionConfig(random=0, uncertain=1, repeats=0)
    assert all(each.reason is Reason.UNCERTAIN for each in _label(pool, 50, only))
    with pytest.raises(ConfigError, match="cannot all be 0"):
        SelectionConfig(random=0, uncertain=0, repeats=0)


def test_no_pair_is_shown_twice_but_as_a_repeat_with_its_sides_exchanged() -> None:
    config = SelectionConfig(repeat_gap=5)
    history = _label(_scored(40), 300, config)
    first: dict[frozenset[str], LabelRecord] = {}
    repeats = 0
    for position, each in enumerate(history):
        if each.reason is not Reason.REPEAT:
            assert first.setdefault(frozenset(each.texts), each) is each
            continue
        repeats += 1
        original = next(other for other in history if other.id == each.repeats)
        assert each.texts == original.texts[::-1]
        assert each.held_out == original.held_out
        assert position - history.index(original) >= config.repeat_gap
    assert repeats > 10
    assert len({each.repeats for each in history if each.repeats}) == repeats


def test_the_held_out_slice_is_a_fixed_share_of_the_random_pairs_and_of_no_uncertain_one() -> None:
    config = SelectionConfig(held_out=0.2)
    history = [each for seed in range(4) for each in _label(_scored(60), 150, config, seed)]
    random = [each for each in history if each.reason is Reason.RANDOM]
    held_out = sum(each.held_out for each in random)
    assert abs(held_out - 0.2 * len(random)) <= 3 * math.sqrt(len(random) * 0.16)
    assert not any(each.held_out for each in history if each.reason is Reason.UNCERTAIN)


def test_an_uncertain_pair_is_never_one_that_the_slice_would_hold_out() -> None:
    config = SelectionConfig(random=0, uncertain=1, repeats=0, held_out=0.5)
    for each in _label(_scored(30), 100, config, seed=9):
        assert not is_held_out(each.prompt, each.texts, 9, 0.5)


@given(st.text(max_size=5), st.text(max_size=5), st.text(max_size=5), st.integers())
def test_the_slice_does_not_depend_on_the_order_of_the_sides(prompt: str, one: str, other: str, seed: int) -> None:
    assert is_held_out(prompt, (one, other), seed, 0.5) == is_held_out(prompt, (other, one), seed, 0.5)


def test_the_most_uncertain_pair_is_chosen() -> None:
    config = SelectionConfig(random=0, uncertain=1, repeats=0, held_out=0)
    single = [Candidate("p", Side(text), (score,)) for text, score in (("a", 0.0), ("b", 3.0), ("c", 3.1), ("d", 9.0))]
    chosen = choose_pair(single, [], config, 1, 0)
    assert {chosen.left.text, chosen.right.text} == {"b", "c"}
    # Members agree that a = b (a tie teaches nothing) and disagree about c against the others.
    scores = {"a": (0.0, 0.0), "b": (0.0, 0.0), "c": (-4.0, 4.0)}
    ensemble = [Candidate("p", Side(text), each) for text, each in scores.items()]
    chosen = choose_pair(ensemble, [], config, 1, 0)
    assert "c" in {chosen.left.text, chosen.right.text}


def test_uncertainty_by_hand() -> None:
    log3 = math.log(3)
    single = uncertainty(np.array([[1.0], [log3], [-1000.0]]), np.array([[1.0], [0.0], [1000.0]]))
    assert single == pytest.approx([0.5, 0.25, 0.0])
    # Probabilities 3/4 and 1/4: variance 1/16. Sure members, and members that agree on a tie: nothing to learn.
    ensemble = uncertainty(
        np.array([[log3, 0.0], [1000.0, 1000.0], [2.0, 5.0]]), np.array([[0.0, log3], [-1000.0, -1000.0], [2.0, 5.0]])
    )
    assert ensemble == pytest.approx([1 / 16, 0.0, 0.0])


def test_one_odd_text_does_not_come_again_and_again() -> None:
    config = SelectionConfig(random=0, uncertain=1, repeats=0, held_out=0)
    pool = [Candidate("p", Side(f"w{number}"), (number / 50, number / 50 + number % 3 / 10)) for number in range(40)]
    pool.append(Candidate("p", Side("odd"), (-3.0, 3.0)))
    shown = Counter(text for each in _label(pool, 20, config) for text in each.texts)
    assert 1 <= shown["odd"] <= 8


def test_without_scores_a_random_pair_comes_and_says_so() -> None:
    chosen = choose_pair(_words(5), [], SelectionConfig(random=0, uncertain=1, repeats=0), 1, 0)
    assert chosen.reason is Reason.RANDOM and "no scored pair" in chosen.note
    chosen = choose_pair(_words(5), [], SelectionConfig(random=0, uncertain=0, repeats=1), 1, 0)
    assert chosen.reason is Reason.RANDOM and "old enough" in chosen.note


def test_the_same_seed_and_turn_choose_the_same_pair() -> None:
    pool = _words(30)
    chosen = [choose_pair(pool, [], SelectionConfig(), 4, turn) for turn in range(20)]
    assert chosen == [choose_pair(pool, [], SelectionConfig(), 4, turn) for turn in range(20)]
    assert len({frozenset((each.left.text, each.right.text)) for each in chosen}) > 10


@given(
    st.dictionaries(st.sampled_from("pq"), st.lists(st.sampled_from(["a", "b", "c"]), max_size=8), max_size=2),
    st.integers(0, 50),
)
def test_every_pair_of_different_texts_is_shown_once_and_then_it_ends(texts: dict[str, list[str]], seed: int) -> None:
    config = SelectionConfig(random=1, uncertain=0, repeats=0)
    sizes = [len(set(each)) for each in texts.values()]
    history: list[LabelRecord] = []
    for turn in range(sum(size * (size - 1) // 2 for size in sizes)):
        chosen = choose_pair(_pool(texts), history, config, seed, turn)
        assert chosen.left.text != chosen.right.text
        history.append(chosen.label(Answer.TIE, time=0.0, annotator="me"))
    with pytest.raises(NothingToLabelError):
        choose_pair(_pool(texts), history, config, seed, 99)


@pytest.mark.parametrize(
    ("pool", "reason"),
    [([], "no completions to choose from"), (_pool({"p": ["a"], "q": ["b"]}), "one completion: draw at least two"),
     (_pool({"p": ["a"] * 64, "q": ["b"] * 64}), "only duplicates are left among 128 completions of 2 prompts"),
     (_pool({"p": ["a"]}, "policy") + _pool({"p": ["a"]}, "reference"), "only duplicates are left among 2")],
)  # fmt: skip
def test_when_nothing_is_left_it_says_why(pool: list[Candidate], reason: str) -> None:
    with pytest.raises(NothingToLabelError, match=reason):
        choose_pair(pool, [], SelectionConfig(), 1, 0)


def test_when_all_is_judged_it_says_so() -> None:
    pool = _pool({"p": ["a", "b"]})
    history = _label(pool, 1, SelectionConfig())
    with pytest.raises(NothingToLabelError, match="every pair among 2 completions of 1 prompt has been judged"):
        choose_pair(pool, history, SelectionConfig(), 1, 1)


def test_pairs_of_one_source_are_allowed_where_that_is_set() -> None:
    pool = _words(10, source="policy") + _words(10, source="reference")
    apart = SelectionConfig(across_sources=False)
    kinds = {
        frozenset((chosen.left.source, chosen.right.source))
        for chosen in (choose_pair(pool, [], apart, 1, turn) for turn in range(100))
    }
    assert {frozenset({"policy"}), frozenset({"reference"}), frozenset({"policy", "reference"})} == kinds


def test_four_different_texts_are_chosen_the_least_judged_first() -> None:
    pool = _pool({"p": list("aabbccddefgh")})
    first = choose_four(pool, [], SelectionConfig(), 1, 0)
    assert len({each.text for each in first.sides}) == 4
    history = first.labels(0, 3, time=0.0, annotator="me")
    second = choose_four(pool, history, SelectionConfig(), 1, 1)
    assert not {each.text for each in first.sides} & {each.text for each in second.sides}


def test_four_need_four_different_texts() -> None:
    with pytest.raises(NothingToLabelError, match="no prompt has four different completions"):
        choose_four(_pool({"p": list("abcabc"), "q": list("xyz")}), [], SelectionConfig(), 1, 0)


def test_the_labels_of_four_share_the_slice_and_each_place_is_as_likely() -> None:
    pool = _pool({"p": list("abcdefgh")})
    places: Counter[int] = Counter()
    for turn in range(800):
        four = choose_four(pool, [], SelectionConfig(), 1, turn)
        labels = four.labels(1, 2, time=0.0, annotator="me")
        assert {each.held_out for each in labels} == {four.held_out}
        places.update(place for place, each in enumerate(four.sides) if each.text == "a")
    shown = sum(places.values())
    assert all(abs(places[place] - shown / 4) <= 3 * math.sqrt(shown * 3 / 16) for place in range(4))


def test_the_progress_line_counts_different_texts() -> None:
    assert duplicates_line(_pool({"p": ["a", "a", "b"], "q": ["a"]})) == "3 different of 4"


def test_a_choice_takes_less_than_the_wait_for_a_key_allows() -> None:
    pool = [
        Candidate(f"p{prompt}", Side(f"w{number}"), (number / 9, number % 7 / 3))
        for prompt in range(20)
        for number in range(26)
    ]
    history = [label(f"x{number}", f"y{number}", prompt=f"p{number % 20}") for number in range(2_000)]
    config = SelectionConfig(random=0, uncertain=1, repeats=0)
    times = []
    for turn in range(15):
        started = time.process_time()
        choose_pair(pool, history, config, 1, turn)
        times.append(time.process_time() - started)
    assert min(times) < 0.05


def test_scores_of_another_ensemble_size_are_left_out() -> None:
    pool = [Candidate("p", Side("old"), (0.0,)), *_scored(3)]
    config = SelectionConfig(random=0, uncertain=1, repeats=0, held_out=0)
    assert not any("old" in each.texts for each in _label(pool, 3, config))
