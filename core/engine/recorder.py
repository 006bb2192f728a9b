"""What runs report on its way into the database: gathered, and written in one transaction a few times a second."""

import time
from collections.abc import Callable
from typing import Any

from core.engine.protocol import Alert, Event
from core.store import Session
from core.store.errors import SessionMissingError, StoreError

COMMIT_EVERY = 0.5  # seconds; the engine may commit 4 times a second, and checkpoints have rows of their own

MetricRow = tuple[int, int, float, dict[str, float]]


class Recorder:
    """Rows wait here while they cannot be written (a full disk, a busy database), so that training goes on."""

    def __init__(
        self, session: Session, emit: Callable[[Event], None], recover: Callable[[], None] = lambda: None
    ) -> None:
        self._session = session
        self._emit = emit
        self._recover = recover  # put the session back where it was deleted from
        self._rows: dict[int, list[MetricRow]] = {}
        self._changes: dict[int, dict[str, Any]] = {}
        self._others: list[Callable[[], object]] = []
        self._last = 0.0
        self._failing = False

    def row(self, run: int, row: MetricRow) -> None:
        """Metrics of one step."""
        self._rows.setdefault(run, []).append(row)

    def change(self, run: int, **fields: Any) -> None:
        """New values of a run's own record."""
        self._changes.setdefault(run, {}).update(fields)

    def later(self, write: Callable[[], object]) -> None:
        """Any other write (an event, samples) that need not be on disk at once."""
        self._others.append(write)

    def forget(self, run: int) -> None:
        """Drop what waits for a run that is being deleted."""
        self._rows.pop(run, None)
        self._changes.pop(run, None)

    def flush_if_due(self) -> None:
        if time.monotonic() - self._last >= COMMIT_EVERY:
            self.flush()

    def flush(self) -> bool:
        """Write what waits. False, after an alert, when the store refuses; it then waits for the next time."""
        self._last = time.monotonic()
        if not (self._rows or self._changes or self._others):
            return True
        try:
            try:
                self._write()
            except SessionMissingError:
                self._recover()
                self._write()
        except StoreError as error:
            if not self._failing:
                self._failing = True
                self._alert("not_saved", f"not saved, training goes on: {error}")
            return False
        self._rows.clear()
        self._changes.clear()
        self._others.clear()
        if self._failing:
            self._failing = False
            self._alert("saved_again", "saving works again; nothing was lost")
        return True

    def _alert(self, kind: str, message: str) -> None:
        self._emit(Alert(run=None, step=None, kind=kind, message=message))

    def _write(self) -> None:
        with self._session.transaction():
            for run, rows in self._rows.items():
                self._session.metrics.append(run, rows)
            for run, fields in self._changes.items():
                self._session.runs.update(run, **fields)
            for write in self._others:
                write()
