"""Metrics, compact: the newest rows of a run one by one, older ones 480 steps to a chunk, one chunk a metric.

A million points load in well under a second, and one metric loads without the others.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.store.database import Database
from core.store.table import Row, Table, real, text, whole

CHUNK_STEPS = 480  # 3,840 bytes a metric: a row that just fits one page of SQLite
_AXES = 0  # the name of the chunk with steps, completions and seconds

MetricRow = tuple[int, int, float, dict[str, float]]
"""step, completions so far, seconds of training so far, values by metric name"""


@dataclass(frozen=True)
class MetricTable:
    """The metrics of a run. All arrays have one entry a step; a value is NaN where a step lacks it."""

    steps: NDArray[np.int64]
    completions: NDArray[np.int64]
    seconds: NDArray[np.float64]
    values: dict[str, NDArray[np.float64]] = field(repr=False)

    def __len__(self) -> int:
        return len(self.steps)

    def part(self, rows: slice) -> "MetricTable":
        values = {name: column[rows] for name, column in self.values.items()}
        return MetricTable(self.steps[rows], self.completions[rows], self.seconds[rows], values)

    def only(self, names: set[str] | None) -> "MetricTable":
        """The metrics in ``names`` alone; None: all."""
        values = {name: column for name, column in self.values.items() if names is None or name in names}
        return MetricTable(self.steps, self.completions, self.seconds, values)


class MetricStore:
    """The metrics of a session's runs."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._rows = Table(database, "metric_rows", ("run", "step", "completions", "seconds", "data"))
        self._chunks = Table(database, "metric_chunks", ("run", "name", "first_step", "last_step", "data"))
        self._names = Table(database, "metric_names", ("name",))

    def append(self, run: int, rows: Sequence[MetricRow]) -> None:
        """Add rows of rising steps. What was stored from the first of them on is replaced: the run has gone back.

        Raises ValueError when steps do not rise, StoreError when they cannot be written.
        """
        if not rows:
            return
        if any(later[0] <= earlier[0] for earlier, later in itertools.pairwise(rows)):
            raise ValueError("the steps of metric rows must rise")
        if rows[0][0] < 0:
            raise ValueError("a step is not negative")
        with self._database.transaction():
            first = whole(rows[0][0])
            if self.last_step(run) >= first:
                self.truncate(run, first - 1)
            waiting = self._rows.count("run = ?", (run,))
            if waiting + len(rows) < CHUNK_STEPS:
                self._insert_rows(run, rows)
                return
            table = _join([self._read_rows(run, None, -1), _table(rows)])
            whole_chunks = len(table) - len(table) % CHUNK_STEPS
            for start in range(0, whole_chunks, CHUNK_STEPS):
                self._insert_chunk(run, table.part(slice(start, start + CHUNK_STEPS)))
            self._rows.delete("run = ?", (run,))
            self._insert_table(run, table.part(slice(whole_chunks, None)))

    def pack(self, run: int) -> None:
        """Put the newest rows of a run into a chunk, too, as it comes to rest: to read them takes a fiftieth then."""
        with self._database.transaction():
            table = self._read_rows(run, None, -1)
            if len(table):
                self._insert_chunk(run, table)
                self._rows.delete("run = ?", (run,))

    def read(
        self, run: int, names: Iterable[str] | None = None, after_step: int = -1, newest: MetricTable | None = None
    ) -> MetricTable:
        """The metrics of the steps after ``after_step``, all or those in ``names``.

        ``newest``: what :meth:`newest` gave, for who reads one metric after the other of a run that rests.
        """
        wanted = None if names is None else set(names)
        if newest is None:
            return _join([*self._read_chunks(run, wanted, after_step), self._read_rows(run, wanted, after_step)])
        newest = newest.only(wanted).part(slice(int(np.searchsorted(newest.steps, after_step, "right")), None))
        older = self._read_chunks(run, wanted, after_step)
        if len(newest):  # what has been packed since is in both
            older = [table.part(slice(int(np.searchsorted(table.steps, newest.steps[0])))) for table in older]
        return _join([*older, newest])

    def newest(self, run: int) -> MetricTable:
        """The newest steps of a run, those that no chunk holds yet: each a row, which takes longest to read."""
        return self._read_rows(run, None, -1)

    def names(self, run: int) -> list[str]:
        """The metrics that a run has, in the order in which the session first met them."""
        chunks = self._database.rows("SELECT DISTINCT name FROM metric_chunks WHERE run = ?", (run,))
        ids = {int(id) for (id,) in chunks} - {_AXES}
        # Each row begins with the numbers of its metrics; most rows have the same, and reading verifies them later.
        packed = self._database.rows(
            "SELECT DISTINCT substr(data, 1, length(data) / 3) FROM metric_rows WHERE run = ?", (run,)
        )
        for (data,) in packed:
            ids.update(np.frombuffer(data[: len(data) // 4 * 4], np.uint32).tolist())
        return [name for name, id in self._known_names().items() if id in ids]

    def last_step(self, run: int) -> int:
        """The newest step with metrics, −1 when there is none."""
        found = self._database.rows(
            "SELECT max(coalesce((SELECT max(step) FROM metric_rows WHERE run = ?), -1),"
            " coalesce((SELECT max(last_step) FROM metric_chunks WHERE run = ? AND name = 0), -1))",
            (run, run),
        )
        return int(found[0][0])

    def truncate(self, run: int, after_step: int) -> None:
        """Forget what came after a step, as when a run resumes from there."""
        with self._database.transaction():
            self._rows.delete("run = ? AND step > ?", (run, after_step))
            cut = self._read_chunks(run, None, -1, "AND last_step > ? AND first_step <= ?", (after_step, after_step))
            self._chunks.delete("run = ? AND last_step > ?", (run, after_step))
            for table in cut:
                self._insert_chunk(run, table.part(slice(0, int(np.searchsorted(table.steps, after_step, "right")))))

    def _ids(self, names: Iterable[str]) -> dict[str, int]:
        """The number of each name, given one now if it has none."""
        known = self._known_names()
        for name in dict.fromkeys(text(name) for name in names):
            if name not in known:
                known[name] = self._names.insert({"name": name})
        return known

    def _known_names(self) -> dict[str, int]:
        return {row["name"]: row["id"] for row in self._names.select()}

    def _insert_rows(self, run: int, rows: Sequence[MetricRow]) -> None:
        ids = self._ids(name for row in rows for name in row[3])
        packed = [_pack_row(run, row, ids) for row in rows]
        self._rows.insert_many(packed, self._free_id("metric_rows"))

    def _read_rows(self, run: int, wanted: set[str] | None, after_step: int) -> MetricTable:
        rows = self._rows.select("WHERE run = ? AND step > ? ORDER BY step", (run, after_step))
        names = {id: name for name, id in self._known_names().items()} if rows else {}
        # Rows with the same metrics are unpacked together: one by one, they would take most of a read.
        alike: dict[bytes, list[int]] = {}
        for index, row in enumerate(rows):
            alike.setdefault(row["data"][: len(row["data"]) // 3], []).append(index)
        values: dict[str, NDArray[np.float64]] = {}
        for packed, indices in alike.items():
            numbers = b"".join(rows[index]["data"][len(packed) :] for index in indices)
            matrix = np.frombuffer(numbers, np.float64).reshape(len(indices), -1)
            for id, column in zip(np.frombuffer(packed, np.uint32), matrix.T, strict=True):
                name = names[int(id)]
                if wanted is None or name in wanted:
                    values.setdefault(name, np.full(len(rows), np.nan))[indices] = column
        return MetricTable(
            np.array([row["step"] for row in rows], np.int64),
            np.array([row["completions"] for row in rows], np.int64),
            np.array([row["seconds"] for row in rows], np.float64),
            values,
        )

    def _read_chunks(
        self, run: int, wanted: set[str] | None, after_step: int, where: str = "", parameters: tuple[Any, ...] = ()
    ) -> list[MetricTable]:
        names = {id: name for name, id in self._known_names().items() if wanted is None or name in wanted}
        chosen = "" if wanted is None else f"AND name IN ({', '.join(map(str, [_AXES, *names]))})"
        tables: list[MetricTable] = []
        for row in self._chunks.select(
            f"WHERE run = ? AND last_step > ? {chosen} {where} ORDER BY first_step, name",
            (run, after_step, *parameters),
        ):
            if row["name"] == _AXES:
                integers = np.frombuffer(row["data"], np.int64).reshape(3, -1)
                tables.append(MetricTable(integers[0], integers[1], integers[2].view(np.float64), {}))
            else:
                tables[-1].values[names[row["name"]]] = np.frombuffer(row["data"], np.float64)
        return [table.part(slice(int(np.searchsorted(table.steps, after_step, "right")), None)) for table in tables]

    def _insert_chunk(self, run: int, table: MetricTable) -> None:
        ids = self._ids(table.values)
        axes = np.stack([table.steps, table.completions, table.seconds.view(np.int64)])
        columns = [(_AXES, axes.tobytes())]
        for name, column in table.values.items():
            if not np.isnan(column).all():
                columns.append((ids[text(name)], np.ascontiguousarray(column).tobytes()))
        same = {"run": run, "first_step": int(table.steps[0]), "last_step": int(table.steps[-1])}
        self._chunks.insert_many(
            [{**same, "name": name, "data": data} for name, data in columns], self._free_id("metric_chunks")
        )

    def _insert_table(self, run: int, table: MetricTable) -> None:
        rows: list[MetricRow] = []
        for index in range(len(table)):
            values = {name: float(column[index]) for name, column in table.values.items()}
            present = {name: value for name, value in values.items() if not math.isnan(value)}
            rows.append((int(table.steps[index]), int(table.completions[index]), float(table.seconds[index]), present))
        self._insert_rows(run, rows)

    def _free_id(self, table: str) -> int:
        return int(self._database.rows(f"SELECT coalesce(max(id), 0) + 1 FROM {table}")[0][0])


def _pack_row(run: int, row: MetricRow, ids: dict[str, int]) -> Row:
    step, completions, seconds, values = row
    data = np.fromiter((ids[text(name)] for name in values), np.uint32, len(values)).tobytes()
    data += np.fromiter((float(value) for value in values.values()), np.float64, len(values)).tobytes()
    return {
        "run": run, "step": whole(step), "completions": whole(completions), "seconds": real(seconds) or 0.0,
        "data": data,
    }  # fmt: skip


def _table(rows: Sequence[MetricRow]) -> MetricTable:
    names = {name: None for row in rows for name in row[3]}
    return MetricTable(
        np.array([row[0] for row in rows], np.int64),
        np.array([row[1] for row in rows], np.int64),
        np.array([row[2] for row in rows], np.float64),
        {name: np.array([row[3].get(name, np.nan) for row in rows], np.float64) for name in names},
    )


def _join(tables: Sequence[MetricTable]) -> MetricTable:
    names = {name: None for table in tables for name in table.values}
    return MetricTable(
        np.concatenate([table.steps for table in tables]),
        np.concatenate([table.completions for table in tables]),
        np.concatenate([table.seconds for table in tables]),
        {
            name: np.concatenate([
                table.values[name] if name in table.values else np.full(len(table), np.nan) for table in tables
            ])
            for name in names
        },
    )  # fmt: skip
