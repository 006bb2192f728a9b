"""The tree of runs: what was trained, from where, with which knobs, and how far it got."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.store.database import Database
from core.store.errors import RunInUseError, RunMissingError
from core.store.table import Row, Table, real, text, to_json, whole


@dataclass(frozen=True)
class RunRecord:
    """One training of one method.

    ``state`` is that of the engine (waiting, running, pausing, paused, interrupted, done, stopped, failed); ``config``
    has every knob; ``inputs`` says what else the run was given (reward run, pairs file …); ``seconds`` are those of
    training; ``created`` and ``updated`` are Unix times.
    """

    id: int
    method: str
    title: str
    state: str
    step: int
    steps: int
    completions: int
    seconds: float
    config: dict[str, Any]
    seed: int
    inputs: dict[str, Any]
    parent: int | None
    parent_step: int | None
    message: str
    notes: str
    pinned: bool
    created: float
    updated: float


_COLUMNS = (
    "method", "title", "state", "step", "steps", "completions", "seconds", "config", "seed", "inputs", "parent",
    "parent_step", "message", "notes", "pinned", "created", "updated",
)  # fmt: skip
_TEXTS = ("title", "state", "message", "notes")
_NUMBERS = ("step", "steps", "completions")


class RunStore:
    """The runs of a session, by number. Numbers are never given twice."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._table = Table(database, "runs", _COLUMNS)

    def add(
        self,
        method: str,
        title: str = "",
        config: Mapping[str, Any] | None = None,
        seed: int = 0,
        inputs: Mapping[str, Any] | None = None,
        parent: int | None = None,
        parent_step: int | None = None,
        *,
        steps: int | None = None,
        state: str = "waiting",
    ) -> RunRecord:
        """A new run; ``steps`` is by default the one in ``config``. Raises RunMissingError for an unknown parent."""
        config = dict(config or {})
        now = time.time()
        with self._database.transaction():
            if parent is not None:
                self.get(parent)
            id = self._table.insert(
                {
                    "method": text(method), "title": text(title), "state": text(state), "step": 0,
                    "steps": whole(config.get("steps", 0) if steps is None else steps), "completions": 0,
                    "seconds": 0.0, "config": to_json(config), "seed": whole(seed),
                    "inputs": to_json(dict(inputs or {})), "parent": parent,
                    "parent_step": None if parent_step is None else whole(parent_step), "message": "", "notes": "",
                    "pinned": 0, "created": now, "updated": now,
                }
            )  # fmt: skip
            return self.get(id)

    def get(self, id: int) -> RunRecord:
        """Raises RunMissingError."""
        return self._record(self._row(id))

    def all(self) -> list[RunRecord]:
        """Every run, oldest first: a parent comes before its children."""
        return [self._record(row) for row in self._table.select("ORDER BY id")]

    def children(self, id: int) -> list[RunRecord]:
        """The runs that started from run ``id``."""
        return [self._record(row) for row in self._table.select("WHERE parent = ? ORDER BY id", (id,))]

    def update(self, id: int, **changes: Any) -> RunRecord:
        """Change state, step, steps, completions, seconds, message, title, notes, pinned, config or inputs.

        Raises RunMissingError, and TypeError for any other name.
        """
        stored: dict[str, Any] = {"updated": time.time()}
        for name, value in changes.items():
            if name in _TEXTS:
                stored[name] = text(value)
            elif name in _NUMBERS:
                stored[name] = whole(value)
            elif name == "seconds":
                stored[name] = real(value) or 0.0
            elif name == "pinned":
                stored[name] = int(bool(value))
            elif name in ("config", "inputs"):
                stored[name] = to_json(dict(value))
            else:
                raise TypeError(f"a run has no changeable field '{name}'")
        with self._database.transaction():
            return self._record(self._table.update(self._row(id), stored))

    def delete(self, id: int) -> None:
        """Delete a run with its metrics, events, samples and rows of checkpoints.

        Raises RunMissingError, or RunInUseError while other runs descend from it.
        """
        with self._database.transaction():
            self.get(id)
            children = self.children(id)
            if children:
                named = ", ".join(str(each.id) for each in children)
                raise RunInUseError(f"run {id} cannot be deleted: runs {named} started from it; delete those first")
            self._table.delete("id = ?", (id,))

    def _row(self, id: int) -> Row:
        rows = self._table.select("WHERE id = ?", (id,))
        if not rows:
            raise RunMissingError(f"there is no run {id}")
        return rows[0]

    def _record(self, row: Row) -> RunRecord:
        parsed = {name: self._table.parse_object(row, name) for name in ("config", "inputs")}
        return RunRecord(**{**row, **parsed, "pinned": bool(row["pinned"])})
