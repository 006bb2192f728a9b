"""A session as one file, and back."""

import zipfile

import pytest

from core.store import Session, StorageError
from core.store.archive import export_session
from core.store.errors import SessionMissingError


@pytest.fixture
def session(tmp_path):
    with Session.create(tmp_path / "saves" / "s", title="Grüße") as made:
        run = made.runs.add("sft")
        made.metrics.append(run.id, [(1, 1, 0.1, {"loss": 2.0})])
        made.checkpoints.save(run.id, 1, "resume", b"weights" * 100)
        made.checkpoints.save(run.id, 2, "resume", b"others" * 100)
        yield made


def test_what_is_unpacked_elsewhere_is_the_session(session, tmp_path):
    # Exported while it is open, as the app does.
    file = export_session(session.folder, tmp_path)
    assert file == tmp_path / "s.zip"
    with zipfile.ZipFile(file) as archive:
        assert all(name.startswith("s/") for name in archive.namelist())
        archive.extractall(tmp_path / "elsewhere")
    with Session.open(tmp_path / "elsewhere" / "s") as copy:
        assert (copy.title, copy.metrics.read(1).values["loss"].tolist()) == ("Grüße", [2.0])
        assert copy.checkpoints.latest_good(1).data == b"others" * 100
    assert sorted(each.name for each in tmp_path.iterdir()) == ["elsewhere", "s.zip", "saves"]


def test_a_damaged_checkpoint_is_left_out(session, tmp_path):
    newest = session.checkpoints.list(1)[-1]
    (session.folder / "checkpoints" / "1" / newest.file).write_bytes(b"x")
    with zipfile.ZipFile(export_session(session.folder, tmp_path / "out.zip")) as archive:
        archive.extractall(tmp_path / "elsewhere")
    with Session.open(tmp_path / "elsewhere" / "s") as copy:
        assert copy.checkpoints.latest_good(1).data == b"weights" * 100


def test_a_file_that_is_there_is_kept_and_nothing_is_left_of_what_failed(session, tmp_path):
    (tmp_path / "s.zip").write_text("mine")
    with pytest.raises(StorageError, match="is there already"):
        export_session(session.folder, tmp_path)
    with pytest.raises(SessionMissingError):
        export_session(tmp_path / "none", tmp_path / "new.zip")
    with pytest.raises(SessionMissingError):
        export_session(session.folder, tmp_path / "no folder" / "new.zip")
    assert (tmp_path / "s.zip").read_text() == "mine"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["s.zip", "saves"]
