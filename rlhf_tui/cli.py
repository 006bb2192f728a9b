"""``rlhf-tui``: the app without arguments, and every command."""

import sys
from collections.abc import Sequence

from core.config import ConfigError
from core.store.errors import StoreError
from core.tasks.base import TaskError
from rlhf_tui.commands import bench, doctor, evaluate, frontier, keys, labels, sample, sessions, tasks, train
from rlhf_tui.commands import open as open_app
from rlhf_tui.commands.arguments import FAILED, INTERRUPTED, SHARED, CommandError, Parser, fail, unknown_arguments
from rlhf_tui.commands.version import version_line

COMMANDS = (open_app, train, sample, evaluate, frontier, labels, tasks, sessions, bench, doctor, keys)


def build_parser() -> Parser:
    """The parser of the whole command line."""
    parser = Parser(
        prog="rlhf-tui",
        description="A playground for RLHF in the terminal: watch a small language model learn from preferences.",
        epilog="Without a command, the app opens on the last session.",
    )
    parser.add_argument("--version", action="version", version=version_line())
    open_app.add_options(parser)
    parser.set_defaults(run=open_app.run, parser=parser, name=None, **SHARED)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    for command in COMMANDS:
        command.configure(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status: 0 done, 1 failed with one line on stderr, 2 wrong usage, 130 interrupted."""
    args, extra = build_parser().parse_known_args(argv)
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
