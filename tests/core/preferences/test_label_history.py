"""Labels that hold after any mix of adding, changing, deleting and undoing."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from label_makers import label

from core.preferences.history import LabelEvent, LabelHistory, current_labels
from core.preferences.labels import LabelError, LabelRecord


def _ids(history: LabelHistory) -> list[str]:
    return [each.id for each in history.current]


def _with(*ids: str) -> LabelHistory:
    history = LabelHistory()
    for each in ids:
        history.append(history.add([label(id=each)], time=0.0))
    return history


def test_a_changed_label_keeps_its_place_and_its_old_version_stays_in_the_history() -> None:
    history = _with("a", "b", "c")
    history.append(history.replace("b", label(id="b2", replaces="b"), time=1.0))
    assert _ids(history) == ["a", "b2", "c"]
    assert [each.id for event in history.events for each in event.records] == ["a", "b", "c", "b2"]


def test_what_counts_is_listed_anew_after_every_change() -> None:
    history = _with("a")
    assert (_ids(history), len(history)) == (["a"], 1)
    history.append(history.add([label(id="b")], time=1.0))
    assert (_ids(history), len(history)) == (["a", "b"], 2)
    history.append(history.delete(["a"], time=2.0))
    assert (_ids(history), len(history)) == (["b"], 1)


def test_undo_goes_back_through_every_kind_of_change_to_the_beginning() -> None:
    history = _with("a", "b")
    history.append(history.replace("a", label(id="a2", replaces="a"), time=1.0))
    history.append(history.delete(["b"], time=2.0))
    seen = [_ids(history)]
    while (undo := history.undo(time=3.0)) is not None:
        history.append(undo)
        seen.append(_ids(history))
    assert seen == [["a2"], ["a2", "b"], ["a", "b"], ["a"], []]
    assert len(history.events) == 8


def test_what_is_added_together_is_undone_together() -> None:
    history = _with("a")
    history.append(history.add([label(id=f"four-{each}", group="g") for each in range(5)], time=1.0))
    assert len(history.current) == 6
    undo = history.undo(time=2.0)
    assert undo is not None
    history.append(undo)
    assert _ids(history) == ["a"]


def test_planning_changes_nothing_until_the_event_is_appended() -> None:
    history = _with("a")
    planned = history.delete(["a"], time=1.0)
    assert _ids(history) == ["a"]
    history.append(planned)
    assert _ids(history) == []


@pytest.mark.parametrize(
    ("event", "reason"),
    [(LabelEvent(sequence=3, time=0, removed=("a",)), "event 3 cannot follow event 1"),
     (LabelEvent(sequence=2, time=0), "at least one label"),
     (LabelEvent(sequence=2, time=0, removed=("z",)), "no label z"),
     (LabelEvent(sequence=2, time=0, records=(label(id="a"),)), "a label a already"),
     (LabelEvent(sequence=2, time=0, records=(label(id="x"), label(id="x"))), "a label x already"),
     (LabelEvent(sequence=2, time=0, undoes=2), "no event 2 to undo"),
     (LabelEvent(sequence=2, time=0, undoes=1, removed=("a",)), "an undo brings no labels")],
)  # fmt: skip
def test_an_event_that_does_not_follow_is_refused(event: LabelEvent, reason: str) -> None:
    history = _with("a")
    with pytest.raises(LabelError, match=reason):
        history.append(event)
    assert _ids(history) == ["a"]


def test_a_replacement_must_name_the_label_that_it_replaces() -> None:
    history = _with("a", "b")
    with pytest.raises(LabelError, match="says it replaces a, not b"):
        history.replace("b", label(id="b2", replaces="a"), time=1.0)


def test_an_undone_event_cannot_bring_back_an_id_twice() -> None:
    history = _with("a")
    undo = history.undo(time=1.0)
    assert undo is not None
    history.append(undo)
    with pytest.raises(LabelError, match="a label a already"):
        history.add([label(id="a")], time=2.0)


@given(st.lists(st.tuples(st.sampled_from(["add", "replace", "delete", "undo"]), st.integers(0, 5)), max_size=40))
def test_any_history_equals_a_stack_of_lists_and_survives_json(actions: list[tuple[str, int]]) -> None:
    history = LabelHistory()
    states: list[list[str]] = [[]]  # what held before each change that is not undone: the plainest undo there is
    for number, (action, position) in enumerate(actions):
        now = list(states[-1])
        if action == "undo":
            event = history.undo(time=0.0)
            assert (event is None) == (len(states) == 1)
            if event is not None:
                history.append(event)
                states.pop()
        elif action == "add":
            history.append(history.add([label(id=f"n{number}")], time=0.0))
            states.append([*now, f"n{number}"])
        elif now:
            old = now[position % len(now)]
            if action == "delete":
                history.append(history.delete([old], time=0.0))
                now.remove(old)
            else:
                history.append(history.replace(old, label(id=f"n{number}", replaces=old), time=0.0))
                now[now.index(old)] = f"n{number}"
            states.append(now)
        assert _ids(history) == states[-1]

    again = LabelHistory(LabelEvent.from_dict(json.loads(json.dumps(each.to_dict()))) for each in history.events)
    assert again.current == history.current
    assert list(current_labels(history.events)) == _ids(history)


@pytest.mark.parametrize(
    "body", [{}, [], {"sequence": "1"}, {"sequence": 1, "time": 0.0, "records": [{}], "removed": [], "undoes": None},
             {"sequence": 1, "time": 0.0, "records": None, "removed": [], "undoes": None}],
)  # fmt: skip
def test_json_that_is_no_event_is_refused(body: object) -> None:
    with pytest.raises(LabelError):
        LabelEvent.from_dict(body)


def test_each_event_says_what_it_is() -> None:
    history = _with("a")
    changed: LabelRecord = label(id="b", replaces="a")
    assert history.events[0].action == "add"
    assert history.replace("a", changed, time=0.0).action == "replace"
    assert history.delete(["a"], time=0.0).action == "delete"
    undo = history.undo(time=0.0)
    assert undo is not None and undo.action == "undo" and undo.undoes == 1
