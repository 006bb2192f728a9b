"""Preferences as files that others read: TRL's JSON lines and CSV. Torch-free."""

import csv
import io
import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from core.preferences.labels import LabelRecord, Side
from core.preferences.pair import PreferencePair, UnpairedExample

# What a spreadsheet takes for the start of a formula (OWASP, "CSV injection"), full-width forms and the minus sign
# included. Apostrophes before it count as escapes, so that escaping can always be taken back.
_FORMULA = re.compile(r"'*[=+\-@\t\r\n\N{MINUS SIGN}\uff1d\uff0b\uff0d\uff20]")


def escape_cell(cell: str) -> str:
    """``cell`` with an apostrophe before it where a spreadsheet would compute it."""
    return f"'{cell}" if _FORMULA.match(cell) else cell


def unescape_cell(cell: str) -> str:
    """What :func:`escape_cell` was given."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def preference_lines(pairs: Iterable[PreferencePair], *, margin: bool = False) -> Iterator[str]:
    """``prompt, chosen, rejected`` a line, with the strength as ``margin`` on every line or on none; ties left out."""
    for each in pairs:
        if each.target == 1.0:
            row: dict[str, Any] = {"prompt": each.prompt, "chosen": each.chosen, "rejected": each.rejected}
            yield _json_line(row | {"margin": each.strength} if margin else row)


def unpaired_lines(examples: Iterable[UnpairedExample]) -> Iterator[str]:
    """``prompt, completion, label`` a line."""
    for each in examples:
        yield _json_line({"prompt": each.prompt, "completion": each.completion, "label": each.label})


def _json_line(row: dict[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n"


CSV_COLUMNS = (
    "id", "time", "annotator", "prompt", "left", "right", "answer", "strength", "chosen", "rejected",
    "left_source", "left_run", "left_step", "left_temperature", "left_seed", "left_score",
    "right_source", "right_run", "right_step", "right_temperature", "right_seed", "right_score",
    "reward_run", "reward_step", "latency", "reason", "repeats", "replaces", "original", "group", "held_out", "flagged",
    "guideline", "note",
)  # fmt: skip


def csv_lines(records: Iterable[LabelRecord]) -> Iterator[str]:
    """Every judgement of two texts, whatever the answer, one row each under :data:`CSV_COLUMNS`; cells are escaped.

    A line may hold newlines, inside quotes.
    """
    yield _csv_line(CSV_COLUMNS)
    for each in records:
        if each.right is not None:
            yield _csv_line([_cell(value) for value in _csv_row(each, each.left, each.right)])


def _csv_row(record: LabelRecord, left: Side, right: Side) -> list[Any]:
    values: dict[str, Any] = record.to_dict()
    for name, side in (("left", left), ("right", right)):
        values[name] = side.text
        for part in ("source", "run", "step", "temperature", "seed", "score"):
            values[f"{name}_{part}"] = getattr(side, part)
    values["chosen"] = record.chosen.text if record.chosen is not None else None
    values["rejected"] = record.rejected.text if record.rejected is not None else None
    return [values[name] for name in CSV_COLUMNS]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return escape_cell(value) if isinstance(value, str) else str(value)


def _csv_line(cells: Iterable[str]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, quoting=csv.QUOTE_ALL).writerow(cells)
    return buffer.getvalue()


def write_file(file: Path | str, lines: Iterable[str]) -> int:
    """Write the lines so that ``file`` has all of them or is as it was; returns how many. Raises OSError."""
    file = Path(file)
    count = 0
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name[:80]}.", suffix=".part", dir=file.parent)
    part = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as stream:
            for each in lines:
                stream.write(each)
                count += 1
            stream.flush()
            os.fsync(stream.fileno())
        mode = file.stat().st_mode if file.exists() else 0o666 & ~_umask()
        part.chmod(mode & 0o777)
        part.replace(file)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return count


def _umask() -> int:
    current = os.umask(0o077)
    os.umask(current)
    return current
