"""What a list says of each session, without opening it: one query, or the memory of one while the files are the same.

The memory is ``.index.json`` beside the sessions. Losing it costs half a second for a thousand sessions; what it says
is believed only where the database and its log have the same size and time of change as when it was written.
"""

import json
import os
import sqlite3
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from urllib.parse import quote

from core.store import files
from core.store.database import peek_version, wal_size
from core.store.errors import SessionBrokenError, StoreError, translated
from core.store.session import DATABASE
from core.store.table import checksum

INDEX = ".index.json"

_SUMMARY = """SELECT id, title, task, seed, backbone, created, checksum, (SELECT count(*) FROM runs),
    coalesce((SELECT current FROM labels ORDER BY id DESC LIMIT 1), 0),
    (SELECT coalesce(sum(size), 0) FROM checkpoints) FROM session"""


@dataclass(frozen=True)
class SessionSummary:
    """A line of the list of sessions. ``size`` in bytes, ``used`` a Unix time; ``problem`` says why it cannot open.

    Of a session not looked into yet (not ``known``), only folder, ``used`` and the database's size are right.
    """

    folder: Path
    title: str
    task: str
    seed: int
    runs: int
    labels: int
    size: int
    created: float
    used: float
    problem: str = ""
    known: bool = True

    @property
    def name(self) -> str:
        return self.folder.name


_KINDS: dict[str, Any] = {each.name: each.type for each in fields(SessionSummary) if each.name != "folder"}


def summaries(saves: Path, folders: Iterable[Path]) -> list[SessionSummary]:
    """The summary of each of the ``folders`` in ``saves``."""
    known = _read_index(saves)
    index: dict[str, Any] = {}
    found: list[SessionSummary] = []
    for folder in folders:
        name, path = folder.name, f"{folder}/{DATABASE}"
        state = _state(path)
        each = _remembered(folder, known.get(name), state)
        if each is None:
            each = summary(folder)
            if not each.problem:
                known[name] = {"state": state, "summary": {key: getattr(each, key) for key in _KINDS}}
                index[name] = known[name]
        found.append(each)
    here = {each.folder.name for each in found if not each.problem}
    if index or here != known.keys():
        _write_index(saves, {name: known[name] for name in here})
    return found


def first_look(saves: Path, folders: Iterable[Path]) -> list[SessionSummary]:
    """What can be said of each of the ``folders`` without opening any: a thousand in hundredths of a second."""
    index = _read_index(saves)
    found = []
    for folder in folders:
        path = f"{folder}/{DATABASE}"
        each = _remembered(folder, index.get(folder.name), _state(path))
        if each is None:
            size, used = _size_and_time(path)
            each = SessionSummary(folder, folder.name, "", 0, 0, 0, size, used, used, known=False)
        found.append(each)
    return found


def summary(folder: Path) -> SessionSummary:
    """What a list says of one session, good or bad."""
    try:
        return _read(folder)
    except StoreError as error:
        size, used = _size_and_time(f"{folder}/{DATABASE}")
        return SessionSummary(folder, folder.name, "", 0, 0, 0, size, 0.0, used, problem=str(error))


def _read(folder: Path) -> SessionSummary:
    """One query past all checks but the row's own: a thousand sessions are listed while a person waits."""
    path = folder / DATABASE
    with translated(path):
        peek_version(path)
        size, used = _size_and_time(str(path))
        # Without a log beside it the file is all there is, and reading it needs no lock and makes no file.
        quiet = wal_size(path) == 0
        uri = f"file:{quote(str(path.absolute()))}?mode=ro" + ("&immutable=1" if quiet else "")
        connection = sqlite3.connect(uri, uri=True, timeout=1.0, isolation_level=None)
        try:
            row = connection.execute(_SUMMARY).fetchone()
        finally:
            connection.close()
    if row is None or checksum(row[:6]) != row[6]:
        raise SessionBrokenError(f"{path} is damaged: it does not say what the session is")
    _, title, task, seed, _, created, _, runs, labels, weights = row
    return SessionSummary(folder, title, task, seed, runs, labels, size + weights, created, used)


def _size_and_time(path: str) -> tuple[int, float]:
    """Bytes of a database with its log and when one of them last changed; 0 for what cannot be seen."""
    size, used = 0, 0.0
    for each in (path, f"{path}-wal"):
        try:
            status = os.lstat(each)
        except OSError:
            continue
        size, used = size + status.st_size, max(used, status.st_mtime)
    return size, used


def _state(path: str) -> list[int]:
    """What changes whenever a database does: sizes and times of it and its log."""
    state: list[int] = []
    for each in (path, f"{path}-wal"):
        try:
            status = os.lstat(each)
        except OSError:
            state += [0, 0, 0]
        else:
            state += [status.st_size, status.st_mtime_ns, status.st_ino]
    return state


def _remembered(folder: Path, entry: Any, state: list[int]) -> SessionSummary | None:
    if not isinstance(entry, dict) or entry.get("state") != state or not isinstance(entry.get("summary"), dict):
        return None
    values = entry["summary"]
    if values.keys() != _KINDS.keys() or any(type(values[name]) is not kind for name, kind in _KINDS.items()):
        return None
    return SessionSummary(folder, **values)


def _read_index(saves: Path) -> dict[str, Any]:
    try:
        index = json.loads((saves / INDEX).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return index if isinstance(index, dict) else {}


def _write_index(saves: Path, index: dict[str, Any]) -> None:
    """Where saves cannot be written, the next list takes as long as this one."""
    fresh = files.temporary_beside(saves / INDEX)
    with suppress(OSError):
        try:
            fresh.write_text(json.dumps(index), encoding="utf-8")
            fresh.replace(saves / INDEX)
        finally:
            fresh.unlink(missing_ok=True)
