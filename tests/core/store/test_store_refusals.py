"""What the system refuses: full disks, read-only places, folders that go away. The old copy stays."""

import resource
import shutil
import sqlite3
import subprocess
import tempfile
from pathlib import Path

import pytest
from children import run_in_child, without_privileges

from core.store import (
    Session,
    SessionExistsError,
    SessionMissingError,
    SessionReadOnlyError,
    StorageError,
    StorageFullError,
    locations,
    schema,
)


@pytest.fixture
def session(tmp_path):
    with Session.create(tmp_path / "s", title="first") as session:
        session.runs.add("sft")
        session.checkpoints.save(1, 1, "resume", b"old" * 1000)
        yield session


@pytest.fixture
def public(tmp_path):
    """A folder that every user can reach, unlike those of pytest."""
    folder = Path(tempfile.mkdtemp(prefix="rlhf-tui-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def files_of(folder: Path) -> set[str]:
    return {each.name for each in (folder / "checkpoints").rglob("*") if each.is_file()}


def test_no_room_for_a_checkpoint_is_one_line_and_a_later_save_works(session):
    session.close()

    def limited():
        with Session.open(session.folder) as again:
            before = files_of(session.folder)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
            with pytest.raises(StorageFullError, match=r"no room to write .* what was saved before is intact"):
                again.checkpoints.save(1, 2, "resume", b"new" * 100_000)
            assert files_of(session.folder) == before
            assert again.checkpoints.latest_good(1).record.step == 1
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            again.checkpoints.save(1, 3, "resume", b"new" * 100_000)
            return again.checkpoints.latest_good(1).record.step

    assert run_in_child(limited) == 3


def test_no_room_for_the_database_loses_nothing_and_a_later_write_works(session):
    session.close()

    def limited():
        with Session.open(session.folder) as again:
            resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, resource.RLIM_INFINITY))
            done = 0
            with pytest.raises((StorageFullError, StorageError), match="what was saved before is intact"):
                for step in range(1, 1000):
                    again.samples.add(1, step, "x" * 2000)
                    done = step
            assert len(again.samples.read(1)) == done > 0
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            again.samples.add(1, done + 1, "later")
            return done + 1

    done = run_in_child(limited)
    with Session.open(session.folder) as again:
        assert [each.step for each in again.samples.read(1)] == list(range(1, done + 1))


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting needs rights that this user lacks")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk(small_disk):
    with Session.create(small_disk / "s") as session:
        session.runs.add("sft")
        session.checkpoints.save(1, 1, "resume", b"old" * 1000)
        filler = small_disk / "filler"
        with pytest.raises(OSError, match="No space"), filler.open("wb") as file:
            while True:
                file.write(b"\0" * 4096)
                file.flush()
        with pytest.raises(StorageFullError):
            session.checkpoints.save(1, 2, "resume", b"new" * 10_000)
        with pytest.raises((StorageFullError, StorageError)):
            for step in range(1, 200):
                session.samples.add(1, step, "x" * 4000)
        with pytest.raises(StorageFullError):
            Session.create(small_disk / "another")
        kept = len(session.samples.read(1))
        filler.unlink()
        session.samples.add(1, 999, "later")
        session.checkpoints.save(1, 2, "resume", b"new" * 1000)
        assert len(session.samples.read(1)) == kept + 1
        assert session.checkpoints.latest_good(1).record.step == 2


def test_a_read_only_place_is_looked_at_and_not_written(public):
    with Session.create(public / "s", title="theirs") as session:
        session.runs.add("sft")
        session.checkpoints.save(1, 1, "resume", b"weights")
    for each in [public / "s", *(public / "s").rglob("*")]:
        each.chmod(0o555 if each.is_dir() else 0o444)

    def as_another_user():
        with pytest.raises(SessionReadOnlyError):
            Session.open(public / "s")
        with pytest.raises(SessionReadOnlyError):
            Session.create(public / "mine" / "s")
        with Session.open(public / "s", read_only=True) as session:
            assert session.checkpoints.latest_good(1).data == b"weights"
            return session.title

    assert without_privileges(as_another_user) == "theirs"


def test_an_unreadable_session_is_one_line(public):
    Session.create(public / "s").close()
    (public / "s" / "session.db").chmod(0)

    def as_another_user():
        for read_only in (False, True):
            with pytest.raises(SessionReadOnlyError, match="cannot be"):
                Session.open(public / "s", read_only)
        return [each.problem for each in locations.list_sessions(public)]

    (problem,) = without_privileges(as_another_user)
    assert "Permission denied" in problem


def test_a_folder_that_went_away_is_noticed_and_writing_works_once_it_is_back(session):
    session.folder.rename(session.folder.with_name("moved"))
    for write in (lambda: session.set_setting("a", 1), lambda: session.checkpoints.save(1, 2, "resume", b"x")):
        with pytest.raises(SessionMissingError, match="deleted or replaced while it was open"):
            write()
    assert not session.folder.exists()
    session.folder.with_name("moved").rename(session.folder)
    session.set_setting("a", 1)
    session.checkpoints.save(1, 2, "resume", b"x")
    assert session.checkpoints.latest_good(1).data == b"x"


def test_a_deleted_session_is_rescued_from_the_open_file(session):
    session.set_setting("a", "kept")
    with pytest.raises(SessionExistsError):
        session.rescue()
    shutil.rmtree(session.folder)
    session.rescue()
    session.set_setting("b", "later")
    session.checkpoints.save(1, 9, "resume", b"new")
    found = session.checkpoints.latest_good(1)
    assert found.data == b"new"
    session.close()
    with Session.open(session.folder) as again:
        assert (again.title, again.get_setting("a"), again.get_setting("b")) == ("first", "kept", "later")


def test_a_replaced_database_is_not_written_to(session):
    other = session.folder.with_name("other")
    Session.create(other).close()
    (other / "session.db").replace(session.folder / "session.db")
    with pytest.raises(SessionMissingError, match="replaced"):
        session.set_setting("a", 1)


def test_where_a_log_cannot_be_the_rollback_journal_serves(tmp_path, monkeypatch):
    Session.create(tmp_path / "new").close()
    kept = Session.create(tmp_path / "with log")
    kept.runs.add("sft")
    # As a kill leaves it: a log that was never folded into the database.
    shutil.copytree(kept.folder, tmp_path / "left", ignore=shutil.ignore_patterns("*-shm", ".lock*"))
    kept.close()
    assert (tmp_path / "left" / "session.db-wal").stat().st_size > 0
    with monkeypatch.context() as patch:
        connect, known = sqlite3.connect, schema.expected_fingerprint()
        # Locks by files, as on network file systems: this way of SQLite's has no shared memory.
        patch.setattr(sqlite3, "connect", lambda name, **options: connect(f"{name}&vfs=unix-dotfile", **options))
        patch.setattr(schema, "expected_fingerprint", lambda: known)
        for name, runs in (("new", 0), ("left", 1)):
            with Session.open(tmp_path / name) as session:
                assert session._database.rows("PRAGMA journal_mode") == [("delete",)]
                assert len(session.runs.all()) == runs
                session.runs.add("sft")
    with Session.open(tmp_path / "left") as session:
        assert session._database.rows("PRAGMA journal_mode") == [("wal",)]
        assert len(session.runs.all()) == 2


def test_a_commit_is_durable(session):
    assert session._database.rows("PRAGMA synchronous") == [(2,)]  # FULL
    assert sqlite3.sqlite_version_info >= (3, 31), "trusted_schema"
