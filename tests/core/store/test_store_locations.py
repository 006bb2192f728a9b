import json
import os
import sqlite3
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.store import Session, SessionLockedError, SessionMissingError, StoreError, locations
from core.store.slugs import MAX_LENGTH, is_slug, slug

HOSTILE = [
    "Grüße", "日本語", "🎉", "CON", "con", "Com1", "a/b", "a\\b", "..", ".", "../../etc", ".hidden", "", " ", "x" * 300,
    "é" * 300, "a\0b\n\x1b[31m", "-", "--saves", "NUL.txt", "a:b", "trailing.", "\u202eabc", "~", "$HOME", "%APPDATA%",
]  # fmt: skip


@settings(max_examples=200)
@given(st.text())
@example("CON")
@example("aux.txt")
@example("x" * 59 + " y")
def test_any_title_has_a_slug_that_every_file_system_holds(title):
    name = slug(title)
    assert is_slug(name)
    assert 1 <= len(name) <= MAX_LENGTH + len("-session")
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert name[0] != "-" and name[-1] != "-"
    assert slug(name) == name


def test_slugs_read_like_their_titles():
    assert [slug(each) for each in ("Grüße an Élodie", "a/b", ".hidden", "CON", "🎉", "Run #2 (β=0.1)")] == [
        "grue-an-elodie", "a-b", "hidden", "con-session", "session", "run-2-0-1",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", ".trash", "A", "a b", "con", "a\n", "é", "x" * 200, "-a", "a-"])
def test_what_is_no_slug_is_not_taken_for_one(name):
    assert not is_slug(name)


def test_hostile_titles_are_kept_and_stay_inside_the_folder(tmp_path):
    for title in HOSTILE:
        with locations.create_session(tmp_path / "saves", title) as session:
            assert session.folder.parent == tmp_path / "saves"
    found = locations.list_sessions(tmp_path / "saves")
    kept = {each.title for each in found}
    assert kept >= {each for each in HOSTILE if each}
    assert len(found) == len(HOSTILE)
    assert [each.name for each in tmp_path.iterdir()] == ["saves"]
    assert locations.find_session(tmp_path / "saves", "a/b").name == "a-b"


def test_equal_titles_get_folders_of_their_own(tmp_path):
    for number in range(3):
        locations.create_session(tmp_path, "Same", seed=number).close()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["same", "same-2", "same-3"]


def test_the_list_says_what_is_in_a_session(tmp_path):
    with locations.create_session(tmp_path, "One", task="words", seed=5) as session:
        session.runs.add("sft")
        session.checkpoints.save(1, 1, "resume", b"x" * 1000)
        (open_one,) = locations.list_sessions(tmp_path)  # while it is open, out of its log
        assert (open_one.runs, open_one.title) == (1, "One")
    (closed,) = locations.list_sessions(tmp_path)
    assert (closed.name, closed.title, closed.task, closed.seed, closed.runs, closed.labels) == (
        "one", "One", "words", 5, 1, 0,
    )  # fmt: skip
    assert closed.size == (tmp_path / "one" / "session.db").stat().st_size + 1000
    assert abs(closed.used - time.time()) < 60 and closed.problem == ""


def test_a_glance_names_sessions_before_anybody_has_looked_into_them(tmp_path):
    with Session.create(tmp_path / "mine", title="My Words") as session:
        session.runs.add("sft", "SFT", {}, 1, {})
    (glanced,) = locations.glance_at_sessions(tmp_path)
    assert (glanced.name, glanced.known) == ("mine", False)
    (listed,) = locations.list_sessions(tmp_path)
    assert (listed.title, listed.runs, listed.known) == ("My Words", 1, True)
    assert locations.glance_at_sessions(tmp_path) == [listed], "what has been looked into once is remembered"


def test_listing_changes_no_session(tmp_path):
    folder = locations.create_session(tmp_path, "One").folder
    before = {each: each.stat().st_mtime_ns for each in folder.rglob("*")}
    locations.list_sessions(tmp_path)
    assert {each: each.stat().st_mtime_ns for each in folder.rglob("*")} == before


def test_a_list_from_memory_says_the_same_and_follows_every_change(tmp_path):
    for title in ("One", "Grüße 🎉"):
        locations.create_session(tmp_path, title).close()
    first = locations.list_sessions(tmp_path)
    index = tmp_path / ".index.json"
    written = index.stat().st_mtime_ns
    assert locations.list_sessions(tmp_path) == first
    assert index.stat().st_mtime_ns == written, "nothing changed, nothing written"
    with Session.open(tmp_path / "one") as session:
        session.set_title("Two")
        session.runs.add("sft")
        assert next((each.title, each.runs) for each in locations.list_sessions(tmp_path)) == ("Two", 1)
    assert next((each.title, each.runs) for each in locations.list_sessions(tmp_path)) == ("Two", 1)
    locations.trash_session(tmp_path / "one")
    assert [each.title for each in locations.list_sessions(tmp_path)] == ["Grüße 🎉"]


def test_a_memory_that_is_garbage_is_not_believed(tmp_path):
    locations.create_session(tmp_path, "One").close()
    expected = locations.list_sessions(tmp_path)
    index = tmp_path / ".index.json"
    entry = json.loads(index.read_text())["one"]
    strange = [
        {**entry, "state": [0] * 6},
        {**entry, "summary": {**entry["summary"], "title": 5}},
        {**entry, "summary": {**entry["summary"], "extra": 5}},
        {**entry, "summary": None},
        [],
    ]
    for text in ("", "[]", "[" * 10**5, "\x00", *(json.dumps({"one": each}) for each in strange)):
        index.write_text(text)
        assert locations.list_sessions(tmp_path) == expected
    index.unlink()
    index.mkdir()
    assert locations.list_sessions(tmp_path) == expected
    assert sorted(each.name for each in tmp_path.iterdir()) == [".index.json", "one"]


def test_the_last_used_comes_first_and_broken_ones_say_why(tmp_path):
    for title in "abc":
        locations.create_session(tmp_path, title).close()
    (tmp_path / "b" / "session.db").write_bytes(b"junk")
    (tmp_path / "file").write_text("no session")
    (tmp_path / "empty").mkdir()
    for age, name in enumerate("bca"):
        moment = time.time() - 1000 * age
        os.utime(tmp_path / name / "session.db", (moment, moment))
    found = locations.list_sessions(tmp_path)
    assert [each.name for each in found] == ["b", "c", "a"]
    assert "damaged" in found[0].problem
    assert locations.last_session(tmp_path) == tmp_path / "c"
    Session.open(tmp_path / "a").close()
    assert locations.last_session(tmp_path) == tmp_path / "a"


def test_no_saves_folder_is_an_empty_list(tmp_path):
    assert locations.list_sessions(tmp_path / "none") == []
    assert locations.last_session(tmp_path / "none") is None
    assert locations.list_trash(tmp_path) == []


def test_a_name_that_is_not_there_names_the_nearest(tmp_path):
    locations.create_session(tmp_path, "First try").close()
    assert locations.find_session(tmp_path, "First try") == tmp_path / "first-try"
    assert locations.find_session(tmp_path, "first-try") == tmp_path / "first-try"
    with pytest.raises(SessionMissingError, match=r"did you mean 'first-try'\?"):
        locations.find_session(tmp_path, "frist-try")
    for name in ("../first-try", "first-try/../first-try", ".", ""):
        with pytest.raises(SessionMissingError):
            locations.find_session(tmp_path, name)


def test_renaming_changes_title_and_folder(tmp_path):
    locations.create_session(tmp_path, "Old").close()
    locations.create_session(tmp_path, "Taken").close()
    folder = locations.rename_session(tmp_path / "old", "Taken")
    assert folder == tmp_path / "taken-2"
    with Session.open(folder) as session:
        assert session.title == "Taken"
        with pytest.raises(SessionLockedError):
            locations.rename_session(folder, "Other")
    assert locations.rename_session(tmp_path / "taken", "TAKEN!") == tmp_path / "taken"
    assert {each.title for each in locations.list_sessions(tmp_path)} == {"Taken", "TAKEN!"}


def test_a_copy_has_everything_and_is_independent(tmp_path):
    with locations.create_session(tmp_path, "One", seed=9) as session:
        session.runs.add("sft")
        good = session.checkpoints.save(1, 1, "resume", b"good")
        bad = session.checkpoints.save(1, 2, "resume", b"fine")
        (session.folder / "checkpoints" / "1" / bad.file).write_bytes(b"evil")
        folder = locations.duplicate_session(session.folder)  # while it is open
        session.runs.add("ppo")
    with Session.open(folder) as copy:
        assert (copy.title, copy.seed, len(copy.runs.all())) == ("Copy of One", 9, 1)
        assert copy.checkpoints.list() == [good]
        assert copy.checkpoints.latest_good(1).data == b"good"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["copy-of-one", "one"]
    assert locations.duplicate_session(folder, "Mine").name == "mine"


def test_a_copy_that_fails_leaves_nothing(tmp_path, monkeypatch):
    locations.create_session(tmp_path, "One").close()

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("core.store.files.sync_file", full)
    with pytest.raises(StoreError, match="no room"):
        locations.duplicate_session(tmp_path / "one")
    assert [each.name for each in tmp_path.iterdir()] == ["one"]


def test_deleting_is_moving_to_the_trash_and_back(tmp_path):
    locations.create_session(tmp_path, "One").close()
    trashed = locations.trash_session(tmp_path / "one")
    assert trashed.parent == tmp_path / ".trash"
    assert locations.list_sessions(tmp_path) == []
    assert [each.title for each in locations.list_trash(tmp_path)] == ["One"]
    locations.create_session(tmp_path, "One").close()
    assert locations.restore_session(trashed) == tmp_path / "one-2"
    assert sorted(each.title for each in locations.list_sessions(tmp_path)) == ["One", "One"]
    for name in ("one", "one-2"):
        locations.trash_session(tmp_path / name)
    assert locations.empty_trash(tmp_path) == 2
    assert locations.list_trash(tmp_path) == []


def test_a_session_in_use_is_not_trashed(tmp_path):
    with locations.create_session(tmp_path, "One") as session, pytest.raises(SessionLockedError):
        locations.trash_session(session.folder)
    assert (tmp_path / "one").exists()


def test_only_the_trash_is_restored_from(tmp_path):
    locations.create_session(tmp_path, "One").close()
    for folder in (tmp_path / "one", tmp_path / ".trash" / "none"):
        with pytest.raises(SessionMissingError, match="in the trash"):
            locations.restore_session(folder)


def test_a_linked_folder_is_trashed_as_a_link(tmp_path):
    Session.create(tmp_path / "elsewhere" / "s").close()
    (tmp_path / "saves").mkdir()
    (tmp_path / "saves" / "linked").symlink_to(tmp_path / "elsewhere" / "s")
    locations.trash_session(tmp_path / "saves" / "linked")
    locations.empty_trash(tmp_path / "saves")
    Session.open(tmp_path / "elsewhere" / "s").close()


def test_where_saves_live(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(locations.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert "rlhf-tui" in str(locations.saves_folder())
    assert locations.saves_folder() != tmp_path / "saves"
    for other in ("[project]\nname = 'other'", "not toml [", "[project]", "project = 3"):
        Path("pyproject.toml").write_text(other)
        assert locations.saves_folder() != tmp_path / "saves"
    Path("pyproject.toml").write_text('[project]\nname = "rlhf-tui"\n')
    assert locations.saves_folder() == tmp_path / "saves"
    monkeypatch.setenv(locations.VARIABLE, "~/elsewhere")
    assert locations.saves_folder() == tmp_path / "home" / "elsewhere"
    assert locations.saves_folder(tmp_path / "given") == tmp_path / "given"


@pytest.mark.long
def test_a_thousand_sessions_are_listed_in_half_a_second(tmp_path):
    import shutil

    with locations.create_session(tmp_path, "One") as session:
        for _ in range(3):
            session.runs.add("sft")
    for number in range(999):
        shutil.copytree(tmp_path / "one", tmp_path / f"copy-{number}")
    times = []
    for _ in range(5):
        start = time.perf_counter()
        assert len(locations.list_sessions(tmp_path)) == 1000
        times.append(time.perf_counter() - start)
    assert min(times) <= 0.5


@pytest.mark.long
def test_a_hundred_runs_of_ten_thousand_steps_load_in_two_seconds(tmp_path):
    names = [f"metric/{number}" for number in range(15)]
    with Session.create(tmp_path / "s") as session:
        for run in range(1, 101):
            session.runs.add("ppo")
            rows = [(step, step, step / 9, dict.fromkeys(names, step / run)) for step in range(1, 10_001)]
            session.metrics.append(run, rows)
    times = []
    for _ in range(3):
        start = time.perf_counter()
        with Session.open(tmp_path / "s") as session:
            tables = [session.metrics.read(each.id, [names[3]]) for each in session.runs.all()]
            session.metrics.read(50)
        times.append(time.perf_counter() - start)
    assert min(times) <= 2.0
    assert [tables[9].values[names[3]][index] for index in (0, -1)] == [0.1, 1000.0]


def test_a_summary_changed_by_hand_is_a_problem(tmp_path):
    locations.create_session(tmp_path, "One").close()
    connection = sqlite3.connect(tmp_path / "one" / "session.db")
    connection.execute("UPDATE session SET title = 'Two'")
    connection.commit()
    connection.close()
    (summary,) = locations.list_sessions(tmp_path)
    assert "damaged" in summary.problem and summary.title == "one"
