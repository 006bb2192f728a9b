"""``python -P -m core.engine``: commands on stdin, events on stdout, everything else to the log."""

import faulthandler
import os
import sys

from core.engine.log import keep_output


def main() -> None:
    """Take the pipes for ourselves before anything else can write into them, then load torch and serve."""
    commands, events = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    faulthandler.enable()
    keep_output()

    from core.engine.server import serve

    serve(commands, events)
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads still blocked on a stuck reader must not keep the process alive.
    os._exit(0)


if __name__ == "__main__":
    main()
