"""Files that are complete or absent, whatever happens: write beside the target, fsync, rename, fsync the folder."""

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

TEMPORARY_PREFIX = ".new-"


def temporary_beside(path: Path) -> Path:
    """A name that nobody else uses, in the folder of ``path`` (a rename across file systems is not atomic)."""
    return path.with_name(f"{TEMPORARY_PREFIX}{secrets.token_hex(6)}")


def sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Make a rename in the folder last. Does nothing where folders cannot be opened (Windows)."""
    with suppress(PermissionError):
        sync_file(path)


def write_new(path: Path, data: bytes) -> None:
    """Write a file that did not exist, whole and durable. Raises OSError, after which nothing is left behind."""
    fresh = temporary_beside(path)
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o644)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(path)
        sync_folder(path.parent)
    finally:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)


def read_plain(path: Path, size: int) -> bytes | None:
    """The bytes of a plain file of exactly ``size`` bytes; None when it is anything else (link, pipe, other length)."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size != size:
            return None
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            data = file.read(size + 1)
        return data if len(data) == size else None
    except OSError:
        return None
    finally:
        os.close(descriptor)


def is_real_folder(path: Path) -> bool:
    """Is it a folder, and not a link to one?"""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False
