"""SIGKILL to the engine while it trains and saves and a person labels: the session opens, little training is lost and
no label. Few kills by default; ``pytest -m long`` for 200."""

import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest
from engine_process import Engine, start

from core.preferences.labels import Answer, LabelRecord, Side
from core.store import Session
from core.store import tensors as encoding

CONFIG = {"steps": 100_000, "evaluate_every": 50}
DYING = [sys.executable, "-P", str(Path(__file__).with_name("dying_engine.py"))]


def label(number: int) -> LabelRecord:
    return LabelRecord(
        id=str(number), time=1.0, annotator="me", prompt="p", left=Side("a"), right=Side("b"), answer=Answer.TIE
    )


def check(folder: Path, run: int, labels: int, saved_step: int, seen_step: int) -> int:
    """Everything that was reported saved is there and whole. Returns the step that the run goes on from."""
    with Session.open(folder) as session:
        assert [each.id for each in session.labels.current()] == [str(number) for number in range(labels)]
        loaded = session.checkpoints.latest_good(run, "resume")
        assert loaded.notes == (), "a kill leaves no damaged file behind"
        assert saved_step <= loaded.record.step
        # Between two resume points lie 30 seconds of training at most; here runs are killed long before.
        state = encoding.from_bytes(loaded.data)[1]
        assert session.runs.get(run).seconds - state["seconds"] <= 30.0
        for each in session.checkpoints.list(run):
            session.checkpoints.read(each)
        steps = session.metrics.read(run).steps.tolist()
        assert steps == list(range(1, len(steps) + 1))
        return loaded.record.step


def storm(folder: Path, kills: int, lifetime: float) -> None:
    dice = random.Random(kills)
    labels, run, saved = 0, 0, 0
    Session.create(folder, task="words", seed=7, backbone={"embedding": 4, "hidden": 4, "layers": 1}).close()
    for _ in range(kills):
        with Session.open(folder) as app, Engine() as engine:
            engine.hello()
            engine.do("open", folder=str(folder))
            run = run or start(engine, milliseconds=3, config=CONFIG)
            if saved:
                assert engine.do("resume", run=run)["step"] == saved
            end = time.monotonic() + dice.uniform(0.05, lifetime)
            reported = saved
            while time.monotonic() < end:
                app.labels.add(label(labels))
                labels += 1
                if dice.random() < 0.4:
                    reported = engine.do("save", run=run, name=dice.choice(["", "a", "b"]))["step"]
            os.killpg(engine.process.pid, signal.SIGKILL)
            engine.process.wait()
            seen = max([each["step"] for each in engine.seen if each["type"] == "metrics"], default=0)
        saved = check(folder, run, labels, reported, seen)


def test_two_kills_at_random_moments(tmp_path: Path) -> None:
    storm(tmp_path / "s", 2, lifetime=0.6)


@pytest.mark.long
def test_two_hundred_kills_at_random_moments(tmp_path: Path) -> None:
    storm(tmp_path / "s", 200, lifetime=1.5)


def stages(tmp_path: Path, numbers: list[int]) -> None:
    for number in numbers:
        folder = tmp_path / str(number)
        with Engine([*DYING, str(number)]) as engine:
            engine.hello()
            engine.open(folder)
            run = start(engine, milliseconds=3, config=CONFIG)
            with Session.open(folder, read_only=True) as session:
                before = session.checkpoints.latest_good(run, "resume").record.step
            engine.step(run, 3)
            engine.send("save", run=run, name="dies")  # from here on, it dies at one of its writes
            assert engine.process.wait(20) == -signal.SIGKILL
        step = check(folder, run, 0, before, 3)
        with Engine() as engine:
            engine.hello()
            engine.open(folder)
            assert engine.do("resume", run=run)["step"] == step
            engine.step(run, step + 3)
            engine.do("close")


def test_a_kill_at_a_write_stage_of_a_save(tmp_path: Path) -> None:
    stages(tmp_path, [5])


@pytest.mark.long
def test_a_kill_at_every_write_stage_of_a_save(tmp_path: Path) -> None:
    stages(tmp_path, list(range(1, 40)))
