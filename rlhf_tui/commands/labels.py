"""``rlhf-tui labels``: import judgements from a file, export them for other programs, and tell how good they are."""

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from core.preferences.conversion import count_labels, decided_pairs, unpaired_examples
from core.preferences.formats.files import FileRefusedError, ImportedFile, read_file
from core.preferences.formats.writing import csv_lines, preference_lines, unpaired_lines, write_file
from core.preferences.importing import labels_from_file
from core.preferences.labels import LabelRecord
from core.preferences.pair import PreferencePair
from core.preferences.pair_checks import check_pairs
from core.preferences.quality import label_quality
from core.store import Session
from core.store.locations import find_session, last_session, saves_folder
from rlhf_tui.commands.arguments import FAILED, CommandError, Parser, add_session
from rlhf_tui.tasks import task_of

FORMATS = ("preference", "unpaired", "csv")


def configure(commands: Any) -> None:
    about = "import and export labels, and measure them"
    parser: Parser = commands.add_parser("labels", help=about, description=about)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=Parser)

    about = "take judgements from a file: all of them, or none where any line is wrong"
    importing = _action(actions, "import", about, _import)
    importing.add_argument("file", metavar="FILE", help="JSON lines (TRL's preference or unpaired rows) or CSV")
    importing.add_argument("--annotator", metavar="NAME", default="", help="who judged (default: the file's name)")

    exporting = _action(actions, "export", "write judgements for other programs", _export)
    exporting.add_argument("out", metavar="OUT", help="file to write; - for the standard output")
    exporting.add_argument(
        "--format", choices=FORMATS, default="preference", metavar="FORMAT",
        help="preference: decided pairs as TRL takes them; unpaired: single judgements; csv: every pair with all that "
        "is known of it (default preference)",
    )  # fmt: skip
    exporting.add_argument("--margin", action="store_true", help="each pair's strength as its margin (preference)")
    exporting.add_argument("--without-held-out", action="store_true", help="leave out labels kept from training")

    stats = _action(actions, "stats", "how many labels there are and how good they are", _stats)
    stats.add_argument("--file", metavar="FILE", help="look at the pairs of a file instead of a session's labels")


def _action(actions: Any, name: str, about: str, run: Callable[[argparse.Namespace], int]) -> Parser:
    parser: Parser = actions.add_parser(name, help=about, description=about)
    add_session(parser, "session (default: the last one)")
    parser.add_argument(
        "--saves", metavar="DIR", default=argparse.SUPPRESS,
        help="folder of the sessions (else RLHF_TUI_SAVES, else ./saves of a checkout)",
    )  # fmt: skip
    parser.set_defaults(run=run, parser=parser)
    return parser


def _import(args: argparse.Namespace) -> int:
    with Session.open(_folder(args)) as session:
        imported = _read(args.file, task_of(session).unknown_letters)
        if imported is None:
            return FAILED
        try:
            labels = labels_from_file(imported, time=time.time(), seed=session.seed, annotator=args.annotator)
        except FileRefusedError as error:
            return _refused(error)
        session.labels.add(labels)
        title = session.title
    _print([f"{len(labels)} labels imported into {title}: {count_labels(labels).line()}", *imported.notes])
    _warn(decided_pairs(labels))
    return 0


def _export(args: argparse.Namespace) -> int:
    with Session.open(_folder(args), read_only=True) as session:
        labels = [each for each in session.labels.current() if not (args.without_held_out and each.held_out)]
    lines = list(_lines(args.format, labels, args.margin))
    rows = len(lines) - (args.format == "csv")
    if args.out == "-":
        sys.stdout.write("".join(lines))
        sys.stdout.flush()
        return 0
    try:
        write_file(Path(args.out), lines)
    except OSError as error:
        raise CommandError(f"cannot write {args.out}: {error.strerror or error}") from error
    _print([f"{rows} rows written to {args.out}, of {len(labels)} labels: {count_labels(labels).line()}"])
    return 0


def _lines(format_: str, labels: Sequence[LabelRecord], margin: bool) -> Iterable[str]:
    if format_ == "csv":
        return csv_lines(labels)
    if format_ == "unpaired":
        return unpaired_lines(unpaired_examples(labels))
    return preference_lines(decided_pairs(labels), margin=margin)


def _stats(args: argparse.Namespace) -> int:
    if args.file:
        imported = _read(args.file, None)
        if imported is None:
            return FAILED
        pairs, single = len(imported.pairs), len(imported.unpaired)
        _print([f"{imported.count} {imported.kind} rows: {pairs} decided pairs, {single} single judgements",
                *imported.notes])  # fmt: skip
        _warn(imported.pairs)
        return 0
    with Session.open(_folder(args), read_only=True) as session:
        labels = session.labels.current()
        quality = label_quality(labels, task_of(session).gold)
        title, changes = session.title, len(session.labels.history())
    _print([f"{title}: {len(labels)} labels ({count_labels(labels).line()}), {changes} changes in the history",
            *(quality.lines() if labels else [])])  # fmt: skip
    if labels:
        _warn(decided_pairs(labels))
    return 0


def _folder(args: argparse.Namespace) -> Path:
    saves = saves_folder(args.saves)
    if args.session:
        return find_session(saves, args.session)
    last = last_session(saves)
    if last is None:
        raise CommandError(f"there is no session in {saves}; make one first: rlhf-tui train sft")
    return last


def _read(file: str, unknown_letters: Callable[[str], list[str]] | None) -> ImportedFile | None:
    """The file, or None after its problems were told, a line each."""
    try:
        return read_file(Path(file), unknown_letters=unknown_letters)
    except FileRefusedError as error:
        _refused(error)
        return None


def _refused(error: FileRefusedError) -> int:
    from rlhf_tui.safe_text import visible

    for line in error.lines():
        print(f"rlhf-tui: {visible(line)}", file=sys.stderr)
    return FAILED


def _warn(pairs: Sequence[PreferencePair]) -> None:
    _print(f"! {each.message}" for each in check_pairs(pairs))


def _print(lines: Iterable[str]) -> None:
    from rlhf_tui.safe_text import visible

    for line in lines:
        print(visible(line))
