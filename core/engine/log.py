"""Where prints and tracebacks go: never into the events, and never in the way of training."""

import io
import os
import sys
from pathlib import Path


class Log(io.TextIOBase):
    """Text to a file descriptor, at once; what a full disk refuses is lost, for a log is worth less than a run."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        data = text.encode(errors="backslashreplace")
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError:
            pass
        return len(text)


def keep_output() -> None:
    """Let Python's own stdout and stderr be logs."""
    sys.stdout, sys.stderr = Log(1), Log(2)


def log_to(path: Path, limit: int = 1 << 20) -> int | None:
    """Send what is written to stdout and stderr, by Python or by a library, to ``path``, which starts anew at 1 MiB.

    Returns where it went before, for :func:`log_back`; None when there can be no log there.
    """
    try:
        mode = os.O_TRUNC if path.exists() and path.stat().st_size > limit else os.O_APPEND
        log = os.open(path, os.O_WRONLY | os.O_CREAT | mode, 0o644)
    except OSError as error:
        print(f"no log in {path}: {error}", file=sys.stderr, flush=True)
        return None
    before = os.dup(2)
    log_back(log)
    return before


def log_back(before: int) -> None:
    """Log to the descriptor ``before`` again, and let go of the file that was the log."""
    for descriptor in (1, 2):
        os.dup2(before, descriptor)
    os.close(before)
