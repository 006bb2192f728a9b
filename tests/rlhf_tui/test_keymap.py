"""Keys of one's own: what the file may say, and that the app heeds it."""

from collections.abc import Iterator
from pathlib import Path

import platformdirs
import pytest
from app_helpers import DirectApp

from core.store import Session
from rlhf_tui.keymap import documented, keys_file, known_bindings, read_keys


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(platformdirs, "user_config_dir", lambda *_, **__: str(tmp_path))
    return keys_file()


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with Session.create(tmp_path / "s") as made:
        yield made


def test_every_binding_can_be_remapped() -> None:
    known = known_bindings()
    assert {"app.quit", "train.start", "compare.later", "sessions.fork", "list.up", "knobs.more"} <= set(known)
    assert all(binding.tooltip or binding.description or not binding.show for binding in known.values())


def test_the_documented_file_changes_nothing_until_a_line_is_taken_in(file: Path) -> None:
    text = documented(file)
    file.write_text(text, encoding="utf-8")
    assert read_keys(file).keymap == {} and read_keys(file).problems == ()
    file.write_text(text.replace('# "', '"'), encoding="utf-8")
    keys = read_keys(file)
    assert keys.problems == ()
    assert set(keys.keymap) == set(known_bindings())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[keys]\n"train.pn" = "P"', "did you mean 'train.pin'?"),
        ('[keys]\n"train.pin" = 3', "needs a key or a list of keys"),
        ('[keys]\n"train.pin" = []', "needs a key or a list of keys"),
        ("keys = 3", "must be a table"),
        ("[keys", "is not used"),
        ('[keys]\n"train.pin" = "f"', "f means train.pin and train.fork"),
        ('[keys]\n"train.pin" = "q"', "q means train.pin and app.quit"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(text: str, said: str, file: Path) -> None:
    file.write_text(text, encoding="utf-8")
    (problem,) = read_keys(file).problems
    assert said in problem and "\n" not in problem


async def test_the_app_heeds_the_file(file: Path, session: Session) -> None:
    file.write_text('[keys]\n"train.start" = "g,f5"\n"train.charts" = "G"\n"app.quit" = "ctrl+q"', encoding="utf-8")
    app = DirectApp(session)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("space")
        assert not app.state.runs
        await pilot.press("f5")
        assert app.state.runs[1].active
        await pilot.press("space")  # pausing kept its key, though starting shared it
        assert app.state.runs[1].state == "paused"
        await pilot.press("q")
        await pilot.pause()
        assert app.is_running
        await pilot.press("ctrl+q")
        await pilot.pause()
    assert app.return_code == 0


async def test_a_broken_file_is_said_and_the_keys_are_as_they_come(file: Path, session: Session) -> None:
    file.write_text("[keys", encoding="utf-8")
    app = DirectApp(session)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("space")
        assert app.state.runs[1].active
        assert any("is not used" in each.message for each in app._notifications)
