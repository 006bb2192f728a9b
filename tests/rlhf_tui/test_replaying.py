"""A run's copied command, run headless in processes of its own, gives the numbers of the run, bit for bit."""

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "core" / "engine"))

from engine_process import REAL_ENGINE, Engine

from core.preferences.labels import Answer, LabelRecord, Side
from core.store import Session
from rlhf_tui.run_tree import replay_command

HERE = Path(__file__).parent
FAKE_CLI = [sys.executable, str(HERE / "cli_with_fake_engine.py")]
REAL_CLI = [sys.executable, str(HERE / "cli_with_short_report.py")]


def numbers(folder: Path, run: int) -> tuple[str, list[int], dict[str, bytes]]:
    """Checksum of a finished run's weights, its steps, and its metrics as bytes, but for those of the clock."""
    with Session.open(folder, read_only=True) as session:
        assert session.runs.get(run).state == "done"
        table = session.metrics.read(run)
        columns = {name: column.tobytes() for name, column in table.values.items() if "per_second" not in name}
        final = session.checkpoints.list(run, "snapshot")[-1]
        assert final.step == table.steps[-1]
        return final.sha256, table.steps.tolist(), columns


def command_of(folder: Path, run: int) -> list[str]:
    with Session.open(folder, read_only=True) as session:
        found = session.runs.get(run)
        return shlex.split(replay_command(found, run, found.seed, folder.name, str(folder.parent)))[1:]


def replay(cli: list[str], folder: Path, run: int) -> int:
    """Run the copied command of a run; the number of the run that it made."""
    done = subprocess.run(
        [*cli, *command_of(folder, run)], capture_output=True, text=True, timeout=120, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with Session.open(folder, read_only=True) as session:
        return session.runs.all()[-1].id


@pytest.mark.long
def test_a_replay_starts_from_the_same_step_of_the_same_parent_and_a_fork_from_the_same_state(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    quick = {"batch_size": 256, "evaluate_every": 2}
    with Engine() as engine:
        engine.hello()
        engine.open(folder)
        for seed in (1, 2):  # the newest one is not the parent
            engine.do("start", method="sft", config={**quick, "steps": 9}, seed=seed)
        engine.all_in("done", 1, 2)
        engine.do("start", method="ppo", config={**quick, "steps": 12}, parent=1, parent_step=4, seed=3)
        engine.all_in("done", 3)
        slow = {**quick, "batch_size": 5, "steps": 40}
        engine.do("start", method="ppo", config=slow, parent=1, seed=3)
        engine.step(4, 11)
        fork = engine.do("fork", run=4, config={"learning_rate": 0.5, "batch_size": 256})
        engine.all_in("done", 4, 5)
        # Long after the resume points of that step would have been pruned.
        assert fork["step"] < 40 - 10
        engine.quit()
    assert replay(FAKE_CLI, folder, 3) == 6
    assert numbers(folder, 6) == numbers(folder, 3)
    assert replay(FAKE_CLI, folder, 5) == 7
    assert numbers(folder, 7) == numbers(folder, 5)
    assert numbers(folder, 5)[2] != numbers(folder, 4)[2]
    with Session.open(folder) as session:
        runs = {each.id: each for each in session.runs.all()}
        assert [(runs[each].parent, runs[each].parent_step) for each in (6, 7)] == [(1, 4), (4, fork["step"])]


METHODS: dict[str, dict[str, Any]] = {
    "sft": {"batch_size": 16},
    "rm": {"batch_size": 8, "pair_count": 64},
    "ppo": {"batch_size": 32, "minibatch_size": 16, "reward": "learned", "probe_completions": 16},
    "dpo": {"batch_size": 8, "probe_completions": 16, "pairs": "labels"},
}


def label(number: int) -> LabelRecord:
    letter = chr(ord("a") + number % 26)
    sides = Side(f"en{letter}"), Side(f"o{letter}")
    answer = Answer.LEFT if number % 3 else Answer.RIGHT
    return LabelRecord(
        id=f"{number}", time=1.0, annotator="me", prompt="enc", left=sides[0], right=sides[1], answer=answer
    )


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
def test_the_real_trainers_replay_bit_for_bit_also_forked_and_on_labels(method: str, tmp_path: Path) -> None:
    folder = tmp_path / "s"
    with Engine(REAL_ENGINE) as engine:
        engine.hello()
        engine.open(folder)
        with Session.open(folder) as app:
            for number in range(12):
                app.labels.add(label(number))
        for before, steps in (("sft", 9), ("rm", 3), ("sft", 3), ("rm", 2)):
            config = {"steps": steps, "batch_size": 8} | ({"pair_count": 16} if before == "rm" else {})
            engine.all_in("done", engine.do("start", method=before, config=config, seed=steps)["run"])
        start = {} if method == "sft" else {"parent": 1, "parent_step": 6, "reward_run": 2}
        config = METHODS[method] | {"steps": 8, "evaluate_every": 3}
        engine.do("start", method=method, config=config, seed=11, paused=True, **start)
        for _ in range(3):
            engine.do("step", run=5)
            engine.state(5, "paused")
        engine.do("fork", run=5, config={"learning_rate": 0.002}, paused=True)
        engine.do("resume", run=5)
        engine.do("resume", run=6)
        engine.all_in("done", 5, 6)
        with Session.open(folder) as app:  # what is labelled later changes nothing
            app.labels.add(label(99))
        engine.quit()
    assert numbers(folder, replay(REAL_CLI, folder, 5)) == numbers(folder, 5)
    assert numbers(folder, replay(REAL_CLI, folder, 6)) == numbers(folder, 6)
    assert numbers(folder, 6)[0] != numbers(folder, 5)[0]
