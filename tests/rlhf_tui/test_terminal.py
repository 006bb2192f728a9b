"""The app in a real pseudo-terminal: its first frame, the bytes it writes, and how it bears signals."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pseudo_terminal import Terminal, app_command
from scripted_engine import HOSTILE

from core.store import Session

# What Textual itself writes: colours, cursor moves, modes, questions to the terminal, the shape of the mouse pointer.
OWN_SEQUENCES = re.compile(
    rb"\x1b(\[[0-9;:?<>=]*[ -/]*[A-Za-z]|\[\?[0-9;]*\$p|[=>78]|P[^\x1b]*\x1b\\|_G[^\x1b]*\x1b\\|\]22;[a-z-]*\x07)"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "s"


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    made: list[Terminal] = []
    yield made
    for terminal in made:
        terminal.close()


def children_of(pid: int) -> list[int]:
    found = subprocess.run(["ps", "--ppid", str(pid), "-o", "pid="], capture_output=True, text=True, check=False)
    return [int(each) for each in found.stdout.split()]


def gone(pids: list[int], timeout: float = 10.0) -> bool:
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        if not any(Path(f"/proc/{pid}").exists() for pid in pids):
            return True
        time.sleep(0.05)
    return False


def started(terminals: list[Terminal], folder: Path, *options: str, **more: object) -> Terminal:
    terminal = Terminal(app_command(folder, *options), **more)  # type: ignore[arg-type]
    terminals.append(terminal)
    terminal.wait_for("Press space to start SFT", "● cpu")
    return terminal


def test_no_control_byte_of_a_text_reaches_the_terminal(terminals: list[Terminal], folder: Path) -> None:
    terminal = started(terminals, folder, "--hostile", "--rate", "100")
    terminal.send(" ")
    terminal.wait_for("␛]0;owned␇", "a [/ b")
    terminal.read(0.5)
    terminal.send("q")
    assert terminal.ended() == 0
    data = bytes(terminal.bytes)
    for attack in HOSTILE:
        if any(ord(letter) < 32 or 127 <= ord(letter) < 160 or letter in "\u202e\u200b" for letter in attack):
            assert attack.encode() not in data
    # Beside the sequences that the app itself writes there is no control byte at all.
    rest = OWN_SEQUENCES.sub(b"", data).decode(errors="replace")
    assert {letter for letter in rest if ord(letter) < 32 or 127 <= ord(letter) < 160} <= {"\r", "\n"}


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.long)])
def test_signals_save_end_the_engine_and_leave_the_terminal_sane(
    terminals: list[Terminal], folder: Path, number: signal.Signals
) -> None:
    terminal = started(terminals, folder, "--rate", "20")
    terminal.send(" ")
    terminal.wait_for("SFT #1 is learning")
    engine = children_of(terminal.pid)
    assert engine
    os.kill(terminal.pid, number)
    assert terminal.ended() == 128 + number
    assert gone(engine)
    assert b"\x1b[?1049l" in terminal.bytes and b"\x1b[?25h" in terminal.bytes
    with Session.open(folder) as session:
        assert session.get_setting("ui")["screens"]["train"]["run"] == 1


def test_a_closed_terminal_ends_app_and_engine(terminals: list[Terminal], folder: Path) -> None:
    terminal = started(terminals, folder, "--rate", "20")
    terminal.send(" ")
    terminal.wait_for("SFT #1 is learning")
    everyone = [terminal.pid, *children_of(terminal.pid)]
    terminal.hang_up()
    end = time.monotonic() + 15
    while time.monotonic() < end:
        pid, _ = os.waitpid(terminal.pid, os.WNOHANG)
        if pid:
            terminal.status = 0
            break
        time.sleep(0.05)
    assert gone(everyone)
    with Session.open(folder) as session:  # the lock is free and the state was kept
        assert session.get_setting("ui")["screens"]["train"]["run"] == 1


def test_keys_typed_before_the_first_frame_are_heeded(terminals: list[Terminal], folder: Path) -> None:
    terminal = Terminal(app_command(folder, "--rate", "20"))
    terminals.append(terminal)
    terminal.send(" ")
    terminal.wait_for("SFT #1 is learning")
    terminal.send("q")
    assert terminal.ended() == 0


def test_ctrl_c_and_ctrl_q_leave_too(terminals: list[Terminal], folder: Path) -> None:
    terminal = started(terminals, folder, "--rate", "20")
    terminal.send("\x03")
    assert terminal.ended() == 0


def test_ctrl_z_stops_the_app_alone_and_it_comes_back(terminals: list[Terminal], folder: Path) -> None:
    terminal = started(terminals, folder, "--rate", "20")
    terminal.send(" ")
    terminal.wait_for("SFT #1 is learning")
    terminal.send("\x1a")
    end = time.monotonic() + 10
    state = ""
    while state != "T" and time.monotonic() < end:
        terminal.read(0.05)
        state = Path(f"/proc/{terminal.pid}/stat").read_text().rpartition(")")[2].split()[0]
    assert state == "T"
    assert all(Path(f"/proc/{pid}").exists() for pid in children_of(terminal.pid))
    terminal.screen.reset()
    os.kill(terminal.pid, signal.SIGCONT)
    terminal.wait_for("SFT #1 is learning")
    terminal.send("q")
    assert terminal.ended() == 0


def test_resizing_while_it_trains_loses_no_pane(terminals: list[Terminal], folder: Path) -> None:
    terminal = started(terminals, folder, "--rate", "60", columns=200, rows=60)
    terminal.send(" ")
    for columns, rows in ((200, 60), (120, 40), (80, 24), (20, 5), (80, 24), (200, 60)):
        terminal.resize(columns, rows)
        os.kill(terminal.pid, signal.SIGWINCH)
        terminal.read(0.3)
    terminal.wait_for("knobs of SFT", "samples", "log", "loss", "entropy")
    terminal.send("q")
    assert terminal.ended() == 0


TABS = (
    ("Train", "knobs of"), ("Label", "A≫B"), ("Compare", "averages"), ("Frontier", "is possible"), ("Sessions", "used"),
)  # fmt: skip


def walk_the_screens(terminal: Terminal) -> None:
    """Every screen says its name and what it is about, by words and marks; then a new session is looked at."""
    terminal.send(" ")
    terminal.wait_for("SFT #1 is learning")
    for tab, word in TABS:
        terminal.wait_for(word)
        assert emphasised(terminal).strip() == tab
        terminal.send("]" if tab != "Sessions" else "")
    terminal.wait_for("● first steps", "last used", "runs  1")
    terminal.send("n")
    terminal.wait_for("New session", "seed", "237,214 weights")
    terminal.send("\x1b")
    terminal.read(0.3)
    terminal.send("q")
    assert terminal.ended() == 0


def emphasised(terminal: Terminal) -> str:
    """The first line of the screen, where the open tab must stand out without its colour."""
    line = terminal.screen.buffer[0]
    return "".join(line[at].data if line[at].reverse or line[at].bold else " " for at in range(terminal.screen.columns))


def test_sixteen_colours_are_enough_for_every_screen(terminals: list[Terminal], folder: Path) -> None:
    terminal = started(terminals, folder, "--rate", "60", TERM="xterm", COLORTERM="")
    walk_the_screens(terminal)
    assert not re.search(rb"\x1b\[[0-9;]*[34]8;[25];", bytes(terminal.bytes)), "a colour that the terminal lacks"
    assert re.search(rb"\x1b\[[0-9;]*(3[1-7]|9[1-7])[;m]", bytes(terminal.bytes))


def test_every_screen_is_clear_without_colours(terminals: list[Terminal], folder: Path) -> None:
    terminal = started(terminals, folder, "--rate", "60", NO_COLOR="1")
    walk_the_screens(terminal)
    colours = re.findall(rb"[34]8;2;(\d+);(\d+);(\d+)", bytes(terminal.bytes))
    assert all(red == green == blue for red, green, blue in colours)
    assert not re.search(rb"\x1b\[[0-9;]*[34]8;5;", bytes(terminal.bytes))
