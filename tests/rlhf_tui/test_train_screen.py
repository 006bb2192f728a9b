"""Every key of the Train screen: what it asks of the engine first, then what the screen says."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from app_helpers import DirectApp, screen_lines
from textual.widgets import Input

from core.engine.protocol import Command, Event, Start
from core.store import Session
from rlhf_tui.screens.prompt import PromptScreen
from rlhf_tui.screens.train import TrainScreen
from rlhf_tui.widgets.chart import Chart
from rlhf_tui.widgets.chart_deck import ChartDeck
from rlhf_tui.widgets.knob_form import KnobForm, KnobList
from rlhf_tui.widgets.pipeline import Pipeline

NORMAL = (120, 40)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with Session.create(tmp_path / "s", title="first steps") as made:
        yield made


def train(app: DirectApp) -> TrainScreen:
    assert isinstance(app.screen, TrainScreen)
    return app.screen


async def test_first_run_says_which_key_and_one_key_starts_training(session: Session) -> None:
    app = DirectApp(session)
    async with app.run_test(size=NORMAL) as pilot:
        await pilot.pause()
        assert "Press space to start SFT." in screen_lines(app)[2]
        await pilot.press("space")
        assert app.asked == [("Start", {"method": "sft", "config": {}, "paused": False})]
        await pilot.pause()
        assert app.state.runs[1].step == 40
        assert "SFT #1 is learning" in screen_lines(app)[2]


async def test_space_pauses_and_goes_on_and_s_steps(session: Session) -> None:
    app = DirectApp(session)
    async with app.run_test(size=NORMAL) as pilot:
        await pilot.press("space", "space")
        await pilot.pause()
        assert app.asked[-1] == ("Pause", {"run": 1})
        assert app.state.runs[1].state == "paused"
        await pilot.press("s")
        assert app.asked[-1] == ("Step", {"run": 1})
        assert app.state.runs[1].step == 41 and app.state.runs[1].state == "paused"
        await pilot.press("space")
        await pilot.pause()
        assert app.asked[-1] == ("Resume", {"run": 1})
        assert app.state.runs[1].state == "running"


async def test_s_on_a_method_not_started_starts_it_paused(session: Session) -> None:
    app = DirectApp(session, hold=0)
    async with app.run_test(size=NORMAL) as pilot:
        await pilot.press("s")
        assert [name for name, _ in app.asked] == ["Start", "Step"]
        assert app.last("Start")["paused"] is True
        assert app.state.runs[1].step == 1


async def test_x_stops_and_a_finished_run_is_not_started_by_accident(session: Session) -> None:
    app = DirectApp(session)
    async with app.run_test(size=NORMAL) as pilot:
        await pilot.press("space", "x")
        await pilot.pause()
        assert app.asked[-1] == ("Stop", {"run": 1})
        asked = len(app.asked)
        await pilot.press("space")
        assert len(app.asked) == asked


async def test_r_runs_again_with_the_same_seed_and_shift_r_with_a_new_one(session: Session) -> None:
    app = DirectApp(session)
    async with app.run_test(size=NORMAL) as pilot:
        await pilot.press("space", "r")
        await pilot.pause()
        assert [name for name, _ in app.asked] == ["Start", "Stop", "Start"]
        assert app.last("Start")["seed"] == session.seed
        await pilot.press("R")
        await pilot.pause()
        assert app.last("Start")["seed"] == session.seed + 1
        assert train(app).shown is app.state.runs[3]


async def test_a_method_that_lacks_its_parent_says_what_to_do(session: Session) -> None:
    app = DirectApp(session)
    async with app.run_test(size=NORMAL) as pilot:
        await pilot.press("3", "space")
        await pilot.pause()
        assert app.asked == []
        assert "PPO starts from SFT: press 1, then space, to train that first" in screen_lines(app)[2]


async def test_race_starts_ppo_and_dpo_from_one_reference_and_overlays_them(session: Session) -> None:
    app = DirectApp(session, hold=500)
    async with app.run_test(size=NORMAL) as pilot:
        await pilot.press("space")
        await pilot.pause()
        app.script.hold = 30
        await pilot.press("c")
        await pilot.pause(0.2)
        starts = [fields for name, fields in app.asked if name == "Start"][1:]
        assert [(each["method"], each["parent"]) for each in starts] == [("ppo", 1), ("dpo", 1)]
        assert starts[1]["config"] == {"judge": "gold"}
        assert [run.run for run in train(app).drawn_runs()] == [2, 3]


async def test_fork_takes_the_step_of_the_reading_line_and_a_changed_knob(session: Session) -> None:
    app = DirectApp(session)
    async with app.run_test(size=NORMAL) as pilot:
        await pilot.press("space")
        await pilot.pause()
        chart = app.screen.query(Chart).first()
        chart.focus()
        chart.redraw()
        await pilot.press("home", "f")
        await pilot.pause()
        assert isinstance(app.screen, PromptScreen)
        await pilot.press(*"lerning_rate=1", "enter")
        assert isinstance(app.screen, PromptScreen)
        assert any("did you mean 'learning_rate'" in line for line in screen_lines(app))
        app.screen.query_one(Input).value = "learning_rate=0.001"
        await pilot.press("enter")
        await pilot.pause()
        assert app.last("Fork") == {"run": 1, "step": 1, "config": {"learning_rate": 0.001}}
        assert app.state.runs[1].pinned and train(app).shown is app.state.runs[2]
        assert app.state.runs[2].config["learning_rate"] == 0.001


async def test_r_on_a_fork_forks_its_parent_again_with_the_knobs_that_the_form_shows(session: Session) -> None:
    app = DirectApp(session)
    async with app.run_test(size=NORMAL) as pilot:
        await pilot.press("space", "space", "f")
        await pilot.pause()
        app.screen.query_one(Input).value = "learning_rate=0.002"
        await pilot.press("enter")
        await pilot.pause()
        fork = app.state.runs[2]
        fork.inputs, fork.seed = {"fork": True}, 7  # as the session's record says
        await pilot.press("r")
        await pilot.pause()
        assert [name for name, _ in app.asked[-2:]] == ["Stop", "Fork"]
        again = app.last("Fork")
        assert (again["run"], again["step"], again["seed"]) == (1, 40, 7)
        assert again["config"]["learning_rate"] == 0.002

        third = app.state.runs[3]
        third.inputs, third.seed = {"fork": True}, 7
        await pilot.press("x")
        await pilot.pause()
        assert third.finished and train(app).values()["learning_rate"] == 0.002
        app.screen.query_one(KnobForm).post_message(KnobForm.Turned("batch_size", 16))
        await pilot.pause()
        await pilot.press("R")
        await pilot.pause()
        anew = app.last("Fork")
        assert (anew["run"], anew["step"], anew["seed"]) == (1, 40, 43)
        assert (anew["config"]["learning_rate"], anew["config"]["batch_size"]) == (0.002, 16)
        assert [each.parent for each in app.state.runs.values()] == [None, 1, 1, 1]
        # The next fresh run of the method has the method's own knobs.
        await train(app).show_run(app.state.runs[1])
        assert "batch_size" not in train(app).drafts.get("sft", {})


async def test_an_advantage_function_that_is_no_name_of_code_is_said(session: Session) -> None:
    app = DirectApp(session)
    async with app.run_test(size=NORMAL) as pilot:
        await train(app).choose_method("custom")
        app.screen.query_one(KnobForm).post_message(KnobForm.Turned("function", "nonsense"))
        await pilot.pause()
        assert any("expected module:name" in each.message for each in app._notifications)
        assert "custom" not in train(app).drafts


async def test_save_keeps_a_step_under_a_name_and_shift_l_trains_longer(session: Session) -> None:
    app = DirectApp(session)
    async with app.run_test(size=NORMAL) as pilot:
        await pilot.press("space", "space", "S")
        await pilot.pause()
        await pilot.press(*"good", "enter")
        await pilot.pause()
        assert app.last("Save") == {"run": 1, "name": "good"}
        await pilot.press("L")
        await pilot.pause()
        assert app.last("Resume") == {"run": 1, "steps": 750}


async def test_pin_is_kept_in_the_session_and_a_asks_for_samples(session: Session) -> None:
    app = DirectApp(session)
    async with app.run_test(size=NORMAL) as pilot:
        await pilot.press("space", "p", "a")
        await pilot.pause()
        assert app.state.runs[1].pinned
        assert app.last("Sample") == {"run": 1, "reference": None}


def toasts(app: DirectApp) -> list[str]:
    return [each.message for each in app._notifications]


async def test_what_a_key_has_done_is_said_where_nothing_else_shows_it(session: Session) -> None:
    app = DirectApp(session)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("a")
        assert app.asked == []  # nobody has written anything yet
        assert "Press a" not in str(app.screen.query_one("#samples").render())
        await pilot.press("space", "L")
        await pilot.pause()
        assert toasts(app)[-1] == "SFT #1 goes on to step 750 instead of 500"
        await pilot.press("r")
        await pilot.pause()
        assert "SFT #1 was stopped and stays as it is; this is a new run from its beginning" in toasts(app)
        assert train(app).pane == "charts"
        await pilot.press("a")
        await pilot.pause()
        assert train(app).pane == "samples"  # on a narrow screen they would come unseen
        await pilot.press("p")
        assert toasts(app)[-1] == "SFT #2 stays on the charts when you look at other runs"


async def test_a_start_that_takes_long_is_said_at_once(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    app = DirectApp(session)
    prepared = asyncio.Event()
    ask = app.ask

    async def slow(command: type[Command], **fields: object) -> Event | None:
        if command is Start:
            await prepared.wait()
        return await ask(command, **fields)

    monkeypatch.setattr(app, "ask", slow)
    async with app.run_test(size=NORMAL) as pilot:
        await pilot.press("space")
        await pilot.pause()
        assert "SFT is starting" in screen_lines(app)[2]
        await pilot.press("space", "s")  # pressed again meanwhile: it starts once
        prepared.set()
        await pilot.pause(0.1)
        assert "SFT #1 is learning" in screen_lines(app)[2]
        assert [name for name, _ in app.asked] == ["Start"]


async def test_knobs_before_the_start_go_into_it_and_live_ones_to_the_run(session: Session) -> None:
    app = DirectApp(session)
    async with app.run_test(size=NORMAL) as pilot:
        await pilot.press("k", "down", "down", "enter")
        field = app.screen.query_one("#value", Input)
        assert app.focused is field
        field.value = "2"
        await pilot.press("enter")
        await pilot.pause()
        form = app.screen.query_one(KnobForm)
        assert form.error == "learning_rate must be ≥ 0, ≤ 1, not 2"
        assert any("learning_rate must be ≥ 0" in line for line in screen_lines(app))
        field.value = "0.01"
        await pilot.press("enter", "g", "space")
        await pilot.pause()
        assert app.last("Start")["config"] == {"learning_rate": 0.01}
        await pilot.press("k", "home", "down", "down", "minus")
        await pilot.pause()
        assert app.last("SetKnob") == {"run": 1, "name": "learning_rate", "value": 0.008}
        assert [each.text for each in app.state.runs[1].happenings] == ["learning_rate 0.01 → 0.008"]
        await pilot.press("home", "plus")
        await pilot.pause()
        assert "steps is fixed once a run has begun" in form.error
        assert app.asked[-1][0] == "SetKnob"


async def test_a_changed_knob_has_its_star_beside_the_scrollbar(session: Session) -> None:
    app = DirectApp(session)
    async with app.run_test(size=NORMAL) as pilot:
        await pilot.press("3", "k", "plus")
        await pilot.pause()
        knobs = app.screen.query_one(KnobList)
        assert knobs.show_vertical_scrollbar
        row = next(line for line in screen_lines(app) if "steps  " in line)
        assert "300*" in row  # a quarter more than 240


@pytest.mark.parametrize("size", [(80, 24), NORMAL])
async def test_the_knob_at_the_cursor_is_on_the_screen_however_long_its_explanation(
    session: Session, size: tuple[int, int]
) -> None:
    app = DirectApp(session)
    async with app.run_test(size=size) as pilot:
        await pilot.press("4", "k")
        await pilot.pause()
        knobs = app.screen.query_one(KnobList)
        for _ in knobs.knobs[1:]:
            await pilot.press("down")
            await pilot.pause()
            assert 0 <= knobs.at - knobs.scroll_offset.y < knobs.size.height, knobs.knob


async def test_the_field_of_a_knob_says_its_keys(session: Session) -> None:
    app = DirectApp(session)
    async with app.run_test(size=NORMAL) as pilot:
        await pilot.press("k", "enter")
        await pilot.pause()
        assert any("Enter sets · Esc leaves" in line for line in screen_lines(app))
        await pilot.press("escape")
        await pilot.pause()
        assert not any("Enter sets" in line for line in screen_lines(app))


async def test_choices_turn_with_enter_and_backspace_sets_the_default(session: Session) -> None:
    app = DirectApp(session)
    async with app.run_test(size=NORMAL) as pilot:
        await pilot.press("k", "down", "down", "down", "down", "enter")
        await pilot.pause()
        assert train(app).drafts["sft"] == {"schedule": "constant"}
        await pilot.press("backspace")
        await pilot.pause()
        assert train(app).drafts["sft"] == {}


async def test_digits_and_arrows_choose_methods_and_dots_walk_runs(session: Session) -> None:
    app = DirectApp(session)
    async with app.run_test(size=NORMAL) as pilot:
        await pilot.press("space", "r")
        await pilot.press("4")
        assert train(app).method.name == "dpo"
        assert [chart.title for chart in app.screen.query_one(ChartDeck).charts][:2] == ["reward", "KL"]
        app.screen.query_one(Pipeline).focus()
        await pilot.press("left")
        assert train(app).method.name == "ppo"
        await pilot.press("comma")
        assert train(app).shown is app.state.runs[2]
        await pilot.press("comma")
        assert train(app).shown is app.state.runs[1]
        await pilot.press("full_stop")
        assert train(app).shown is app.state.runs[2]


async def test_charts_turn_to_log_scale_smoothing_and_other_axes(session: Session) -> None:
    app = DirectApp(session)
    async with app.run_test(size=NORMAL) as pilot:
        await pilot.press("space", "l")
        screen = train(app)
        assert screen.options.log == {"loss", "accuracy", "entropy"}
        app.screen.query(Chart).first().focus()
        await pilot.press("l", "o", "t")
        assert screen.options.log == {"accuracy", "entropy"}
        assert (screen.options.smoothing, screen.options.axis) == (0.9, "completions")


async def test_the_reading_line_tells_a_value(session: Session) -> None:
    app = DirectApp(session)
    async with app.run_test(size=NORMAL) as pilot:
        await pilot.press("space")
        await pilot.pause()
        chart = app.screen.query(Chart).first()
        chart.focus()
        chart.redraw()
        await pilot.press("end")
        assert chart.reading == 40.0
        assert "step 40" in str(chart.border_subtitle)
        await pilot.press("left", "left")
        assert chart.reading is not None and chart.reading < 40
        await pilot.press("backspace")
        assert chart.reading is None


async def test_one_chart_a_tick_and_only_what_is_new_and_seen(session: Session) -> None:
    app = DirectApp(session)
    async with app.run_test(size=NORMAL) as pilot:
        await pilot.press("space")
        await pilot.pause()
        deck = app.screen.query_one(ChartDeck)
        now = [1000.0]
        deck.clock = lambda: now[0]
        drawn: list[str] = []
        for chart in deck.charts:
            chart.redraw = lambda chart=chart: (drawn.append(chart.title), setattr(chart, "stale", False))  # type: ignore
            chart.misfit, chart.stale, chart.drawn = False, False, 0.0
        deck.draw_one()
        assert drawn == []
        deck.touch()
        deck.draw_one()
        assert len(drawn) == 1
        for _ in range(5):
            deck.draw_one()
        assert sorted(drawn) == ["accuracy", "entropy", "loss"]
        deck.touch()
        deck.draw_one()
        assert len(drawn) == 3  # each at most twice a second
        now[0] += 0.6
        deck.draw_one()
        assert len(drawn) == 4
        deck.charts[0].focus()
        await pilot.press("m")
        await pilot.pause()
        drawn.clear()
        now[0] += 5
        deck.touch()
        for _ in range(4):
            deck.draw_one()
        assert set(drawn) == {"loss"}  # the others are covered


async def test_a_key_is_answered_before_a_chart_is_drawn_and_a_held_key_stops_none(session: Session) -> None:
    app = DirectApp(session)
    async with app.run_test(size=NORMAL) as pilot:
        await pilot.press("space")
        await pilot.pause()
        deck = app.screen.query_one(ChartDeck)
        deck.clock = lambda: 1000.0
        drawn: list[str] = []
        for chart in deck.charts:
            chart.redraw = lambda chart=chart: drawn.append(chart.title)  # type: ignore[method-assign,misc]
            chart.misfit, chart.stale, chart.drawn = False, True, 0.0
        app.key_pressed = 999.99
        counts = []
        for _ in range(4):
            deck.draw_one()
            counts.append(len(drawn))
        assert counts == [0, 1, 1, 2]
        app.key_pressed = 999.0
        deck.draw_one()
        assert len(drawn) == 3


async def test_m_maximises_and_brings_back(session: Session) -> None:
    app = DirectApp(session)
    async with app.run_test(size=NORMAL) as pilot:
        chart = app.screen.query(Chart).first()
        chart.focus()
        await pilot.press("m")
        assert app.screen.maximized is chart
        await pilot.press("m")
        assert app.screen.maximized is None
        app.screen.query_one(KnobList).focus()
        await pilot.press("m")
        assert app.screen.maximized is app.screen.query_one(KnobForm)


async def test_help_tells_meaning_misreading_and_keys_of_the_focused_pane(session: Session) -> None:
    app = DirectApp(session)
    async with app.run_test(size=NORMAL) as pilot:
        await pilot.press("3")
        await pilot.pause()
        app.screen.query(Chart).first().focus()
        await pilot.press("question_mark")
        await pilot.pause()
        text = "\n".join(screen_lines(app))
        assert "Learned reward up while gold falls is reward hacking" in text
        assert "The usual misreading" in text and "space" in text
        await pilot.press("escape")
        app.screen.query_one(KnobList).focus()
        await pilot.press("f1")
        await pilot.pause()
        assert "Every knob can be set" in " ".join("\n".join(screen_lines(app)).split())


async def test_the_palette_finds_actions_methods_and_themes(session: Session) -> None:
    app = DirectApp(session)
    async with app.run_test(size=NORMAL) as pilot:
        await pilot.press("colon", *"start")
        await pilot.pause(0.6)
        await pilot.press("enter")
        await pilot.pause(0.3)
        assert [name for name, _ in app.asked] == ["Start"]
        await pilot.press("ctrl+p", *"playground-light")
        await pilot.pause(0.6)
        await pilot.press("enter")
        await pilot.pause(0.3)
        assert app.theme == "playground-light"


async def test_narrow_screens_show_one_pane_at_a_time(session: Session) -> None:
    app = DirectApp(session)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("space")
        await pilot.pause()
        ids = ("charts", "knobs", "samples", "log")

        def seen() -> list[str]:
            return [each for each in ids if app.screen.query_one(f"#{each}").region.area]

        assert seen() == ["charts"]
        for expected in ("knobs", "samples", "log", "charts"):
            await pilot.press("v")
            await pilot.pause()
            assert seen() == [expected]
        await pilot.click("#tabs", offset=(12, 0))
        await pilot.pause()
        assert seen() == ["knobs"]


@pytest.mark.parametrize(
    "theme",
    ["playground-16", *(pytest.param(each, marks=pytest.mark.long) for each in ("playground-light", "textual-dark"))],
)
async def test_every_size_and_theme_draws(session: Session, theme: str) -> None:
    app = DirectApp(session)
    async with app.run_test(size=NORMAL) as pilot:
        app.theme = theme
        await pilot.press("space")
        for size in ((200, 60), (120, 40), (100, 20), (80, 24), (40, 12), (20, 5), (1, 1), (120, 40)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            for chart in app.screen.query(Chart):
                chart.redraw()
            await pilot.pause()
        assert all(app.screen.query_one(f"#{each}").region.area for each in ("charts", "knobs", "samples", "log"))
