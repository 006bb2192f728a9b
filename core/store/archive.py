"""A session as one file to send or to keep: a ZIP that holds its folder. A file that comes back may be anyone's."""

import errno
import os
import secrets
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from core.store import files
from core.store.checkpoints import is_checkpoint_file
from core.store.errors import (
    ArchiveError,
    CheckpointBrokenError,
    StorageError,
    StorageFullError,
    StoreError,
    one_line,
    translated,
)
from core.store.locations import free_folder
from core.store.session import DATABASE, Session

MOST_BYTES = 4 * 1024**3  # unpacked; a hundred runs with all their weights have 3 GB
MOST_FILES = 20_000
MOST_GROWTH = 200  # times the archive's size: weights do not shrink, a new database to a fiftieth
ALLOWANCE = 16 * 1024**2  # bytes that may come out of any archive
_CHUNK = 1 << 20


def export_session(folder: Path, target: Path) -> Path:
    """Write the session in ``folder``, which may be in use, to ``target``, complete or not at all. Returns the file.

    A ``target`` that is a folder gets a file named after the session. Damaged checkpoints are left out. Raises
    StoreError, also where there is a file already.
    """
    file = target / f"{folder.name}.zip" if target.is_dir() else target
    building = files.temporary_beside(file)
    packed = building.with_name(f"{building.name}.zip")
    with translated(file):
        if file.exists():
            raise StorageError(f"{file} is there already; name another file")
        try:
            building.mkdir()
            with Session.open(folder, read_only=True) as session:
                session.copy_to(building)
            # Weights are random to a packer: it would take longer and save little.
            with zipfile.ZipFile(packed, "w") as archive:
                archive.write(building / DATABASE, f"{folder.name}/{DATABASE}", zipfile.ZIP_DEFLATED)
                for each in sorted((building / "checkpoints").glob("*/*.safetensors")):
                    archive.write(each, f"{folder.name}/checkpoints/{each.parent.name}/{each.name}")
            files.sync_file(packed)
            packed.rename(file)
            files.sync_folder(file.parent)
        finally:
            shutil.rmtree(building, ignore_errors=True)
            packed.unlink(missing_ok=True)
    return file


def import_session(file: Path, saves: Path) -> Path:
    """Unpack what :func:`export_session` wrote into a folder of its own under ``saves``, whole or not at all.

    Nothing of the archive is believed: only names that an export has are written, as plain files, within limits of
    size and number; the database is checked as any foreign session's is, and checkpoints that are not what its rows
    say are left out. Returns the folder. Raises ArchiveError or another StoreError.
    """
    building = saves / f"{files.TEMPORARY_PREFIX}{secrets.token_hex(6)}"
    try:
        with translated(file), _refusing(file):
            if not file.is_file():
                raise ArchiveError(f"there is no file {file}")
            with zipfile.ZipFile(file) as archive:
                title, entries = _entries(archive, file.stat().st_size)
                with translated(saves):
                    building.mkdir(parents=True)
                    _check_room(saves, entries)
                for name, entry in entries.items():
                    _unpack(archive, entry, building / name)
            _verify(building)
        target = free_folder(saves, title)
        with translated(target):
            building.rename(target)
            files.sync_folder(saves)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return target


@contextmanager
def _refusing(file: Path) -> Iterator[None]:
    """Raise ArchiveError for whatever a file is that is no archive, or a broken one."""
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        if error.errno != errno.EINVAL:  # as of a place before the file's beginning
            raise
        raise ArchiveError(f"{file} is no whole ZIP: it names no places in it") from error
    except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, RuntimeError, ValueError) as error:
        raise ArchiveError(f"{file} is no whole ZIP: {one_line(error)}") from error


def _entries(archive: zipfile.ZipFile, size: int) -> tuple[str, dict[str, zipfile.ZipInfo]]:
    """The name of the session's folder, and what is to be unpacked by its place in it. Raises ArchiveError."""
    found: dict[str, zipfile.ZipInfo] = {}
    tops = set()
    for entry in archive.infolist():
        if entry.filename.endswith("/"):
            continue  # a folder
        top, _, name = entry.filename.partition("/")
        parts = name.split("/")
        checkpoint = len(parts) == 3 and parts[0] == "checkpoints" and is_checkpoint_file(parts[1], parts[2])
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if not (checkpoint or name == DATABASE) or name in found or kind not in (0, stat.S_IFREG):
            raise ArchiveError(f"{archive.filename} is no exported session: it holds '{entry.filename[:80]}'")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ArchiveError(f"{archive.filename} is no exported session: it is packed in a way of its own")
        tops.add(top)
        found[name] = entry
    if len(tops) != 1 or DATABASE not in found:
        raise ArchiveError(f"{archive.filename} is no exported session: it holds not one session")
    total = sum(entry.file_size for entry in found.values())
    if len(found) > MOST_FILES or total > min(MOST_BYTES, MOST_GROWTH * size + ALLOWANCE):
        raise ArchiveError(
            f"{archive.filename} is not unpacked: {len(found):,} files of {total / 1e9:,.1f} GB are too many, or too "
            f"much for an archive of {size / 1e6:,.1f} MB"
        )
    return tops.pop(), found


def _check_room(saves: Path, entries: dict[str, zipfile.ZipInfo]) -> None:
    total, free = sum(entry.file_size for entry in entries.values()), shutil.disk_usage(saves).free
    if total > free:
        raise StorageFullError(f"no room in {saves}: the session has {total / 1e6:,.0f} MB, {free / 1e6:,.0f} are free")


def _unpack(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, target: Path) -> None:
    """Write one file; never more bytes than the archive's list says, and those with the right checksum."""
    with archive.open(entry) as source, translated(target.parent):
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            shutil.copyfileobj(source, file, _CHUNK)
            file.flush()
            os.fsync(file.fileno())


def _verify(building: Path) -> None:
    """Open it once as what it is: a stranger's session. Raises ArchiveError."""
    try:
        with Session.open(building) as session:
            session.runs.all()
            for record in session.checkpoints.list():
                try:
                    session.checkpoints.read(record)
                except CheckpointBrokenError:
                    session.checkpoints.drop(record)
    except StoreError as error:
        said = str(error).replace(f"{building}{os.sep}", "")  # a place that nobody has heard of
        raise ArchiveError(f"the session in the archive cannot be used: {said}") from error
