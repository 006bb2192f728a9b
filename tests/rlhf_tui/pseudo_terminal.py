"""A real pseudo-terminal: a program runs in it as on a person's screen, pyte plays the terminal, every byte is kept."""

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from pathlib import Path

import pyte

ROOT = Path(__file__).resolve().parents[2]


NOT_PASSED_ON = ("NO_COLOR", "COLORTERM", "COLUMNS", "LINES")  # a size in the environment would hide the real one


class Terminal:
    def __init__(self, command: list[str], columns: int = 120, rows: int = 40, **environment: str) -> None:
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self._played = 0  # how many of the bytes the screen has seen
        self.bytes = bytearray()
        self.status: int | None = None
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            kept = {name: value for name, value in os.environ.items() if name not in NOT_PASSED_ON}
            ours = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
            os.execvpe(command[0], command, {**kept, **ours, **environment})
        self.resize(columns, rows)

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.screen.resize(rows, columns)

    @property
    def screen(self) -> pyte.Screen:
        """What stands on it now. Played when it is looked at: that takes longer than the program took to write it."""
        self._stream.feed(bytes(self.bytes[self._played :]))
        self._played = len(self.bytes)
        return self._screen

    def skip(self) -> None:
        """Do not play what has come since the screen was last looked at; whoever skips has the program draw anew."""
        self._played = len(self.bytes)

    def send(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def read(self, seconds: float) -> bytes:
        """What comes within ``seconds``."""
        end = time.monotonic() + seconds
        new = bytearray()
        while (left := end - time.monotonic()) > 0 and select.select([self._fd], [], [], left)[0]:
            try:
                chunk = os.read(self._fd, 65_536)
            except OSError:
                break
            if not chunk:
                break
            new += chunk
        self.bytes += new
        return bytes(new)

    def next_bytes(self, timeout: float) -> bytes:
        """What comes first, as soon as it has come; b"" when nothing does."""
        if not self.answered(timeout):
            return b""
        chunk = os.read(self._fd, 65_536)
        self.bytes += chunk
        return chunk

    def answered(self, timeout: float) -> bool:
        """Wait for the first byte that comes, and leave it there to be read."""
        return bool(select.select([self._fd], [], [], timeout)[0])

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.screen.display)

    def wait_for(self, *texts: str, timeout: float = 20.0) -> float:
        """Seconds until every text stands on the screen."""
        start = time.monotonic()
        while not all(text in self.text for text in texts):
            if time.monotonic() - start > timeout:
                raise AssertionError(f"{texts} did not come in {timeout} s; the screen was\n{self.text}")
            self.read(0.02)
        return time.monotonic() - start

    def ended(self, timeout: float = 15.0) -> int:
        """The exit status, 128 + n after signal n."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            self.read(0.02)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
                return self.status if self.status >= 0 else 128 - self.status
        raise AssertionError(f"still running after {timeout} s; the screen was\n{self.text}")

    def hang_up(self) -> None:
        """Close the terminal: the program gets SIGHUP and can write no more."""
        os.close(self._fd)
        self._fd = -1

    def close(self) -> None:
        if self.status is None:
            try:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
            except (ProcessLookupError, ChildProcessError):
                pass
        if self._fd >= 0:
            os.close(self._fd)


def app_command(folder: Path, *options: str, scripted: bool = True) -> list[str]:
    """The app on the session in ``folder``, run by this Python: with a scripted engine, which gets the options (the
    session is made if need be), or as the command line opens it, with the real engine."""
    if scripted:
        return [sys.executable, str(Path(__file__).with_name("run_app.py")), str(folder), *options]
    opened = ["open", folder.name, "--saves", str(folder.parent), "--device", "cpu"]
    return [sys.executable, "-m", "rlhf_tui.cli", *opened, *options]
