"""A run whose method is not on this machine: what it recorded is shown, and nothing that belongs to another method."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from app_helpers import DirectApp, screen_lines

from core.methods.table import METHODS
from core.store import Session
from rlhf_tui.screens.train import TrainScreen
from rlhf_tui.state import Run
from rlhf_tui.unknown_methods import MOST_CHARTS, is_unknown, method_of
from rlhf_tui.widgets.chart_deck import ChartDeck
from rlhf_tui.widgets.knob_form import KnobForm
from rlhf_tui.widgets.pipeline import Pipeline

GONE = "gone_module:METHOD"
CONFIG = {"steps": 9, "spread": 2.5, "mode": "wide", "class": 1, "to_dict": 2, "odd name": 3, "list": [1]}


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with Session.create(tmp_path / "s", title="from elsewhere") as made:
        first = made.runs.add("sft", "SFT", METHODS["sft"].config().to_dict())
        made.runs.update(first.id, state="done", step=3)
        made.metrics.append(first.id, [(step, 8, 0.1, {"loss": 3.0 - step}) for step in (1, 2, 3)])
        run = made.runs.add(GONE, "Ranks", CONFIG, parent=first.id, parent_step=3)
        rows = [
            (step, 8 * step, 0.1, {"gold_reward": step / 10, "objective/kl": 0.5, "rank/spread": 7.0})
            for step in (1, 2, 3)
        ]
        made.metrics.append(run.id, rows)
        made.runs.update(run.id, state="done", step=3, steps=9)
        yield made


def deck(app: DirectApp) -> list[str]:
    return [chart.title for chart in app.screen.query_one(ChartDeck).charts]


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_it_has_its_own_charts_its_own_values_and_one_line_that_says_why(
    session: Session, size: tuple[int, int]
) -> None:
    app = DirectApp(session)
    async with app.run_test(size=size) as pilot:
        await pilot.press("1")
        await pilot.pause()
        assert deck(app)[:1] == ["loss"]
        await pilot.press("full_stop")  # the run after SFT
        await pilot.pause()
        screen = app.screen
        assert isinstance(screen, TrainScreen) and screen.shown is app.state.runs[2]
        assert deck(app) == ["reward", "KL", "rank/spread"]
        lines = screen_lines(app)
        assert lines[2].strip().startswith(f"Only to be looked at: {GONE} is ")
        assert f"{GONE} ✓" in lines[1]
        form = screen.query_one(KnobForm)
        assert [(each.name, each.default) for each in form.list.knobs] == [
            ("steps", 9), ("spread", 2.5), ("mode", "wide"),
        ]  # fmt: skip
        assert not any(form.list.can_turn(each) for each in form.list.knobs)
        await pilot.press("question_mark")
        await pilot.pause()
        assert any("Only to be looked at" in line for line in screen_lines(app))


async def test_no_key_starts_what_cannot_run_and_the_way_leads_back(session: Session) -> None:
    app = DirectApp(session)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("comma")
        await pilot.pause()
        await pilot.press("space", "r", "R", "f", "x", "s", "L", "S", "a")
        await pilot.pause()
        assert app.asked == []
        assert [each.message.partition(":")[0] for each in app._notifications] == ["Only to be looked at"]
        app.screen.query_one(Pipeline).focus()
        await pilot.press("right")  # behind it comes the first of the table again
        await pilot.pause()
        assert deck(app)[0] == "loss"
        assert app.screen.query_one(Pipeline).method is METHODS["sft"]


async def test_when_its_run_is_deleted_the_first_method_stands_there(session: Session) -> None:
    app = DirectApp(session)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("comma")
        await pilot.pause()
        del app.state.runs[2]
        app.screen.runs_changed()  # type: ignore[attr-defined]
        await pilot.pause()
        assert app.screen.method is METHODS["sft"]  # type: ignore[attr-defined]


def test_a_method_of_the_table_is_itself() -> None:
    assert method_of(Run(1, "ppo", "PPO")) is METHODS["ppo"]
    assert not is_unknown(METHODS["ppo"]) and is_unknown(method_of(Run(1, GONE, "")))


def test_hostile_records_make_no_more_than_a_few_charts() -> None:
    run = Run(1, "a:\x1b[2J", "", config={"\x1b[2J": 1, "steps": float("nan"), "short": 0})
    run.series.append(1, 1, 1.0, {f"m{number}": 1.0 for number in range(500)})
    method = method_of(run)
    assert len(method.charts) == MOST_CHARTS
    assert "\x1b" not in method.summary.replace(run.method, "")
