"""Where sessions live, and what can be done to a session as a whole: find, list, rename, duplicate, trash, restore."""

import os
import secrets
import shutil
import sqlite3
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import platformdirs

from core.config import nearest
from core.store import files
from core.store.database import peek_version, wal_size
from core.store.errors import (
    SessionBrokenError,
    SessionLockedError,
    SessionMissingError,
    StorageError,
    StoreError,
    translated,
)
from core.store.lock import SessionLock, current_holder
from core.store.session import DATABASE, Session
from core.store.slugs import is_slug, slug
from core.store.table import checksum

VARIABLE = "RLHF_TUI_SAVES"
TRASH = ".trash"


_SUMMARY = """SELECT id, title, task, seed, backbone, created, checksum, (SELECT count(*) FROM runs),
    coalesce((SELECT current FROM labels ORDER BY id DESC LIMIT 1), 0),
    (SELECT coalesce(sum(size), 0) FROM checkpoints) FROM session"""


@dataclass(frozen=True)
class SessionSummary:
    """A line of the list of sessions. ``size`` in bytes, ``used`` a Unix time; ``problem`` says why it cannot open."""

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

    @property
    def name(self) -> str:
        return self.folder.name


def saves_folder(wanted: str | Path | None = None) -> Path:
    """``wanted``, else what RLHF_TUI_SAVES says, else ``saves`` of a checkout one stands in, else the user's data."""
    if wanted:
        return Path(wanted).expanduser()
    if os.environ.get(VARIABLE):
        return Path(os.environ[VARIABLE]).expanduser()
    if _is_checkout(Path.cwd()):
        return Path.cwd() / "saves"
    return Path(platformdirs.user_data_dir("rlhf-tui", appauthor=False)) / "saves"


def free_folder(saves: Path, title: str) -> Path:
    """A folder for a session of that title which nothing has taken. It is not made."""
    base = slug(title)
    number = 1
    while True:
        folder = saves / (base if number == 1 else f"{base}-{number}")
        if not os.path.lexists(folder):
            return folder
        number += 1


def create_session(
    saves: Path, title: str, task: str = "words", seed: int = 42, backbone: Mapping[str, Any] | None = None
) -> Session:
    """A new session under ``saves`` in a folder of its own. Raises StoreError."""
    return Session.create(free_folder(saves, title), task=task, seed=seed, title=title, backbone=backbone)


def list_sessions(saves: Path) -> list[SessionSummary]:
    """Every session, the last used first; those that cannot be opened say why."""
    return sorted((_summary(each) for each in _session_folders(saves)), key=lambda each: -each.used)


def find_session(saves: Path, name: str) -> Path:
    """The folder of the session with that folder name or title. Raises SessionMissingError that names the nearest."""
    if is_slug(name) and (saves / name / DATABASE).is_file():
        return saves / name
    known = list_sessions(saves)
    for each in known:
        if each.title == name:
            return each.folder
    near = nearest(name, [word for each in known for word in (each.name, each.title)])
    raise SessionMissingError(f"there is no session '{name}' in {saves}{near}")


def last_session(saves: Path) -> Path | None:
    """The session used last that can be opened."""
    return next((each.folder for each in list_sessions(saves) if not each.problem), None)


def rename_session(folder: Path, title: str) -> Path:
    """Give a session another title and a folder name to match. Returns the folder. Raises StoreError when in use."""
    with Session.open(folder) as session:
        session.set_title(title)
        if slug(title) == slug(folder.name):
            return folder
        target = free_folder(folder.parent, title)
    with _alone(folder):
        _move(folder, target)
    return target


def duplicate_session(folder: Path, title: str | None = None) -> Path:
    """A copy that is complete or absent, also of a session that someone is using. Returns its folder.

    Damaged checkpoints are left behind.
    """
    saves = folder.parent
    with Session.open(folder, read_only=True) as original:
        title = title or f"Copy of {original.title}"
        building = saves / f"{files.TEMPORARY_PREFIX}{secrets.token_hex(6)}"
        try:
            with translated(building):
                building.mkdir()
            original.copy_to(building)
            with Session.open(building) as copy:
                copy.set_title(title)
            target = free_folder(saves, title)
            _move(building, target)
        finally:
            shutil.rmtree(building, ignore_errors=True)
    return target


def trash_session(folder: Path) -> Path:
    """Move a session to the trash. Returns where it lies. Raises SessionLockedError while it is in use."""
    trash = folder.parent / TRASH
    with _alone(folder), translated(trash):
        trash.mkdir(exist_ok=True)
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        target = trash / f"{folder.name}.{stamp}-{secrets.token_hex(2)}"
        _move(folder, target)
    return target


def list_trash(saves: Path) -> list[SessionSummary]:
    """What lies in the trash, the last trashed first."""
    return sorted(
        (_summary(each) for each in _subfolders(saves / TRASH)), key=lambda each: _trashed(each.folder), reverse=True
    )


def restore_session(trashed: Path) -> Path:
    """Take a session out of the trash, under its old folder name if that is free. Returns its folder."""
    if trashed.parent.name != TRASH or not (trashed / DATABASE).is_file():
        raise SessionMissingError(f"there is no session in the trash at {trashed}")
    target = free_folder(trashed.parent.parent, trashed.name.partition(".")[0])
    _move(trashed, target)
    return target


def empty_trash(saves: Path) -> int:
    """Delete what lies in the trash for good. Returns how many sessions that were."""
    trashed = _subfolders(saves / TRASH)
    for each in trashed:
        with translated(each):
            if each.is_symlink():
                each.unlink()
            else:
                shutil.rmtree(each)
    return len(trashed)


def _is_checkout(folder: Path) -> bool:
    try:
        with (folder / "pyproject.toml").open("rb") as file:
            project = tomllib.load(file).get("project", {})
    except (OSError, ValueError):
        return False
    return isinstance(project, dict) and project.get("name") == "rlhf-tui"


def _subfolders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [folder / each.name for each in entries if each.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise StorageError(f"{folder} cannot be read: {error.strerror}") from error


def _session_folders(saves: Path) -> Iterator[Path]:
    for folder in _subfolders(saves):
        if not folder.name.startswith(".") and os.path.lexists(f"{folder}/{DATABASE}"):
            yield folder


def _summary(folder: Path) -> SessionSummary:
    try:
        return _read_summary(folder)
    except StoreError as error:
        size, used = _size_and_time(folder / DATABASE)
        return SessionSummary(folder, folder.name, "", 0, 0, 0, size, 0.0, used, problem=str(error))


def _read_summary(folder: Path) -> SessionSummary:
    """One query past all checks but the row's own: a thousand sessions are listed while a person waits."""
    path = folder / DATABASE
    with translated(path):
        peek_version(path)
        size, used = _size_and_time(path)
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


def _size_and_time(path: Path) -> tuple[int, float]:
    """Bytes of a database with its log and when one of them last changed; 0 for what cannot be seen."""
    size, used = 0, 0.0
    for each in (str(path), f"{path}-wal"):
        try:
            status = os.lstat(each)
        except OSError:
            continue
        size, used = size + status.st_size, max(used, status.st_mtime)
    return size, used


def _trashed(folder: Path) -> str:
    return folder.name.rpartition(".")[2]


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the session while its folder moves, so that nobody opens it meanwhile. Raises SessionLockedError."""
    if not os.path.lexists(folder / DATABASE):
        raise SessionMissingError(f"there is no session in {folder}")
    lock = SessionLock.acquire(folder)
    try:
        if not lock.alone:
            raise SessionLockedError(f"session {folder.name} is open; close it first", current_holder(folder))
        yield
    finally:
        lock.release()


def _move(folder: Path, target: Path) -> None:
    with translated(folder):
        folder.rename(target)
        for parent in {folder.parent, target.parent}:
            files.sync_folder(parent)
