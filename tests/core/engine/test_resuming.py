"""Going on in a new process: bit for bit what an uninterrupted run would have done."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from engine_process import REAL_ENGINE, Engine, Maker, start

from core.engine.saving import Environment
from core.store import Session

CONFIG = {"steps": 60, "evaluate_every": 10}


def outcome(folder: Path, run: int) -> tuple[str, list[float], list[int]]:
    """The final weights (their checksum), each step's loss, and the steps that have metrics."""
    with Session.open(folder, read_only=True) as session:
        assert session.runs.get(run).state == "done"
        final = session.checkpoints.list(run, "snapshot")[-1]
        table = session.metrics.read(run)
        assert final.step == table.steps[-1]
        return final.sha256, table.values["loss"].tolist(), table.steps.tolist()


def straight(engine: Engine, folder: Path, **config: Any) -> tuple[str, list[float], list[int]]:
    """What 60 steps without interruption give."""
    engine.open(folder)
    run = start(engine, config={**CONFIG, **config})
    engine.state(run, "done")
    engine.do("close")
    return outcome(folder, run)


def kill(engine: Engine) -> None:
    os.killpg(engine.process.pid, signal.SIGKILL)
    engine.process.wait()


def test_a_killed_engine_goes_on_from_its_resume_point_bit_for_bit(
    engine: Engine, tmp_path: Path, new_engine: Maker
) -> None:
    folder = tmp_path / "session"
    run = start(engine, milliseconds=8, config=CONFIG)
    engine.step(run, 20)
    saved = engine.do("save", run=run, name="here")["step"]
    engine.step(run, saved + 10)
    kill(engine)
    with new_engine() as second:
        second.hello()
        notes = second.open(folder)["notes"]
        assert any("was interrupted" in note for note in notes)
        assert second.state(run, "interrupted")["step"] >= saved
        resumed = second.do("resume", run=run)
        assert resumed["step"] == saved
        second.state(run, "done")
        second.do("close")
        expected = straight(second, tmp_path / "straight", batch_size=8)
    assert outcome(folder, run) == expected
    assert expected[2] == list(range(1, 61))


def test_pause_and_step_by_step_change_no_number(engine: Engine, folder: Path, tmp_path: Path) -> None:
    run = start(engine, config=CONFIG, paused=True)
    assert engine.do("step", run=run)["state"] == "running"
    assert engine.state(run, "paused")["step"] == 1
    engine.do("resume", run=run)
    engine.step(run, 10)
    engine.do("pause", run=run)
    engine.state(run, "paused")
    engine.do("close")
    engine.open(folder)
    assert engine.state(run, "paused")["step"] >= 10
    engine.do("resume", run=run)
    engine.state(run, "done")
    engine.do("close")
    assert outcome(folder, run) == straight(engine, tmp_path / "straight")


def test_a_knob_change_survives_a_kill(engine: Engine, tmp_path: Path, new_engine: Maker) -> None:
    folder = tmp_path / "session"
    run = start(engine, milliseconds=8, config=CONFIG)
    engine.step(run, 10)
    changed = engine.do("set_knob", run=run, name="learning_rate", value=0.5)
    assert changed["old"] == 0.003 and changed["value"] == 0.5
    engine.step(run, changed["step"] + 5)
    kill(engine)
    with new_engine() as second:
        second.hello()
        second.open(folder)
        assert second.do("resume", run=run)["step"] == changed["step"] - 1
        second.state(run, "done")
        second.do("close")
        with Session.open(folder) as session:
            knobs = session.events.read(run, kind="knob")
            assert [each.data["value"] for each in knobs] == [0.5]
            assert session.runs.get(run).config["learning_rate"] == 0.5
        # The same change at the same step of a run without a kill.
        second.open(tmp_path / "straight")
        twin = start(second, config={**CONFIG, "batch_size": 8}, paused=True)
        for step in range(1, changed["step"]):
            second.do("step", run=twin)
            assert second.state(twin, "paused")["step"] == step
        second.do("set_knob", run=twin, name="learning_rate", value=0.5)
        second.do("resume", run=twin)
        second.state(twin, "done")
        second.do("close")
    assert outcome(folder, run) == outcome(tmp_path / "straight", twin)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("batch_size", 8, "fixed once a run has started"),
        ("learning_rate", -1, "must be ≥ 0"),
        ("learning_rate", "fast", "must be a number"),
        ("lerning_rate", 1, "did you mean 'learning_rate'?"),
    ],
)
def test_a_knob_that_cannot_turn_is_refused(name: str, value: object, said: str, engine: Engine) -> None:
    run = start(engine, config=CONFIG, paused=True)
    assert said in engine.ask("set_knob", run=run, name=name, value=value)["message"]


def test_a_fork_without_changes_repeats_its_parent_bit_for_bit(engine: Engine, folder: Path) -> None:
    parent = start(engine, config=CONFIG)
    engine.step(parent, 20)
    fork = engine.do("fork", run=parent)
    assert fork["parent"] == parent and fork["parent_step"] == fork["step"] >= 20
    engine.all_in("done", parent, fork["run"])
    engine.do("close")
    weights, losses, _ = outcome(folder, parent)
    assert outcome(folder, fork["run"]) == (weights, losses[fork["step"] :], list(range(fork["step"] + 1, 61)))


def test_a_fork_changes_one_knob_and_keeps_the_reference(engine: Engine, folder: Path) -> None:
    root = start(engine, config=CONFIG)
    engine.state(root, "done")
    parent = start(engine, "ppo", config={"steps": 30, "beta": 0.2})
    engine.step(parent, 10)
    engine.do("pause", run=parent)
    engine.state(parent, "paused")
    fork = engine.do("fork", run=parent, config={"beta": 0.5, "steps": 40}, title="dearer KL")
    assert fork["title"] == "dearer KL" and fork["steps"] == 40
    engine.state(fork["run"], "done")
    refused = engine.ask("fork", run=fork["run"])["message"]
    assert "needs more steps than 40" in refused
    engine.do("close")
    with Session.open(folder) as session:
        records = {each.id: each for each in session.runs.all()}
        assert records[fork["run"]].config["beta"] == 0.5 and records[parent].config["beta"] == 0.2
        assert records[fork["run"]].inputs["reference"] == {"run": root, "step": 60}
        given = [session.checkpoints.list(each, "inputs")[0].sha256 for each in (parent, fork["run"])]
        assert given[0] == given[1]


def test_a_fork_with_a_seed_of_its_own_throws_other_dice_from_there_on(engine: Engine, folder: Path) -> None:
    parent = start(engine, config=CONFIG)
    engine.step(parent, 20)
    engine.do("pause", run=parent)
    engine.state(parent, "paused")
    forks = [engine.do("fork", run=parent, seed=seed)["run"] for seed in (None, 99, 99)]
    engine.all_in("done", *forks)
    engine.do("close")
    same, other, again = (outcome(folder, each) for each in forks)
    assert other == again != same
    with Session.open(folder, read_only=True) as session:
        assert [session.runs.get(each).seed for each in forks] == [7, 99, 99]


def test_a_fork_of_a_snapshot_says_that_its_optimizer_is_fresh(engine: Engine) -> None:
    parent = start(engine, config=CONFIG)
    engine.state(parent, "done")
    fork = engine.do("fork", run=parent, step=10, paused=True)
    assert fork["step"] == 10 and "fresh optimizer" in fork["message"]
    exact = engine.do("fork", run=parent, config={"steps": 90}, paused=True)
    assert exact["step"] == 60 and exact["message"] == ""
    at_10 = engine.do("sample", run=parent, step=10, seed=1)["samples"]
    assert engine.do("sample", run=fork["run"], seed=1)["samples"] == at_10


def test_a_finished_run_goes_on_with_more_steps_only(engine: Engine) -> None:
    run = start(engine, config=CONFIG)
    engine.state(run, "done")
    assert "go on with more steps" in engine.ask("resume", run=run)["message"]
    assert "give it more than 60" in engine.ask("resume", run=run, steps=60)["message"]
    assert engine.do("resume", run=run, steps=70)["steps"] == 70
    assert engine.state(run, "done")["step"] == 70


def test_a_damaged_resume_point_gives_way_to_the_one_before_and_that_is_said(engine: Engine, folder: Path) -> None:
    run = start(engine, config=CONFIG)
    engine.step(run, 10)
    first = engine.do("save", run=run, name="first")["step"]
    engine.step(run, first + 5)
    engine.do("pause", run=run)
    engine.state(run, "paused")
    engine.do("close")
    with Session.open(folder) as session:
        newest = session.checkpoints.list(run, "resume")[-1]
    file = folder / "checkpoints" / str(run) / newest.file
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    engine.open(folder)
    assert engine.do("resume", run=run)["step"] == first
    alert = next(each for each in engine.seen if each["type"] == "alert" and each["kind"] == "resume")
    assert "is damaged" in alert["message"]


def test_what_makes_a_resume_approximate_is_named() -> None:
    here = Environment(torch="2.13.0", device="cpu", threads=2)
    assert here.differences({"torch": "2.13.0", "device": "cpu", "threads": 2}) == ""
    assert (
        here.differences({"torch": "2.13.0", "device": "cuda:0", "threads": 1}) == "device cuda:0 → cpu, threads 1 → 2"
    )


@pytest.mark.long
def test_another_number_of_threads_makes_a_resume_approximate(engine: Engine, folder: Path, new_engine: Maker) -> None:
    run = start(engine, config=CONFIG, paused=True)
    engine.do("close")
    with new_engine() as second:
        second.do("hello", protocol=1, device="cpu", threads=2)
        second.open(folder)
        second.do("resume", run=run)
        second.state(run, "done")
        (alert,) = [each for each in second.seen if each["type"] == "alert" and each["kind"] == "resume"]
        assert alert["message"].startswith("approximate resume: threads 1 → 2")


@pytest.mark.long
def test_a_crash_in_the_engine_leaves_the_run_interrupted(engine: Engine, folder: Path, new_engine: Maker) -> None:
    run = start(engine, config={**CONFIG, "max_grad_norm": 668.0})
    assert engine.process.wait(20) == -signal.SIGKILL
    with new_engine() as second:
        second.hello()
        second.open(folder)
        assert second.state(run, "interrupted")["message"].startswith("interrupted at step")


@pytest.mark.long
@pytest.mark.parametrize("method", ["sft", "rm", "ppo", "dpo"])
def test_the_real_trainers_resume_in_a_new_process_bit_for_bit(method: str, tmp_path: Path) -> None:
    """Kill the engine behind a named resume point of a real run; go on in a new one; compare with a run left alone."""
    config = {
        "sft": {"batch_size": 16},
        "rm": {"batch_size": 8, "pair_count": 64},
        "ppo": {"batch_size": 32, "minibatch_size": 16, "reward": "learned", "probe_completions": 16},
        "dpo": {"batch_size": 8, "probe_completions": 16},
    }[method] | {"steps": 24, "evaluate_every": 5}
    folder = tmp_path / "session"
    with Engine(REAL_ENGINE) as first:
        first.hello()
        first.open(folder)
        for before in ("sft", "rm"):
            steps = {"steps": 3, "batch_size": 8} | ({"pair_count": 16} if before == "rm" else {})
            first.all_in("done", first.do("start", method=before, config=steps)["run"])
        straight = first.do("start", method=method, config=config, parent=None if method == "sft" else 1, reward_run=2)
        first.all_in("done", straight["run"])
        fields = {"method": method, "config": config, "parent": None if method == "sft" else 1, "reward_run": 2}
        run = first.do("start", **fields)["run"]
        first.step(run, 9)
        saved = first.do("save", run=run, name="here")["step"]
        kill(first)
    with Engine(REAL_ENGINE) as second:
        second.hello()
        second.open(folder)
        assert second.do("resume", run=run)["step"] >= saved
        second.all_in("done", run)
        second.do("close")
    with Session.open(folder, read_only=True) as session:
        finals = [session.checkpoints.list(each, "snapshot")[-1] for each in (straight["run"], run)]
        assert finals[0].step == finals[1].step == 24
        assert finals[0].sha256 == finals[1].sha256
        tables = [session.metrics.read(each) for each in (straight["run"], run)]
        assert tables[0].steps.tolist() == tables[1].steps.tolist() == list(range(1, 25))
        for name, column in tables[0].values.items():
            assert column.tobytes() == tables[1].values[name].tobytes(), name
