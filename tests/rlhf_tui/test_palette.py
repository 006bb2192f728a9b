"""The command palette reaches what no key does."""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from app_helpers import DirectApp

from core.methods.table import METHODS
from core.store import Session
from rlhf_tui.palette import ActionsProvider, PaletteCommand
from rlhf_tui.screens.train import TrainScreen


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with Session.create(tmp_path / "s", task="words", seed=1) as made:
        yield made


def offered(app: DirectApp) -> list[PaletteCommand]:
    return list(ActionsProvider(app.screen).commands())


async def test_every_method_is_offered_once_whether_or_not_it_has_a_key(session: Session) -> None:
    app = DirectApp(session)
    async with app.run_test() as pilot:
        for screen in ("train", "compare"):
            app.show_screen(screen)
            await pilot.pause()
            names = [each.name for each in offered(app)]
            for method in METHODS.values():
                assert names.count(method.title) == 1, (screen, method.title)


async def test_what_the_footer_shows_comes_first_and_moves_of_the_focus_last(session: Session) -> None:
    app = DirectApp(session)
    async with app.run_test() as pilot:
        await pilot.pause()
        names = [each.name for each in offered(app)]
        assert names[:3] == ["Start", "Step", "Race"]
        assert names.index("Quit") < names.index("Previous method") < names.index("Focus Next")


@pytest.mark.parametrize("name", [list(METHODS)[9]])
async def test_a_method_is_found_by_name_from_another_screen(session: Session, name: str) -> None:
    app = DirectApp(session)
    async with app.run_test() as pilot:
        app.show_screen("frontier")
        await pilot.pause()
        await pilot.press("ctrl+p", *METHODS[name].title.lower().replace(" ", ""))
        await pilot.pause(0.6)
        await pilot.press("enter")
        await pilot.pause(0.3)
        assert app.current_mode == "train"
        assert cast(TrainScreen, app.screen).method.name == name
