"""``python -P -m core.engine``: commands on stdin, events on stdout, everything else to the log."""

import faulthandler
import io
import os
import sys
from typing import cast


def main() -> None:
    """Take the pipes for ourselves before anything else can write into them, then load torch and serve."""
    commands, events = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    faulthandler.enable()
    # A line at a time, so that the log keeps the order in which things happened.
    cast(io.TextIOWrapper, sys.stdout).reconfigure(line_buffering=True)

    from core.engine.server import serve

    serve(commands, events)
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads still blocked on a stuck reader must not keep the process alive.
    os._exit(0)


if __name__ == "__main__":
    main()
