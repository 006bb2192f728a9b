"""Makes an engine kill itself at its n-th write after a command of some kind has reached it.

Writes are what changes the disk: opening, fsync, rename, link, unlink, mkdir, and every SQL statement.
"""

import os
import signal
from pathlib import Path
from typing import Any

from core.engine.workspace import Workspace


def die_at(command: str, write: int) -> None:
    """Arm this process: ``command`` is a method of the workspace (save, start, fork …)."""
    left, armed = write, False

    def tick(*_: object) -> None:
        nonlocal left
        left -= armed
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def counting(function: Any) -> Any:
        def call(*arguments: Any, **keywords: Any) -> Any:
            tick()
            return function(*arguments, **keywords)

        return call

    original = getattr(Workspace, command)

    def arming(self: Workspace, *arguments: Any) -> Any:
        nonlocal armed
        if not armed:
            armed = True
            self.session._database._connection.set_trace_callback(tick)
        return original(self, *arguments)

    setattr(Workspace, command, arming)
    for owner, name in [
        (os, "open"), (os, "fsync"), (os, "mkdir"), (os, "link"), (os, "unlink"),
        (Path, "rename"), (Path, "unlink"), (Path, "mkdir"), (Path, "rmdir"),
    ]:  # fmt: skip
        setattr(owner, name, counting(getattr(owner, name)))
