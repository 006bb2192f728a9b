from core.engine.protocol import Alert, CheckpointSaved, KnobChanged, Metrics, Opened, Ready, RunState, Samples
from core.methods.table import METHODS
from rlhf_tui.flow import next_step, plan_race, plan_start
from rlhf_tui.state import AppState


def run_state(run: int = 1, method: str = "sft", state: str = "running", step: int = 0, **more: object) -> RunState:
    return RunState(run=run, method=method, title="", state=state, step=step, steps=100, **more)  # type: ignore[arg-type]


def metrics(step: int, run: int = 1, **values: float) -> Metrics:
    return Metrics(run=run, step=step, completions=10 * step, seconds=0.5 * step, values=values or {"loss": 1.0})


def state_with(*events: object) -> AppState:
    state = AppState(clock=lambda: 0.0)
    for event in events:
        state.apply(event)  # type: ignore[arg-type]
    return state


def test_events_make_runs_and_numbers() -> None:
    state = state_with(
        Ready(protocol=1, device="cpu", device_line="cpu, 1 thread", threads=1, torch="2"),
        Opened(folder="f", title="t", task="words", seed=1, parameters=237_000, notes=["approximate resume"]),
        run_state(), *(metrics(step) for step in range(1, 21)),
        KnobChanged(run=1, step=21, name="learning_rate", value=0.001, old=0.003),
        Alert(run=1, step=20, kind="kl_alarm", message="KL 6"),
        Samples(run=1, step=20, samples=[]),
    )  # fmt: skip
    run = state.runs[1]
    assert state.engine == "ready" and state.parameters == 237_000
    assert run.step == 20 and run.completions == 200 and len(run.series) == 20
    assert run.config["learning_rate"] == 0.001
    assert [(each.step, each.kind, each.text) for each in run.happenings] == [
        (21, "knob", "learning_rate 0.003 → 0.001"), (20, "alert", "KL 6"),
    ]  # fmt: skip
    assert run.samples is not None and run.samples.step == 20
    assert run.rate == 2.0 and run.eta == 40.0  # 0.5 s a step, 80 steps to go
    assert state.log[0].text == "approximate resume"


def test_what_is_only_told_is_no_alert() -> None:
    state = state_with(
        run_state(), Alert(run=1, step=0, kind="note", message="learns from 40 pairs of the task"),
        Alert(run=1, step=3, kind="kl_alarm", message="KL 6"),
    )  # fmt: skip
    assert [(each.kind, each.text) for each in state.log if "run" not in each.text][-2:] == [
        ("info", "learns from 40 pairs of the task"), ("alert", "KL 6"),
    ]  # fmt: skip
    assert [each.text for each in state.runs[1].happenings] == ["KL 6"]


def test_a_task_without_a_gold_rule_goes_by_the_learned_reward() -> None:
    opened = Opened(folder="f", title="t", task="sentences", seed=1, parameters=1, gold=False)
    state = state_with(opened, run_state(1, "sft", "done", step=5))
    obstacle = plan_start(state, METHODS["ppo"], {}).obstacle
    assert obstacle == "PPO is scored by Reward model: press 2, then space, to train that first"
    state.apply(run_state(2, "rm", "done", step=5))
    for draft in ({}, {"reward": "gold"}):
        assert plan_start(state, METHODS["ppo"], draft).fields["config"] == {"reward": "learned"}
    ppo, dpo = plan_race(state, {})
    assert (ppo.fields["config"], dpo.fields["reward_run"]) == ({"reward": "learned"}, 2)


def test_a_run_that_has_ended_tells_of_one_that_still_trains() -> None:
    state = state_with(run_state(1), run_state(2, "sft", "stopped", step=4))
    line = next_step(state, METHODS["sft"], {}, state.runs[2])
    assert line == "SFT #2 is stopped; SFT #1 still trains: , and . go to other runs"
    state.apply(run_state(1, "sft", "done", step=9))
    assert "still trains" not in next_step(state, METHODS["sft"], {}, state.runs[2])


def test_runs_that_train_at_once_share_the_time() -> None:
    state = state_with(run_state(1), run_state(2), *(metrics(step, 1) for step in range(1, 6)))
    assert state.runs[1].rate == 1.0


def test_a_dead_engine_interrupts_what_was_training() -> None:
    state = state_with(run_state(1), run_state(2, state="done", step=100), metrics(5))
    assert state.engine_died("the engine was ended by SIGKILL") == [1]
    assert state.runs[1].state == "interrupted" and state.runs[2].state == "done"
    assert state.runs[1].eta is None


def test_going_back_to_a_resume_point_forgets_what_came_after() -> None:
    state = state_with(run_state(), *(metrics(step) for step in range(1, 31)), run_state(step=20))
    assert len(state.runs[1].series) == 20


def test_a_failed_save_is_trouble_until_one_works() -> None:
    failed = Alert(run=None, step=None, kind="not_saved", message="not saved, training goes on: the disk is full")
    assert "disk is full" in state_with(failed).storage_trouble
    assert state_with(failed, CheckpointSaved(run=1, step=1, kind="resume")).storage_trouble == ""
    works = Alert(run=None, step=None, kind="saved_again", message="saving works again")
    assert state_with(failed, works).storage_trouble == ""
    note = Alert(run=None, step=None, kind="storage", message="an older checkpoint was used")
    assert "disk is full" in state_with(failed, note).storage_trouble


def test_a_method_starts_from_the_newest_run_it_can() -> None:
    ppo = METHODS["ppo"]
    assert "PPO starts from SFT: press 1" in plan_start(state_with(), ppo, {}).obstacle
    assert "still training" in plan_start(state_with(run_state(1)), ppo, {}).obstacle
    done = state_with(run_state(1, state="done", step=100), run_state(2, state="stopped", step=7))
    assert plan_start(done, ppo, {"beta": 0.5, "steps": ppo.config().steps}).fields == {
        "method": "ppo", "config": {"beta": 0.5}, "parent": 2,
    }  # fmt: skip
    assert "scored by Reward model" in plan_start(done, ppo, {"reward": "learned"}).obstacle
    scored = state_with(run_state(1, state="done", step=100), run_state(2, "rm", state="done", step=100))
    assert plan_start(scored, ppo, {"reward": "learned"}).fields["reward_run"] == 2


def test_a_race_has_one_reference_and_one_judge() -> None:
    gold = plan_race(state_with(run_state(1, state="done", step=100)), {})
    assert [plan.fields["parent"] for plan in gold] == [1, 1]
    assert gold[1].fields["config"] == {"judge": "gold"}
    learned = state_with(run_state(1, state="done", step=100), run_state(2, "rm", state="done", step=100))
    ppo, dpo = plan_race(learned, {})
    assert ppo.fields["config"] == {"reward": "learned"} and ppo.fields["reward_run"] == dpo.fields["reward_run"] == 2


def test_the_hint_names_the_next_key() -> None:
    sft = METHODS["sft"]
    assert next_step(state_with(), sft, {}, None).startswith("Press space to start SFT.")
    running = state_with(run_state(1))
    assert "space pauses" in next_step(running, sft, {}, running.runs[1])
    done = state_with(run_state(1, state="done", step=100))
    assert "Press 2 for Reward model" in next_step(done, sft, {}, done.runs[1])
    broken = state_with(run_state(1))
    broken.engine_died("gone")
    assert "Press e" in next_step(broken, sft, {}, broken.runs[1])
