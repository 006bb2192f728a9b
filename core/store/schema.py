"""The tables of a session's database and the way from older formats to this one.

Every row carries a CRC-32 over its own values (see :mod:`core.store.table`): SQLite finds a damaged page structure,
but not a damaged value.
"""

import sqlite3
from collections.abc import Callable, Mapping

FORMAT_VERSION = 1
APPLICATION_ID = 0x524C4846  # "RLHF": tells a session from any other SQLite file

TABLES = (
    """CREATE TABLE session (
        id INTEGER PRIMARY KEY CHECK (id = 1), title TEXT NOT NULL, task TEXT NOT NULL, seed INTEGER NOT NULL,
        backbone TEXT NOT NULL, created REAL NOT NULL, checksum INTEGER NOT NULL)""",
    """CREATE TABLE settings (
        id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, value TEXT NOT NULL,
        checksum INTEGER NOT NULL)""",
    """CREATE TABLE runs (
        id INTEGER PRIMARY KEY AUTOINCREMENT, method TEXT NOT NULL, title TEXT NOT NULL, state TEXT NOT NULL,
        step INTEGER NOT NULL, steps INTEGER NOT NULL, completions INTEGER NOT NULL, seconds REAL NOT NULL,
        config TEXT NOT NULL, seed INTEGER NOT NULL, inputs TEXT NOT NULL, parent INTEGER REFERENCES runs (id),
        parent_step INTEGER, message TEXT NOT NULL, notes TEXT NOT NULL, pinned INTEGER NOT NULL,
        created REAL NOT NULL, updated REAL NOT NULL, checksum INTEGER NOT NULL)""",
    """CREATE TABLE metric_names (
        id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, checksum INTEGER NOT NULL)""",
    # The newest rows of a run, one a step; 480 of them become chunks, one a metric (name 0: the axes).
    """CREATE TABLE metric_rows (
        id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE, step INTEGER NOT NULL,
        completions INTEGER NOT NULL, seconds REAL NOT NULL, data BLOB NOT NULL, checksum INTEGER NOT NULL,
        UNIQUE (run, step))""",
    """CREATE TABLE metric_chunks (
        id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE, name INTEGER NOT NULL,
        first_step INTEGER NOT NULL, last_step INTEGER NOT NULL, data BLOB NOT NULL, checksum INTEGER NOT NULL,
        UNIQUE (run, name, first_step))""",
    """CREATE TABLE events (
        id INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER REFERENCES runs (id) ON DELETE CASCADE, step INTEGER,
        time REAL NOT NULL, kind TEXT NOT NULL, message TEXT NOT NULL, data TEXT NOT NULL,
        checksum INTEGER NOT NULL)""",
    "CREATE INDEX events_by_run ON events (run, step)",
    """CREATE TABLE samples (
        id INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        step INTEGER NOT NULL, time REAL NOT NULL, data TEXT NOT NULL, checksum INTEGER NOT NULL)""",
    "CREATE INDEX samples_by_run ON samples (run, step)",
    """CREATE TABLE labels (
        id INTEGER PRIMARY KEY, time REAL NOT NULL, event TEXT NOT NULL, current INTEGER NOT NULL,
        checksum INTEGER NOT NULL)""",
    """CREATE TRIGGER labels_keep_rows BEFORE DELETE ON labels
        BEGIN SELECT raise(ABORT, 'the label history is append-only'); END""",
    """CREATE TRIGGER labels_keep_values BEFORE UPDATE ON labels
        BEGIN SELECT raise(ABORT, 'the label history is append-only'); END""",
    """CREATE TABLE checkpoints (
        id INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        step INTEGER NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, file TEXT NOT NULL UNIQUE,
        size INTEGER NOT NULL, sha256 TEXT NOT NULL, score REAL, data TEXT NOT NULL, created REAL NOT NULL,
        checksum INTEGER NOT NULL)""",
    "CREATE INDEX checkpoints_by_run ON checkpoints (run, kind, id)",
)

Migration = Callable[[sqlite3.Connection], None]

MIGRATIONS: Mapping[int, Migration] = {}
"""By format version: what leads from it to the next one. Runs inside one transaction, after a backup."""


def create(connection: sqlite3.Connection) -> None:
    """Lay out an empty database, inside the caller's transaction."""
    for statement in TABLES:
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")


def fingerprint(connection: sqlite3.Connection) -> tuple[tuple[str, ...], ...]:
    """Everything that the schema says. Equal to that of a fresh database unless someone tampered with it."""
    rows = connection.execute("SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master ORDER BY type, name")
    return tuple(tuple(str(value) for value in row) for row in rows if row[1] != "sqlite_sequence")


def expected_fingerprint() -> tuple[tuple[str, ...], ...]:
    """The fingerprint of a fresh database of this format."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        create(connection)
        return fingerprint(connection)
    finally:
        connection.close()
