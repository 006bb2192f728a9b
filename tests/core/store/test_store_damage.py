"""A database whose bytes are not as written is refused or read right; never a traceback, never a wrong value."""

import os
import random
import sqlite3

import pytest

from core.preferences.labels import Answer, LabelRecord, Side
from core.store import Session, SessionBrokenError, SessionNewerError, StoreError, locations, schema
from core.store.database import Database


def fill(session: Session) -> None:
    for number in range(3):
        run = session.runs.add("sft", f"run {number}", {"rate": 1e-3 * number}, seed=number)
        rows = [(step, step * 4, step / 3, {"loss": step / 7, "kl": float(number)}) for step in range(1, 500)]
        session.metrics.append(run.id, rows)
        session.events.add(run.id, 3, "knob", "β 0.1 → 0.2", {"old": 0.1, "new": 0.2})
        session.samples.add(run.id, 3, [{"text": "encalor", "gold": 5.25}])
        session.checkpoints.save(run.id, 499, "resume", b"weights" * 100, score=1.5, values={"a": 1})
        side = Side("x"), Side("y")
        session.labels.add(
            LabelRecord(
                id=f"{number}", time=1.0, annotator="me", prompt="p", left=side[0], right=side[1], answer=Answer.LEFT
            )
        )
    session.set_setting("screen", {"name": "train"})


def read_all(session: Session) -> list[object]:
    everything: list[object] = [session.facts, session.get_setting("screen"), session.labels.history()]
    for run in session.runs.all():
        table = session.metrics.read(run.id)
        columns = sorted((name, column.tobytes()) for name, column in table.values.items())
        everything += [run, table.steps.tolist(), table.completions.tolist(), table.seconds.tolist(), columns]
        everything += [session.events.read(run.id), session.samples.read(run.id), session.checkpoints.list(run.id)]
        everything.append(session.checkpoints.latest_good(run.id))
    return everything


@pytest.fixture
def whole(tmp_path):
    """A folder with a closed session, its database's bytes, and what reading it all gives."""
    with Session.create(tmp_path / "s", title="Grüße") as session:
        fill(session)
    with Session.open(tmp_path / "s", read_only=True) as session:
        return tmp_path / "s", (tmp_path / "s" / "session.db").read_bytes(), read_all(session)


def look(folder) -> list[object] | None:
    try:
        with Session.open(folder, read_only=True) as session:
            return read_all(session)
    except StoreError as error:
        assert "\n" not in str(error)
        return None


def flip(folder, content: bytes, expected: list[object], times: int, seed: int) -> int:
    generator = random.Random(seed)
    refused = 0
    for _ in range(times):
        damaged = bytearray(content)
        for _ in range(generator.choice([1, 1, 1, 20])):
            damaged[generator.randrange(len(damaged))] ^= 1 << generator.randrange(8)
        (folder / "session.db").write_bytes(damaged)
        found = look(folder)
        assert found is None or found == expected
        refused += found is None
        locations.list_sessions(folder.parent)
    return refused


def test_flipped_bytes_are_refused_or_harmless(whole):
    folder, content, expected = whole
    assert flip(folder, content, expected, times=80, seed=1) > 15


@pytest.mark.long
def test_flipped_bytes_are_refused_or_harmless_many_times(whole):
    folder, content, expected = whole
    assert flip(folder, content, expected, times=5000, seed=2) > 1000


def test_a_damaged_schema_that_is_no_text_is_one_line(whole):
    folder, content, _ = whole
    (folder / "session.db").write_bytes(content.replace(b"NOT NULL", b"NOT NU\xccL", 1))
    with pytest.raises(SessionBrokenError, match="is damaged"):
        Session.open(folder)
    assert "damaged" in locations.list_sessions(folder.parent)[0].problem


def test_truncation_at_a_hundred_places_is_refused(whole):
    folder, content, expected = whole
    for part in range(100):
        (folder / "session.db").write_bytes(content[: len(content) * part // 100])
        assert look(folder) is None
    (folder / "session.db").write_bytes(content)
    assert look(folder) == expected


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 200, b"SQLite format 3\0" + b"\0" * 84, b"\x80\x04\x95pickle" * 100, b"SQLite format 3\0"]
)
def test_another_file_in_its_place_is_refused_with_its_bytes_untouched(tmp_path, content):
    (tmp_path / "session.db").write_bytes(content)
    for read_only in (False, True):
        with pytest.raises(SessionBrokenError, match="is damaged"):
            Session.open(tmp_path, read_only)
    assert (tmp_path / "session.db").read_bytes() == content


def test_a_foreign_database_is_refused(tmp_path):
    connection = sqlite3.connect(tmp_path / "session.db")
    connection.execute("CREATE TABLE session (id)")
    connection.close()
    with pytest.raises(SessionBrokenError, match="not a session"):
        Session.open(tmp_path)


@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_what_is_no_plain_file_is_refused(whole, kind, tmp_path):
    folder, _, _ = whole
    path = folder / "session.db"
    path.rename(tmp_path / "elsewhere")
    if kind == "link":
        path.symlink_to(tmp_path / "elsewhere")
    elif kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    with pytest.raises(SessionBrokenError, match="not a plain file"):
        Session.open(folder)
    (summary,) = locations.list_sessions(tmp_path)
    assert "not a plain file" in summary.problem


def test_triggers_that_someone_added_are_refused(whole):
    folder, _, _ = whole
    connection = sqlite3.connect(folder / "session.db")
    connection.execute("CREATE TRIGGER evil AFTER INSERT ON runs BEGIN DELETE FROM settings; END")
    connection.commit()
    connection.close()
    with pytest.raises(SessionBrokenError, match="its tables are not those of a session"):
        Session.open(folder)


def test_a_value_changed_by_hand_is_named(whole):
    folder, _, _ = whole
    connection = sqlite3.connect(folder / "session.db")
    connection.execute("UPDATE runs SET seed = 99 WHERE id = 2")
    connection.commit()
    connection.close()
    with Session.open(folder) as session:
        assert session.runs.get(1).seed == 0
        with pytest.raises(SessionBrokenError, match="row 2 of 'runs' is not as written"):
            session.runs.get(2)


def set_version(path, version: int) -> None:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()


def test_a_newer_format_is_refused_with_its_bytes_untouched(whole):
    folder, _, _ = whole
    set_version(folder / "session.db", schema.FORMAT_VERSION + 1)
    before = {each.name: each.read_bytes() for each in folder.iterdir() if each.is_file() and "lock" not in each.name}
    for read_only in (False, True):
        with pytest.raises(SessionNewerError, match="a newer version wrote it; nothing was changed"):
            Session.open(folder, read_only)
    after = {each.name: each.read_bytes() for each in folder.iterdir() if each.is_file() and "lock" not in each.name}
    assert after == before
    assert "newer" in locations.list_sessions(folder.parent)[0].problem


def test_an_older_format_is_backed_up_then_converted(whole, monkeypatch):
    folder, _, expected = whole
    statement = "CREATE TABLE extra (id INTEGER PRIMARY KEY)"
    monkeypatch.setattr(schema, "FORMAT_VERSION", 2)
    monkeypatch.setattr(schema, "TABLES", (*schema.TABLES, statement))
    with pytest.raises(StoreError, match="open it once for writing"):
        Session.open(folder, read_only=True)
    with pytest.raises(SessionBrokenError, match="format 1, which no version of this program wrote"):
        Session.open(folder)
    monkeypatch.setattr(schema, "MIGRATIONS", {1: lambda connection: connection.execute(statement)})
    with Session.open(folder) as session:
        assert session.notes == ["converted from format 1 to 2; the old file is session.format-1.backup.db"]
        assert read_all(session) == expected
    monkeypatch.undo()
    backup = Database.open(folder / "session.format-1.backup.db", read_only=True)
    assert backup.rows("SELECT count(*) FROM runs") == [(3,)]
    backup.close()
    with pytest.raises(SessionNewerError):
        Session.open(folder)


def test_a_conversion_that_fails_changes_nothing(whole, monkeypatch):
    folder, _, expected = whole

    def fails(connection):
        connection.execute("DELETE FROM runs WHERE id = 3")
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(schema, "FORMAT_VERSION", 2)
    monkeypatch.setattr(schema, "MIGRATIONS", {1: fails})
    with pytest.raises(StoreError):
        Session.open(folder)
    monkeypatch.undo()
    assert look(folder) == expected
