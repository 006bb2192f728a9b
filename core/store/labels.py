"""The labels of a session: a history that only grows, on disk before a call returns.

What an event means is :mod:`core.preferences.history`'s; here each becomes one row. The database itself refuses to
change or delete a row.
"""

import time as clock
from collections.abc import Callable, Sequence

from core.preferences.history import LabelEvent, LabelHistory
from core.preferences.labels import LabelError, LabelRecord
from core.store.database import Database
from core.store.errors import SessionBrokenError
from core.store.table import Table, real, to_json


class LabelStore:
    """The labels that count and how they came about. Every call sees what other processes added before it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._table = Table(database, "labels", ("time", "event", "current"))
        self._history = LabelHistory()
        self._rollbacks = 0

    def add(self, records: LabelRecord | Sequence[LabelRecord], *, time: float | None = None) -> LabelEvent:
        """Add labels, all or none (several for a best-and-worst answer or an import). Raises LabelError, StoreError."""
        several = (records,) if isinstance(records, LabelRecord) else tuple(records)
        return self._write(lambda history: history.add(several, _moment(time)))

    def replace(self, label: str, record: LabelRecord, *, time: float | None = None) -> LabelEvent:
        """Put ``record``, whose ``replaces`` names it, in the place of a label. Raises LabelError, StoreError."""
        return self._write(lambda history: history.replace(label, record, _moment(time)))

    def delete(self, labels: str | Sequence[str], *, time: float | None = None) -> LabelEvent:
        """Take labels out of what counts; the history keeps them. Raises LabelError, StoreError."""
        several = (labels,) if isinstance(labels, str) else tuple(labels)
        return self._write(lambda history: history.delete(several, _moment(time)))

    def undo(self, *, time: float | None = None) -> LabelEvent | None:
        """Undo the newest change that is not undone yet; None when nothing is left to undo. Raises StoreError."""
        with self._database.transaction():
            if self._read().undo(_moment(time)) is None:
                return None
            return self._write(lambda history: history.undo(_moment(time)))

    def current(self) -> tuple[LabelRecord, ...]:
        """The labels that count, in the order in which they were given."""
        return self._read().current

    def count(self) -> int:
        """How many labels count, without reading them."""
        newest = self._table.select("ORDER BY id DESC LIMIT 1")
        return int(newest[0]["current"]) if newest else 0

    def get(self, label: str) -> LabelRecord:
        """The label with this id, if it counts. Raises LabelError."""
        return self._read().get(label)

    def history(self) -> tuple[LabelEvent, ...]:
        """Every change there ever was, oldest first."""
        return tuple(self._read().events)

    def _write(self, plan: Callable[[LabelHistory], LabelEvent | None]) -> LabelEvent:
        with self._database.transaction():
            history = self._read()
            event = plan(history)
            assert event is not None, "undo has looked before"
            history.append(event)
            row = {"time": real(event.time) or 0.0, "event": to_json(event.to_dict()), "current": len(history)}
            self._table.insert(row, id=event.sequence)
        return event

    def _read(self) -> LabelHistory:
        """The history with what is new on disk, and without what a rolled-back transaction had put there."""
        if self._database.rollbacks != self._rollbacks:
            self._history = LabelHistory()
            self._rollbacks = self._database.rollbacks
        for row in self._table.select("WHERE id > ? ORDER BY id", (len(self._history.events),)):
            try:
                self._history.append(LabelEvent.from_dict(self._table.parse(row, "event")))
            except LabelError as error:
                raise SessionBrokenError(
                    f"{self._database.path} is damaged: label event {row['id']}: {error}"
                ) from None
        return self._history


def _moment(time: float | None) -> float:
    return clock.time() if time is None else float(time)
