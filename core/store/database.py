"""One connection to a session's SQLite database: durable, versioned, and with errors that a person can read.

The journal is a write-ahead log, so that the app can add a label while the engine writes metrics; where that cannot
be (some network file systems) it is SQLite's rollback journal. Either way a commit is on the disk when it returns.
"""

import os
import sqlite3
import stat
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from core.store import files, schema
from core.store.errors import (
    SessionBrokenError,
    SessionExistsError,
    SessionMissingError,
    SessionNewerError,
    SessionReadOnlyError,
    StorageError,
    from_sqlite,
    translated,
)

BUSY_SECONDS = 5.0
_HEADER_BYTES = 100


class Database:
    """Made by :meth:`create` or :meth:`open`; all methods may be called from any thread, one at a time."""

    def __init__(self, path: Path, connection: sqlite3.Connection, read_only: bool) -> None:
        self.path = path
        self.read_only = read_only
        self.notes: list[str] = []  # what opening did that a person should know
        self._connection = connection
        self._lock = threading.RLock()
        self._inside = False  # a transaction
        self.rollbacks = 0  # so that whoever remembers what it wrote can forget it
        self._doomed = False  # a part of it failed, so the whole must
        self._inode = path.stat().st_ino

    @classmethod
    def create(cls, path: Path, fill: Mapping[str, Sequence[tuple[Any, ...]]]) -> None:
        """Make a database whole or not at all, with ``fill`` as its first rows (all columns, by table).

        Raises SessionExistsError where there is one already.
        """
        fresh = files.temporary_beside(path)
        try:
            with translated(path):
                connection = sqlite3.connect(fresh, isolation_level=None)
                try:
                    connection.execute("PRAGMA synchronous = FULL")
                    connection.execute("BEGIN IMMEDIATE")
                    schema.create(connection)
                    for table, rows in fill.items():
                        for row in rows:
                            connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
                    connection.execute("COMMIT")
                finally:
                    connection.close()
                files.sync_file(fresh)
                if path.exists() or path.is_symlink():
                    raise SessionExistsError(f"{path} exists already")
                fresh.rename(path)
                files.sync_folder(path.parent)
        finally:
            for left_over in (fresh, fresh.with_name(fresh.name + "-journal")):
                left_over.unlink(missing_ok=True)

    @classmethod
    def open(
        cls, path: Path, read_only: bool = False, migrations: Mapping[int, schema.Migration] | None = None
    ) -> "Database":
        """Open what :meth:`create` made. A file that is newer, foreign or damaged keeps its bytes.

        Raises SessionMissingError, SessionNewerError, SessionBrokenError, SessionReadOnlyError or another StoreError.
        """
        steps = schema.MIGRATIONS if migrations is None else migrations
        with translated(path):
            peek_version(path)
            opened = cls._open_to_read(path) if read_only else cls._open_to_write(path)
            try:
                # Asked again: a conversion may lie in the write-ahead log that the file's head does not know of yet.
                version = int(opened.rows("PRAGMA user_version")[0][0])
                if version > schema.FORMAT_VERSION:
                    raise _newer(path, version)
                if version < schema.FORMAT_VERSION:
                    opened._migrate(version, steps)
                opened._verify()
            except BaseException:
                opened.close()
                raise
            return opened

    @classmethod
    def _open_to_write(cls, path: Path) -> "Database":
        if not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
            raise SessionReadOnlyError(f"{path} cannot be written; open it read-only or take a copy")
        return cls(path, _connect(path, "rw"), read_only=False)

    @classmethod
    def _open_to_read(cls, path: Path) -> "Database":
        # A write-ahead log needs a shared-memory file beside it. Where none can be made, the file is read as it
        # stands, which is right unless a log with more in it lies beside.
        try:
            connection = _connect(path, "ro")
        except sqlite3.OperationalError:
            if wal_size(path):
                raise
            connection = _connect(path, "ro", immutable=True)
        return cls(path, connection, read_only=True)

    def close(self) -> None:
        with self._lock, translated(self.path):
            self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing, on disk when the outermost one ends. Raises StoreError, after which nothing was changed."""
        with self._lock:
            if self._inside:
                try:
                    yield self._connection
                except BaseException:
                    self._doomed = True
                    raise
                return
            self.check_writable()
            with translated(self.path):
                self._connection.execute("BEGIN IMMEDIATE")
            self._inside, self._doomed = True, False
            try:
                yield self._connection
                if self._doomed:
                    raise StorageError(f"{self.path}: a part of the change failed, so nothing was changed")
                self._connection.execute("COMMIT")
            except BaseException as error:
                self._roll_back()
                if isinstance(error, sqlite3.Error):
                    raise from_sqlite(error, self.path) from error
                raise
            finally:
                self._inside = False

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a query. Raises StoreError."""
        with self._lock, translated(self.path):
            return self._connection.execute(sql, parameters).fetchall()

    def copy_to(self, target: Path) -> None:
        """A consistent copy of the database, complete or absent, also while others write. Raises StoreError."""
        fresh = files.temporary_beside(target)
        with self._lock, translated(target):
            try:
                copy = sqlite3.connect(fresh)
                try:
                    self._connection.backup(copy)
                    copy.execute("PRAGMA journal_mode = DELETE")
                finally:
                    copy.close()
                files.sync_file(fresh)
                fresh.rename(target)
                files.sync_folder(target.parent)
            finally:
                fresh.unlink(missing_ok=True)

    def rescue(self) -> None:
        """Write the database anew where it was deleted from. Raises SessionExistsError while something is there."""
        with self._lock, translated(self.path):
            if os.path.lexists(self.path):
                raise SessionExistsError(f"{self.path} is there; nothing to rescue")
            copy = files.temporary_beside(self.path)
            try:
                self.copy_to(copy)
                # Closing deletes a log of the path's name, so the new file takes its place only after that. A link,
                # unlike a rename, takes no place that the other process of the instance took first.
                self._connection.close()
                with suppress(FileExistsError):
                    os.link(copy, self.path)
                files.sync_folder(self.path.parent)
                self._connection = _connect(self.path, "rw")
                self._inode = self.path.stat().st_ino
            finally:
                copy.unlink(missing_ok=True)

    @property
    def displaced(self) -> bool:
        """Does the path lead to another file than the open one, or to none?"""
        try:
            return self.path.stat().st_ino != self._inode
        except OSError:
            return True

    def reopen(self) -> None:
        """Take up the file that lies at the path now. Raises StoreError, after which the old one is still open."""
        with self._lock:
            other = Database.open(self.path)
            self._connection.close()
            self._connection, self._inode = other._connection, other._inode

    def check_writable(self) -> None:
        """Raises SessionReadOnlyError, or SessionMissingError once the file is gone: SQLite would write on, unseen."""
        if self.read_only:
            raise SessionReadOnlyError(f"{self.path} was opened read-only")
        if self.displaced:
            raise SessionMissingError(f"{self.path} was deleted or replaced while it was open; nothing more is saved")

    def _roll_back(self) -> None:
        self.rollbacks += 1
        if self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except sqlite3.Error:
                pass  # SQLite has rolled back already, as it does after a full disk; the first error is the one to tell

    def _verify(self) -> None:
        if schema.fingerprint(self._connection) != schema.expected_fingerprint():
            raise SessionBrokenError(f"{self.path} is damaged: its tables are not those of a session")
        # Not quick_check, which passes an index that leads to fewer rows than there are.
        found = [str(row[0]) for row in self._connection.execute("PRAGMA integrity_check(1)")]
        if found != ["ok"]:
            raise SessionBrokenError(f"{self.path} is damaged: {found[0] if found else 'no answer'}")

    def _migrate(self, version: int, migrations: Mapping[int, schema.Migration]) -> None:
        if self.read_only:
            raise SessionReadOnlyError(
                f"{self.path} has format {version}, this program writes {schema.FORMAT_VERSION}: "
                "open it once for writing, it is backed up and converted"
            )
        missing = [each for each in range(version, schema.FORMAT_VERSION) if each not in migrations]
        if missing:
            raise SessionBrokenError(f"{self.path} has format {version}, which no version of this program wrote")
        backup = self.path.with_name(f"{self.path.stem}.format-{version}.backup.db")
        self.copy_to(backup)
        with self.transaction() as connection:
            for each in range(version, schema.FORMAT_VERSION):
                migrations[each](connection)
            connection.execute(f"PRAGMA user_version = {schema.FORMAT_VERSION}")
        self.notes.append(f"converted from format {version} to {schema.FORMAT_VERSION}; the old file is {backup.name}")


def _connect(path: Path, mode: str, immutable: bool = False) -> sqlite3.Connection:
    uri = f"file:{quote(str(path.absolute()))}?mode={mode}" + ("&immutable=1" if immutable else "")
    connection = sqlite3.connect(
        uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    try:
        if mode == "rw":
            _choose_journal(connection)
        # A session may come from anyone: no function of its schema is trusted, and cells are checked as they are read.
        for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "foreign_keys = ON", "synchronous = FULL"):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _choose_journal(connection: sqlite3.Connection) -> None:
    try:
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        if not error.sqlite_errorname.startswith(("SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_PROTOCOL")):
            raise
        # No shared memory here; in exclusive mode SQLite does without it for as long as it takes to leave WAL.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = DELETE").fetchone()
        connection.execute("PRAGMA locking_mode = NORMAL")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()


def wal_size(path: Path) -> int:
    """Bytes in the write-ahead log beside a database; 0 when there is none."""
    try:
        return os.stat(f"{path}-wal").st_size  # noqa: PTH116 (half the time of Path, a thousand times in a list)
    except OSError:
        return 0


def peek_version(path: Path) -> int:
    """The format version, read without SQLite so that not even a journal is touched.

    Raises SessionMissingError, SessionNewerError or SessionBrokenError.
    """
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        raise SessionMissingError(f"no session in {path.parent}") from None
    if not stat.S_ISREG(status.st_mode):
        raise SessionBrokenError(f"{path} is not a plain file")
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    if len(header) < _HEADER_BYTES or not header.startswith(b"SQLite format 3\0"):
        raise SessionBrokenError(f"{path} is damaged: not a SQLite database")
    if int.from_bytes(header[68:72], "big") != schema.APPLICATION_ID:
        raise SessionBrokenError(f"{path} is damaged, or not a session of this program")
    version = int.from_bytes(header[60:64], "big")
    if version > schema.FORMAT_VERSION:
        raise _newer(path, version)
    return version


def _newer(path: Path, version: int) -> SessionNewerError:
    return SessionNewerError(
        f"{path} has format {version}, this program knows {schema.FORMAT_VERSION}: a newer version wrote it; "
        "nothing was changed"
    )
