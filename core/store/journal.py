"""What happened and what the model wrote: events (marks on the charts, the log) and samples."""

import time
from dataclasses import dataclass
from typing import Any

from core.store.database import Database
from core.store.table import Row, Table, text, to_json, whole


@dataclass(frozen=True)
class EventRecord:
    """A knob change, an alert, a note …; ``run`` and ``step`` are None where it belongs to none. Unix time."""

    id: int
    run: int | None
    step: int | None
    time: float
    kind: str
    message: str
    data: dict[str, Any]


@dataclass(frozen=True)
class SampleRecord:
    """What the model wrote at a step; ``data`` is what the engine reported, as JSON values. Unix time."""

    id: int
    run: int
    step: int
    time: float
    data: Any


class EventStore:
    """The log of a session."""

    def __init__(self, database: Database) -> None:
        self._table = Table(database, "events", ("run", "step", "time", "kind", "message", "data"))

    def add(
        self,
        run: int | None,
        step: int | None,
        kind: str,
        message: str = "",
        data: dict[str, Any] | None = None,
    ) -> EventRecord:
        values: Row = {
            "run": run, "step": None if step is None else whole(step), "time": time.time(), "kind": text(kind),
            "message": text(message), "data": to_json(data or {}),
        }  # fmt: skip
        return EventRecord(**{**values, "id": self._table.insert(values), "data": dict(data or {})})

    def read(
        self, run: int | None = None, kind: str | None = None, after: int = 0, last: int | None = None
    ) -> list[EventRecord]:
        """Oldest first: of one run or all, of one kind or all, with ids above ``after``, only the ``last`` of them."""
        limit = "" if last is None else f"LIMIT {int(last)}"
        rows = self._table.select(
            f"WHERE id > ? AND (?2 IS NULL OR run = ?2) AND (?3 IS NULL OR kind = ?3) ORDER BY id DESC {limit}",
            (after, run, kind),
        )
        return [EventRecord(**{**row, "data": self._table.parse(row, "data")}) for row in reversed(rows)]

    def truncate(self, run: int, after_step: int) -> None:
        """Forget what happened to a run after a step, as when it resumes from there."""
        self._table.delete("run = ? AND step > ?", (run, after_step))


class SampleStore:
    """The samples of a session's runs."""

    def __init__(self, database: Database) -> None:
        self._table = Table(database, "samples", ("run", "step", "time", "data"))

    def add(self, run: int, step: int, data: Any) -> SampleRecord:
        values: Row = {"run": run, "step": whole(step), "time": time.time(), "data": to_json(data)}
        return SampleRecord(**{**values, "id": self._table.insert(values), "data": data})

    def read(self, run: int, after_step: int = -1, last: int | None = None) -> list[SampleRecord]:
        """Oldest first: those of steps above ``after_step``, only the ``last`` of them."""
        limit = "" if last is None else f"LIMIT {int(last)}"
        rows = self._table.select(f"WHERE run = ? AND step > ? ORDER BY id DESC {limit}", (run, after_step))
        return [SampleRecord(**{**row, "data": self._table.parse(row, "data")}) for row in reversed(rows)]

    def truncate(self, run: int, after_step: int) -> None:
        self._table.delete("run = ? AND step > ?", (run, after_step))
