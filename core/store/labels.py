"""The history of labels: entries are added and never changed, so that every undo can itself be undone.

An entry says something new, or replaces an earlier one, or (without a record) takes an earlier one back. The current
labels are the entries that nothing replaces. The database itself refuses to change or delete an entry.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.store.database import Database
from core.store.errors import LabelError
from core.store.table import Row, Table, real, to_json


@dataclass(frozen=True)
class LabelEntry:
    """``record`` is None for an entry that takes the one it ``replaces`` back. Unix time."""

    id: int
    time: float
    replaces: int | None
    record: dict[str, Any] | None


_CURRENT = "record IS NOT NULL AND id NOT IN (SELECT replaces FROM labels WHERE replaces IS NOT NULL)"


class LabelStore:
    """The labels of a session. Every call that adds is on disk when it returns."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._table = Table(database, "labels", ("time", "replaces", "record"))

    def add(self, record: Mapping[str, Any], *, time: float | None = None) -> LabelEntry:
        """A new label: ``record`` is any JSON object."""
        return self.add_many([record], time=time)[0]

    def add_many(self, records: Sequence[Mapping[str, Any]], *, time: float | None = None) -> list[LabelEntry]:
        """New labels, all or none of them, as an import wants it."""
        rows = [_row(dict(record), None, time) for record in records]
        return [self._entry({**row, "id": id}) for id, row in zip(self._table.insert_many(rows), rows, strict=True)]

    def replace(self, id: int, record: Mapping[str, Any], *, time: float | None = None) -> LabelEntry:
        """Say ``record`` instead of entry ``id``, which may be one that took another back. Raises LabelError."""
        return self._supersede(id, dict(record), time)

    def delete(self, id: int, *, time: float | None = None) -> LabelEntry:
        """Take entry ``id`` back; it stays in the history. Raises LabelError."""
        return self._supersede(id, None, time)

    def current(self) -> list[LabelEntry]:
        """The labels that hold, oldest first."""
        return [self._entry(row) for row in self._table.select(f"WHERE {_CURRENT} ORDER BY id")]

    def history(self, after: int = 0) -> list[LabelEntry]:
        """Every entry with an id above ``after``, oldest first."""
        return [self._entry(row) for row in self._table.select("WHERE id > ? ORDER BY id", (after,))]

    def get(self, id: int) -> LabelEntry:
        """Raises LabelError."""
        rows = self._table.select("WHERE id = ?", (id,))
        if not rows:
            raise LabelError(f"there is no label {id}")
        return self._entry(rows[0])

    def count(self) -> int:
        """How many labels hold."""
        return self._table.count(_CURRENT)

    def _supersede(self, id: int, record: dict[str, Any] | None, time: float | None) -> LabelEntry:
        row = _row(record, id, time)
        with self._database.transaction():
            if self.get(id).record is None and record is None:
                raise LabelError(f"label {id} takes another back already")
            if self._table.count("replaces = ?", (id,)):
                raise LabelError(f"label {id} was replaced before")
            return self._entry({**row, "id": self._table.insert(row)})

    def _entry(self, row: Row) -> LabelEntry:
        record = None if row["record"] is None else self._table.parse(row, "record")
        return LabelEntry(row["id"], row["time"], row["replaces"], record)


def _row(record: dict[str, Any] | None, replaces: int | None, when: float | None) -> Row:
    moment = real(time.time() if when is None else when)
    return {"time": moment or 0.0, "replaces": replaces, "record": None if record is None else to_json(record)}
