"""``rlhf-tui``: the app without arguments, and every command."""

import argparse
import gc
import importlib
import sys
from collections.abc import Sequence
from typing import Any

from core.config import ConfigError
from core.store.errors import StoreError
from core.tasks.base import TaskError
from rlhf_tui.commands import open as open_app
from rlhf_tui.commands.arguments import FAILED, INTERRUPTED, SHARED, CommandError, Parser, fail, unknown_arguments

APP = "open"
COMMANDS = (
    APP, "train", "sample", "evaluate", "frontier", "labels", "tasks", "sessions", "bench", "doctor", "keys",
)  # fmt: skip
"""Modules of ``rlhf_tui.commands``, each a command of that name."""


def build_parser(names: Sequence[str] = COMMANDS) -> Parser:
    """The parser of the whole command line, or of the commands in ``names`` alone."""
    parser = Parser(
        prog="rlhf-tui",
        description="A playground for RLHF in the terminal: watch a small language model learn from preferences.",
        epilog="Without a command, the app opens on the last session.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="say which version this is, and leave")
    open_app.add_options(parser)
    parser.set_defaults(run=open_app.run, parser=parser, name=None, **SHARED)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    for name in names:
        importlib.import_module(f"rlhf_tui.commands.{name}").configure(commands)
    return parser


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from rlhf_tui.commands.version import version_line

        print(version_line())
        parser.exit()


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status: 0 done, 1 failed with one line on stderr, 2 wrong usage, 130 interrupted."""
    words = sys.argv[1:] if argv is None else argv
    opens_app = not words or words[0] == APP
    if opens_app:
        gc.disable()  # nothing to collect yet; the app turns it on when it has settled
    args, extra = build_parser([APP] if opens_app else COMMANDS).parse_known_args(words)
    if extra:
        unknown_arguments(extra, args.parser)
    try:
        return int(args.run(args))
    except CommandError as error:
        fail(str(error), error.status)
    except (StoreError, ConfigError, TaskError) as error:
        fail(str(error), FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output is gone; flushing once more at exit would complain again.
        sys.stdout = None
        return FAILED


if __name__ == "__main__":
    sys.exit(main())
