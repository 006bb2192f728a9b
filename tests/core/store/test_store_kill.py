"""SIGKILL, for real: at every write stage and at random moments, in forked children."""

import json
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
from children import kill_self, run_in_child

from core.preferences.labels import Answer, LabelRecord, Side
from core.store import Session
from core.store.database import Database

KILLED = ("killed", signal.SIGKILL)


def label(id: str) -> LabelRecord:
    return LabelRecord(id=id, time=1.0, annotator="me", prompt="p", left=Side("a"), right=Side("b"), answer=Answer.TIE)


def weights(step: int) -> bytes:
    return f"weights of step {step} ".encode() * 200


def save_everything(session: Session, step: int) -> None:
    with session.transaction():
        session.metrics.append(1, [(step, step, 0.1, {"loss": 1.0 / step})])
        session.runs.update(1, step=step)
    session.labels.add(label(str(step)))
    session.checkpoints.save(1, step, "resume", weights(step))


class Countdown:
    """Kills the process before the n-th of the system calls and SQL statements that change the disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, session: Session, kill_at: int) -> None:
        self.left = kill_at
        for owner, name in [(os, "open"), (os, "fsync"), (os, "mkdir"), (Path, "rename"), (Path, "unlink"),
                            (Path, "mkdir")]:  # fmt: skip
            monkeypatch.setattr(owner, name, self.counting(getattr(owner, name)))
        session._database._connection.set_trace_callback(lambda statement: self.tick())

    def counting(self, function):
        def call(*arguments, **keywords):
            self.tick()
            return function(*arguments, **keywords)

        return call

    def tick(self) -> None:
        self.left -= 1
        if self.left == 0:
            kill_self()


def check_survived(folder: Path, least_step: int) -> None:
    """The session opens, nothing that was reported done is missing, and what is there is whole."""
    with Session.open(folder) as session:
        step = session.runs.get(1).step
        assert step >= least_step
        assert session.metrics.last_step(1) == step, "the run and its metrics are one commit"
        labelled = [int(each.id) for each in session.labels.current()]
        assert labelled == list(range(1, len(labelled) + 1)) and len(labelled) in (step, step - 1)
        found = session.checkpoints.latest_good(1, "resume")
        assert found.notes == () and found.data == weights(found.record.step)
        assert least_step <= found.record.step <= step
        for each in session.checkpoints.list(1):
            assert session.checkpoints.read(each) == weights(each.step)
        rows = {each.file for each in session.checkpoints.list(1)}
        assert {each.name for each in (folder / "checkpoints" / "1").iterdir()} == rows, "nothing is left behind"
        save_everything(session, step + 1 if len(labelled) == step else step)


def kill_at_stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    with Session.create(tmp_path / "before") as session:
        session.runs.add("sft")
        for step in (1, 2, 3):
            save_everything(session, step)
    stage = 1
    outcome: object = KILLED
    while outcome == KILLED:
        folder = tmp_path / str(stage)
        shutil.copytree(tmp_path / "before", folder)

        def killed_while_saving(folder=folder, stage=stage):
            with Session.open(folder) as session:
                Countdown(monkeypatch, session, kill_at=stage)
                save_everything(session, 4)
            return "done"

        outcome = run_in_child(killed_while_saving)
        check_survived(folder, least_step=3 if outcome == KILLED else 4)
        stage += every
    assert outcome == "done"
    assert stage > 25, "open, write, fsync, rename, folder, row, label, metrics and prune were all passed"


def test_a_kill_at_every_third_stage_of_a_save_loses_nothing_that_was_done(tmp_path, monkeypatch):
    kill_at_stages(tmp_path, monkeypatch, every=3)


@pytest.mark.long
def test_a_kill_at_any_stage_of_a_save_loses_nothing_that_was_done(tmp_path, monkeypatch):
    kill_at_stages(tmp_path, monkeypatch, every=1)


def test_a_kill_at_any_stage_of_creation_leaves_a_session_or_none(tmp_path, monkeypatch):
    for stage in range(1, 100, 2):
        folder = tmp_path / str(stage)

        def killed_while_creating(folder=folder, stage=stage):
            class Waiting(Countdown):
                def __init__(self) -> None:
                    self.left = stage
                    for owner, name in [(os, "open"), (os, "fsync"), (Path, "rename"), (Path, "mkdir")]:
                        monkeypatch.setattr(owner, name, self.counting(getattr(owner, name)))

            Waiting()
            Session.create(folder, title="new").close()
            return "done"

        outcome = run_in_child(killed_while_creating)
        if not (folder / "session.db").exists():
            Session.create(folder, title="new").close()
        with Session.open(folder) as session:
            assert session.title == "new"
        if outcome == "done":
            break
    assert stage > 5


def storm(tmp_path: Path, times: int) -> None:
    generator = random.Random(times)
    folder = tmp_path / "s"
    with Session.create(folder) as session:
        session.runs.add("sft")
        save_everything(session, 1)
    done = 1
    for _ in range(times):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            with Session.open(folder) as session:
                for step in range(session.runs.get(1).step + 1, 10**6):
                    save_everything(session, step)
                    os.write(writing, json.dumps(step).encode() + b"\n")
            os._exit(0)
        os.close(writing)
        time.sleep(generator.uniform(0.02, 0.15))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with os.fdopen(reading, "rb") as pipe:
            reported = [int(line) for line in pipe.read().split()]
        done = max([done, *reported])
        check_survived(folder, done)
        with Session.open(folder, read_only=True) as session:
            done = session.runs.get(1).step


def test_eight_kills_at_random_moments(tmp_path):
    storm(tmp_path, 8)


@pytest.mark.long
def test_two_hundred_kills_at_random_moments(tmp_path):
    storm(tmp_path, 200)


def test_a_kill_during_migration_leaves_the_old_format_or_the_new(tmp_path, monkeypatch):
    from core.store import schema

    def add_column(connection):
        connection.execute("CREATE TABLE extra (id INTEGER PRIMARY KEY)")

    for stage in range(1, 60, 3):
        folder = tmp_path / str(stage)
        with Session.create(folder, title="old") as session:
            session.runs.add("sft")

        def killed_while_migrating(folder=folder, stage=stage):
            monkeypatch.setattr(schema, "FORMAT_VERSION", 2)
            monkeypatch.setattr(schema, "TABLES", (*schema.TABLES, "CREATE TABLE extra (id INTEGER PRIMARY KEY)"))
            monkeypatch.setattr(schema, "MIGRATIONS", {1: add_column})
            original = Database._migrate

            def counted(database, version, migrations):
                countdown = Countdown.__new__(Countdown)
                countdown.left = stage
                for owner, name in [(os, "open"), (os, "fsync"), (Path, "rename")]:
                    monkeypatch.setattr(owner, name, countdown.counting(getattr(owner, name)))
                database._connection.set_trace_callback(lambda statement: countdown.tick())
                original(database, version, migrations)

            monkeypatch.setattr(Database, "_migrate", counted)
            with Session.open(folder) as session:
                return session.notes

        outcome = run_in_child(killed_while_migrating)

        def migrated(folder=folder):
            monkeypatch.setattr(schema, "FORMAT_VERSION", 2)
            monkeypatch.setattr(schema, "TABLES", (*schema.TABLES, "CREATE TABLE extra (id INTEGER PRIMARY KEY)"))
            monkeypatch.setattr(schema, "MIGRATIONS", {1: add_column})
            with Session.open(folder) as session:
                return [session.title, len(session.runs.all())]

        assert run_in_child(migrated) == ["old", 1]
        if outcome != KILLED:
            assert "session.format-1.backup.db" in outcome[0]
            break
    assert stage > 5
