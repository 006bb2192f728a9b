"""A whole file of preferences, examples or texts: TRL's JSON lines, CSV, or plain text. Torch-free."""

import csv
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.preferences.formats.reading import (
    DEFAULT_LIMITS,
    FileRefusedError,
    Limits,
    LineError,
    Problem,
    Problems,
    read_lines,
)
from core.preferences.formats.rows import (
    Example,
    FilePair,
    JudgedPair,
    PlainText,
    Prompt,
    PromptCompletion,
    example_of,
    kind_of,
)
from core.preferences.formats.writing import unescape_cell
from core.preferences.labels import Answer
from core.preferences.pair import PreferencePair, UnpairedExample

__all__ = ["FileRefusedError", "ImportedFile", "Limits", "Problem", "read_file"]

TextCheck = Callable[[str], list[str]]
"""Letters of a completion that a task's alphabet lacks, as ``Task.unknown_letters`` gives them."""

Rows = Iterator[tuple[int, dict[str, Any]]]  # line number and fields


@dataclass(frozen=True)
class ImportedFile:
    """Everything in a file; ``kind`` is one of ``formats.rows.KINDS``, and the list of that kind is filled."""

    file: Path
    kind: str
    pairs: tuple[PreferencePair, ...] = ()  # of preference rows, and of the decided judged pairs
    unpaired: tuple[UnpairedExample, ...] = ()
    completions: tuple[PromptCompletion, ...] = ()
    texts: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    judged: tuple[JudgedPair, ...] = ()
    notes: tuple[str, ...] = ()  # what a person should know: margins scaled, …

    @property
    def count(self) -> int:
        """Rows taken."""
        lists = (self.unpaired, self.completions, self.texts, self.prompts)
        return len(self.judged) + sum(map(len, lists)) if self.judged else len(self.pairs) + sum(map(len, lists))


def read_file(
    file: Path | str,
    *,
    unknown_letters: TextCheck | None = None,
    check: Callable[[Example], None] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> ImportedFile:
    """Read ``.jsonl`` (or ``.json``, ``.ndjson``), ``.csv``, ``.tsv`` or ``.txt``; another name is told apart by its
    content. A ``.tsv`` whose first line names no columns is plain text with tabs in it.

    All rows are of the first row's kind. With ``unknown_letters``, a completion that has any is a problem; prompts
    may have them. ``check`` sees every example and raises LineError for one that cannot be used. Raises
    FileRefusedError that tells the problem of each line when there is any: then nothing of the file is used.
    """
    file = Path(file)
    problems = Problems(file)
    lines = read_lines(file, problems, limits)
    rows = _rows(file, lines, problems, limits)
    taken: list[tuple[int, Example]] = []
    kind = ""
    ids: dict[str, int] = {}
    for number, fields in rows:
        try:
            kind = kind or kind_of(fields)
            _check_kind(kind, fields)
            _check_id(fields, ids, number)
            example = example_of(kind, fields)
            _check_letters(example, unknown_letters)
            if check is not None:
                check(example)
            taken.append((number, example))
        except LineError as error:
            problems.add(number, str(error))
    _check_margins(taken, problems)
    problems.raise_if_any()
    if not taken:
        raise problems.refuse(0, "the file is empty")
    return _imported(file, kind, [example for _, example in taken])


# --- rows ----------------------------------------------------------------------------------------------------


def _rows(file: Path, lines: Iterator[tuple[int, str]], problems: Problems, limits: Limits) -> Rows:
    suffix = file.suffix.lower()
    if suffix in (".jsonl", ".json", ".ndjson"):
        return _json_rows(lines, problems, limits)
    if suffix == ".csv":
        return _csv_rows(lines, problems)
    if suffix == ".txt":
        return _text_rows(lines)
    first = next(lines, None)
    if first is None:
        return iter(())
    again = _and_then(first, lines)
    if suffix == ".tsv":
        return _csv_rows(again, problems, "\t") if _names_columns(first[1]) else _text_rows(again)
    return _json_rows(again, problems, limits) if first[1].lstrip().startswith("{") else _csv_rows(again, problems)


def _names_columns(line: str) -> bool:
    try:
        kind_of(dict.fromkeys(_header(line.rstrip("\r\n").split("\t")), ""))
    except LineError:
        return False
    return True


def _header(cells: list[str]) -> list[str]:
    return [name.strip().lower() for name in cells]


def _and_then(first: tuple[int, str], rest: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    yield first
    yield from rest


def _text_rows(lines: Iterator[tuple[int, str]]) -> Rows:
    for number, line in lines:
        text = line.rstrip("\r\n")
        if text.strip():
            yield number, {"text": text}


def _json_rows(lines: Iterator[tuple[int, str]], problems: Problems, limits: Limits) -> Rows:
    for number, line in lines:
        if not line.strip():
            continue
        try:
            yield number, parse_object(line, limits.nesting)
        except LineError as error:
            problems.add(number, str(error))


def parse_object(line: str, nesting: int = DEFAULT_LIMITS.nesting) -> dict[str, Any]:
    """The JSON object in a line. Raises LineError for anything else, also for what Python's parser would let pass:
    NaN, a field twice, lists nested deeper than ``nesting``."""
    if _too_deep(line, nesting):
        raise LineError(f"nested deeper than {nesting} levels")
    try:
        found = json.loads(line, object_pairs_hook=_object, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        raise LineError(f"not JSON: {error.msg} at position {error.pos + 1}") from None
    except LineError:
        raise
    except (ValueError, RecursionError):
        raise LineError("not JSON that can be read: a number is too long") from None
    if isinstance(found, list):
        raise LineError("a list; each line must be an object of its own (JSON lines)")
    if not isinstance(found, dict):
        raise LineError("each line must be a JSON object")
    return found


_STRING_OR_BRACKET = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[{]|[\]}]')


def _too_deep(line: str, nesting: int) -> bool:
    """Do brackets nest deeper outside strings? Found before the parser recurses into them."""
    if line.count("[") + line.count("{") <= nesting:
        return False
    depth = 0
    for match in _STRING_OR_BRACKET.finditer(line):
        if match[0] in "[{":
            depth += 1
            if depth > nesting:
                return True
        elif match[0] in "]}":
            depth -= 1
    return False


def _object(items: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(items)
    if len(fields) != len(items):
        names = [name for name, _ in items]
        twice = next(name for name in names if names.count(name) > 1)
        raise LineError(f"the field '{twice[:40]}' stands there twice")
    return fields


def _no_number(name: str) -> float:
    raise LineError(f"{name} is no number in JSON")


def _csv_rows(lines: Iterator[tuple[int, str]], problems: Problems, delimiter: str = ",") -> Rows:
    """Rows under the names in the first line, each with the number of the line that it begins in."""
    number = 0

    def counted() -> Iterator[str]:
        nonlocal number
        for number, line in lines:  # noqa: B007  read outside: the line at which the reader stands
            yield line

    reader = csv.reader(counted(), strict=True, delimiter=delimiter)
    header: list[str] | None = None
    while True:
        begins = number + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise problems.refuse(begins, f"not CSV: {error}") from None
        if cells is None:
            return
        if not cells:
            continue
        if header is None:
            header = _header(cells)
            if len(set(header)) != len(header):
                raise problems.refuse(begins, f"a column stands there twice: {', '.join(header)}"[:200])
            try:
                kind_of(dict.fromkeys(header, ""))
            except LineError as error:
                raise problems.refuse(begins, f"the first line must name the columns: {error}") from None
        elif len(cells) != len(header):
            problems.add(begins, f"{len(cells)} cells where the first line names {len(header)} columns")
        else:
            try:
                yield begins, {name: _cell(name, cell) for name, cell in zip(header, cells, strict=True)}
            except LineError as error:
                problems.add(begins, str(error))


def _cell(name: str, cell: str) -> Any:
    """A cell as JSON would have it: numbers and truths in the columns that hold them."""
    if name in ("label", "held_out"):
        return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}.get(
            cell.strip().lower(), cell
        )
    if name == "margin":
        if not cell.strip():
            return None
        try:
            return float(cell)
        except ValueError:
            raise LineError(f"margin must be a number, not the text {cell[:40]!r}") from None
    return unescape_cell(cell)


# --- checks over rows ----------------------------------------------------------------------------------------


def _check_kind(kind: str, fields: dict[str, Any]) -> None:
    try:
        found = kind_of(fields)
    except LineError:
        return  # example_of says what this kind lacks
    if found not in (kind, "prompt"):  # of a row with nothing but a prompt, example_of says what it lacks
        raise LineError(f"{found} row in a file that began with {kind} rows")


def _check_id(fields: dict[str, Any], ids: dict[str, int], number: int) -> None:
    value = fields.get("id")
    if value is None or value == "":
        return
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise LineError("id must be text or a whole number")
    first = ids.setdefault(f"{type(value).__name__} {value}", number)
    if first != number:
        raise LineError(f"id '{str(value)[:40]}' stands in line {first} already")


def _check_letters(example: Example, unknown_letters: TextCheck | None) -> None:
    if unknown_letters is None:
        return
    for name, text in _completions(example):
        unknown = unknown_letters(text)
        if unknown:
            shown = " ".join(repr(letter) for letter in unknown[:8])
            raise LineError(f"{name} has letters outside the alphabet: {shown}{' …' if len(unknown) > 8 else ''}")


def _completions(example: Example) -> tuple[tuple[str, str], ...]:
    if isinstance(example, FilePair):
        return ("chosen", example.chosen), ("rejected", example.rejected)
    if isinstance(example, UnpairedExample | PromptCompletion):
        return (("completion", example.completion),)
    if isinstance(example, JudgedPair):
        return ("left", example.left), ("right", example.right)
    if isinstance(example, PlainText):
        return (("text", example.text),)
    return ()


def _check_margins(taken: list[tuple[int, Example]], problems: Problems) -> None:
    """A margin on every row or on none."""
    pairs = [(number, each) for number, each in taken if isinstance(each, FilePair)]
    if not pairs:
        return
    first_number, first = pairs[0]
    for number, each in pairs:
        if (each.margin is None) != (first.margin is None):
            has, had = ("no margin", "one") if each.margin is None else ("a margin", "none")
            problems.add(number, f"{has} where line {first_number} has {had}: give it on every row or on none")


# --- the result ----------------------------------------------------------------------------------------------


def _imported(file: Path, kind: str, examples: list[Example]) -> ImportedFile:
    margins = [each.margin for each in examples if isinstance(each, FilePair) and each.margin is not None]
    largest = max(margins, default=0.0)
    judged = tuple(each for each in examples if isinstance(each, JudgedPair))
    pairs = tuple(_pair(each, max(1.0, largest)) for each in examples if isinstance(each, FilePair))
    notes = (f"margins up to {largest:g} were divided by it to give strengths from 0 to 1",) if largest > 1 else ()
    return ImportedFile(
        file=file,
        kind=kind,
        pairs=pairs or tuple(_judged_preference(each) for each in judged if each.answer.decided),
        unpaired=tuple(each for each in examples if isinstance(each, UnpairedExample))
        + tuple(
            UnpairedExample(each.prompt, text, False, "file")
            for each in judged
            if each.answer is Answer.BOTH_BAD
            for text in (each.left, each.right)
        ),
        completions=tuple(each for each in examples if isinstance(each, PromptCompletion)),
        texts=tuple(each.text for each in examples if isinstance(each, PlainText)),
        prompts=tuple(each.prompt for each in examples if isinstance(each, Prompt)),
        judged=judged,
        notes=notes,
    )


def _pair(each: FilePair, scale: float) -> PreferencePair:
    strength = 0.5 if each.margin is None else each.margin / scale
    return PreferencePair(each.prompt, each.chosen, each.rejected, strength=strength, source="file")


def _judged_preference(each: JudgedPair) -> PreferencePair:
    chosen, rejected = (each.left, each.right) if each.answer.prefers_left else (each.right, each.left)
    return PreferencePair(each.prompt, chosen, rejected, strength=each.answer.strength or 0.0, source="file")
