"""The engine with the fake trainer; it kills itself at its n-th write once asked to save: ``dying_engine.py N``.

Writes are what changes the disk: opening, fsync, rename, unlink, mkdir, and every SQL statement.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from fake_trainer import main

from core.engine.workspace import Workspace

left = int(sys.argv[1])
armed = False


def tick(*_: object) -> None:
    global left
    if armed:
        left -= 1
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)


def counting(function: Any) -> Any:
    def call(*arguments: Any, **keywords: Any) -> Any:
        tick()
        return function(*arguments, **keywords)

    return call


save = Workspace.save


def armed_save(self: Workspace, command: Any) -> Any:
    global armed
    armed = True
    self.session._database._connection.set_trace_callback(tick)
    return save(self, command)


Workspace.save = armed_save  # type: ignore[method-assign]
for owner, name in [(os, "open"), (os, "fsync"), (os, "mkdir"), (Path, "rename"), (Path, "unlink"), (Path, "mkdir")]:
    setattr(owner, name, counting(getattr(owner, name)))

if __name__ == "__main__":
    main()
