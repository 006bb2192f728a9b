import sqlite3

import pytest

from core.preferences.labels import Answer, LabelError, LabelRecord, Side
from core.store import Session, SessionBrokenError
from core.store.table import to_json


def label(id: str, **fields) -> LabelRecord:
    return LabelRecord(
        id=id, time=1.0, annotator="me", prompt="p", left=Side("a🎉"), right=Side("b"), answer=Answer.LEFT, **fields
    )


@pytest.fixture
def session(tmp_path):
    with Session.create(tmp_path / "s") as session:
        yield session


def ids(session):
    return [each.id for each in session.labels.current()]


def test_labels_survive_closing_whole(session):
    first, second = label("1", note="x", latency=0.25), label("2", held_out=True)
    session.labels.add(first, time=5.0)
    session.labels.add([second], time=6.0)
    session.close()
    with Session.open(session.folder) as again:
        assert again.labels.current() == (first, second)
        assert again.labels.count() == 2
        assert [each.time for each in again.labels.history()] == [5.0, 6.0]
        assert again.labels.get("2") == second


def test_replacing_deleting_and_undoing_keep_the_history(session):
    session.labels.add([label("1"), label("2")])
    session.labels.replace("1", label("3", replaces="1"))
    assert ids(session) == ["3", "2"]
    session.labels.delete("2")
    assert ids(session) == ["3"] and session.labels.count() == 1
    assert session.labels.undo().undoes == 3
    assert ids(session) == ["3", "2"]
    session.labels.undo()
    session.labels.undo()
    assert ids(session) == [] and session.labels.count() == 0
    assert session.labels.undo() is None
    assert [each.action for each in session.labels.history()] == ["add", "replace", "delete", "undo", "undo", "undo"]


def test_a_label_that_cannot_be_leaves_no_trace(session):
    session.labels.add(label("1"))
    for refused in (
        lambda: session.labels.add(label("1")),
        lambda: session.labels.delete("9"),
        lambda: session.labels.replace("1", label("2")),
        lambda: session.labels.add([]),
    ):
        with pytest.raises(LabelError):
            refused()
    assert len(session.labels.history()) == 1
    session.labels.add(label("2"))
    assert ids(session) == ["1", "2"]


def test_what_was_rolled_back_is_forgotten(session):
    with pytest.raises(ZeroDivisionError), session.transaction():
        session.labels.add(label("1"))
        1 / 0  # noqa: B018
    assert ids(session) == []
    session.labels.add(label("1"))
    assert ids(session) == ["1"]


def test_each_process_sees_what_the_other_added(session):
    with Session.open(session.folder, read_only=True) as engine:
        assert engine.labels.current() == ()
        session.labels.add(label("1"))
        assert [each.id for each in engine.labels.current()] == ["1"]
        session.labels.undo()
        assert engine.labels.current() == ()


def test_the_database_refuses_to_change_or_delete_history(session):
    session.labels.add(label("1"))
    other = sqlite3.connect(session.folder / "session.db")
    for statement in ("DELETE FROM labels", "UPDATE labels SET time = 0"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            other.execute(statement)
    other.close()


def test_an_event_that_no_program_wrote_is_a_clear_error(session):
    session.labels._table.insert({"time": 0.0, "event": to_json({"sequence": 1}), "current": 1}, id=1)
    with pytest.raises(SessionBrokenError, match=r"label event 1: .*lacks 'time'"):
        session.labels.current()
