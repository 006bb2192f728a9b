import hashlib
import os
import pickle
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.store import CheckpointBrokenError, CheckpointMissingError, Session
from core.store.errors import RunMissingError, StoreError


@pytest.fixture
def session(tmp_path):
    with Session.create(tmp_path / "s") as session:
        session.runs.add("sft")
        session.runs.add("ppo")
        yield session


@pytest.fixture
def two(session):
    """The two resume points of run 1 and their contents."""
    contents = [b"older" * 100, b"newer" * 100]
    return [(session.checkpoints.save(1, 10 * (i + 1), "resume", data), data) for i, data in enumerate(contents)]


def file_of(session, record):
    return session.folder / "checkpoints" / str(record.run) / record.file


def test_what_was_saved_comes_back_with_all_that_is_said_about_it(session):
    data = bytes(range(256)) * 50
    saved = session.checkpoints.save(1, 30, "resume", data, name="lunch ../x", score=2.5, values={"kl": 1.5})
    found = session.checkpoints.latest_good(1, "resume")
    assert (found.record, found.data, found.notes) == (saved, data, ())
    assert (saved.name, saved.score, saved.values, saved.size) == ("lunch ../x", 2.5, {"kl": 1.5}, len(data))
    assert saved.sha256 == hashlib.sha256(data).hexdigest()
    assert file_of(session, saved).read_bytes() == data


def test_a_validation_that_is_no_number_is_no_score(session):
    assert session.checkpoints.save(1, 1, "resume", b"x", score=float("nan")).score is None
    assert session.checkpoints.list(1)[0].score is None


def test_the_nearest_is_found_and_the_newer_of_two(session):
    for step in (0, 100, 200):
        session.checkpoints.save(1, step, "snapshot", str(step).encode())
    at = session.checkpoints.at
    assert [at(1, step).step for step in (0, 49, 50, 51, 149, 10**9)] == [0, 0, 100, 100, 100, 200]
    assert session.checkpoints.nearest_good(1, 90).data == b"100"


def test_what_a_run_was_given_is_not_what_it_made(session):
    session.checkpoints.save(1, 0, "inputs", b"given")
    with pytest.raises(CheckpointMissingError, match="no checkpoint yet"):
        session.checkpoints.nearest_good(1, 0)
    session.checkpoints.save(1, 10, "snapshot", b"made")
    assert session.checkpoints.at(1, 0).step == 10
    assert session.checkpoints.latest_good(1, "inputs").data == b"given"


def test_old_ones_are_pruned_with_their_files(session):
    for step in range(1, 6):
        session.checkpoints.save(1, step, "resume", bytes([step]), score=float(step == 2))
    for step in range(40):
        session.checkpoints.save(2, step, "snapshot", bytes([step]))
    assert [each.step for each in session.checkpoints.list(1)] == [2, 4, 5]
    # Of 40 snapshots the eight earliest that lay too near went: 1, 3, 5 … 15.
    assert [each.step for each in session.checkpoints.list(2)] == [*range(0, 16, 2), *range(16, 40)]
    on_disk = {each.name for each in (session.folder / "checkpoints").rglob("*.*")}
    assert on_disk == {each.file for each in session.checkpoints.list()}


def test_a_checkpoint_of_no_run_leaves_no_file(session):
    with pytest.raises(RunMissingError):
        session.checkpoints.save(9, 1, "resume", b"x")
    assert list((session.folder / "checkpoints").rglob("*.safetensors")) == []


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_changed_byte_gets_through(session, data):
    content = b"0123456789abcdef"
    record = session.checkpoints.save(1, 1, "resume", content)
    damaged = bytearray(content)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, 15))] ^= data.draw(st.integers(1, 255))
    file_of(session, record).write_bytes(damaged)
    if bytes(damaged) != content:
        with pytest.raises(CheckpointBrokenError, match="step 1 is damaged"):
            session.checkpoints.read(record)


def damage(session, record, how):
    path = file_of(session, record)
    content = path.read_bytes()
    if how == "500 bytes changed":
        generator = random.Random(0)
        changed = bytearray(content)
        for _ in range(500):
            changed[generator.randrange(len(changed))] ^= generator.randrange(1, 256)
        path.write_bytes(changed)
    elif how == "longer":
        path.write_bytes(content + b"\0")
    elif how == "a pickle":
        path.write_bytes(pickle.dumps(os.getcwd).ljust(len(content), b"."))
    elif how == "missing":
        path.unlink()
    elif how == "a link to the very bytes":
        path.rename(session.folder / "elsewhere")
        path.symlink_to(session.folder / "elsewhere")
    elif how == "a pipe":
        path.unlink()
        os.mkfifo(path)
    elif how == "a folder":
        path.unlink()
        path.mkdir()
    elif how == "another checkpoint":
        other = session.checkpoints.save(2, 5, "resume", b"x" * len(content))
        path.write_bytes(file_of(session, other).read_bytes())


HOWS = ["500 bytes changed", "longer", "a pickle", "missing", "a link to the very bytes", "a pipe", "a folder",
        "another checkpoint"]  # fmt: skip


@pytest.mark.parametrize("how", HOWS)
def test_a_damaged_one_is_passed_over_and_that_is_said(session, two, how):
    damage(session, two[1][0], how)
    found = session.checkpoints.latest_good(1, "resume")
    assert found.data == two[0][1]
    (note,) = found.notes
    assert "resume point of run 1 at step 20 is damaged" in note and note.endswith("the one before is used")


def test_one_whose_bytes_are_as_saved_but_mean_nothing_is_passed_over_too(session, two):
    def parse(data: bytes) -> int:
        if data == two[1][1]:
            raise CheckpointBrokenError("it is no resume point")
        return len(data)

    found = session.checkpoints.latest_good(1, "resume", parse)
    assert (found.data, found.content) == (two[0][1], len(two[0][1]))
    assert found.notes == (
        "the resume point of run 1 at step 20 is damaged: it is no resume point; the one before is used",
    )  # fmt: skip


def test_truncation_at_a_hundred_places_is_noticed(session, two):
    path = file_of(session, two[1][0])
    for length in range(0, 500, 5):
        os.truncate(path, length)
        assert session.checkpoints.latest_good(1).data == two[0][1]
        path.write_bytes(two[1][1])
    assert session.checkpoints.latest_good(1).data == two[1][1]


def test_exchanged_files_are_noticed(session, two):
    paths = [file_of(session, record) for record, _ in two]
    contents = [path.read_bytes() for path in paths]
    for path, content in zip(paths, reversed(contents), strict=True):
        path.write_bytes(content)
    with pytest.raises(CheckpointMissingError, match=r"no whole resume left: .*step 20 is damaged"):
        session.checkpoints.latest_good(1, "resume")


@pytest.mark.parametrize("link", ["checkpoints", "checkpoints/1"])
def test_a_linked_folder_is_not_followed(session, two, link, tmp_path):
    (session.folder / link).rename(tmp_path / "elsewhere")
    (session.folder / link).symlink_to(tmp_path / "elsewhere")
    before = sorted((tmp_path / "elsewhere").rglob("*"))
    with pytest.raises(CheckpointMissingError, match="is missing or a link"):
        session.checkpoints.latest_good(1)
    with pytest.raises(StoreError, match="not a folder of the session"):
        session.checkpoints.save(1, 30, "resume", b"x")
    session.checkpoints.delete_files(1)
    assert sorted((tmp_path / "elsewhere").rglob("*")) == before


@pytest.mark.parametrize("file", ["../../../secret", "/etc/passwd", "1-0.safetensors", "", "1-0123456789abcdef.pt"])
def test_a_row_cannot_lead_outside(session, two, file, tmp_path):
    (tmp_path / "secret").write_bytes(two[1][1])
    row = session.checkpoints._table.select("WHERE id = ?", (two[1][0].id,))[0]
    session.checkpoints._table.update(row, {"file": file})  # with a checksum that is right
    found = session.checkpoints.latest_good(1)
    assert found.data == two[0][1]
    assert "names no checkpoint file" in found.notes[0]
    session.checkpoints.truncate(1, 0)
    assert (tmp_path / "secret").exists()


def test_what_a_kill_leaves_behind_is_swept_at_the_next_opening(session, two):
    folder = session.folder / "checkpoints" / "1"
    for name in (".new-0123456789ab", "7-0123456789abcdef.safetensors"):
        (folder / name).write_bytes(b"half")
    (folder / "notes of mine.txt").write_text("stay")
    session.close()
    with Session.open(session.folder) as again:
        names = {each.name for each in folder.iterdir()}
        assert names == {"notes of mine.txt", *(record.file for record, _ in two)}
        assert again.checkpoints.latest_good(1).data == two[1][1]
