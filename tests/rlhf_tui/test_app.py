"""The app around its screens: engine life and death, reopening, leaving, foreign text, pictures of the screen."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from app_helpers import DirectApp, screen_lines, scripted_command
from scripted_engine import HOSTILE

from core.engine.protocol import Alert, Pause, Resume, Samples, SampleText
from core.store import Session
from rlhf_tui.app import PlaygroundApp
from rlhf_tui.screens.quit import QuitScreen
from rlhf_tui.screens.table import SCREENS
from rlhf_tui.screens.train import TrainScreen
from rlhf_tui.widgets import pipeline, title_bar
from rlhf_tui.widgets.chart import Chart
from rlhf_tui.widgets.run_log import RunLog
from rlhf_tui.widgets.sample_strip import SampleStrip

SNAPSHOTS = Path(__file__).with_name("snapshots")


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with Session.create(tmp_path / "s", title="first steps") as made:
        yield made


async def until(condition: object, timeout: float = 20.0) -> None:
    async with asyncio.timeout(timeout):
        while not condition():  # type: ignore[operator]
            await asyncio.sleep(0.02)


def test_the_app_imports_no_torch() -> None:
    code = (
        "import sys, rlhf_tui.app, rlhf_tui.screens.train, rlhf_tui.screens.help\n"
        "from rlhf_tui.screens.table import SCREENS\n"
        "[entry.load() for entry in SCREENS]\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('torch', 'plotext')])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"  # plotext, too, waits for the first line drawn


def test_what_the_first_frame_does_not_need_is_imported_after_it() -> None:
    later = (
        "numpy",
        "plotext",
        "core.methods.table",
        "core.engine.protocol",
        "core.preferences.history",
        "rlhf_tui.screens.train",
    )
    check = f"import sys, core.store, rlhf_tui.app, rlhf_tui.cli\nprint([n for n in {later} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_the_first_frame_shows_where_the_panes_will_be(session: Session) -> None:
    class Slow(DirectApp):
        def fill_soon(self) -> None:
            pass

    app = Slow(session)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        lines = screen_lines(app)
        assert lines[0].startswith(" Train ") and "first steps" in lines[0] and "Opening first steps" in lines[1]
        assert all(f"╭─ {pane} " in "\n".join(lines) for pane in ("knobs", "charts", "samples", "log"))
        await pilot.press("space")  # for the screen to come
        app.fill()
        await pilot.pause()
        assert app.last("Start")["method"] == "sft"


async def test_a_killed_engine_leaves_the_screen_and_goes_on_from_its_resume_point(session: Session) -> None:
    app = PlaygroundApp(session, engine_command=scripted_command("--rate", "30"))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: app.state.engine == "ready")
        await pilot.press("space")
        await until(lambda: app.state.runs and app.state.runs[1].step > 3)
        assert app.engine is not None and app.engine.pid is not None
        os.killpg(app.engine.pid, signal.SIGKILL)
        await until(lambda: app.state.engine == "dead")
        await pilot.pause()
        text = "\n".join(screen_lines(app))
        assert "The engine was ended by SIGKILL" in text
        assert "Press e to start it again and go on from the last resume point" in " ".join(text.split())
        assert app.state.runs[1].state == "interrupted"
        first = app.engine
        await pilot.press("e")
        await until(lambda: app.state.engine == "ready" and app.state.runs[1].state == "running")
        assert app.engine is not first
        await until(lambda: app.state.runs[1].step > 40)
        assert len(app.state.runs[1].series) > 0
        await pilot.press("q")
        await until(lambda: app.engine is not None and not app.engine.alive)


async def test_an_answer_is_never_taken_after_what_followed_it(session: Session) -> None:
    # The engine answers "pausing" and says "paused" in one breath: both lines are read at once.
    app = PlaygroundApp(session, engine_command=scripted_command("--rate", "0"))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(lambda: app.state.engine == "ready")
        await pilot.press("space")
        await until(lambda: 1 in app.state.runs)
        for _ in range(10):
            await app.ask(Pause, run=1)
            await asyncio.sleep(0.05)
            assert app.state.runs[1].state == "paused"
            await app.ask(Resume, run=1)
            assert app.state.runs[1].state == "running"


async def test_a_key_pressed_before_the_engine_is_ready_is_heeded_and_once(session: Session) -> None:
    slow = "import runpy, sys, time; time.sleep(1.5); del sys.argv[0]; runpy.run_path(sys.argv[0], None, '__main__')"
    command = [sys.executable, "-c", slow, *scripted_command("--rate", "20")[1:]]
    app = PlaygroundApp(session, engine_command=command)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("space", "space", "v")
        assert app.state.engine == "starting"
        assert app.screen.pane == "knobs"  # type: ignore[attr-defined]  # other keys do not wait
        await until(lambda: app.state.runs)
        await asyncio.sleep(0.3)
        assert list(app.state.runs) == [1]


async def test_an_engine_that_cannot_start_is_said(session: Session) -> None:
    app = PlaygroundApp(session, engine_command=[sys.executable, "-c", "raise SystemExit('no torch here')"])
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: app.state.engine == "dead")
        await pilot.pause()
        assert "no torch here" in "\n".join(screen_lines(app))
        await pilot.press("space")
        assert app.state.runs == {}


async def test_it_reopens_as_it_was(tmp_path: Path) -> None:
    with Session.create(tmp_path / "s") as session:
        session.runs.add("sft", config={"steps": 500}, steps=500, state="done")
        rows = [(step, 10 * step, 0.5 * step, {"loss": 2.0 - step / 100}) for step in range(1, 51)]
        session.metrics.append(1, rows)
        session.runs.add("ppo", config={"steps": 150}, steps=150, parent=1, state="running")
        app = DirectApp(session)
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.press("1", "o", "t", "l", "v", "plus")
            app.theme = "playground-light"
            await pilot.press("2", "v", "1")
            app.save_ui()
    with Session.open(tmp_path / "s") as session:
        app = DirectApp(session)
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.pause()
            screen = app.screen
            assert isinstance(screen, TrainScreen)
            assert app.theme == "playground-light"
            assert (screen.method.name, screen.shown, screen.pane) == ("sft", app.state.runs[1], "samples")
            assert screen.options.axis == "completions" and screen.options.smoothing == 0.9
            assert "loss" in screen.options.log
            assert screen.shown.series.latest("loss") == 1.5
            # What the database calls running was cut short.
            assert app.state.runs[2].state == "interrupted"


NONSENSE_SCREEN = {
    "method": 7, "run": "x", "drafts": 3, "axis": "years", "smoothing": "much", "log": {}, "pane": [],
}  # fmt: skip


@pytest.mark.parametrize(
    "nonsense",
    [None, 3, {"screen": "gone", "theme": "gone", "screens": []}, {"screens": {"train": NONSENSE_SCREEN}}],
)
async def test_it_opens_whatever_was_kept(session: Session, nonsense: object) -> None:
    session.set_setting("ui", nonsense)
    app = DirectApp(session)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert isinstance(app.screen, TrainScreen)


async def test_quitting_asks_only_when_something_would_be_lost(session: Session) -> None:
    app = DirectApp(session)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("space")
        assert app.would_be_lost() == []  # a run that trains is saved and can go on
        app.take(Alert(run=1, step=5, kind="not_saved", message="not saved, training goes on: the disk is full"))
        await pilot.pause()
        assert any("Saving failed" in line and "the disk is full" in line for line in screen_lines(app))
        await pilot.press("q")
        await pilot.pause()
        assert isinstance(app.screen, QuitScreen)
        assert any("the disk is full" in line for line in screen_lines(app))
        await pilot.press("escape")
        assert app.return_code is None
        await pilot.press("q", "y")
        await pilot.pause()
    assert app.return_code == 0


async def test_leaving_needs_one_key_when_nothing_is_lost(session: Session) -> None:
    app = DirectApp(session)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("space", "q")
        await pilot.pause()
    assert app.return_code == 0
    assert session.get_setting("ui")["screens"]["train"]["run"] == 1


async def test_a_session_that_is_only_looked_at_gets_no_engine(session: Session) -> None:
    with Session.open(session.folder, read_only=True) as looked_at:
        app = PlaygroundApp(looked_at, engine_command=scripted_command())
        async with app.run_test(size=(120, 40)) as pilot:
            await until(lambda: isinstance(app.screen, TrainScreen))
            await pilot.pause(0.3)
            assert app.engine is None and app.state.engine == "none"
            assert "it can be looked at, not changed" in "\n".join(screen_lines(app))
            await pilot.press("space", "o")
            app.save_ui()
            assert app.state.runs == {}
        assert looked_at.get_setting("ui") is None


async def test_another_session_can_be_shown(session: Session, tmp_path: Path) -> None:
    other = Session.create(tmp_path / "other", title="second thoughts")
    other.runs.add("ppo", config={"steps": 150}, steps=150, state="stopped")
    first = Session.create(tmp_path / "first", title="the first")
    app = DirectApp(first)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("space")
        await app.use_session(other)
        await pilot.pause(0.6)
        text = "\n".join(screen_lines(app))
        assert "second thoughts" in text and "the first" not in text
        assert [run.method for run in app.state.runs.values()] == ["ppo"]
    other.close()
    with Session.open(tmp_path / "first") as again:  # was closed, and kept its screen
        assert again.get_setting("ui")["screen"] == "train"


def hostile_strings(count: int) -> list[str]:
    """Attacks on the terminal and on markup, each a little different."""
    padding = ("", " ", "a", "\n", "[", "\x1b", "日")
    return [
        padding[index % 7] + HOSTILE[index % 12] + padding[(index // 12) % 7] + str(index) for index in range(count)
    ]


@pytest.mark.parametrize("size", [(120, 40), pytest.param((80, 24), marks=pytest.mark.long)])
async def test_one_screens_styles_do_not_reach_another(session: Session, size: tuple[int, int]) -> None:
    """Styles are the whole app's once a screen is loaded: a rule for an id must name its screen."""
    app = DirectApp(session)
    async with app.run_test(size=size) as pilot:

        async def layouts() -> dict[str, list[tuple[object, ...]]]:
            found = {}
            for entry in SCREENS:
                app.show_screen(entry.name)
                await pilot.pause(0.2)
                found[entry.name] = [
                    (type(each).__name__, each.id, each.region, each.styles.text_wrap, each.rich_style.color)
                    for each in app.screen.walk_children()
                ]
            return found

        assert SCREENS[0].name == "train"
        await pilot.pause(0.4)
        alone = [(type(each).__name__, each.id, each.region) for each in app.screen.walk_children()]
        await layouts()  # loads them all
        together = await layouts()
        assert [each[:3] for each in together["train"]] == alone
        assert await layouts() == together


async def test_a_key_saves_a_picture_of_the_screen(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = tmp_path / "here"
    started.mkdir()
    monkeypatch.chdir(started)
    app = DirectApp(session)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause(0.3)
        await pilot.press("f12")
        await until(lambda: any(started.glob("*.svg")))
        started.rename(tmp_path / "gone")
        started.write_text("no folder any more")
        monkeypatch.setattr(Path, "cwd", lambda: started)
        app.action_screenshot("second.svg")
        assert (session.folder.parent / "second.svg").exists()
    (picture,) = (tmp_path / "gone").glob("*.svg")
    drawn = picture.read_text()
    assert drawn.startswith("<svg") and drawn.rstrip().endswith("</svg>")
    assert "first&#160;steps" in drawn and "knobs&#160;of&#160;SFT" in drawn


async def test_a_thousand_hostile_strings_everywhere(session: Session) -> None:
    app = DirectApp(session)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("space")
        await pilot.pause()
        run = app.state.runs[1]
        strip, log = app.screen.query_one(SampleStrip), app.screen.query_one(RunLog)
        chart = app.screen.query(Chart).first()
        strings = hostile_strings(1000)
        for index in range(0, 1000, 8):
            some = strings[index : index + 8]
            texts = [SampleText(prompt=text, text=text[::-1], ended=False, gold_reward=1.0) for text in some]
            app.take(Samples(run=1, step=index, samples=texts, reference=texts))
            app.take(Alert(run=1, step=5, kind="kl_alarm", message=some[0]))
            app.toast(some[1])
            run.title, run.message = some[2], some[3]
            app.state.engine_line = some[4]
            chart.data = chart.feed()
            strip.render()
            log.show(app.state)
            if index % 200 == 0:
                app.screen.show_all()  # type: ignore[attr-defined]
                app.engine_state_changed()
                await pilot.pause()
                text = "\n".join(screen_lines(app))
                assert not [
                    letter for letter in text if letter != "\n" and (ord(letter) < 32 or 127 <= ord(letter) < 160)
                ]
                assert "\u202e" not in text and "\u200b" not in text
        assert app.return_code is None


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_screen_looks_as_it_did(
    session: Session, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    # Pictures of this screen, not of how many others and how many methods there are.
    monkeypatch.setattr(title_bar, "SCREENS", title_bar.SCREENS[:1])
    monkeypatch.setattr(pipeline, "METHODS", {name: pipeline.METHODS[name] for name in ("sft", "rm", "ppo", "dpo")})
    app = DirectApp(session, hold=500)
    async with app.run_test(size=size) as pilot:
        app.theme = "playground-dark"
        await pilot.press("space")
        app.script.hold = 90
        await pilot.press("3", "space", "p")
        await pilot.pause()
        app.clear_notifications()
        for chart in app.screen.query(Chart):
            chart.redraw()
        await pilot.pause()
        text = "\n".join(screen_lines(app)) + "\n"
    stored = SNAPSHOTS / f"train-{size[0]}x{size[1]}.txt"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        stored.parent.mkdir(exist_ok=True)
        stored.write_text(text, encoding="utf-8")
    assert text == stored.read_text(encoding="utf-8"), "if this is meant: UPDATE_SNAPSHOTS=1 pytest, then look at it"
