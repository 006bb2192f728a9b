"""Where sessions live, and what can be done to a session as a whole: find, list, rename, duplicate, trash, restore."""

import os
import secrets
import shutil
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import platformdirs

from core.config import nearest
from core.store import files
from core.store.errors import (
    SessionLockedError,
    SessionMissingError,
    StorageError,
    translated,
)
from core.store.lock import SessionLock, current_holder
from core.store.session import DATABASE, Session
from core.store.slugs import is_slug, slug
from core.store.summaries import SessionSummary, first_look, summaries, summary

VARIABLE = "RLHF_TUI_SAVES"
TRASH = ".trash"


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
    return sorted(summaries(saves, _session_folders(saves)), key=lambda each: -each.used)


def glance_at_sessions(saves: Path) -> list[SessionSummary]:
    """The same as far as it can be said at once; the others are not ``known`` yet."""
    return sorted(first_look(saves, _session_folders(saves)), key=lambda each: -each.used)


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
        (summary(each) for each in _subfolders(saves / TRASH)), key=lambda each: _trashed(each.folder), reverse=True
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
