"""Sessions: find, open, make and keep them; the tree of runs; a second instance."""

import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from app_helpers import DirectApp, screen_lines
from scripted_engine import ScriptedRun
from textual.widgets import Input

from core.engine.protocol import Metrics
from core.store import Session
from core.store.locations import list_sessions, list_trash
from core.tasks.table import CONTENT
from rlhf_tui.screens.choose import ChooseScreen
from rlhf_tui.screens.sessions import SessionsScreen
from rlhf_tui.screens.train import TrainScreen
from rlhf_tui.widgets.line_list import LineList

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def saves(tmp_path: Path) -> Path:
    for title, runs in (("alpha", 2), ("beta", 0), ("gamma [/", 1)):
        with Session.create(tmp_path / title.split()[0], title=title, seed=7) as session:
            for number in range(runs):
                run = session.runs.add("sft" if not number else "ppo", config={"steps": 9, "batch_size": 64}, seed=7,
                                       parent=number or None, parent_step=9 if number else None)  # fmt: skip
                session.runs.update(run.id, state="done", step=9)
    return tmp_path


@pytest.fixture
def app(saves: Path) -> Iterator[DirectApp]:
    app = DirectApp(Session.open(saves / "alpha"), screen="sessions")
    app.script.runs = {  # the engine knows the runs of the session
        number: ScriptedRun(number, method, "", 9, {}, 7, state="done", step=9)
        for number, method in ((1, "sft"), (2, "ppo"))
    }
    yield app
    app.session.close()


def titles(app: DirectApp) -> list[str]:
    rows = app.screen.query_one("#list", LineList).rows
    return [row.key.name for row in rows]


def sessions(app: DirectApp) -> SessionsScreen:
    assert isinstance(app.screen, SessionsScreen)
    return app.screen


async def shown(pilot: Any, condition: Any) -> None:
    for _ in range(200):
        await pilot.pause(0.02)
        if condition():
            return
    raise AssertionError("\n".join(screen_lines(pilot.app)))


async def go_to(pilot: Any, name: str) -> None:
    app = pilot.app
    await shown(pilot, lambda: name in titles(app))
    app.screen.query_one("#list", LineList).go_to(titles(app).index(name))
    await shown(pilot, lambda: app.screen.looked_at is not None and app.screen.looked_at.name == name)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_sessions_are_listed_and_the_open_one_is_marked(app: DirectApp, size: tuple[int, int]) -> None:
    async with app.run_test(size=size) as pilot:
        await shown(pilot, lambda: len(titles(app)) == 3)
        text = screen_lines(app)
        assert any("● alpha" in line for line in text)
        assert any("gamma [/" in line for line in text)
        assert app.screen.query_one("#list", LineList).key.name == "alpha"


async def test_search_and_sort(app: DirectApp) -> None:
    async with app.run_test(size=(120, 40)) as pilot:
        await shown(pilot, lambda: len(titles(app)) == 3)
        await pilot.press("slash", *"gam", "enter")
        assert titles(app) == ["gamma"]
        await pilot.press("escape", "s")
        assert titles(app) == ["alpha", "beta", "gamma"]
        await pilot.press("s", "s")
        assert titles(app)[0] == "alpha"  # most runs first


async def test_another_session_is_opened_in_place(app: DirectApp, saves: Path) -> None:
    async with app.run_test(size=(120, 40)) as pilot:
        await go_to(pilot, "beta")
        await pilot.press("enter")
        await shown(pilot, lambda: isinstance(app.screen, TrainScreen))
        assert app.session.title == "beta" and app.state.runs == {}
        assert "beta · words" in screen_lines(app)[0]
        with Session.open(saves / "alpha") as free:  # the lock of the first is gone, and its screen was kept
            assert free.get_setting("ui")["screen"] == "sessions"
        with pytest.raises(Exception, match="open in process"):
            _in_another_process(saves / "beta")


def _in_another_process(folder: Path) -> None:
    code = f"from core.store import Session; Session.open({str(folder)!r})"
    done = subprocess.run(
        ["sh", "-c", f'cd {ROOT} && {sys.executable} -c "{code}"; exit $?'], capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(done.stderr)


async def test_a_session_in_use_elsewhere_is_looked_at_or_copied(app: DirectApp, saves: Path) -> None:
    code = (
        f"import time; from core.store import Session; s = Session.open({str(saves / 'gamma')!r}); "
        "print(1, flush=True); time.sleep(60)"
    )
    # Through a shell that stays, so that the holder is no child of ours.
    other = subprocess.Popen(["sh", "-c", f'cd {ROOT} && {sys.executable} -c "{code}"; true'], stdout=subprocess.PIPE,
                             start_new_session=True)  # fmt: skip
    assert other.stdout is not None and other.stdout.readline() == b"1\n"
    try:
        async with app.run_test(size=(120, 40)) as pilot:
            await go_to(pilot, "gamma")
            await pilot.press("enter")
            await shown(pilot, lambda: isinstance(app.screen, ChooseScreen))
            assert any("open in process" in line for line in screen_lines(app))
            await pilot.press("enter")
            await shown(pilot, lambda: app.session.read_only)
            assert app.session.title == "gamma [/"
            await shown(pilot, lambda: any("Read-only: you can look" in line for line in screen_lines(app)))
            app.save_ui()  # which writes nothing
            app.show_screen("sessions")
            await go_to(pilot, "gamma")
            await app.open_copy(saves / "gamma")
            assert app.session.title == "Copy of gamma [/" and not app.session.read_only
    finally:
        import os
        import signal

        os.killpg(other.pid, signal.SIGKILL)
        other.wait()


async def test_delete_goes_to_the_trash_and_back(app: DirectApp, saves: Path) -> None:
    async with app.run_test(size=(120, 40)) as pilot:
        await go_to(pilot, "beta")
        await pilot.press("x")
        await shown(pilot, lambda: titles(app) == ["alpha", "gamma"] or len(titles(app)) == 2)
        assert [each.title for each in list_trash(saves)] == ["beta"]
        await pilot.press("u")
        await shown(pilot, lambda: "beta" in titles(app))
        await go_to(pilot, "beta")
        await pilot.press("x")
        await shown(pilot, lambda: "beta" not in titles(app))
        await pilot.press("T")
        await shown(pilot, lambda: any("trash  1" in line for line in screen_lines(app)))
        await pilot.press("enter", "T")
        await shown(pilot, lambda: "beta" in titles(app))
        await go_to(pilot, "alpha")
        await pilot.press("x")
        await pilot.pause()
        assert (saves / "alpha").exists()  # it is open


async def test_rename_and_duplicate(app: DirectApp, saves: Path) -> None:
    async with app.run_test(size=(120, 40)) as pilot:
        await go_to(pilot, "beta")
        await pilot.press("r", "ctrl+u", *"a/b", "enter")
        await shown(pilot, lambda: "a-b" in titles(app))
        await pilot.press("d")
        await shown(pilot, lambda: len(titles(app)) == 4)
        assert {each.title for each in list_sessions(saves)} == {"alpha", "a/b", "Copy of a/b", "gamma [/"}
        await go_to(pilot, "alpha")
        await pilot.press("r", "ctrl+u", *"open one", "enter")
        await shown(pilot, lambda: "open one" in screen_lines(app)[0])
        assert (saves / "alpha").exists() and app.session.title == "open one"


async def test_a_new_session_with_a_task_and_a_look_at_it(app: DirectApp, saves: Path) -> None:
    async with app.run_test(size=(120, 40)) as pilot:
        await shown(pilot, lambda: len(titles(app)) == 3)
        await pilot.press("n")
        await shown(pilot, lambda: any("26 letters: abcdefghijklmnopqrstuvwxyz" in line for line in screen_lines(app)))
        lines = screen_lines(app)
        for name, value in (("session", "new session"), ("task", "words"), ("seed", "42"), ("kind", "lstm")):
            assert any(re.search(rf"│ {name} +{value} +│", line) for line in lines), "\n".join(lines)
        assert any("What the session is called" in line for line in lines)  # the knob at the cursor explained
        await pilot.press("down", "enter")  # the next task
        await shown(pilot, lambda: any("Sums with working" in line for line in screen_lines(app)))
        await shown(pilot, lambda: any("demonstrations" in line and "prompts" in line for line in screen_lines(app)))
        await pilot.press("c")
        await shown(pilot, lambda: isinstance(app.screen, TrainScreen))
        assert (app.session.task, app.session.seed, app.session.title) == ("arithmetic", 42, "new session")
        assert app.session.get_setting(CONTENT) and app.session.backbone["hidden"] == 128
    with Session.open(saves / "new-session", read_only=True) as made:
        assert made.task == "arithmetic"


async def test_a_session_is_exported_to_a_file_and_imported_from_one(app: DirectApp, saves: Path) -> None:
    file = saves.parent / "sent.zip"

    async def at_file(pilot: Any, key: str) -> None:
        await pilot.press(key)
        app.screen.query_one(Input).value = str(file)  # as pasted: key by key takes seconds
        await pilot.press("enter")

    async with app.run_test(size=(120, 40)) as pilot:
        await go_to(pilot, "beta")
        await at_file(pilot, "E")
        await shown(pilot, file.exists)
        with zipfile.ZipFile(file) as archive:
            assert "beta/session.db" in archive.namelist()
        await at_file(pilot, "I")
        await shown(pilot, lambda: "beta-2" in titles(app))
        file.write_bytes(b"no archive")
        await at_file(pilot, "I")
        await shown(pilot, lambda: any("no whole ZIP" in each.message for each in app._notifications))
    assert sorted(each.name for each in list_sessions(saves)) == ["alpha", "beta", "beta-2", "gamma"]


async def test_a_task_that_needs_files_says_so_and_makes_nothing(app: DirectApp, saves: Path) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await shown(pilot, lambda: len(titles(app)) == 3)
        await pilot.press("n", "down", "minus")  # the last task: one's own data
        await shown(pilot, lambda: any("✗" in line for line in screen_lines(app)))
        await pilot.press("c")
        await pilot.pause(0.1)
        assert len(list_sessions(saves)) == 3 and not isinstance(app.screen, TrainScreen)
        await pilot.press("escape")


async def test_the_tree_of_runs_and_what_can_be_done_to_one(app: DirectApp) -> None:
    async with app.run_test(size=(120, 40)) as pilot:
        await go_to(pilot, "alpha")
        await pilot.press("v", "down")
        await shown(pilot, lambda: any("└ ✓ PPO #2 from 9" in line for line in screen_lines(app)))
        await pilot.press("w", *"good", "enter")
        await pilot.press("p")
        await pilot.pause()
        record = app.session.runs.get(2)
        assert (record.notes, record.pinned) == ("good", True)
        await shown(pilot, lambda: any("★✎" in line for line in screen_lines(app)))
        await pilot.press("c")
        assert app.clipboard == (
            "rlhf-tui train ppo --session alpha --parent 1 --parent-step 9 --seed 7 "
            f"--config 'steps=9 batch_size=64' --saves {app.session.folder.parent}"
        )
        await pilot.press("x", "down", "enter")
        await shown(pilot, lambda: 2 not in app.state.runs)
        assert app.last("Delete") == {"run": 2}


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_runs_follow_what_trains_and_the_way_there_and_back_is_said(
    app: DirectApp, size: tuple[int, int]
) -> None:
    async with app.run_test(size=size) as pilot:
        await go_to(pilot, "alpha")
        assert any("v its runs" in line for line in screen_lines(app))
        assert "v Runs" in screen_lines(app)[-1]
        await pilot.press("v")
        await shown(pilot, lambda: any("v back to the sessions" in line for line in screen_lines(app)))
        assert "v Sessions" in screen_lines(app)[-1] and "n New" in screen_lines(app)[-1]
        app.take(Metrics(run=2, step=5, completions=10, seconds=1.0, values={"loss": 1.0}))
        await shown(pilot, lambda: any(" 5/9 " in line for line in screen_lines(app)))
        app.state.runs[2].title = "PPO from 9"  # as the engine names a fork
        sessions(app).show_tree()
        await shown(pilot, lambda: any("PPO from 9" in line for line in screen_lines(app)))
        assert not any("from 9 from 9" in line for line in screen_lines(app))
        await pilot.press("v")
        await shown(pilot, lambda: any("v its runs" in line for line in screen_lines(app)))


async def test_a_fork_starts_here_with_a_knob_changed_and_is_overlaid_on_its_parent(app: DirectApp) -> None:
    async with app.run_test(size=(120, 40)) as pilot:
        await shown(pilot, lambda: len(titles(app)) == 3)
        app.show_screen("train")
        await pilot.press("1", "r")  # a run that the scripted engine knows
        run = max(app.state.runs)
        assert app.session.runs.add("sft").id == run  # as the engine would
        app.show_screen("sessions")
        await shown(pilot, lambda: isinstance(app.screen, SessionsScreen) and run in sessions(app).shown_runs)
        tree = sessions(app).query_one("#tree", LineList)
        await shown(pilot, lambda: len(tree.rows) == 3)
        tree.focus()
        await pilot.press("end", "f", "ctrl+u", *"step=5 batch_size=7777777", "enter")
        await pilot.pause()
        assert any("batch_size must be" in line for line in screen_lines(app))
        await pilot.press("ctrl+u", *"step=5 batch_size=16", "enter")
        await shown(pilot, lambda: isinstance(app.screen, TrainScreen))
        assert app.last("Fork") == {"run": run, "step": 5, "config": {"batch_size": 16}}
        assert app.state.runs[run].pinned and app.screen.shown.parent == run  # type: ignore[attr-defined]


async def test_runs_of_another_session_can_be_read_but_not_changed(app: DirectApp) -> None:
    async with app.run_test(size=(120, 40)) as pilot:
        await go_to(pilot, "gamma")
        await pilot.press("v")
        await shown(pilot, lambda: any("SFT #1" in line for line in screen_lines(app)))
        await pilot.press("w")
        await pilot.pause()
        assert isinstance(app.screen, SessionsScreen)
        assert any("open this session first" in each.message for each in app._notifications)


async def test_damaged_and_newer_sessions_say_so_in_the_list(app: DirectApp, saves: Path) -> None:
    (saves / "broken").mkdir()
    (saves / "broken" / "session.db").write_bytes(b"nonsense" * 100)
    async with app.run_test(size=(120, 40)) as pilot:
        await go_to_row(pilot, "broken")
        assert any("✗ broken" in line for line in screen_lines(app))
        await pilot.press("enter")
        await pilot.pause(0.1)
        assert app.session.title == "alpha"


async def go_to_row(pilot: Any, name: str) -> None:
    await shown(pilot, lambda: name in titles(pilot.app))
    pilot.app.screen.query_one("#list", LineList).go_to(titles(pilot.app).index(name))
    await pilot.pause(0.3)
