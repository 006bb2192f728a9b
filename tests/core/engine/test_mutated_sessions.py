"""Damaged and hostile sessions through a real engine: refused in a line, or read right, or the checkpoint before is
used and that is said. Never a traceback, code run or wrong numbers. A few by default; ``pytest -m long`` for all.
"""

import os
import pickle
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from engine_process import Maker
from safetensors.numpy import save as as_safetensors

from core.store import Session
from core.store import tensors as encoding
from core.store.table import Row

CONFIG = {"steps": 60, "batch_size": 4, "evaluate_every": 50}
NAMED = (5, 10)  # steps with a named resume point, beside the newest
PROMPTS = ["hello", "thank"]


@dataclass
class Truth:
    """A whole session of one SFT run, and what an engine must make of it."""

    folder: Path
    newest: int = 0  # step of the newest resume point
    before: list[int] = field(default_factory=list)  # steps of the others
    losses: dict[int, float] = field(default_factory=dict)  # of each step
    texts: list[str] = field(default_factory=list)  # what the run writes as it is now

    @property
    def database(self) -> Path:
        return self.folder / "session.db"

    def resume_files(self, folder: Path) -> list[Path]:
        """The newest resume point first."""
        with Session.open(self.folder, read_only=True) as session:
            records = session.checkpoints.list(1, "resume")[::-1]
        return [folder / "checkpoints" / "1" / each.file for each in records]


class Target:
    """An engine that lives through all of it, and a place where a copy of the session is spoiled for it."""

    def __init__(self, place: Path, make: Maker) -> None:
        self.place = place
        self.log = place / "engine.log"
        self.engine = make(self.log)
        self.engine.hello()
        self.outcomes: Counter[str] = Counter()

    def close(self) -> None:
        self.engine.quit()

    def truth(self) -> Truth:
        """Train a run to some step, remembering what it does after each."""
        engine, truth = self.engine, Truth(self.place / "truth")
        engine.open(truth.folder)
        engine.do("start", method="sft", config=CONFIG, paused=True)
        for step in range(1, 15):
            engine.do("step", run=1)
            truth.losses[step] = engine.step(1, step)["values"]["loss"]
            engine.state(1, "paused")
            if step in NAMED:
                engine.do("save", run=1, name=f"at {step}")
        with Session.open(truth.folder, read_only=True) as session:
            *truth.before, truth.newest = [each.step for each in session.checkpoints.list(1, "resume")]
        truth.texts = self._texts()
        engine.do("close")
        scratch = self.copy(truth)
        engine.do("open", folder=str(scratch))
        engine.do("step", run=1)
        truth.losses[15] = engine.step(1, 15)["values"]["loss"]
        engine.do("close")
        return truth

    def copy(self, truth: Truth) -> Path:
        folder = self.place / "spoiled"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(truth.folder, folder, symlinks=True, ignore=shutil.ignore_patterns(".lock*"))
        return folder

    def _texts(self) -> list[str]:
        answer = self.engine.ask("sample", run=1, prompts=PROMPTS, seed=3)
        return [each["text"] for each in answer["samples"]] if answer["type"] == "samples" else [refusal(answer)]

    def look(self, truth: Truth, folder: Path, strict: bool = True) -> str:
        """Open what lies in ``folder``, sample, train a step; what came of it: refused, newest or before.

        ``strict``: what is read must be right, not just harmless.
        """
        outcome = self._look(truth, folder, strict)
        self.outcomes[outcome] += 1
        for log in (self.log, folder / "engine.log"):
            assert not log.is_file() or "Traceback" not in log.read_text(errors="replace"), log.read_text()[-3000:]
        return outcome

    def _look(self, truth: Truth, folder: Path, strict: bool) -> str:
        engine = self.engine
        engine.seen.clear()
        answer = engine.ask("open", folder=str(folder))
        if answer["type"] == "error":
            refusal(answer)
            return "refused"
        try:
            texts = self._texts()
            answer = engine.ask("step", run=1)
            if answer["type"] == "error":
                refusal(answer)
                return "refused"
            metrics = engine.wait_for(lambda each: each["type"] == "metrics")
            step = metrics["step"]
            if not strict:
                return "read"
            assert metrics["values"]["loss"] == truth.losses[step], "a wrong load that nobody said"
            engine.state(1, "paused")
            said = [each["message"] for each in engine.seen if each["type"] == "alert"]
            if texts != truth.texts:
                assert any("is damaged" in each for each in [*texts, *said]), (texts, said)
            if step == truth.newest + 1:
                return "newest"
            assert step - 1 in truth.before and any("the one before is used" in each for each in said), said
            return "before"
        finally:
            engine.ask("close")

    def spoil(self, truth: Truth, spoil: Callable[[Path], object], strict: bool = True) -> str:
        folder = self.copy(truth)
        spoil(folder)
        return self.look(truth, folder, strict)


def refusal(answer: dict[str, Any]) -> str:
    message = str(answer["message"])
    assert message.isprintable() and "Error:" not in message and len(message) < 2000, message
    return message


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory, new_real_engine: Maker) -> Iterator[Target]:
    made = Target(tmp_path_factory.mktemp("mutated"), new_real_engine)
    yield made
    made.close()


@pytest.fixture(scope="module")
def truth(target: Target) -> Truth:
    return target.truth()


def flip(path: Path, dice: random.Random, flips: int = 1) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(flips):
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    path.write_bytes(data)


def flipped_databases(target: Target, truth: Truth, times: int) -> Counter[str]:
    dice = random.Random(times)
    return Counter(
        target.spoil(truth, lambda folder: flip(folder / "session.db", dice, dice.choice([1, 1, 20])))
        for _ in range(times)
    )


def flipped_checkpoints(target: Target, truth: Truth, times: int) -> Counter[str]:
    dice = random.Random(times)

    def spoil(folder: Path) -> None:
        files = sorted(folder.glob("checkpoints/1/*"))
        flip(dice.choice([truth.resume_files(folder)[0], dice.choice(files)]), dice)

    return Counter(target.spoil(truth, spoil) for _ in range(times))


def truncated(target: Target, truth: Truth, places: int) -> tuple[Counter[str], Counter[str]]:
    """Of the newest resume point, and of the database."""

    def cut(path: Path, part: int) -> None:
        os.truncate(path, path.stat().st_size * part // places)

    resumes = Counter(
        target.spoil(truth, lambda folder, part=part: cut(truth.resume_files(folder)[0], part))  # type: ignore[misc]
        for part in range(places)
    )
    databases = Counter(
        target.spoil(truth, lambda folder, part=part: cut(folder / "session.db", part))  # type: ignore[misc]
        for part in range(places)
    )
    return resumes, databases


def test_a_whole_session_goes_on_from_its_newest_resume_point(target: Target, truth: Truth) -> None:
    assert target.spoil(truth, lambda _: None) == "newest"


def test_some_flipped_and_truncated_files(target: Target, truth: Truth) -> None:
    assert flipped_databases(target, truth, 4).total() == 4
    assert flipped_checkpoints(target, truth, 4)["before"] > 0
    resumes, databases = truncated(target, truth, 3)
    assert resumes == {"before": 3} and databases == {"refused": 3}


@pytest.mark.long
def test_two_hundred_flipped_databases(target: Target, truth: Truth) -> None:
    found = flipped_databases(target, truth, 200)
    print(f"200 databases with flipped bits: {dict(found)}")
    assert found["refused"] > 50


@pytest.mark.long
def test_five_hundred_flipped_checkpoint_bytes(target: Target, truth: Truth) -> None:
    found = flipped_checkpoints(target, truth, 500)
    print(f"500 checkpoints with a flipped bit: {dict(found)}")
    assert found["before"] > 200


@pytest.mark.long
def test_truncation_at_a_hundred_places(target: Target, truth: Truth) -> None:
    resumes, databases = truncated(target, truth, 100)
    print(f"resume points cut at 100 places: {dict(resumes)}; databases: {dict(databases)}")
    assert resumes == {"before": 100} and databases == {"refused": 100}


def test_swapped_checkpoint_files(target: Target, truth: Truth) -> None:
    def swap(one: Path, other: Path) -> None:
        first, second = one.read_bytes(), other.read_bytes()
        one.write_bytes(second)
        other.write_bytes(first)

    files = truth.resume_files(truth.folder)
    assert len(files) >= 3
    # The newest with the one before: both are not what their rows say, so the third is used.
    assert target.spoil(truth, lambda folder: swap(*truth.resume_files(folder)[:2])) == "before"

    def with_inputs(folder: Path) -> None:
        with Session.open(folder) as session:
            (given,) = session.checkpoints.list(1, "inputs")
        swap(truth.resume_files(folder)[0], folder / "checkpoints" / "1" / given.file)

    assert target.spoil(truth, with_inputs) == "refused"  # without its inputs no run can go on


class Bomb:
    """What a pickle does to whoever loads it."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


def rewritten(folder: Path, changes: Callable[[Row], Row]) -> None:
    """Change the row of the newest resume point, with its checksum: as someone would who knows the format."""
    with Session.open(folder) as session:
        table = session.checkpoints._table
        row = table.select("WHERE kind = 'resume' ORDER BY id DESC LIMIT 1")[0]
        table.update(row, changes(row))


def replaced(folder: Path, data: bytes) -> None:
    """Put other bytes in the place of the newest resume point, and let its row agree."""
    import hashlib

    def agree(row: Row) -> Row:
        (folder / "checkpoints" / "1" / row["file"]).write_bytes(data)
        return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    rewritten(folder, agree)


def test_a_pickle_is_never_loaded(target: Target, truth: Truth, tmp_path: Path) -> None:
    mark = tmp_path / "it ran"
    payload = pickle.dumps(Bomb(mark))
    assert target.spoil(truth, lambda folder: truth.resume_files(folder)[0].write_bytes(payload)) == "before"
    assert target.spoil(truth, lambda folder: replaced(folder, payload)) == "before"
    assert not mark.exists()
    pickle.loads(payload)
    assert mark.exists(), "the payload is a real one"


def state_with(truth: Truth, change: Callable[[dict[str, Any], dict[str, Any]], object]) -> bytes:
    tensors, values = encoding.from_bytes(truth.resume_files(truth.folder)[0].read_bytes())
    change(tensors, values)
    return encoding.to_bytes(tensors, values)


def test_a_file_of_the_right_format_with_the_wrong_content_is_refused(target: Target, truth: Truth) -> None:
    import numpy as np

    names = sorted(encoding.from_bytes(truth.resume_files(truth.folder)[0].read_bytes())[0])
    moment = next(each for each in names if each.endswith(".exp_avg_sq"))
    weight = next(each for each in names if not each.startswith("optimizer."))
    hostile = {
        "nothing": as_safetensors({}),
        "no values": as_safetensors({"weight": np.zeros(3, np.float32)}),
        "no trainer": state_with(truth, lambda _, values: values.pop("trainer")),
        "trainer is a list": state_with(truth, lambda _, values: values.update(trainer=[1])),
        "no environment": state_with(truth, lambda _, values: values.update(environment=7)),
        "seconds are text": state_with(truth, lambda _, values: values.update(seconds="many")),
        "a weight less": state_with(truth, lambda tensors, _: tensors.pop(weight)),
        "a moment less": state_with(truth, lambda tensors, _: tensors.pop(moment)),
        "another weight": state_with(truth, lambda tensors, _: tensors.update({weight: tensors[weight].flatten()[:2]})),
        "another moment": state_with(truth, lambda tensors, _: tensors.update({moment: tensors[moment].flatten()[:2]})),
        "a moment more": state_with(
            truth, lambda tensors, _: tensors.update({"optimizer.policy.999.step": tensors[moment]})
        ),
        "step is text": state_with(truth, lambda _, values: values["trainer"].update(step="x")),
        "step is huge": state_with(truth, lambda _, values: values["trainer"].update(step=10**40)),
        "config is wrong": state_with(truth, lambda _, values: values["trainer"].update(config={"steps": "x"})),
    }
    for name, data in hostile.items():
        outcome = target.spoil(truth, lambda folder, data=data: replaced(folder, data))  # type: ignore[misc]
        assert outcome in ("refused", "before"), name


@pytest.mark.parametrize("file", ["../../../evil.safetensors", "/etc/passwd", "..", "", "5-é.safetensors", "a\0b"])
def test_a_row_that_leads_elsewhere_is_passed_over(file: str, target: Target, truth: Truth) -> None:
    evil = target.place / "evil.safetensors"
    evil.write_bytes(truth.resume_files(truth.folder)[0].read_bytes())
    assert target.spoil(truth, lambda folder: rewritten(folder, lambda _: {"file": file})) == "before"
    assert evil.exists()


def test_links_are_not_followed(target: Target, truth: Truth, tmp_path: Path) -> None:
    def file_to(folder: Path) -> None:
        newest = truth.resume_files(folder)[0]
        newest.rename(tmp_path / newest.name)
        newest.symlink_to(tmp_path / newest.name)

    assert target.spoil(truth, file_to) == "before"

    def folder_to(folder: Path) -> None:
        (folder / "checkpoints" / "1").rename(tmp_path / "1")
        (folder / "checkpoints" / "1").symlink_to(tmp_path / "1")

    assert target.spoil(truth, folder_to) == "refused"

    def database_to(folder: Path) -> None:
        (folder / "session.db").rename(tmp_path / "session.db")
        (folder / "session.db").symlink_to(tmp_path / "session.db")

    assert target.spoil(truth, database_to) == "refused"


def test_names_that_lead_elsewhere_are_only_names(target: Target, truth: Truth) -> None:
    folder = target.copy(truth)
    engine = target.engine
    engine.do("open", folder=str(folder))
    before = sorted(target.place.rglob("*"))
    for name in ("../../../evil", "/etc/passwd", "a\0b", "x" * 5000, "\x1b[31m"):
        engine.do("save", run=1, name=name)
        engine.do("rename", run=1, title=name)
    engine.do("close")
    new = [each for each in target.place.rglob("*") if each not in before]
    assert {each.parent for each in new} <= {folder / "checkpoints" / "1", folder}
    assert target.look(truth, folder) == "newest"
    for name in ("..", "../..", "spoiled/../../..", "a\0b"):
        answer = engine.ask("open", folder=f"{folder}/{name}")
        assert answer["type"] == "error"
        refusal(answer)


@pytest.mark.long
def test_rows_of_another_kind_of_run_are_refused(target: Target, truth: Truth) -> None:
    """Valid checksums over values that no program of ours writes."""

    def run_with(**changes: Any) -> Callable[[Path], None]:
        def spoil(folder: Path) -> None:
            with Session.open(folder) as session:
                table = session.runs._table
                table.update(table.select()[0], changes)

        return spoil

    for changes in (
        {"method": "../../evil"}, {"method": "ppo"}, {"method": "rm"}, {"config": "[]"}, {"config": "{}"},
        {"config": '{"steps": "x"}'}, {"inputs": "[1]"}, {"step": -5}, {"state": "\x1b]0;evil\x07"},
        {"title": "\x1b[31m\0"}, {"seed": -(2**62)}, {"seconds": -1.0}, {"message": "x" * 100_000},
    ):  # fmt: skip
        target.spoil(truth, run_with(**changes), strict=False)

    def session_with(**changes: Any) -> Callable[[Path], None]:
        def spoil(folder: Path) -> None:
            with Session.open(folder) as session:
                session._facts_table.update(session._facts_table.select()[0], changes)

        return spoil

    for changes in (
        {"task": "../../evil"}, {"task": "custom"}, {"task": ""}, {"backbone": "[]"}, {"backbone": '{"hidden": -1}'},
        {"backbone": '{"kind": "os"}'}, {"backbone": '{"hidden": 8}'}, {"seed": 2**62}, {"title": "\x1b[31m\0"},
    ):  # fmt: skip
        target.spoil(truth, session_with(**changes), strict=False)
