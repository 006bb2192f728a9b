"""Whatever makes a key wait: how much of the screen is drawn or laid out again when little has changed."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from app_helpers import DirectApp, screen_lines
from textual._compositor import Compositor
from textual.app import App, ComposeResult
from textual.color import Color
from textual.content import Content

from core.engine.protocol import Metrics
from core.store import Session
from rlhf_tui.screens.train import TrainScreen
from rlhf_tui.themes import THEMES
from rlhf_tui.widgets.chart import Chart
from rlhf_tui.widgets.still_text import StillText

NORMAL = (120, 40)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with Session.create(tmp_path / "s", title="first steps") as made:
        yield made


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the whole screen was drawn, and how often everything was laid out."""
    counted: Counter[str] = Counter()
    for name in ("render_full_update", "reflow"):
        whole = getattr(Compositor, name)

        def count(self: Compositor, *args: object, _name: str = name, _whole: object = whole, **kwargs: object):  # type: ignore[no-untyped-def]
            counted[_name] += 1
            return _whole(self, *args, **kwargs)  # type: ignore[operator]

        monkeypatch.setattr(Compositor, name, count)
    return counted


async def test_another_focus_draws_only_what_looks_different(session: Session, work: Counter[str]) -> None:
    app = DirectApp(session)
    async with app.run_test(size=NORMAL) as pilot:
        await pilot.press("space", "k")
        await pilot.pause(0.5)
        work.clear()
        await pilot.press("g")
        await pilot.pause()
        assert isinstance(app.focused, Chart)
        await pilot.press("k", "v", "v")
        await pilot.pause()
        assert not work


async def test_a_step_of_training_lays_out_nothing(session: Session, work: Counter[str]) -> None:
    app = DirectApp(session)
    async with app.run_test(size=NORMAL) as pilot:
        await pilot.press("space")
        await pilot.pause(0.5)
        work.clear()
        screen = app.screen
        assert isinstance(screen, TrainScreen)
        for step in range(41, 45):
            app.take(Metrics(run=1, step=step, completions=step, seconds=step, values={"loss": 1.0}))
            screen.show_all()
            await pilot.pause()
        assert "44/" in screen_lines(app)[1]  # the strip tells the newest step
        assert not work


class OneText(App[None]):
    def compose(self) -> ComposeResult:
        yield StillText()


async def test_a_still_text_moves_others_only_when_its_height_changes(work: Counter[str]) -> None:
    app = OneText()
    async with app.run_test(size=(20, 5)) as pilot:
        text = app.query_one(StillText)
        text.show(Content("one"))
        await pilot.pause()
        work.clear()
        text.show(Content("another"))
        await pilot.pause()
        assert not work
        assert str(text.render()) == "another"
        text.show(Content("a text that needs two lines"))
        await pilot.pause()
        assert work["reflow"]
        assert text.size.height == 2
        work.clear()
        text.show(Content.styled("a text that needs two lines", "bold"))
        await pilot.pause()
        assert not work["reflow"]


@pytest.mark.parametrize("theme", [theme.name for theme in THEMES])
async def test_a_chart_takes_its_colours_from_the_theme(session: Session, theme: str) -> None:
    app = DirectApp(session)
    async with app.run_test(size=NORMAL) as pilot:
        await pilot.press("space")
        app.theme = next(each.name for each in THEMES if each.name != theme)
        await pilot.pause()
        chart = app.screen.query(Chart).first()
        chart.redraw()
        before = {segment.style for y in range(chart.size.height) for segment in chart.render_line(y)}
        app.theme = theme
        await pilot.pause()
        after = {segment.style for y in range(chart.size.height) for segment in chart.render_line(y)}
        wanted = Color.parse(app.theme_variables["line-1"]).rich_color
        assert wanted in {style.color for style in after if style is not None}
        assert before != after
