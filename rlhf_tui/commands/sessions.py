"""``rlhf-tui sessions``: list them, look at one, rename, duplicate, export, import, delete, restore, trust."""

import argparse
import time
from pathlib import Path
from typing import Any

from core.store import Session
from core.store.archive import export_session, import_session
from core.store.locations import (
    SessionSummary,
    duplicate_session,
    empty_trash,
    find_session,
    list_sessions,
    list_trash,
    rename_session,
    restore_session,
    saves_folder,
    trash_session,
)
from core.store.runs import RunRecord
from core.trust import distrust, trust, trusted
from rlhf_tui.commands.arguments import WRONG_USAGE, CommandError, Parser
from rlhf_tui.commands.report import aligned
from rlhf_tui.run_tree import replay_command, short_config, turned_knobs


def configure(commands: Any) -> None:
    about = "list sessions, and rename, duplicate, export, import, delete or restore them"
    parser: Parser = commands.add_parser("sessions", help=about, description=about)
    _saves(parser)
    parser.set_defaults(run=_list, parser=parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", parser_class=Parser)
    for name, help_, act, arguments in (
        ("list", "all sessions, the last used first", _list, ()),
        ("show", "the tree of a session's runs", _show, ("NAME",)),
        ("rename", "give a session another title", _rename, ("NAME", "TITLE")),
        ("duplicate", "copy a session", _duplicate, ("NAME",)),
        ("export", "write a session to one file, to send or to keep", _export, ("NAME", "FILE")),
        ("import", "take in a file that export wrote, under a name that is free", _import, ("FILE",)),
        ("delete", "move a session to the trash", _delete, ("NAME",)),
        ("trash", "what lies in the trash", _trash, ()),
        ("restore", "take a session out of the trash", _restore, ("NAME",)),
        ("empty-trash", "delete what lies in the trash for good", _empty, ()),
        ("trust", "let sessions use a function of your own, or list which ones they may", _trust, ()),
    ):
        action: Parser = actions.add_parser(name, help=help_, description=help_)
        for argument in arguments:
            action.add_argument(argument.lower(), metavar=argument)
        if name == "duplicate":
            action.add_argument("--title", metavar="TITLE", help="title of the copy")
        if name == "trust":
            action.add_argument("function", metavar="NAME", nargs="?", help="module:function (default: list them)")
            action.add_argument("--revoke", action="store_true", help="allow it no longer")
        if name == "show":
            action.add_argument("--commands", action="store_true", help="also the command that trains each run again")
        _saves(action)
        action.set_defaults(run=act, parser=action)


def sessions_table(summaries: list[SessionSummary]) -> str:
    """One line a session."""
    from rlhf_tui.safe_text import visible

    rows = [["name", "title", "task", "seed", "runs", "labels", "size", "last used"]]
    for each in summaries:
        if each.problem:
            rows.append([visible(each.name), f"({visible(each.problem)})", "", "", "", "", size(each.size), ""])
            continue
        rows.append([
            visible(each.name), visible(each.title), visible(each.task), str(each.seed), str(each.runs),
            str(each.labels), size(each.size), time.strftime("%Y-%m-%d %H:%M", time.localtime(each.used)),
        ])  # fmt: skip
    return aligned(rows, numbers=False)


def runs_tree(runs: list[RunRecord]) -> str:
    """Each run under the one it started from, with its knobs as ``--config`` takes them."""
    from rlhf_tui.safe_text import visible

    lines: list[str] = []

    def add(parent: int | None, depth: int) -> None:
        for each in (run for run in runs if run.parent == parent):
            start = f" from step {each.parent_step}" if each.parent is not None else ""
            config = short_config(each.method, each.config)
            lines.append(
                f"{'  ' * depth}{each.id}  {visible(each.title)} ({visible(each.method)}{start}): {each.state}, step "
                f"{each.step}/{each.steps}, {each.seconds:.0f} s, seed {each.seed}"
                + (f"  --config '{config}'" if config else "")
            )
            add(each.id, depth + 1)

    add(None, 0)
    return "\n".join(lines) + "\n" if lines else "no runs yet\n"


def size(count: int) -> str:
    """``1.5 MB``."""
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"


def _saves(parser: Parser) -> None:
    parser.add_argument("--saves", metavar="DIR", default=argparse.SUPPRESS, help="folder of the sessions")


def _folder(args: argparse.Namespace) -> Path:
    return saves_folder(args.saves)


def _list(args: argparse.Namespace) -> int:
    found = list_sessions(_folder(args))
    print(sessions_table(found) if found else f"no sessions in {_folder(args)}\n", end="")
    return 0


def _show(args: argparse.Namespace) -> int:
    with Session.open(find_session(_folder(args), args.name), read_only=True) as session:
        runs = session.runs.all()
        print(runs_tree(runs), end="")
        for run in runs if args.commands else ():
            turned = turned_knobs(session, run.id)
            but = f"  # but {', '.join(turned)} changed on the way" if turned else ""
            print(replay_command(run, run.id, run.seed, session.folder.name, args.saves) + but)
    return 0


def _rename(args: argparse.Namespace) -> int:
    print(rename_session(find_session(_folder(args), args.name), args.title))
    return 0


def _duplicate(args: argparse.Namespace) -> int:
    print(duplicate_session(find_session(_folder(args), args.name), args.title))
    return 0


def _export(args: argparse.Namespace) -> int:
    print(export_session(find_session(_folder(args), args.name), Path(args.file)))
    return 0


def _import(args: argparse.Namespace) -> int:
    print(import_session(Path(args.file), _folder(args)))
    return 0


def _delete(args: argparse.Namespace) -> int:
    print(f"moved to {trash_session(find_session(_folder(args), args.name))}; rlhf-tui sessions restore brings it back")
    return 0


def _trash(args: argparse.Namespace) -> int:
    found = list_trash(_folder(args))
    print(sessions_table(found) if found else "the trash is empty\n", end="")
    return 0


def _restore(args: argparse.Namespace) -> int:
    for each in list_trash(_folder(args)):
        if args.name in (each.name, each.title):
            print(restore_session(each.folder))
            return 0
    raise CommandError(f"there is no '{args.name}' in the trash")


def _trust(args: argparse.Namespace) -> int:
    if args.function is None:
        if args.revoke:
            raise CommandError("--revoke needs the NAME of a function", WRONG_USAGE)
        print("\n".join(trusted()) or "no function of your own is allowed yet")
    elif args.revoke:
        if not distrust(args.function):
            raise CommandError(f"{args.function} was not allowed")
        print(f"{args.function} is not allowed any more")
    else:
        trust(args.function)
        print(f"sessions on this machine may use {args.function}")
    return 0


def _empty(args: argparse.Namespace) -> int:
    print(f"{empty_trash(_folder(args))} sessions deleted for good")
    return 0
