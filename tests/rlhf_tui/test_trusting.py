"""A session that names a function: the app asks, the command line allows and lists, neither runs it by itself."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from app_helpers import DirectApp, screen_lines

from core.store import Session
from core.tasks.table import CONTENT, task_content
from core.trust import is_trusted, trust, trusted
from rlhf_tui import cli
from rlhf_tui.screens.choose import ChooseScreen
from rlhf_tui.tasks import code_to_allow, task_of
from rlhf_tui.widgets.line_list import LineList

GOLD = "trap_rules:gold"


@pytest.fixture
def sprung(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the module leaves a file when it is imported."""
    sprung = tmp_path / "sprung"
    (tmp_path / "trap_rules.py").write_text(
        f"open({str(sprung)!r}, 'w').close()\n\ndef gold(prompt, completion):\n    return 1.0\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "trap_rules", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return sprung


@pytest.fixture
def data(tmp_path: Path) -> Path:
    file = tmp_path / "d.txt"
    file.write_text("hi\thello\nbye\tsee you\nhey\thi\n")
    return file


@pytest.fixture
def saves(tmp_path: Path, sprung: Path, data: Path) -> Path:
    """A session of one's own, and one that names a function."""
    saves = tmp_path / "saves"
    Session.create(saves / "mine", title="mine").close()
    with Session.create(saves / "theirs", title="theirs", task="custom", seed=3) as session:
        content = task_content("custom", {"demonstrations": str(data)})
        session.set_setting(CONTENT, {**content, "gold": GOLD})
        session.runs.add("trap_rules:METHOD", title="a method of theirs", config={"steps": 3}, state="done")
    return saves


@pytest.fixture
def app(saves: Path) -> Iterator[DirectApp]:
    app = DirectApp(Session.open(saves / "mine"), screen="sessions")
    yield app
    app.session.close()


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_opening_it_asks_and_goes_on_without_by_default(
    app: DirectApp, saves: Path, sprung: Path, size: tuple[int, int]
) -> None:
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        await app.open_session(saves / "theirs")
        await pilot.pause()
        assert isinstance(app.screen, ChooseScreen)
        text = re.sub(r"[│\s]+", " ", " ".join(screen_lines(app)))
        assert f"Its gold reward is {GOLD}, Python code on this machine." in text
        await pilot.press("enter")
        for name in ("train", "label", "sessions"):
            app.show_screen(name)
            await pilot.pause()
        assert not any(name == "Open" for name, _ in app.asked)
        assert task_of(app.session).gold is None and len(task_of(app.session).demonstrations) > 0
        assert code_to_allow(app.session) == GOLD
    assert not sprung.exists() and not is_trusted(GOLD)


async def test_it_is_asked_on_the_screen_that_opening_leads_to(app: DirectApp, saves: Path, sprung: Path) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        for _ in range(100):
            await pilot.pause(0.02)
            if len(app.screen.query_one("#list", LineList).rows) == 2:
                break
        keys = [row.key.name for row in app.screen.query_one("#list", LineList).rows]
        app.screen.query_one("#list", LineList).go_to(keys.index("theirs"))
        await pilot.press("enter")
        for _ in range(100):
            await pilot.pause(0.02)
            if isinstance(app.screen, ChooseScreen):
                break
        assert isinstance(app.screen, ChooseScreen) and app.current_mode == "train"
    assert not sprung.exists()


async def test_allowing_it_opens_the_session_anew_in_the_engine_and_asks_no_more(
    app: DirectApp, saves: Path, sprung: Path
) -> None:
    async with app.run_test(size=(120, 40)) as pilot:
        await app.open_session(saves / "theirs")
        await pilot.pause()
        await pilot.press("down", "enter")
        await pilot.pause()
        assert app.last("Open") == {"folder": str(saves / "theirs")}
        assert is_trusted(GOLD)
        await app.open_session(saves / "mine")
        await app.open_session(saves / "theirs")
        await pilot.pause()
        assert not isinstance(app.screen, ChooseScreen)
        assert task_of(app.session).gold is not None
    assert not sprung.exists()  # in this process; the engine imports it


async def test_what_is_typed_into_the_form_of_a_new_session_is_allowed(app: DirectApp, data: Path) -> None:
    from rlhf_tui.screens.new_session import NewSessionScreen
    from rlhf_tui.widgets.knob_form import KnobForm

    async with app.run_test(size=(120, 40)) as pilot:
        app.show_screen("sessions")
        await pilot.press("n")
        assert isinstance(app.screen, NewSessionScreen)
        form = app.screen.query_one(KnobForm)
        for name, value in (("task", "custom"), ("demonstrations", str(data)), ("gold", GOLD)):
            form.post_message(KnobForm.Turned(name, value))
            await pilot.pause()
        await app.screen.workers.wait_for_complete()
        assert trusted() == (GOLD,)


def test_the_command_line_allows_lists_and_revokes(sprung: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*words: str) -> str:
        assert cli.main(["sessions", *words]) == 0
        return capsys.readouterr().out

    assert said("trust") == "no function of your own is allowed yet\n"
    assert said("trust", GOLD) == f"sessions on this machine may use {GOLD}\n"
    assert said("trust") == f"{GOLD}\n"
    assert said("trust", GOLD, "--revoke") == f"{GOLD} is not allowed any more\n"
    for words in (("trust", GOLD, "--revoke"), ("trust", "--revoke"), ("trust", "trap_rules")):
        with pytest.raises(SystemExit) as end:
            cli.main(["sessions", *words])
        assert end.value.code in (1, 2)
        assert capsys.readouterr().err.count("\n") == 1
    assert trusted() == () and not sprung.exists()


def test_a_session_with_a_method_of_theirs_is_shown_without_it(
    saves: Path, sprung: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["--saves", str(saves), "sessions", "show", "theirs", "--commands"]) == 0
    assert "a method of theirs (trap_rules:METHOD): done" in capsys.readouterr().out
    assert cli.main(["--saves", str(saves), "sessions"]) == 0
    assert not sprung.exists()


def test_what_is_named_on_the_command_line_is_allowed_and_a_task_file_names_nothing(
    saves: Path, sprung: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rlhf_tui.commands import train

    class EnoughError(Exception):
        pass

    def enough(*_: object, **__: object) -> None:
        raise EnoughError

    monkeypatch.setattr(train, "Workshop", enough)

    def command(*words: str) -> None:
        with pytest.raises(EnoughError):
            cli.main(["--saves", str(saves), "train", *words])

    toml = data.with_name("task.toml")
    toml.write_text(f'demonstrations = "d.txt"\ngold = "{GOLD}"\n')
    command("sft", "--task", "custom", "--task-options", f"file={toml}")
    assert trusted() == ()
    command("sft", "--task", "custom", "--task-options", f"demonstrations={data} gold={GOLD}")
    command("custom", "--function", "trap_rules:advantages")
    command("dpo", "--config", "custom_loss=trap_rules:loss")
    command("all", "--set", "dpo.custom_loss=trap_rules:other_loss")
    assert trusted() == ("trap_rules:advantages", GOLD, "trap_rules:loss", "trap_rules:other_loss")
    assert not sprung.exists()


def test_a_method_that_is_not_to_be_had_is_not_remembered(sprung: Path) -> None:
    for name, kept in (("trap_rules:METHOD", False), ("trap_rules:gold", True)):
        if kept:
            trust(name)
        with pytest.raises(SystemExit):
            cli.main(["train", name])
        assert is_trusted(name) is kept
