"""``rlhf-tui tasks``: what a model can be asked to do, with the options of each task."""

import argparse
from typing import Any

from core.tasks.table import listing
from rlhf_tui.commands.arguments import Parser


def configure(commands: Any) -> None:
    about = "list the tasks and their options"
    parser: Parser = commands.add_parser("tasks", help=about, description=about)
    parser.set_defaults(run=run, parser=parser)


def run(args: argparse.Namespace) -> int:
    print("\n".join(listing()))
    return 0
