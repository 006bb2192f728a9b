"""Sessions on disk: a SQLite database and immutable checkpoint files. Torch-free, but for :mod:`core.store.tensors`."""

from core.store.errors import (
    CheckpointBrokenError,
    CheckpointMissingError,
    SessionBrokenError,
    SessionExistsError,
    SessionLockedError,
    SessionMissingError,
    SessionNewerError,
    SessionReadOnlyError,
    StorageError,
    StorageFullError,
    StoreError,
)
from core.store.session import Session

__all__ = [
    "CheckpointBrokenError",
    "CheckpointMissingError",
    "Session",
    "SessionBrokenError",
    "SessionExistsError",
    "SessionLockedError",
    "SessionMissingError",
    "SessionNewerError",
    "SessionReadOnlyError",
    "StorageError",
    "StorageFullError",
    "StoreError",
]
