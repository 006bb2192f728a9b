"""The session that a command trains in: one that is there, or a new one with a task and a backbone of its own."""

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any

from core.config import Config, ConfigError, Knob, find_knob, knobs
from core.models.config import BACKBONE_TEXT, ContextError, parse_backbone
from core.new_session import make_session, plan_session
from core.preferences.formats.files import FileRefusedError
from core.store import Session
from core.tasks.custom_files import CustomOptions
from core.tasks.table import find_task
from rlhf_tui.commands.arguments import WRONG_USAGE, CommandError, Parser, typed, whole

CUSTOM = "custom"
FLAGS = {
    "file": "--task-file", "demonstrations": "--demonstrations", "prompts": "--prompts",
    "held_out_prompts": "--held-out-prompts", "pairs": "--pairs", "gold": "--gold",
}  # fmt: skip
"""Options of the task ``custom`` that have a flag of their own."""
PAIRS = "So does --pairs FILE: it takes a file of preferences beside the choices below."


class PairsOrFile(argparse.Action):
    """``--pairs`` of a method that has such a knob: a value of the knob, else a file of a new session's task."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: Any = None) -> None:
        knob: Knob = self.const
        try:
            setattr(namespace, self.dest, knob.check(values))
        except ConfigError as error:
            if not Path(values).suffix and not Path(values).exists():
                raise argparse.ArgumentError(None, str(error)) from None
            namespace.task_pairs = values


def configure(parser: Parser, config: type[Config] | None = None) -> dict[str, type[argparse.Action]]:
    """Add what says what a new session is like; for a method, how its own flags share names with that."""
    group = parser.add_argument_group("new session")
    group.add_argument("--task", metavar="TASK", help="its task (default words); rlhf-tui tasks lists them")
    group.add_argument(
        "--task-options", metavar="TEXT", default="", help="options of the task: 'digits=2 wrong_share=0.5'"
    )
    group.add_argument(
        "--backbone", metavar="TEXT", default="",
        help=f"its model: {BACKBONE_TEXT}",
    )  # fmt: skip
    group.add_argument("--seed", type=whole(-(2**62), 2**62), metavar="N", help="seed of the session and its runs")
    shared = {each.name for each in knobs(config)} & FLAGS.keys() if config is not None else set()
    own = parser.add_argument_group(
        "new session on data of your own", "Each means --task custom." + (f" {PAIRS}" if "pairs" in shared else "")
    )
    for name in (each for each in FLAGS if each not in shared):
        what = "MODULE:FUNCTION" if name == "gold" else "FILE.toml" if name == "file" else "FILE"
        about = find_knob(CustomOptions, name).help.replace("%", "%%")
        own.add_argument(FLAGS[name], dest=f"task_{name}", metavar=what, help=about, default=argparse.SUPPRESS)
    return {"pairs": PairsOrFile} if "pairs" in shared else {}


def data_flags(args: argparse.Namespace) -> dict[str, str]:
    """The options of ``custom`` that were given as flags."""
    return {name: value for name in FLAGS if (value := getattr(args, f"task_{name}", None)) is not None}


def check_words(args: argparse.Namespace) -> None:
    """Refuse flags that contradict one another. Raises CommandError."""
    given = data_flags(args)
    if given and args.task not in (None, CUSTOM):
        raise CommandError(f"{FLAGS[next(iter(given))]} is for the task custom, not for {args.task}", WRONG_USAGE)
    if given and args.resume:
        raise CommandError(f"--resume goes on; {FLAGS[next(iter(given))]} is for a new session", WRONG_USAGE)
    twice = next((name for name in given if name in typed(CustomOptions, args.task_options)), None)
    if twice is not None:
        raise CommandError(f"{FLAGS[twice]} is given, and {twice}= in --task-options, too", WRONG_USAGE)


def begin(args: argparse.Namespace, saves: Path) -> Path:
    """Make the session that ``args`` describe; its folder. Raises CommandError, TaskError, ConfigError, StoreError."""
    given = data_flags(args)
    task = args.task or (CUSTOM if given else "words")
    options = {**typed(find_task(task).options, args.task_options), **given}
    seed = 42 if args.seed is None else args.seed
    reading = Reading()
    try:
        plan = plan_session(task, options, seed, parse_backbone(args.backbone), reading)
    except (FileRefusedError, ContextError) as error:
        raise CommandError(str(error)) from error
    finally:
        reading.close()
    return make_session(saves, args.session or f"train {args.method}", plan)


def refuse_other(folder: Path, args: argparse.Namespace) -> Path:
    """The folder of a session that is there, whose task and backbone stay as they are. Raises CommandError."""
    with Session.open(folder, read_only=True) as session:
        if args.task is not None and args.task != session.task:
            raise CommandError(f"session {folder.name} has the task {session.task}; a new session can have {args.task}")
    flags = [f"--{name.replace('_', '-')}" for name in ("task_options", "backbone") if getattr(args, name)]
    flags += [FLAGS[name] for name in data_flags(args)]
    if flags:
        hint = "; to learn from other pairs: --pairs file --pairs-file" if "--pairs" in flags else ""
        raise CommandError(f"{flags[0]} is for new sessions, and {folder.name} is there already{hint}")
    return folder


class Reading:
    """One line on a terminal that tells how far the reading of a task's files has come."""

    def __init__(self) -> None:
        self._moves = sys.stderr.isatty()
        self._shown = False

    def __call__(self, line: str) -> None:
        from rlhf_tui.safe_text import safe_str

        if self._moves:
            shown = safe_str(line, shutil.get_terminal_size().columns - 1)
            print(f"\r\x1b[K{shown}", end="", file=sys.stderr, flush=True)
            self._shown = True

    def close(self) -> None:
        """Take the line away."""
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
