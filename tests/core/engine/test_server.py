"""The engine over real pipes: what it answers, what it survives, how it ends."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
from engine_process import REAL_ENGINE, Engine, Maker, Message, start

from core.store import Session


def is_error(message: Message) -> bool:
    return message["type"] == "error"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "JSON"),
        (b"\x00\xff\xfe", "JSON"),
        (b"[1]", "object"),
        (b'{"type":"nonsense","id":5}', "unknown message type"),
        (b'{"type":"pause","id":5}', "lacks 'run'"),
        (b'{"type":"pause","id":5,"run":"one"}', "must be int"),
        (b'{"type":"pause","id":5,"run":1,"fun":2}', "no field 'fun' (did you mean 'run'?)"),
        (b'{"type":"ready","id":5}', "unknown message type"),
        (b"[" * 100_000, "JSON"),
    ],
)
def test_a_malformed_line_is_answered_and_survived(line: bytes, said: str, engine: Engine) -> None:
    engine.send_line(line)
    error = engine.wait_for(is_error)
    assert said in error["message"] and "\n" not in error["message"]
    assert error["id"] == (5 if b'"id":5' in line else None)
    assert engine.do("sample")["type"] == "samples"


def test_a_line_longer_than_any_message_is_answered_and_survived(engine: Engine) -> None:
    engine.send_line(b"x" * 5_000_000)
    assert "bytes" in engine.wait_for(is_error)["message"]
    assert engine.do("sample")["type"] == "samples"


def test_hello_comes_first_and_says_what_runs_here(folder: Path, new_engine: Maker) -> None:
    with new_engine() as engine:
        assert engine.ask("open", folder=str(folder))["message"] == "the first command must be hello"
        assert "protocol 1" in engine.ask("hello", protocol=2)["message"]
        ready = engine.hello()
        assert ready["type"] == "ready" and ready["device"] == "cpu" and ready["threads"] == 1
        assert ready["device_line"] and "\n" not in ready["device_line"]
        assert engine.ask("start", method="sft")["message"] == "no session is open"
        assert "there is no session" in engine.ask("open", folder=str(folder))["message"]
        assert not folder.exists()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"method": "ppoo"}, "no method is called 'ppoo' (did you mean 'ppo'?)"),
        ({"method": "sft", "config": {"steps": 0}}, "steps must be ≥ 1"),
        ({"method": "sft", "config": {"stepz": 9}}, "no knob is called 'stepz' (did you mean 'steps'?)"),
        ({"method": "ppo"}, "PPO starts from a finished sft run; train that first"),
        ({"method": "sft", "parent": 9}, "there is no run 9"),
    ],
)
def test_a_run_that_cannot_be_is_refused_and_leaves_nothing(
    fields: Message, said: str, engine: Engine, folder: Path
) -> None:
    assert said in engine.ask("start", **fields)["message"]
    with Session.open(folder, read_only=True) as session:
        assert session.runs.all() == []


@pytest.mark.parametrize("command", ["pause", "resume", "step", "stop", "fork", "save", "evaluate", "delete"])
def test_a_run_that_is_not_there_is_refused(command: str, engine: Engine) -> None:
    assert "there is no run 9" in engine.ask(command, run=9)["message"]


def test_a_run_reports_each_step_and_is_stored_whole(engine: Engine, folder: Path) -> None:
    run = start(engine, config={"steps": 40, "evaluate_every": 10})
    done = engine.state(run, "done")
    assert done["step"] == done["steps"] == 40 and done["completions"] == 160 and done["seconds"] > 0
    metrics = [each for each in engine.seen if each["type"] == "metrics"]
    assert [each["step"] for each in metrics] == list(range(1, 41))
    assert all(each["values"]["nothing"] == "NaN" for each in metrics)
    assert [each["message"] for each in engine.seen if each["type"] == "alert"] == ["KL 9 passed 5 nats"]
    engine.do("close")
    with Session.open(folder) as session:
        assert session.runs.get(run).state == "done"
        table = session.metrics.read(run)
        assert table.steps.tolist() == list(range(1, 41))
        assert table.values["loss"].tolist() == [each["values"]["loss"] for each in metrics]
        assert [each.kind for each in session.events.read(run)] == ["kl_alarm"]
        snapshots = [each.step for each in session.checkpoints.list(run, "snapshot")]
        assert snapshots[0] == 0 and snapshots[-1] == 40 and 25 <= len(snapshots) <= 42


def test_only_events_reach_stdout_and_prints_reach_the_log(engine: Engine, folder: Path) -> None:
    run = start(engine, config={"steps": 3})
    engine.state(run, "done")
    assert (folder / "engine.log").read_text().count("a library that prints") == 3


def test_a_pause_is_acknowledged_at_once_and_in_force_at_the_steps_end(engine: Engine) -> None:
    run = start(engine, milliseconds=240, config={"steps": 50})
    engine.step(run, 1)
    began = time.monotonic()
    assert engine.do("pause", run=run)["state"] == "pausing"
    assert time.monotonic() - began < 0.25
    paused = engine.state(run, "paused")
    assert time.monotonic() - began < 1.0
    here = paused["step"]
    assert here in (1, 2)
    again = engine.do("step", run=run)
    assert again["state"] == "running"
    assert engine.state(run, "paused")["step"] == here + 1
    assert engine.do("resume", run=run)["state"] == "running"
    engine.step(run, here + 2)
    engine.do("stop", run=run)
    assert here + 2 <= engine.state(run, "stopped")["step"] <= here + 3


def test_samples_are_served_while_a_run_trains_and_are_the_same_each_time(engine: Engine) -> None:
    first = engine.do("sample", seed=3, count=2)
    assert len(first["samples"]) == 40
    run = start(engine, milliseconds=100, config={"steps": 500})
    engine.step(run, 1)
    began = time.monotonic()
    again = engine.do("sample", seed=3, count=2)
    assert time.monotonic() - began < 0.3
    assert again["samples"] == first["samples"]
    assert engine.do("sample", seed=4, count=2)["samples"] != first["samples"]
    # A text depends on its own prompt and turn, on no other row.
    one = engine.do("sample", seed=3, prompts=[first["samples"][-1]["prompt"]], count=2)
    assert [each["text"] for each in one["samples"]] == [each["text"] for each in first["samples"][-2:]]


def test_two_runs_share_time_fairly(engine: Engine) -> None:
    slow = start(engine, milliseconds=100, config={"steps": 1000})
    fast = start(engine, milliseconds=10, config={"steps": 1000})
    for run in (slow, fast):
        engine.step(run, 3)
    began = {each["run"]: each["seconds"] for each in engine.seen if each["type"] == "metrics"}
    time.sleep(3.0)
    for run in (slow, fast):
        engine.do("pause", run=run)
    paused = engine.all_in("paused", slow, fast)
    while any(paused[run]["seconds"] < began[run] for run in began):  # reported before the runs began
        engine.wait_for(lambda message: message["type"] == "run_state" and message["state"] == "paused")
        paused = engine.all_in("paused", slow, fast)
    seconds = [paused[run]["seconds"] - began[run] for run in (slow, fast)]
    assert 0.7 < seconds[0] / seconds[1] < 1.4


def test_a_diverged_run_fails_with_its_last_good_weights(engine: Engine, folder: Path) -> None:
    run = start(engine, config={"steps": 90, "max_grad_norm": 666.0})
    failed = engine.state(run, "failed")
    assert failed["step"] == 4 and failed["message"] == "stopped at step 5: the loss is NaN"
    assert engine.do("sample", run=run)["step"] == 4
    assert engine.ask("pause", run=run)["message"] == f"run {run} is not running"
    engine.do("close")
    with Session.open(folder) as session:
        assert session.runs.get(run).state == "failed"
        assert session.checkpoints.list(run, "snapshot")[-1].step == 4


def test_a_bug_in_a_trainer_fails_its_run_only(engine: Engine, folder: Path) -> None:
    bad = start(engine, config={"steps": 90, "max_grad_norm": 667.0})
    good = start(engine, config={"steps": 90})
    assert "RuntimeError: a bug in the trainer with a second line" in engine.state(bad, "failed")["message"]
    assert engine.state(good, "done")["step"] == 90
    assert "Traceback" in (folder / "engine.log").read_text()


def test_an_evaluation_lets_runs_go_on(engine: Engine) -> None:
    run = start(engine, milliseconds=20, config={"steps": 10_000})
    engine.step(run, 3)
    answer = engine.do("evaluate", run=run, completions=512)
    steps = [each["step"] for each in engine.seen if each["type"] == "metrics"]
    assert steps[-1] > answer["step"] + 2
    assert {"gold_reward", "follows_prompt", "distinct_2", "held_out/gold_reward"} <= set(answer["values"])


def test_a_deleted_run_is_gone(engine: Engine, folder: Path) -> None:
    run = start(engine, milliseconds=20, config={"steps": 1000})
    assert "stop it first" in engine.ask("delete", run=run)["message"]
    engine.do("stop", run=run)
    engine.state(run, "stopped")
    assert engine.do("delete", run=run)["type"] == "acknowledged"
    assert not (folder / "checkpoints" / str(run)).exists()


def test_another_session_can_be_opened_in_the_same_engine(engine: Engine, tmp_path: Path) -> None:
    run = start(engine, milliseconds=20, config={"steps": 1000})
    engine.step(run, 3)
    opened = engine.do("open", folder=str(tmp_path / "other"), task="words", seed=1)
    assert opened["seed"] == 1
    with Session.open(tmp_path / "session") as session:
        assert session.runs.get(run).state == "paused"
    engine.do("close")
    assert engine.ask("start", method="sft")["message"] == "no session is open"


def ended_and_saved(engine: Engine, folder: Path, run: int, state: str = "paused") -> None:
    assert engine.process.wait(10) == 0
    with Session.open(folder) as session:
        record = session.runs.get(run)
        assert record.state == state
        newest = session.checkpoints.latest_good(run, "resume").record
        assert newest.step == record.step == session.metrics.last_step(run) > 0


@pytest.mark.parametrize("how", ["quit", "close stdin", "SIGTERM", pytest.param("SIGHUP", marks=pytest.mark.long)])
def test_however_it_ends_all_runs_are_saved(how: str, engine: Engine, folder: Path) -> None:
    run = start(engine, milliseconds=50, config={"steps": 1000})
    engine.step(run, 3)
    if how == "quit":
        engine.send("quit")
    elif how == "close stdin":
        engine.stdin.close()
    else:
        os.kill(engine.process.pid, getattr(signal, how))
    ended_and_saved(engine, folder, run)


def test_nobody_reading_any_more_is_an_end_too(engine: Engine, folder: Path) -> None:
    run = start(engine, milliseconds=20, config={"steps": 5000})
    engine.step(run, 3)
    engine.stdout.close()
    ended_and_saved(engine, folder, run)


def test_a_reader_that_stands_still_does_not_hold_up_training(engine: Engine, folder: Path) -> None:
    run = start(engine, milliseconds=1, config={"steps": 1000, "evaluate_every": 1000})
    engine.step(run, 1)
    engine.reading.clear()  # 1,000 rows fill the pipe several times over
    deadline = time.monotonic() + 60
    while state_on_disk(folder, run) != "done":
        assert time.monotonic() < deadline, "the run did not end while nobody read"
        time.sleep(0.2)
    engine.reading.set()
    engine.state(run, "done")
    assert [each["step"] for each in engine.seen if each["type"] == "metrics"] == list(range(1, 1001))


def state_on_disk(folder: Path, run: int) -> str:
    with Session.open(folder, read_only=True) as session:
        return session.runs.get(run).state


def test_the_real_module_starts_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "__init__.py").write_text("raise SystemExit('the wrong core')")
    monkeypatch.chdir(tmp_path)
    with Engine(REAL_ENGINE) as engine:
        assert engine.hello()["type"] == "ready"
        engine.quit()


def test_malformed_messages_have_no_effect_on_the_ones_around_them(engine: Engine) -> None:
    engine.stdin.write(b"garbage\n" + json.dumps({"type": "sample", "id": 77, "seed": 1}).encode() + b"\n\n\n{}\n")
    engine.stdin.flush()
    assert is_error(engine.wait_for(lambda message: message["type"] in ("error", "samples")))
    assert engine.wait_for(lambda message: message["type"] in ("error", "samples"))["id"] == 77
    assert is_error(engine.wait_for(lambda message: message["type"] in ("error", "samples")))
