"""A disk that is full, a place that became read-only, a folder deleted underneath: training goes on, the old copy is
intact, and saving works again once it can."""

import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from engine_process import Engine, Maker, start

from core.store import Session

LONG = {"steps": 100_000, "evaluate_every": 1000}


def alert(message: dict, kind: str) -> bool:
    return message["type"] == "alert" and message["kind"] == kind


def delete(folder: Path) -> None:
    """Away in one step, then file by file: the engine may write one meanwhile, and its folder could not be removed."""
    shutil.rmtree(folder.rename(folder.with_name("gone")))


def trouble(engine: Engine) -> str:
    """Wait for the alert that a save failed."""
    return str(engine.wait_for(lambda each: alert(each, "not_saved"))["message"])


def relief(engine: Engine) -> None:
    engine.wait_for(lambda each: alert(each, "saved_again"))


def newest_step(engine: Engine) -> int:
    return max((each["step"] for each in engine.seen if each["type"] == "metrics"), default=0)


def trains_on(engine: Engine, run: int) -> None:
    engine.step(run, newest_step(engine) + 20)


def whole(folder: Path, run: int, steps: range | None = None) -> None:
    """Everything that a session needs to go on is there and verified, and no step lacks its metrics."""
    with Session.open(folder, read_only=True) as session:
        assert session.checkpoints.latest_good(run, "resume").notes == ()
        session.checkpoints.latest_good(run, "inputs")
        table = session.metrics.read(run)
        assert table.steps.tolist() == list(range(1, len(table) + 1))
        assert session.runs.get(run).step == len(table)


@contextmanager
def no_room_to_grow(process: int, size: int = 0) -> Iterator[None]:
    """No file of the process may grow beyond ``size`` bytes: what a full disk looks like from inside."""
    limits = resource.prlimit(process, resource.RLIMIT_FSIZE)
    resource.prlimit(process, resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.prlimit(process, resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_costs_an_alert_and_nothing_else(engine: Engine, folder: Path) -> None:
    run = start(engine, config=LONG)
    engine.step(run, 10)
    good = engine.do("save", run=run, name="before")["step"]
    with no_room_to_grow(engine.process.pid):
        assert "training goes on" in trouble(engine)
        assert "could not be saved" in engine.ask("save", run=run, name="lost")["message"]
        trains_on(engine, run)
        # What was saved before can be read by anyone meanwhile, though not by making files.
        with Session.open(folder, read_only=True) as session:
            assert session.checkpoints.latest_good(run, "resume").record.step >= good
    relief(engine)
    later = engine.do("save", run=run, name="after")["step"]
    assert later > good
    engine.do("stop", run=run)
    engine.state(run, "stopped")
    engine.do("close")
    whole(folder, run)
    with Session.open(folder, read_only=True) as session:
        assert {"before", "after"} <= {each.name for each in session.checkpoints.list(run)}


def test_a_start_without_room_is_refused_in_one_line_and_leaves_nothing(engine: Engine, folder: Path) -> None:
    with no_room_to_grow(engine.process.pid):
        message = engine.ask("start", method="sft")["message"]
    assert "what was saved before is intact" in message and "\n" not in message
    with Session.open(folder, read_only=True) as session:
        assert session.runs.all() == []


def test_a_folder_deleted_underneath_is_put_back_and_every_step_is_in_it(engine: Engine, folder: Path) -> None:
    run = start(engine, config=LONG)
    engine.step(run, 20)
    delete(folder)
    engine.wait_for(lambda each: alert(each, "storage") and "was put back" in each["message"])
    trains_on(engine, run)
    named = engine.do("save", run=run, name="after")["step"]
    engine.do("stop", run=run)
    engine.state(run, "stopped")
    engine.do("close")
    whole(folder, run)
    # It can be resumed and forked from what was saved since.
    engine.open(folder)
    assert engine.do("fork", run=run, step=named, paused=True)["step"] == named


def test_a_run_whose_folder_was_deleted_goes_on_in_another_process(
    engine: Engine, folder: Path, new_engine: Maker
) -> None:
    run = start(engine, config={**LONG, "steps": 60}, milliseconds=10)
    engine.step(run, 10)
    delete(folder)
    engine.wait_for(lambda each: alert(each, "storage") and "was put back" in each["message"])
    engine.do("pause", run=run)
    paused = engine.state(run, "paused")["step"]
    engine.kill()
    with new_engine() as second:
        second.hello()
        second.open(folder)
        assert second.do("resume", run=run)["step"] == paused
        second.state(run, "done")
        second.do("close")
    whole(folder, run)


def test_another_session_in_the_place_of_a_deleted_one_is_not_written_to(engine: Engine, folder: Path) -> None:
    run = start(engine, config=LONG)
    engine.step(run, 10)
    other = folder.with_name("other")
    Session.create(other, title="not mine").close()
    delete(folder)
    other.rename(folder)
    end = time.monotonic() + 10
    while "another session" not in trouble(engine):
        assert time.monotonic() < end
    trains_on(engine, run)
    with Session.open(folder, read_only=True) as session:
        assert (session.title, session.runs.all()) == ("not mine", [])
    engine.kill()


IN_A_SMALL_TMPFS = """
import subprocess, sys
place, test = sys.argv[1:]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", place], check=True)
sys.path.insert(0, sys.argv[2])
import test_storage_failures as here
here.on_a_small_disk(here.Path(place))
"""


def on_a_small_disk(place: Path) -> None:
    """Fill a real file system, then make it read-only, then let both pass. Runs in a mount namespace of its own."""
    folder = place / "s"
    with Engine() as engine:
        engine.hello()
        engine.open(folder)
        run = start(engine, config=LONG)
        engine.step(run, 10)
        good = engine.do("save", run=run, name="before")["step"]
        filler = place / "filler"
        with filler.open("wb") as file:
            for block in (1 << 16, 1):
                try:
                    while True:
                        os.write(file.fileno(), b"x" * block)
                except OSError:
                    continue
        trouble(engine)
        trains_on(engine, run)
        with Session.open(folder, read_only=True) as session:
            assert session.checkpoints.latest_good(run, "resume").record.step >= good
        filler.unlink()
        relief(engine)
        engine.do("pause", run=run)
        paused = engine.state(run, "paused")["step"]
        engine.do("close")  # and holds no file of it: the remount would be refused
        subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
        refused = engine.ask("open", folder=str(folder))
        assert refused["type"] == "error" and "read" in refused["message"], refused
        subprocess.run(["mount", "-o", "remount,rw", str(place)], check=True)
        engine.do("open", folder=str(folder))
        assert engine.do("resume", run=run)["step"] == paused
        engine.step(run, paused + 5)
        engine.do("stop", run=run)
        engine.state(run, "stopped")
        engine.do("close")
    whole(folder, run)


def test_a_real_full_file_system_and_a_read_only_one(tmp_path: Path) -> None:
    may = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False)
    if may.returncode:
        pytest.skip("mounting a file system is not allowed here")
    here = Path(__file__).parent
    run = subprocess.run(
        ["unshare", "-m", sys.executable, "-c", IN_A_SMALL_TMPFS, str(tmp_path), str(here)],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(here.parents[2])}, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-2000:]
