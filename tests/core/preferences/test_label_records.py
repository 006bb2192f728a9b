"""The record of one judgement: keys, sides, strict JSON, and what the model would have said."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from label_makers import label

from core.preferences.labels import (
    KEYS,
    Answer,
    LabelError,
    LabelRecord,
    Reason,
    Side,
    answer_for,
    model_probability,
    model_verdict,
)

FULL = LabelRecord(
    id="a1", time=1700000000.5, annotator="ada", prompt="he",
    left=Side("llo", "reference", run=1, step=400, temperature=0.8, seed=7, score=1.25),
    right=Side("ap", "run 3", run=3, step=20, temperature=1.0, seed=8, score=-0.5),
    answer=Answer.RIGHT_MUCH, latency=1.5, reward_run=2, reward_step=300, reason=Reason.REPEAT, held_out=True,
    repeats="a0", replaces="a9", group="g", guideline="a real word", note="hm", flagged=True,
)  # fmt: skip


@pytest.mark.parametrize(
    ("key", "symbol", "strength"),
    [("1", "A≫B", 1.0), ("2", "A>B", 0.5), ("3", "A≥B", 0.0), ("4", "A=B", None),
     ("5", "B≥A", 0.0), ("6", "B>A", 0.5), ("7", "B≫A", 1.0), ("left", "A>B", 0.5), ("right", "B>A", 0.5),
     ("b", "both bad", None), ("s", "skipped", None)],
)  # fmt: skip
def test_each_key_says_what_the_design_says(key: str, symbol: str, strength: float | None) -> None:
    assert KEYS[key].symbol == symbol
    assert KEYS[key].strength == strength


@pytest.mark.parametrize("key", ["1", "2", "3", "left"])
def test_chosen_and_rejected_follow_the_side_that_was_preferred(key: str) -> None:
    left_better = label("good", "poor", KEYS[key])
    right_better = label("poor", "good", KEYS[key].flipped)
    for each in (left_better, right_better):
        assert each.chosen is not None and each.rejected is not None
        assert (each.chosen.text, each.rejected.text) == ("good", "poor")


@pytest.mark.parametrize("answer", [Answer.TIE, Answer.BOTH_BAD, Answer.SKIP])
def test_undecided_answers_choose_nothing_and_flip_to_themselves(answer: Answer) -> None:
    undecided = label(answer=answer)
    assert undecided.chosen is None and undecided.rejected is None
    assert answer.flipped is answer


def test_a_record_is_the_same_after_json_and_has_every_field_of_the_issue() -> None:
    body = json.loads(json.dumps(FULL.to_dict()))
    assert LabelRecord.from_dict(body) == FULL
    assert body["strength"] == 1.0
    assert body["left"] == {
        "text": "llo", "source": "reference", "run": 1, "step": 400, "temperature": 0.8, "seed": 7, "score": 1.25,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"answer": "better"}, "must be one of"), ({"time": "now"}, "label.time must be a finite number"),
     ({"time": True}, "label.time must be a finite number"), ({"time": math.nan}, "label.time must be a finite"),
     ({"time": math.inf}, "label.time must be a finite number"), ({"held_out": 1}, "label.held_out must be true or"),
     ({"reward_run": 1.5}, "label.reward_run must be a whole"), ({"reward_run": True}, "label.reward_run must be"),
     ({"prompt": None}, "label.prompt must be text"), ({"prompt": "\ud800"}, "label.prompt must be text"),
     ({"left": "llo"}, "label.left must be an object"), ({"left": {"source": "x"}}, "label.left lacks 'text'"),
     ({"left": {"text": "x", "scores": 1.0}}, r"no field 'scores' \(did you mean 'score'\?\)"),
     ({"gruop": "x"}, r"no field 'gruop' \(did you mean 'group'\?\)"), ({"id": ""}, "needs an id"),
     ({"strength": 0.5}, "strength 0.5 is not that of 'right_much'"), ({"right": None}, "no answer to one text"),
     ({"latency": -1}, "latency must be ≥ 0"), ({"repeats": None}, "must say which label it repeats"),
     ({"replaces": "a1"}, "replace itself"), ({"right": {"text": "llo"}}, "both sides are the same text"),
     ({"answer": "good"}, "'good' is no answer to two texts"), ({"reason": "bored"}, "must be one of random")],
)  # fmt: skip
def test_a_record_that_cannot_be_is_refused_with_its_field(change: dict, reason: str) -> None:
    with pytest.raises(LabelError, match=reason) as caught:
        LabelRecord.from_dict(FULL.to_dict() | change)
    assert "\n" not in str(caught.value)


def test_a_record_that_lacks_a_field_is_refused() -> None:
    body = FULL.to_dict()
    del body["annotator"]
    with pytest.raises(LabelError, match="lacks 'annotator'"):
        LabelRecord.from_dict(body)


_names = st.sampled_from(sorted(FULL.to_dict()))
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda each: st.lists(each, max_size=2)
)


@given(name=_names, value=_values)
def test_any_value_anywhere_gives_a_record_or_a_label_error(name: str, value: object) -> None:
    try:
        record = LabelRecord.from_dict(FULL.to_dict() | {name: value})
    except LabelError:
        return
    assert json.loads(json.dumps(record.to_dict(), allow_nan=False))[name] == (
        value if name != "strength" else record.strength
    )


@pytest.mark.parametrize(
    ("strength", "answer"), [(0.0, Answer.LEFT_SLIGHTLY), (0.2, Answer.LEFT_SLIGHTLY), (0.5, Answer.LEFT),
                             (0.8, Answer.LEFT_MUCH), (1.0, Answer.LEFT_MUCH)],
)  # fmt: skip
def test_a_strength_becomes_the_nearest_answer(strength: float, answer: Answer) -> None:
    assert answer_for(True, strength) is answer
    assert answer_for(False, strength) is answer.flipped


def test_the_model_probability_is_the_logistic_of_the_score_difference() -> None:
    assert model_probability(label(left_score=0.0, right_score=math.log(3))) == pytest.approx(0.25)
    assert model_probability(label(left_score=math.log(3), right_score=0.0)) == pytest.approx(0.75)
    assert model_probability(label(left_score=1e9, right_score=-1e9)) == 1.0
    assert model_probability(label(left_score=-1e9, right_score=1e9)) == 0.0
    assert model_probability(label(left_score=1.0)) is None


def test_the_line_after_the_vote() -> None:
    b_better = {"left_score": 0.0, "right_score": math.log(71 / 29)}
    assert model_verdict(label(answer=Answer.RIGHT, **b_better)) == "the reward model agreed: 71% B"
    assert model_verdict(label(answer=Answer.LEFT_MUCH, **b_better)) == "the reward model disagreed: 71% B"
    assert model_verdict(label(answer=Answer.TIE, **b_better)) == "the reward model says 71% B"
    assert model_verdict(label()) == ""
