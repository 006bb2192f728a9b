"""``rlhf-tui keys``: the file that remaps keys, with every action in it."""

import argparse
import sys
from typing import Any

from rlhf_tui.commands.arguments import FAILED, Parser


def configure(commands: Any) -> None:
    about = "print a file to remap keys with"
    parser: Parser = commands.add_parser("keys", help=about, description=about)
    parser.add_argument("--check", action="store_true", help="say what is wrong with the file that is there")
    parser.set_defaults(run=run, parser=parser)


def run(args: argparse.Namespace) -> int:
    """Print every action with its keys, or check the person's own file."""
    from rlhf_tui.keymap import documented, keys_file, read_keys

    path = keys_file()
    if not args.check:
        print(documented(path), end="")
        return 0
    keys = read_keys(path)
    for problem in keys.problems:
        print(problem, file=sys.stderr)
    if not keys.problems:
        print(f"{path} is fine" if path.exists() else f"there is no {path}: all keys are as they come")
    return FAILED if keys.problems else 0
