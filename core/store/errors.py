"""What can go wrong with a session, each as one line that says what and what to do."""

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_READ_ONLY = {errno.EACCES, errno.EPERM, errno.EROFS}
_GONE = {errno.ENOENT, errno.ENOTDIR, errno.ESTALE}


class StoreError(RuntimeError):
    """Base of all. The message is one line, whatever names went into it."""

    def __init__(self, message: str) -> None:
        super().__init__("".join(each if each.isprintable() else "�" for each in message))


class SessionMissingError(StoreError):
    """There is no session where one was wanted, or its folder went away."""


class SessionExistsError(StoreError):
    """A new session would take the place of another one."""


@dataclass(frozen=True)
class Holder:
    """The process that holds a session: who, where and since when (Unix time)."""

    pid: int
    parent: int
    host: str
    since: float


class SessionLockedError(StoreError):
    """Another instance has the session. ``holder`` is None while it has not said who it is."""

    def __init__(self, message: str, holder: Holder | None = None) -> None:
        super().__init__(message)
        self.holder = holder


class SessionBusyError(StoreError):
    """The database stayed locked for longer than the time-out; the same call may succeed later."""


class SessionNewerError(StoreError):
    """A newer version of the program wrote the session; nothing of it was touched."""


class SessionBrokenError(StoreError):
    """Bytes of the database are not what was written."""


class ArchiveError(StoreError):
    """A file that was to be imported holds no session, or one that cannot be used."""


class SessionReadOnlyError(StoreError):
    """The session was opened to look only, or its place allows no writing."""


class StorageFullError(StoreError):
    """No room: a full disk, a quota or a limit on file size. What was there before is intact."""


class StorageError(StoreError):
    """Any other refusal of the file system. What was there before is intact."""


class RunMissingError(StoreError):
    """No run has that number."""


class RunInUseError(StoreError):
    """Other runs were started from the run that would be deleted."""


class CheckpointMissingError(StoreError):
    """A run has no checkpoint of that kind."""


class CheckpointBrokenError(StoreError):
    """The bytes of a checkpoint are not those that were saved."""


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]


def from_os(error: OSError, place: Path) -> StoreError:
    """The StoreError that an operating-system error at ``place`` amounts to."""
    if error.errno in _FULL:
        return StorageFullError(f"no room to write {place}: {error.strerror}; what was saved before is intact")
    if error.errno in _READ_ONLY:
        return SessionReadOnlyError(f"{place} cannot be written or read: {error.strerror}")
    if error.errno in _GONE:
        return SessionMissingError(f"{place} is not there (any more)")
    return StorageError(f"{place}: {error.strerror or one_line(error)}")


def from_sqlite(error: sqlite3.Error, place: Path) -> StoreError:
    """The StoreError that a SQLite error in the database ``place`` amounts to."""
    name = getattr(error, "sqlite_errorname", None) or ""
    text = one_line(error)
    if name == "SQLITE_FULL":
        return StorageFullError(f"no room to write {place}; what was saved before is intact")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL")):
        return SessionBusyError(f"{place} is busy: another program keeps it locked")
    if name.startswith(("SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH")):
        return SessionReadOnlyError(f"{place} cannot be written")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_FORMAT", "SQLITE_TOOBIG", "SQLITE_SCHEMA")):
        return SessionBrokenError(f"{place} is damaged: {text}")
    if name == "SQLITE_CONSTRAINT_FOREIGNKEY":
        return RunMissingError(f"{place} has no such run (any more)")
    if name.startswith("SQLITE_CANTOPEN"):
        if not place.exists():
            return SessionMissingError(f"{place} is not there (any more)")
        return SessionReadOnlyError(f"{place} cannot be opened; is its folder readable and writable?")
    if name.startswith("SQLITE_IOERR"):
        return StorageError(f"{place} cannot be written or read: {text}; what was saved before is intact")
    return SessionBrokenError(f"{place} is damaged: {text}")


@contextmanager
def translated(place: Path) -> Iterator[None]:
    """Raise StoreError for what SQLite, the file system or undecodable text raise inside."""
    try:
        yield
    except sqlite3.Error as error:
        raise from_sqlite(error, place) from error
    except OSError as error:
        raise from_os(error, place) from error
    except UnicodeDecodeError as error:
        # A damaged schema, quoted in SQLite's own message, which Python then fails to decode.
        raise SessionBrokenError(f"{place} is damaged: {one_line(error)}") from error
