"""Checkpoint files: complete or absent, never changed once written, never trusted unread.

A save writes the file under a temporary name, fsyncs it, renames it, fsyncs its folder, then adds the row, then
prunes. A kill at any point leaves the files that rows speak of whole, and at most a file without a row, which the
next opening sweeps away. A load verifies length and SHA-256; the path is made from the run's number and a file name
of one strict shape, and no link is followed.
"""

import hashlib
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.store import files
from core.store.database import Database
from core.store.errors import CheckpointBrokenError, CheckpointMissingError, SessionBrokenError, translated
from core.store.retention import CheckpointRecord, expendable
from core.store.table import Row, Table, real, text, to_json, whole

KINDS = ("resume", "snapshot", "inputs")
Records = list[CheckpointRecord]
Parse = Callable[[bytes], Any]
_FILE = re.compile(r"(0|[1-9][0-9]{0,18})-[0-9a-f]{16}\.safetensors", re.ASCII)


def is_checkpoint_file(folder: str, name: str) -> bool:
    """May a checkpoint lie in that folder of ``checkpoints`` under that name?"""
    return folder.isascii() and folder.isdecimal() and len(folder) < 20 and bool(_FILE.fullmatch(name))


@dataclass(frozen=True)
class LoadedCheckpoint:
    """A verified checkpoint. ``notes`` has a line for each newer one that was damaged and passed over.

    ``content`` is what a ``parse`` made of the bytes.
    """

    record: CheckpointRecord
    data: bytes = field(repr=False)
    notes: tuple[str, ...] = ()
    content: Any = field(default=None, repr=False)


class CheckpointStore:
    """The checkpoints of a session's runs."""

    def __init__(self, database: Database, folder: Path) -> None:
        self._database = database
        self._folder = folder / "checkpoints"
        self._table = Table(
            database,
            "checkpoints",
            ("run", "step", "kind", "name", "file", "size", "sha256", "score", "data", "created"),
        )

    def save(
        self,
        run: int,
        step: int,
        kind: str,
        data: bytes,
        name: str = "",
        score: float | None = None,
        values: Mapping[str, Any] | None = None,
    ) -> CheckpointRecord:
        """Write a checkpoint, then drop those that are not worth keeping (see :mod:`core.store.retention`).

        Raises StorageFullError, StorageError, SessionReadOnlyError or SessionMissingError; all that was there before
        is then intact.
        """
        if kind not in KINDS:
            raise ValueError(f"a checkpoint is one of {', '.join(KINDS)}, not '{kind}'")
        row: Row = {
            "run": whole(run), "step": whole(step), "kind": kind, "name": text(name),
            "file": f"{whole(step)}-{secrets.token_hex(8)}.safetensors", "size": len(data),
            "sha256": hashlib.sha256(data).hexdigest(), "score": real(score), "data": to_json(dict(values or {})),
            "created": time.time(),
        }  # fmt: skip
        self._database.check_writable()
        folder = self._run_folder(run, create=True)
        with translated(folder):
            files.write_new(folder / row["file"], data)
        try:
            id = self._table.insert(row)
        except BaseException:
            self._unlink(folder / row["file"])
            raise
        self.prune(run)
        return self._record({**row, "id": id})

    def list(self, run: int | None = None, kind: str | None = None) -> Records:
        """Oldest first: of one run or all, of one kind or both."""
        rows = self._table.select(
            "WHERE (?1 IS NULL OR run = ?1) AND (?2 IS NULL OR kind = ?2) ORDER BY id", (run, kind)
        )
        return [self._record(row) for row in rows]

    def read(self, record: CheckpointRecord) -> bytes:
        """The bytes that were saved. Raises CheckpointBrokenError when the file holds anything else."""
        what = _named(record)
        if not _FILE.fullmatch(record.file):
            raise CheckpointBrokenError(f"{what} is damaged: its row names no checkpoint file")
        folder = self._run_folder(record.run, create=False)
        if not files.is_real_folder(self._folder) or not files.is_real_folder(folder):
            raise CheckpointBrokenError(f"{what} is damaged: {folder} is missing or a link")
        data = files.read_plain(folder / record.file, record.size)
        if data is None:
            raise CheckpointBrokenError(f"{what} is damaged: {record.file} is missing, a link or of another length")
        if hashlib.sha256(data).hexdigest() != record.sha256:
            raise CheckpointBrokenError(f"{what} is damaged: {record.file} is not what was saved")
        return data

    def latest_good(self, run: int, kind: str | None = None, parse: Parse | None = None) -> LoadedCheckpoint:
        """The newest checkpoint of a kind (None: either) that is whole. Raises CheckpointMissingError.

        ``parse`` reads its bytes; one that it refuses by CheckpointBrokenError is passed over like a damaged one.
        """
        return self._first_good(run, kind, reversed(self._candidates(run, kind)), parse)

    def nearest_good(
        self, run: int, step: int, kind: str | None = None, parse: Parse | None = None
    ) -> LoadedCheckpoint:  # fmt: skip
        """The whole checkpoint nearest to a step; ``parse`` as above. Raises CheckpointMissingError."""
        return self._first_good(run, kind, self._by_distance(run, step, kind), parse)

    def at(self, run: int, step: int, kind: str | None = None) -> CheckpointRecord:
        """The checkpoint nearest to a step, the newer of two equally near. Raises CheckpointMissingError."""
        records = self._by_distance(run, step, kind)
        if not records:
            raise self._none(run, kind)
        return records[0]

    def prune(self, run: int) -> None:
        """Drop the checkpoints of a run that are not worth keeping: the rows, then the files."""
        self._drop(expendable(self.list(run)))

    def truncate(self, run: int, after_step: int) -> None:
        """Drop the unnamed checkpoints after a step, as when the run goes another way from there."""
        self._drop(
            [each for each in self.list(run) if each.step > after_step and not each.name and each.kind != "inputs"]
        )

    def drop_lost(self) -> int:
        """Drop the rows whose files are not there any more. Returns how many."""
        lost = [each for each in self.list() if not (self._folder / str(each.run) / each.file).exists()]
        self._drop(lost)
        return len(lost)

    def drop(self, record: CheckpointRecord) -> None:
        """Delete a checkpoint, whatever it is worth."""
        self._drop([record])

    def add_file(self, record: CheckpointRecord, data: bytes) -> None:
        """Write the file that a row speaks of already, as in a copy of a session."""
        folder = self._run_folder(record.run, create=True)
        with translated(folder):
            files.write_new(folder / record.file, data)

    def delete_files(self, run: int) -> None:
        """Delete the files of a run whose rows are gone."""
        folder = self._run_folder(run, create=False)
        if not files.is_real_folder(self._folder) or not files.is_real_folder(folder):
            return
        with translated(folder):
            for path in folder.iterdir():
                if _FILE.fullmatch(path.name) or path.name.startswith(files.TEMPORARY_PREFIX):
                    self._unlink(path)
            if not any(folder.iterdir()):
                folder.rmdir()

    def sweep(self) -> int:
        """Delete what a kill left behind: temporary files and files without a row. Returns how many.

        Only for the one process that holds the session, before it saves.
        """
        if not files.is_real_folder(self._folder):
            return 0
        known = {(each.run, each.file) for each in self.list()}
        swept = 0
        with translated(self._folder):
            for folder in [each for each in self._folder.iterdir() if each.name.isdecimal()]:
                for path in folder.iterdir() if files.is_real_folder(folder) else ():
                    left_over = path.name.startswith(files.TEMPORARY_PREFIX)
                    orphan = bool(_FILE.fullmatch(path.name)) and (int(folder.name), path.name) not in known
                    if left_over or orphan:
                        self._unlink(path)
                        swept += 1
        return swept

    def _first_good(
        self, run: int, kind: str | None, records: Iterable[CheckpointRecord], parse: Parse | None
    ) -> LoadedCheckpoint:
        notes: list[str] = []
        for record in records:
            try:
                data = self.read(record)
                return LoadedCheckpoint(record, data, tuple(notes), self._parsed(record, data, parse))
            except CheckpointBrokenError as error:
                notes.append(f"{error}; the one before is used")
        if notes:
            raise CheckpointMissingError(f"run {run} has no whole {kind or 'checkpoint'} left: {notes[0]}")
        raise self._none(run, kind)

    def _parsed(self, record: CheckpointRecord, data: bytes, parse: Parse | None) -> Any:
        try:
            return None if parse is None else parse(data)
        except CheckpointBrokenError as error:
            raise CheckpointBrokenError(f"{_named(record)} is damaged: {error}") from error

    def _candidates(self, run: int, kind: str | None) -> Records:
        """Those of a kind; without one, all that hold what the run has made, so not its inputs."""
        return [each for each in self.list(run, kind) if kind is not None or each.kind != "inputs"]

    def _by_distance(self, run: int, step: int, kind: str | None) -> Records:
        return sorted(self._candidates(run, kind), key=lambda each: (abs(each.step - step), -each.id))

    def _none(self, run: int, kind: str | None) -> CheckpointMissingError:
        what = {"resume": "resume point", "snapshot": "snapshot"}.get(kind or "", "checkpoint")
        return CheckpointMissingError(f"run {run} has no {what} yet")

    def _drop(self, records: Records) -> None:
        if not records:
            return
        self._table.delete(f"id IN ({', '.join(str(each.id) for each in records)})")
        for each in records:
            if _FILE.fullmatch(each.file):
                self._unlink(self._run_folder(each.run, create=False) / each.file)

    def _unlink(self, path: Path) -> None:
        """A file that cannot be deleted now is an orphan that the next sweep deletes."""
        try:
            path.unlink(missing_ok=True)
        except OSError:
            return

    def _run_folder(self, run: int, create: bool) -> Path:
        folder = self._folder / str(whole(run))
        if create:
            with translated(folder):
                for each in (self._folder, folder):
                    if not each.exists() and not each.is_symlink():
                        each.mkdir()
                        files.sync_folder(each.parent)
                    if not files.is_real_folder(each):
                        raise SessionBrokenError(f"{each} is not a folder of the session")
        return folder

    def _record(self, row: Row) -> CheckpointRecord:
        values = self._table.parse_object(row, "data")
        return CheckpointRecord(**{name: value for name, value in row.items() if name != "data"}, values=values)


def _named(record: CheckpointRecord) -> str:
    what = {"resume": "resume point", "inputs": "start"}.get(record.kind, record.kind)
    return f"the {what} of run {record.run} at step {record.step}"
