"""``rlhf-tui open NAME``, and ``rlhf-tui`` alone: the app."""

import argparse
import sys
from pathlib import Path
from typing import Any

from core.store import Session, SessionLockedError
from core.store.locations import create_session, duplicate_session, find_session, last_session, saves_folder
from rlhf_tui.commands.arguments import CommandError, Parser, add_shared, whole

NEW = "playground"


def configure(commands: Any) -> None:
    about = "open a session in the app"
    parser: Parser = commands.add_parser("open", help=about, description=about)
    parser.add_argument("name", metavar="NAME", nargs="?", help="folder name or title (default: the last one)")
    add_options(parser)
    parser.set_defaults(run=run, parser=parser)


def add_options(parser: Parser) -> None:
    """What the app takes, with ``open`` and without."""
    parser.add_argument("--seed", type=whole(-(2**62), 2**62), default=42, metavar="N", help="seed of a new session")
    parser.add_argument("--read-only", action="store_true", help="look at a session that someone else has open")
    add_shared(parser)


def run(args: argparse.Namespace) -> int:
    """Open the session that is asked for, the last one, or a new one, and show the app."""
    saves = saves_folder(args.saves)
    if args.name:
        session = _open(find_session(saves, args.name), args.read_only)
    else:
        last = last_session(saves)
        session = _open(last, args.read_only) if last else create_session(saves, NEW, seed=args.seed)
    with session:
        from rlhf_tui.app import run as run_app

        return run_app(session, device=args.device, threads=args.threads)


def _open(folder: Path, read_only: bool) -> Session:
    try:
        return Session.open(folder, read_only=read_only)
    except SessionLockedError as error:
        if sys.stdin.isatty() and sys.stdout.isatty():
            return _ask(folder, error)
        raise CommandError(
            f"{error} (rlhf-tui open {folder.name} --read-only, or rlhf-tui sessions duplicate {folder.name})"
        ) from error


def _ask(folder: Path, error: SessionLockedError) -> Session:
    """Let the person choose between looking, a copy, and neither."""
    print(error)
    answer = input("l: look at it read-only   c: open a copy   anything else: leave it  > ").strip().lower()
    if answer == "l":
        return Session.open(folder, read_only=True)
    if answer == "c":
        return Session.open(duplicate_session(folder))
    raise CommandError("left as it is") from error
