"""SIGKILL to the engine while it trains and saves and a person labels: the session opens, little training is lost and
no label. Few kills by default; ``pytest -m long`` for 200 at random moments and one at every write of every command."""

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from engine_process import TINY, Engine, start
from forked_engine import Nursery, linux_only

from core.engine import saving
from core.preferences.labels import Answer, LabelRecord, Side
from core.store import Session
from core.store import tensors as encoding

CONFIG = {"steps": 100_000, "evaluate_every": 50}
OFTEN = 0.1  # seconds of training between two resume points here, so that a kill comes at any point between them
STEP = 0.05  # seconds that a step, of 3 ms, takes at the very most on a busy machine


def label(number: int) -> LabelRecord:
    return LabelRecord(
        id=str(number), time=1.0, annotator="me", prompt="p", left=Side("a"), right=Side("b"), answer=Answer.TIE
    )


def drain(engine: Engine) -> None:
    """Take in what a killed engine had said."""
    with pytest.raises(AssertionError, match="the engine ended with -9"):
        engine.wait_for(lambda _: False)


def whole(folder: Path, labels: int) -> None:
    """The session opens; labels, checkpoints and metrics are all there and as they were written."""
    with Session.open(folder) as session:
        assert [each.id for each in session.labels.current()] == [str(number) for number in range(labels)]
        for record in session.runs.all():
            steps = session.metrics.read(record.id).steps.tolist()
            assert not steps or steps == list(range(steps[0], steps[0] + len(steps)))
        for each in session.checkpoints.list():
            session.checkpoints.read(each)
        on_disk = {(int(each.parent.name), each.name) for each in folder.glob("checkpoints/*/*")}
        assert on_disk == {(each.run, each.file) for each in session.checkpoints.list()}, "nothing is left behind"


def goes_on_from(folder: Path, run: int) -> tuple[int, float]:
    """Step and seconds of training of a run's newest resume point, none of which is damaged."""
    with Session.open(folder) as session:
        loaded = session.checkpoints.latest_good(run, "resume")
        assert loaded.notes == (), "a kill leaves no damaged file behind"
        return loaded.record.step, encoding.from_bytes(loaded.data)[1]["seconds"]


def storm(folder: Path, kills: int, lifetime: float, make: Callable[[], Engine], every: float) -> float:
    """The most training, in seconds, that a kill lost."""
    dice = random.Random(kills)
    labels, run, saved, worst = 0, 0, 0, 0.0
    Session.create(folder, task="words", seed=7, backbone=TINY).close()
    for _ in range(kills):
        with make() as engine, Session.open(folder) as app:
            engine.hello()
            engine.do("open", folder=str(folder))
            run = run or start(engine, milliseconds=3, config=CONFIG)
            if saved:
                assert engine.do("resume", run=run)["step"] == saved
            end = time.monotonic() + dice.uniform(0.02, lifetime)
            reported = saved
            while time.monotonic() < end:
                app.labels.add(label(labels))
                labels += 1
                if dice.random() < 0.2:
                    reported = engine.do("save", run=run, name=dice.choice(["", "a", "b"]))["step"]
            os.killpg(engine.process.pid, signal.SIGKILL)
            drain(engine)
            trained = max([each["seconds"] for each in engine.seen if each["type"] == "metrics"], default=0.0)
        whole(folder, labels)
        saved, seconds = goes_on_from(folder, run)
        assert saved >= reported, "what was reported saved is"
        worst = max(worst, trained - seconds)
        assert trained - seconds <= every + STEP
    assert labels > kills
    return worst


def test_a_resume_point_is_taken_every_thirty_seconds_of_training() -> None:
    assert saving.RESUME_EVERY == 30.0


@pytest.mark.long
def test_two_kills_at_random_moments(tmp_path: Path) -> None:
    storm(tmp_path / "s", 2, 0.6, Engine, saving.RESUME_EVERY)


@linux_only
def test_six_kills_of_engines_that_save_often(nursery: Nursery, tmp_path: Path) -> None:
    storm(tmp_path / "s", 6, 0.3, lambda: nursery.engine(resume_every=OFTEN), OFTEN)


@linux_only
@pytest.mark.long
def test_two_hundred_kills_at_random_moments(nursery: Nursery, tmp_path: Path) -> None:
    worst = storm(tmp_path / "s", 200, 0.8, lambda: nursery.engine(resume_every=OFTEN), OFTEN)
    print(f"at most {worst:.2f} s of training lost where {OFTEN} s lie between two resume points")


def begin(engine: Engine, folder: Path) -> None:
    engine.hello()
    engine.do("open", folder=str(folder))


# A command, and what to wait for until all its writes are done.
COMMANDS: dict[str, Callable[[Engine], object]] = {
    "start": lambda engine: (start(engine, milliseconds=3, config=CONFIG), engine.step(2, 5)),
    "resume": lambda engine: (engine.do("resume", run=1), engine.step(1, 30)),
    "save": lambda engine: engine.do("save", run=1, name="again"),
    "fork": lambda engine: (engine.do("fork", run=1, config={"learning_rate": 0.5}), engine.step(2, 22)),
    "set_knob": lambda engine: (engine.do("set_knob", run=1, name="learning_rate", value=0.5), engine.do("close")),
    "stop": lambda engine: (engine.do("stop", run=1), engine.do("close")),
    "delete": lambda engine: engine.do("delete", run=1),
}


@pytest.fixture(scope="module")
def before(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session with a paused run of a few resume points, two labels, and a file that a kill left over."""
    folder = tmp_path_factory.mktemp("before") / "s"
    Session.create(folder, task="words", seed=7, backbone=TINY).close()
    with nursery.engine() as engine, Session.open(folder) as app:
        begin(engine, folder)
        for number in range(2):
            app.labels.add(label(number))
        run = start(engine, milliseconds=3, config={**CONFIG, "steps": 300})
        for step, name in ((5, "first"), (10, ""), (15, "")):
            engine.step(run, step)
            engine.do("save", run=run, name=name)
        engine.do("pause", run=run)
        engine.state(run, "paused")
        engine.do("close")
    return folder


def kill_at_every_write(nursery: Nursery, before: Path, tmp_path: Path, command: str, every: int) -> int:
    """Kill at the first write after a command, at the ``every``-th after that, and so on, until it survives all."""
    paused, _ = goes_on_from(before, 1)
    for write in range(1, 400, every):
        folder = tmp_path / command / str(write)
        copy_session(before, folder)
        (folder / "checkpoints" / "1" / ".new-0123456789ab").write_bytes(b"half a file")
        survived = False
        with nursery.engine(die_at=(command, write)) as engine:
            begin(engine, folder)
            try:
                COMMANDS[command](engine)
                survived = True
            except (AssertionError, BrokenPipeError):
                assert engine.process.wait(5) == -signal.SIGKILL
        whole(folder, labels=2)
        with Session.open(folder, read_only=True) as session:
            runs = [each.id for each in session.runs.all()]
        assert 1 in runs or command == "delete"
        if 1 in runs and (command != "delete" or survived):
            step, _ = goes_on_from(folder, 1)
            assert step >= paused
        with nursery.engine() as engine:
            begin(engine, folder)
            if 1 in runs and command != "delete":
                assert engine.do("resume", run=1)["step"] == step
                engine.step(1, step + 2)
            for each in runs[1:]:
                # A run that was just being made: it goes on, or one line says that it never began.
                answer = engine.ask("resume", run=each)
                assert answer["type"] == "run_state" or "\n" not in answer["message"]
            start(engine, config={"steps": 3})
            engine.do("close")
        if survived:
            return write
    raise AssertionError("400 writes were not enough")


def copy_session(before: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    with Session.open(before, read_only=True) as session:
        session.copy_to(folder)


@linux_only
@pytest.mark.parametrize(("command", "every"), [("save", 11), ("fork", 31)])
def test_a_kill_at_some_writes_of_a_command(
    nursery: Nursery, command: str, every: int, before: Path, tmp_path: Path
) -> None:
    assert kill_at_every_write(nursery, before, tmp_path, command, every) > every


@linux_only
@pytest.mark.long
@pytest.mark.parametrize("command", COMMANDS)
def test_a_kill_at_every_write_of_a_command(nursery: Nursery, command: str, before: Path, tmp_path: Path) -> None:
    writes = kill_at_every_write(nursery, before, tmp_path, command, every=1)
    print(f"{command}: {writes - 1} kills")
