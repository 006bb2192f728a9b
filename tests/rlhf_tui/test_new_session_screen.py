"""New Session with data of one's own: what is wrong with a file stands on the screen, and what was typed stays."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from app_helpers import DirectApp, screen_lines
from textual.widgets import Input

import rlhf_tui.screens.new_session as module
from core.new_session import plan_session
from core.store import Session
from core.store.locations import list_sessions
from rlhf_tui.screens.new_session import NewSessionScreen
from rlhf_tui.screens.train import TrainScreen
from rlhf_tui.tasks import task_of
from rlhf_tui.widgets.knob_form import KnobForm, KnobList

SIZES = [(80, 24), (120, 40)]


@pytest.fixture
def app(tmp_path: Path) -> Iterator[DirectApp]:
    app = DirectApp(Session.create(tmp_path / "first", title="first"), screen="sessions")
    yield app
    app.session.close()


async def until(pilot: Any, condition: Any) -> None:
    for _ in range(300):
        await pilot.pause(0.02)
        if condition():
            return
    raise AssertionError("\n".join(screen_lines(pilot.app)))


def on_screen(app: DirectApp, *words: str) -> bool:
    """Stand the words there, one after the other, wherever lines are broken?"""
    text = " ".join(" ".join(line.replace("│", " ").split()) for line in screen_lines(app))
    return all(word in text for word in words)


async def new_custom(pilot: Any) -> NewSessionScreen:
    await until(pilot, lambda: on_screen(pilot.app, "first"))
    await pilot.press("n", "down", "minus")  # before the first task comes the last
    await until(pilot, lambda: on_screen(pilot.app, "✗ name a file of demonstrations"))
    assert isinstance(pilot.app.screen, NewSessionScreen)
    return pilot.app.screen


async def set_knob(pilot: Any, name: str, value: str) -> None:
    knobs = pilot.app.screen.query_one(KnobList)
    await pilot.press("home", *["down"] * [each.name for each in knobs.knobs].index(name), "enter")
    pilot.app.screen.query_one("#value", Input).value = value
    await pilot.press("enter")


@pytest.mark.parametrize("size", SIZES)
async def test_three_files_are_shown_made_into_a_session_and_needed_no_more(
    app: DirectApp, tmp_path: Path, size: tuple[int, int]
) -> None:
    (tmp_path / "d.tsv").write_text("春\t风来了\n雨\t停了\n")
    (tmp_path / "p.txt").write_text("春\n雨\n雪\n")
    (tmp_path / "pairs.jsonl").write_text('{"prompt": "雪", "chosen": "白", "rejected": "黑"}\n' * 3)
    async with app.run_test(size=size) as pilot:
        await new_custom(pilot)
        for name, file in (("demonstrations", "d.tsv"), ("prompts", "p.txt"), ("pairs", "pairs.jsonl")):
            await set_knob(pilot, name, str(tmp_path / file))
        await until(pilot, lambda: "3 pairs" in previewed(app))
        assert "9 letters: 了停春来白雨雪风黑\n2 prompts, 1 held out" in previewed(app)
        assert "no gold rule" in previewed(app)
        assert ("春  风来了" in previewed(app)) != ("雨  停了" in previewed(app))  # of two, one is held out
        assert "雪 → 白  not  黑" in previewed(app)
        await pilot.press("c")
        await until(pilot, lambda: isinstance(app.screen, TrainScreen))
    for file in ("d.tsv", "p.txt", "pairs.jsonl"):
        (tmp_path / file).unlink()
    app.session.close()
    with Session.open(tmp_path / "new-session", read_only=True) as again:
        task = task_of(again)
        assert (task.name, len(task.pairs), len(task.alphabet)) == ("custom", 3, 9)


BAD: list[tuple[bytes | None, str]] = [
    (b"a\tb\na\t\xff\n", "d.txt:2: not UTF-8: byte 0xff at position 3"),
    (b"a\tb\nx\n", "d.txt:2: too short to be divided into a prompt and a completion"),
    (b"", "d.txt: the file is empty"),
    (None, "d.txt: the file has 100 MB, more than 16 MB"),
    ("".join(f"a\t{chr(0x4E00 + code)}\n" for code in range(2100)).encode(), "d.txt:2048: '嗿' is one more than"),
    (b"a\tb\n" + b"a" * 80 + b"\tb\n", "d.txt:2: prompt and completion have 81 letters, more than the 61"),
]
"""Encoding, missing field, empty, 100 MB, too many different characters, longer than the context."""


async def test_a_bad_file_tells_file_line_and_reason_and_what_was_typed_stays(app: DirectApp, tmp_path: Path) -> None:
    file = tmp_path / "d.txt"
    file.touch()
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await new_custom(pilot)
        await set_knob(pilot, "title", "My greetings")
        await set_knob(pilot, "demonstrations", str(file))
        for content, said in BAD:
            with file.open("wb") as stream:
                if content is None:
                    stream.truncate(100 * 1024 * 1024)
                else:
                    stream.write(content)
            await pilot.press("enter", "enter")  # into the field of the knob, and the same value again
            shown = "✗ " + said.replace("d.txt", str(file))
            await until(pilot, lambda shown=shown: shown in said_below(app))
            await pilot.press("c")
            await pilot.pause(0.1)
            assert app.screen is screen and shown in said_below(app)
            assert screen.values == {"task": "custom", "title": "My greetings", "demonstrations": str(file)}
        assert [each.title for each in list_sessions(tmp_path)] == ["first"]
        file.write_text("a\tb\nb\tc\n")
        await pilot.press("c")  # read again as it is now
        await until(pilot, lambda: isinstance(app.screen, TrainScreen))


def previewed(app: DirectApp) -> str:
    return str(app.screen.query_one("#task-about").render())


def said_below(app: DirectApp) -> str:
    """The line of trouble, put together again where the narrow screen has broken it."""
    return str(app.screen.query_one("#impossible").render()).replace("\n", "")


async def test_how_far_reading_has_come_is_told_and_what_is_outdated_is_given_up(
    app: DirectApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d.txt").write_text("a\tb\nb\tc\n")
    seen: list[str] = []
    gone_on = asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow(task: str, options: Any, seed: int, backbone: Any, progress: Any) -> Any:
        if task == "custom" and seed == 42:
            progress("d.txt: 2,000 rows")
            asyncio.run_coroutine_threadsafe(gone_on.wait(), loop).result()
            try:
                progress("d.txt: 4,000 rows")
            except ValueError as error:
                seen.append(str(error))
                raise
        return plan_session(task, options, seed, backbone, progress)

    async with app.run_test(size=(120, 40)) as pilot:
        screen = await new_custom(pilot)
        monkeypatch.setattr(module, "plan_session", slow)
        await set_knob(pilot, "demonstrations", str(tmp_path / "d.txt"))
        await until(pilot, lambda: "d.txt: 2,000 rows" in said_below(app))
        await set_knob(pilot, "seed", "7")
        gone_on.set()
        await until(pilot, lambda: seen != [])
        assert seen == ["something newer is read"]
        await until(pilot, lambda: on_screen(app, "2 demonstrations") or on_screen(app, "1 demonstrations"))
        assert said_below(app) == "" and app.screen is screen


async def test_a_second_press_that_comes_at_once_goes_on_from_the_first(app: DirectApp) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: on_screen(app, "first"))
        await pilot.press("n")
        await until(pilot, lambda: on_screen(app, "Word chain"))
        knobs = app.screen.query_one(KnobList)
        knobs.action_move(1)
        knobs.action_edit()
        knobs.action_edit()
        await until(pilot, lambda: on_screen(app, "Chinese sentences"))  # the third of the tasks


async def test_a_long_path_is_edited_whole_and_shows_its_end(app: DirectApp, tmp_path: Path) -> None:
    folder = tmp_path / ("long-" * 12)
    folder.mkdir()
    file = folder / "demonstrations.txt"
    file.write_text("a\tb\nb\tc\n")
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await new_custom(pilot)
        await set_knob(pilot, "demonstrations", str(file))
        await until(pilot, lambda: on_screen(app, "demonstrations …"))
        assert any("demonstrations.txt*" in line for line in screen_lines(app))
        await pilot.press("enter")
        assert screen.query_one("#value", Input).value == str(file)
        assert screen.query_one(KnobForm).unsent == ""
        await pilot.press("enter")
        await pilot.pause()
        assert screen.values["demonstrations"] == str(file)
