"""One instance owns a session: an app or a command, together with the engine it started.

Two lock files, each held by one process. The first process takes ``.lock``. A second one is let in, on
``.lock-companion``, only when it is the first one's child or parent: the app and its engine, in whichever order they
come. Locks are the operating system's, so they end with their process; the session is free when both are gone.
Beside each lock a small JSON file tells a third process whom it is waiting for.
"""

import json
import os
import platform
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from filelock import FileLock, Timeout

from core.store import files
from core.store.errors import Holder, SessionLockedError, translated

FIRST = ".lock"
COMPANION = ".lock-companion"


class SessionLock:
    """Held from :meth:`acquire` until :meth:`release` or the end of the process."""

    def __init__(self, lock: FileLock, alone: bool) -> None:
        self._lock = lock
        self.alone = alone  # nobody else of the instance has the session open

    @classmethod
    def acquire(cls, folder: Path) -> "SessionLock":
        """Raises SessionLockedError that says who has the session, or another StoreError."""
        with translated(folder):
            first = _try(folder, FIRST)
            if first is not None:
                companion = _try(folder, COMPANION)
                if companion is None:
                    # The engine of an app that is gone is still saving.
                    first.release()
                    raise _locked(folder, _holder(folder, COMPANION))
                companion.release()
                _say(folder, FIRST)
                return cls(first, alone=True)
            holder = _holder(folder, FIRST)
            if holder is None or not _is_family(holder):
                raise _locked(folder, holder)
            companion = _try(folder, COMPANION)
            if companion is None:
                raise _locked(folder, _holder(folder, COMPANION))
            _say(folder, COMPANION)
            return cls(companion, alone=False)

    def release(self) -> None:
        self._lock.release()


def current_holder(folder: Path) -> Holder | None:
    """Who has the session open for writing, None when nobody has (or nobody that said so)."""
    with translated(folder):
        for name in (FIRST, COMPANION):
            if not (folder / name).exists():
                continue
            lock = _try(folder, name)
            if lock is None:
                return _holder(folder, name) or Holder(0, 0, "", 0.0)
            lock.release()
    return None


def _try(folder: Path, name: str) -> FileLock | None:
    lock = FileLock(folder / name, timeout=0, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        return None
    return lock


def _say(folder: Path, lock: str) -> None:
    me = Holder(os.getpid(), os.getppid(), platform.node(), time.time())
    fresh = files.temporary_beside(folder / lock)
    try:
        fresh.write_text(json.dumps(asdict(me)), encoding="utf-8")
        fresh.replace(folder / f"{lock}-holder.json")
    finally:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)


def _holder(folder: Path, lock: str) -> Holder | None:
    try:
        said = json.loads((folder / f"{lock}-holder.json").read_text(encoding="utf-8"))
        return Holder(int(said["pid"]), int(said["parent"]), str(said["host"]), float(said["since"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _is_family(holder: Holder) -> bool:
    return holder.host == platform.node() and (holder.pid == os.getppid() or holder.parent == os.getpid())


def _locked(folder: Path, holder: Holder | None) -> SessionLockedError:
    if holder is None:
        return SessionLockedError(f"session {folder.name} is open in another program", None)
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(holder.since))
    return SessionLockedError(
        f"session {folder.name} is open in process {holder.pid} on {holder.host} since {since}; "
        "look at it read-only, or take a copy",
        holder,
    )
