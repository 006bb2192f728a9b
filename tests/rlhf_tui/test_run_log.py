"""The log is broken into lines at the width that it is read at."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from app_helpers import DirectApp, screen_lines

from core.store import Session
from rlhf_tui.widgets.run_log import RunLog

LONG = "a line of a good fifty letters that fits a whole screen"


@pytest.fixture
def app(tmp_path: Path) -> Iterator[DirectApp]:
    app = DirectApp(Session.create(tmp_path / "s", title="s"))
    app.state.say("info", LONG)
    yield app
    app.session.close()


async def test_what_came_while_it_was_hidden_is_broken_at_its_own_width(app: DirectApp) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        app.state.say("info", f"{LONG}, too")
        await pilot.press("v", "v", "v")
        await pilot.pause()
        lines = [line for line in screen_lines(app) if "letters" in line]
        assert len(lines) == 2 and LONG in lines[0] and f"{LONG}, too" in lines[1]
        await pilot.press("v")
        app.state.say("info", f"{LONG}, later")
        app.screen.show_all()  # type: ignore[attr-defined]
        await pilot.press("v", "v", "v")
        await pilot.pause()
        assert sum(LONG in line for line in screen_lines(app)) == 3


async def test_another_width_breaks_the_same_entries_anew(app: DirectApp) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("v", "v", "v")
        await pilot.resize_terminal(46, 24)
        await pilot.pause()
        assert not any(LONG in line for line in screen_lines(app))
        await pilot.resize_terminal(90, 24)
        await pilot.pause()
        assert sum(LONG in line for line in screen_lines(app)) == 1
        app.screen.query_one(RunLog).forget()
        await pilot.pause()
        assert not any(LONG in line for line in screen_lines(app))
