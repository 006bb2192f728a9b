"""A session: task, tree of runs, metrics, samples, labels and checkpoints in one folder."""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from core.store.checkpoints import CheckpointStore
from core.store.database import Database
from core.store.errors import (
    CheckpointBrokenError,
    SessionBrokenError,
    SessionExistsError,
    SessionMissingError,
    translated,
)
from core.store.journal import EventStore, SampleStore
from core.store.lock import SessionLock
from core.store.runs import RunStore
from core.store.table import Table, checksum, text, to_json, whole

if TYPE_CHECKING:
    from core.store.labels import LabelStore
    from core.store.metrics import MetricStore

DATABASE = "session.db"
_COLUMNS = ("title", "task", "seed", "backbone", "created")


@dataclass(frozen=True)
class SessionFacts:
    """What a session is about; ``created`` is a Unix time."""

    title: str
    task: str
    seed: int
    backbone: dict[str, Any]
    created: float


class Session:
    """An open session, made by :meth:`create` or :meth:`open`, closed by :meth:`close` or at the end of a ``with``."""

    def __init__(self, folder: Path, database: Database, lock: SessionLock | None) -> None:
        self.folder = folder
        self._database = database
        self._lock = lock
        self._facts_table = Table(database, "session", _COLUMNS)
        self._settings = Table(database, "settings", ("name", "value"))
        self.facts = self._read_facts()
        self.runs = RunStore(database)
        self.events = EventStore(database)
        self.samples = SampleStore(database)
        self.checkpoints = CheckpointStore(database, folder)
        self.notes = list(database.notes)  # what opening did that a person should know
        if lock is not None and lock.alone:
            self.checkpoints.sweep()

    @classmethod
    def create(
        cls,
        folder: Path | str,
        task: str = "words",
        seed: int = 42,
        title: str = "",
        backbone: Mapping[str, Any] | None = None,
    ) -> Self:
        """A new session in ``folder``, which is made if need be. Its title is by default the folder's name.

        Raises SessionExistsError where there is one already, SessionLockedError or another StoreError.
        """
        folder = Path(folder)
        with translated(folder):
            if folder.exists() and not folder.is_dir():
                raise SessionExistsError(f"{folder} is a file, not a folder")
            folder.mkdir(parents=True, exist_ok=True)
        name = text(title or folder.absolute().name)
        values = [1, name, text(task), whole(seed), to_json(dict(backbone or {})), time.time()]
        with ExitStack() as undo:
            lock = SessionLock.acquire(folder)
            undo.callback(lock.release)
            Database.create(folder / DATABASE, {"session": [(*values, checksum(values))]})
            session = cls._opened(folder, Database.open(folder / DATABASE), lock)
            undo.pop_all()
            return session

    @classmethod
    def open(cls, folder: Path | str, read_only: bool = False) -> Self:
        """Open a session to write (with its lock) or to look (beside whoever writes).

        Raises SessionMissingError, SessionLockedError, SessionNewerError, SessionBrokenError, SessionReadOnlyError or
        another StoreError, each before anything was changed.
        """
        folder = Path(folder)
        if not (folder / DATABASE).exists() and not (folder / DATABASE).is_symlink():
            raise SessionMissingError(f"there is no session in {folder}")
        if read_only:
            return cls._opened(folder, Database.open(folder / DATABASE, read_only=True), None)
        with ExitStack() as undo:
            lock = SessionLock.acquire(folder)
            undo.callback(lock.release)
            session = cls._opened(folder, Database.open(folder / DATABASE), lock)
            undo.pop_all()
            with translated(folder):
                os.utime(folder / DATABASE)  # last used
            return session

    @classmethod
    def _opened(cls, folder: Path, database: Database, lock: SessionLock | None) -> Self:
        try:
            return cls(folder, database, lock)
        except BaseException:
            database.close()
            raise

    def close(self) -> None:
        """Close the database and let the session go. Twice is once."""
        try:
            self._database.close()
        finally:
            if self._lock is not None:
                self._lock.release()
                self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @cached_property
    def metrics(self) -> "MetricStore":
        """The metrics of its runs. NumPy, which they need, takes longer to import than a session to open."""
        from core.store.metrics import MetricStore

        return MetricStore(self._database)

    @cached_property
    def labels(self) -> "LabelStore":
        """Its labels, imported when they are asked for, too."""
        from core.store.labels import LabelStore

        return LabelStore(self._database)

    @property
    def read_only(self) -> bool:
        return self._database.read_only

    @property
    def title(self) -> str:
        return self.facts.title

    @property
    def task(self) -> str:
        return self.facts.task

    @property
    def seed(self) -> int:
        return self.facts.seed

    @property
    def backbone(self) -> dict[str, Any]:
        return dict(self.facts.backbone)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Several changes in one commit, all or none; the engine writes four of these a second."""
        with self._database.transaction():
            yield

    def set_title(self, title: str) -> None:
        with self._database.transaction():
            self._facts_table.update(self._facts_table.select()[0], {"title": text(title)})
        self.facts = self._read_facts()

    def get_setting(self, key: str, default: Any = None) -> Any:
        """The JSON value last set under ``key``."""
        rows = self._settings.select("WHERE name = ?", (text(key),))
        return self._settings.parse(rows[0], "value") if rows else default

    def set_setting(self, key: str, value: Any) -> None:
        """Keep any JSON value: the screen, selections, smoothing …"""
        with self._database.transaction():
            rows = self._settings.select("WHERE name = ?", (text(key),))
            if rows:
                self._settings.update(rows[0], {"value": to_json(value)})
            else:
                self._settings.insert({"name": text(key), "value": to_json(value)})

    def rewind(self, run: int, step: int) -> None:
        """Forget what a run did after ``step``: it resumes from there. Named checkpoints stay."""
        with self._database.transaction():
            self.metrics.truncate(run, step)
            self.events.truncate(run, step)
            self.samples.truncate(run, step)
        self.checkpoints.truncate(run, step)

    def delete_run(self, run: int) -> None:
        """Delete a run and its files. Raises RunMissingError or RunInUseError."""
        self.runs.delete(run)
        self.checkpoints.delete_files(run)

    def copy_to(self, folder: Path) -> None:
        """Put a copy of everything into an empty folder; damaged checkpoints are left behind. Raises StoreError."""
        self._database.copy_to(folder / DATABASE)
        with Session.open(folder) as copy:
            for record in copy.checkpoints.list():
                try:
                    data = self.checkpoints.read(record)
                except CheckpointBrokenError:
                    copy.checkpoints.drop(record)
                else:
                    copy.checkpoints.add_file(record, data)

    def rescue(self) -> None:
        """Put the database back where it was deleted from, out of the file that is still open.

        For a folder that went away while it was in use: what was in the database is saved, the checkpoints are gone.
        Raises SessionExistsError while there is a database, or another StoreError.
        """
        with translated(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        self._database.rescue()

    def recover(self) -> str:
        """Go on after the folder was deleted or moved underneath. Returns a line on what was done ("": nothing).

        The first process of the instance puts the database back; the other one takes up what that one put there.
        Raises StoreError where nothing can be written, or where another session lies by now.
        """
        if self._lock is None or not self._database.displaced:
            return ""
        with translated(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        lock = SessionLock.acquire(self.folder)  # the old one went away with its folder
        try:
            if os.path.lexists(self.folder / DATABASE):
                with Session.open(self.folder, read_only=True) as found:
                    if found.facts.created != self.facts.created:
                        raise SessionExistsError(
                            f"another session lies in {self.folder} by now; nothing is saved there"
                        )
                self._database.reopen()
                said = f"took up {self.folder} again"
            else:
                self._database.rescue()
                lost = self.checkpoints.drop_lost()
                said = f"{self.folder} was deleted while it was open and was put back"
                said += f"; {lost} saved checkpoints are gone, everything else is there" if lost else ""
        except BaseException:
            lock.release()
            raise
        self._lock.release()
        self._lock = lock
        return said

    def _read_facts(self) -> SessionFacts:
        rows = self._facts_table.select()
        if len(rows) != 1:
            raise SessionBrokenError(f"{self._database.path} is damaged: it does not say what the session is")
        row = rows[0]
        backbone = self._facts_table.parse_object(row, "backbone")
        return SessionFacts(row["title"], row["task"], row["seed"], backbone, row["created"])
