"""Two runs side by side, runs renamed, a session looked at beside the one who trains in it."""

from pathlib import Path

from engine_process import Engine, Maker, start

from core.store import Session

QUICK = {"steps": 30, "evaluate_every": 10}


def two_runs(engine: Engine) -> tuple[int, int]:
    first = start(engine, config=QUICK)
    engine.state(first, "done")
    second = start(engine, "ppo", config={**QUICK, "learning_rate": 0.5})
    engine.state(second, "done")
    return first, second


def test_any_two_snapshots_write_side_by_side_and_each_the_same_as_alone(engine: Engine) -> None:
    first, second = two_runs(engine)
    both = engine.do("sample", run=second, step=10, reference=first, reference_step=20, seed=3, count=2)
    assert (both["step"], both["reference_step"]) == (10, 20)
    alone = engine.do("sample", run=first, step=20, seed=3, count=2)
    assert [each["text"] for each in both["reference"]] == [each["text"] for each in alone["samples"]]
    again = engine.do("sample", run=second, step=10, reference=first, reference_step=20, seed=3, count=2)
    assert again["samples"] == both["samples"] and again["reference"] == both["reference"]
    turned = engine.do("sample", run=first, step=20, reference=second, reference_step=10, seed=3, count=2)
    assert [each["text"] for each in turned["samples"]] == [each["text"] for each in both["reference"]]
    # Under the model that they come from, texts are as likely whichever side it stands on.
    for one, other in zip(both["reference"], turned["samples"], strict=True):
        assert abs(one["reference_logprob"] - other["logprob"]) < 1e-4
        assert abs(one["logprob"] - other["reference_logprob"]) < 1e-4


def test_the_untrained_model_is_a_reference_too(engine: Engine) -> None:
    first, _ = two_runs(engine)
    answer = engine.do("sample", run=first, reference=0, prompts=["ba"], seed=1)
    assert answer["reference_step"] == 0
    untrained = engine.do("sample", prompts=["ba"], seed=1)
    assert answer["reference"][0]["text"] == untrained["samples"][0]["text"]
    assert answer["samples"][0]["kl"] > 0


def test_a_snapshot_that_was_not_kept_gives_way_to_the_nearest_and_that_is_said(engine: Engine) -> None:
    first, second = two_runs(engine)
    answer = engine.do("sample", run=second, step=10, reference=first, reference_step=777, prompts=["ba"])
    assert answer["reference_step"] == 30
    assert answer["notes"] == ["the reference has no snapshot at step 777; this is step 30"]


def test_a_run_is_renamed_while_it_trains_and_after(engine: Engine, folder: Path) -> None:
    run = start(engine, config={**QUICK, "steps": 10_000})
    engine.step(run, 3)
    assert engine.do("rename", run=run, title="learns élan")["title"] == "learns élan"
    engine.do("stop", run=run)
    assert engine.state(run, "stopped")["title"] == "learns élan"
    assert engine.do("rename", run=run, title="done")["title"] == "done"
    assert "there is no run 99" in engine.ask("rename", run=99, title="x")["message"]
    with Session.open(folder, read_only=True) as session:
        assert session.runs.get(run).title == "done"


def test_a_second_engine_may_look_and_sample_but_not_train(engine: Engine, folder: Path, new_engine: Maker) -> None:
    run = start(engine, config={**QUICK, "steps": 10_000})
    engine.step(run, 3)
    named = engine.do("save", run=run, name="a")["step"]
    with new_engine() as second:
        second.hello()
        assert "is open in process" in second.ask("open", folder=str(folder))["message"]
        assert second.do("open", folder=str(folder), read_only=True)["notes"] == []
        assert second.state(run, "running")["step"] >= 0  # as the one who trains has written it
        assert second.do("sample", run=run, step=0, prompts=["ba"])["samples"]
        for command in ("start", "rename", "resume"):
            fields = {"start": {"method": "sft"}, "rename": {"run": run, "title": "x"}, "resume": {"run": run}}[command]
            assert "read-only" in second.ask(command, **fields)["message"]
    engine.step(run, named + 3)
    with Session.open(folder, read_only=True) as session:
        assert session.runs.get(run).state == "running"
