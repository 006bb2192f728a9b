"""The numbers of a run as charts need them: growing arrays, smoothing, and few points out of many.

Pure NumPy, no terminal. Every array is float64 unless said.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Columns = Callable[[Sequence[str]], Mapping[str, Array]]
"""Reads metrics by name, one value a step, NaN where a step lacks it."""
Axis = Literal["step", "completions", "seconds"]
AXES: tuple[Axis, ...] = ("step", "completions", "seconds")


class Growing:
    """An array that grows at its end in amortised constant time."""

    def __init__(self) -> None:
        self._room = np.empty(64)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    @property
    def values(self) -> Array:
        return self._room[: self._length]

    def append(self, value: float) -> None:
        self._reserve(1)
        self._room[self._length] = value
        self._length += 1

    def extend(self, values: Array) -> None:
        self._reserve(len(values))
        self._room[self._length : self._length + len(values)] = values
        self._length += len(values)

    def truncate(self, length: int) -> None:
        self._length = min(self._length, length)

    def _reserve(self, more: int) -> None:
        if self._length + more > len(self._room):
            room = np.empty(max(2 * len(self._room), self._length + more))
            room[: self._length] = self.values
            self._room = room


class Track:
    """One metric of one run: its finite values and the rows of the run they belong to."""

    def __init__(self) -> None:
        self.rows = Growing()
        self.values = Growing()
        self._smoothed = Growing()
        self._factor = -1.0

    def append(self, row: int, value: float) -> None:
        if np.isfinite(value):
            self.rows.append(row)
            self.values.append(value)

    def extend(self, first_row: int, values: Array) -> None:
        kept = np.flatnonzero(np.isfinite(values))
        self.rows.extend((first_row + kept).astype(np.float64))
        self.values.extend(values[kept])

    def truncate(self, rows: int) -> None:
        """Forget what belongs to row ``rows`` and later."""
        length = int(np.searchsorted(self.rows.values, rows))
        self.rows.truncate(length)
        self.values.truncate(length)
        self._factor = -1.0

    def smoothed(self, factor: float) -> Array:
        """The values as an exponential average, :func:`exponential_average`; only what is new is computed."""
        if not factor:
            return self.values.values
        if factor != self._factor:
            self._smoothed = Growing()
            self._factor = factor
        done = len(self._smoothed)
        if done < len(self.values):
            # Biased values are kept, since they can be gone on from.
            last = self._smoothed.values[-1] if done else 0.0
            self._smoothed.extend(_biased_average(self.values.values[done:], factor, last))
        return unbias(self._smoothed.values, factor)


def exponential_average(values: Array, factor: float) -> Array:
    """s[t] = factor·s[t−1] + (1 − factor)·x[t], s[−1] = 0, over 1 − factor^(t+1) so that the start is no lower."""
    return unbias(_biased_average(values, factor, 0.0), factor) if factor else values


def unbias(biased: Array, factor: float) -> Array:
    """An exponential average that began at 0, without the pull of that 0 (Kingma and Ba 2015, section 3)."""
    felt = min(len(biased), math.ceil(math.log(1e-12) / math.log(factor)))  # later the divisor is 1 to 12 digits
    out = biased.copy()
    out[:felt] /= 1.0 - np.power(factor, np.arange(1, felt + 1))
    return out


def _biased_average(values: Array, factor: float, last: float) -> Array:
    """The recursion in as many passes as the reach of a value has binary digits.

    An average over 2d steps is the one over the last d and, faded by factor^d, the one over the d before. A product of
    matrices would do it as well, but in several threads, which take more from the engine than they save here.
    """
    out = (1.0 - factor) * values
    if len(out):
        out[0] += factor * last
    distance = 1
    while distance < len(out) and factor**distance > 1e-18:  # less is not felt in double precision
        out[distance:] += factor**distance * out[:-distance]
        distance *= 2
    return out


@dataclass
class RunSeries:
    """All metrics of one run. Rows are its steps in order; :attr:`version` grows with every change.

    Of a run that only rests in the session, a metric is read when it is first asked for (:meth:`leave`).
    """

    steps: Growing = field(default_factory=Growing)
    completions: Growing = field(default_factory=Growing)
    seconds: Growing = field(default_factory=Growing)
    tracks: dict[str, Track] = field(default_factory=dict)
    version: int = 0
    _left: set[str] = field(default_factory=set)  # metrics that are not here yet
    _read: Columns | None = None

    def __len__(self) -> int:
        return len(self.steps)

    def leave(self, names: Iterable[str], read: Columns) -> None:
        """Leave the metrics ``names`` where they are until they are asked for; ``read`` then gives whole columns."""
        self._left, self._read = set(names), read

    @property
    def names(self) -> list[str]:
        """Every metric that was measured, here or left, in the order of the alphabet."""
        return sorted(self._left | self.tracks.keys())

    def track(self, name: str) -> Track | None:
        """One metric; None when it was never measured."""
        if name in self._left:
            self._fetch([name])
        return self.tracks.get(name)

    def _fetch(self, names: list[str]) -> None:
        self._left -= set(names)
        columns = self._read(names) if self._read is not None and names else {}
        for name, column in columns.items():
            self.tracks.setdefault(name, Track()).extend(0, column[: len(self)])

    def append(self, step: int, completions: int, seconds: float, values: Mapping[str, float]) -> None:
        """Add a step. One at or before the last begins anew there: the run went back to a resume point."""
        self._fetch(list(self._left))
        if len(self.steps) and step <= self.steps.values[-1]:
            self.truncate(after_step=step - 1)
        row = len(self.steps)
        self.steps.append(step)
        self.completions.append(completions)
        self.seconds.append(seconds)
        for name, value in values.items():
            self.tracks.setdefault(name, Track()).append(row, value)
        self.version += 1

    def extend(self, steps: Array, completions: Array, seconds: Array, values: Mapping[str, Array]) -> None:
        """Add many steps at once, as the session's table gives them (NaN where a metric was not measured)."""
        self._fetch(list(self._left))
        row = len(self.steps)
        self.steps.extend(steps)
        self.completions.extend(completions)
        self.seconds.extend(seconds)
        for name, column in values.items():
            self.tracks.setdefault(name, Track()).extend(row, column)
        self.version += 1

    def complete(self, stored: "RunSeries") -> None:
        """Fill in from ``stored`` what this one lacks, as after a slow reader missed steps; what is newer stays."""
        self._fetch(list(self._left))
        rows = int(np.searchsorted(self.steps.values, stored.steps.values[-1] if len(stored) else 0, side="right"))
        newer = {name: self._column(track, rows) for name, track in self.tracks.items()}
        stored.extend(self.steps.values[rows:], self.completions.values[rows:], self.seconds.values[rows:], newer)
        self.steps, self.completions, self.seconds = stored.steps, stored.completions, stored.seconds
        self.tracks = stored.tracks
        self.version += 1

    def _column(self, track: Track, first_row: int) -> Array:
        """The values of a metric from a row on, NaN where it was not measured."""
        column = np.full(len(self) - first_row, np.nan)
        kept = track.rows.values >= first_row
        column[track.rows.values[kept].astype(np.int64) - first_row] = track.values.values[kept]
        return column

    def truncate(self, after_step: int) -> None:
        """Forget every step after ``after_step``."""
        rows = int(np.searchsorted(self.steps.values, after_step, side="right"))
        for column in (self.steps, self.completions, self.seconds):
            column.truncate(rows)
        for track in self.tracks.values():
            track.truncate(rows)
        self.version += 1

    def axis(self, axis: Axis) -> Array:
        """The x value of every row."""
        return {"step": self.steps, "completions": self.completions, "seconds": self.seconds}[axis].values

    def line(self, name: str, axis: Axis, smoothing: float = 0.0) -> tuple[Array, Array]:
        """x and y of a metric, finite throughout; empty when it was never measured."""
        track = self.track(name)
        if track is None or not len(track.values):
            return np.empty(0), np.empty(0)
        x = self.axis(axis)
        if len(track.rows) < len(x):  # measured more rarely than every step
            x = x[track.rows.values.astype(np.int64)]
        return x, track.smoothed(smoothing)

    def place(self, step: int, axis: Axis) -> float:
        """Where ``step`` lies on an x axis."""
        if axis == "step" or not len(self):
            return float(step)
        row = int(np.searchsorted(self.steps.values, step))
        return float(self.axis(axis)[min(row, len(self) - 1)])

    def step_at(self, x: float, axis: Axis) -> int | None:
        """The step measured nearest to ``x`` on an x axis; None where nothing is measured."""
        return int(self.steps.values[int(np.abs(self.axis(axis) - x).argmin())]) if len(self) else None

    def latest(self, name: str) -> float | None:
        """The newest finite value of a metric."""
        track = self.track(name)
        return float(track.values.values[-1]) if track is not None and len(track.values) else None

    def at(self, name: str, axis: Axis, x: float) -> float | None:
        """The value of a metric measured nearest to ``x``."""
        xs, ys = self.line(name, axis)
        return float(ys[int(np.argmin(np.abs(xs - x)))]) if len(xs) else None


def thin(x: Array, y: Array, low: float, high: float, columns: int) -> tuple[Array, Array]:
    """At most two points for each of ``columns`` equal parts of [low, high]: lowest and highest, in their order.

    ``x`` must not fall. What lies outside is left out. The result spans the same range of y as the whole in every
    column, so no peak is lost.
    """
    if not len(x):
        return x, y
    first = int(np.searchsorted(x, low, side="left"))
    last = int(np.searchsorted(x, high, side="right"))
    x, y = x[first:last], y[first:last]
    if len(x) <= 2 * columns:
        return x, y
    edges = np.searchsorted(x, np.linspace(low, high, columns + 1)[1:-1])
    kept = []
    for start, end in itertools.pairwise((0, *edges.tolist(), len(x))):
        if start < end:
            part = y[start:end]
            kept += sorted({start + int(part.argmin()), start + int(part.argmax())})
    return x[kept], y[kept]
