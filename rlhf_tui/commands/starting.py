"""What a run starts from when it is not what the session has newest: another run, a step of it, its very pairs."""

import argparse
from pathlib import Path
from typing import Any

from core.methods.base import Method
from core.methods.table import method_title
from core.store import Session
from rlhf_tui.commands.arguments import WRONG_USAGE, CommandError, Parser, whole

MOST = 2**31


def configure(parser: Parser, method: Method, learns_from_pairs: bool) -> None:
    """Add the flags that a copied command (see :mod:`rlhf_tui.run_tree`) names its start with."""
    group = parser.add_argument_group("start", "runs of the session, as 'rlhf-tui sessions show' numbers them")

    def run(flag: str, about: str) -> None:
        group.add_argument(flag, type=whole(1, MOST), metavar="RUN", help=about)

    run("--parent", f"run to start from (default: the newest finished {method.starts_from or 'one that is forked'})")
    group.add_argument(
        "--parent-step", type=whole(0, MOST), metavar="STEP", help="step of the parent (default: its last one)"
    )
    group.add_argument(
        "--fork", action="store_true",
        help="go on where the parent stood, with its optimizer and its reference, under these knobs",
    )  # fmt: skip
    run("--reward-run", "reward model that scores, where one is asked (default: the newest finished one)")
    if learns_from_pairs:
        run("--pairs-of", "run whose labels and file of pairs are learned from again, as they were then")


def check_words(args: argparse.Namespace) -> None:
    """Refuse flags that mean nothing together. Raises CommandError."""
    if args.parent is None and (args.fork or args.parent_step is not None):
        flag = "--fork" if args.fork else "--parent-step"
        raise CommandError(f"{flag} needs --parent RUN", WRONG_USAGE)
    if chosen(args) and not args.session:
        raise CommandError("runs to start from are those of a session; name it with --session", WRONG_USAGE)
    if args.resume and chosen(args):
        raise CommandError("--resume goes on with a run; it takes no other start", WRONG_USAGE)


def chosen(args: argparse.Namespace) -> dict[str, Any]:
    """Which runs ``args`` name, by the field of the engine's ``Start``."""
    names = ("parent", "parent_step", "reward_run", "pairs_of")
    return {name: value for name in names if (value := getattr(args, name, None)) is not None}


def check_runs(args: argparse.Namespace, folder: Path) -> None:
    """Refuse runs that are not there, or a step that the parent did not keep. Raises CommandError or StoreError."""
    named = chosen(args)
    with Session.open(folder, read_only=True) as session:
        for run in (named[name] for name in ("parent", "reward_run", "pairs_of") if name in named):
            session.runs.get(run)
        if args.parent is None:
            return
        parent = session.runs.get(args.parent)
        if args.fork and parent.method != args.method:
            raise CommandError(f"run {parent.id} is {method_title(parent.method)}; a fork is of the same method")
        if args.parent_step is None:
            return
        kept = {each.step for each in session.checkpoints.list(parent.id, "snapshot")}
        if args.fork:
            kept |= {each.step for each in session.checkpoints.list(parent.id, "resume")}
        if args.parent_step not in kept:
            near = sorted(kept, key=lambda step: abs(step - args.parent_step))[:3]
            some = f"; near it are {', '.join(map(str, sorted(near)))}" if near else ""
            raise CommandError(f"run {parent.id} kept no weights of step {args.parent_step}{some}")
