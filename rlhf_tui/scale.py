"""Axes: which range to show, where to label it, and how a number is written in few cells. Pure functions."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from rlhf_tui.series import Array, Axis


@dataclass(frozen=True)
class Scale:
    """A range of values laid over ``dots`` points of a canvas, evenly or (``log``) by their logarithm."""

    low: float
    high: float
    dots: int
    log: bool = False

    def place(self, values: Array) -> Array:
        """Where values fall, in whole dots from 0 to dots − 1; those outside are put on the edge."""
        low, high = self._bounds()
        inner = np.log10(values) if self.log else values
        return np.clip(np.rint((inner - low) / (high - low) * (self.dots - 1)), 0, self.dots - 1)

    def value(self, dot: float) -> float:
        """The value that falls on ``dot``."""
        low, high = self._bounds()
        inner = low + dot / max(self.dots - 1, 1) * (high - low)
        return float(10**inner) if self.log else float(inner)

    def _bounds(self) -> tuple[float, float]:
        return (math.log10(self.low), math.log10(self.high)) if self.log else (self.low, self.high)


def value_range(arrays: Iterable[Array], log: bool = False) -> tuple[float, float]:
    """A range that holds every value with a little air; (0, 1) (log: (0.1, 1)) of no values at all."""
    held = [array for array in arrays if len(array)]
    if not held:
        return (0.1, 1.0) if log else (0.0, 1.0)
    low, high = min(float(a.min()) for a in held), max(float(a.max()) for a in held)
    if log:
        return low / 1.1, max(high, low * 1.2) * 1.1
    span = high - low
    flat = span <= max(1e-9 * max(abs(low), abs(high)), 1e-12)  # less than a label can tell
    air = 0.1 * max(abs(high), 0.01) if flat else 0.04 * span
    return low - air, high + air


def ticks(scale: Scale, count: int) -> list[float]:
    """At most about ``count`` round values inside a scale, lowest first; a log scale gets powers of 10 where it can."""
    if count < 1:
        return []
    if scale.log:
        first, last = math.ceil(math.log10(scale.low)), math.floor(math.log10(scale.high))
        powers = [10.0**each for each in range(first, last + 1)]
        if len(powers) >= 2:
            return powers[:: math.ceil(len(powers) / count)]
    span = scale.high - scale.low
    rough = span / count
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * magnitude for factor in (1, 2, 5, 10) if factor * magnitude >= rough * 0.999)
    first = math.ceil(scale.low / step)
    values = [index * step for index in range(first, math.floor(scale.high / step) + 1)]
    return [value for value in values if scale.low <= value <= scale.high]


def number(value: float, digits: int = 3) -> str:
    """A value in at most 7 cells: 0.712, 12.3, 45.1k, 3e-04."""
    if not math.isfinite(value):
        return str(value)
    size = abs(value)
    if size < 1e-12:
        return "0"
    if size >= 9.995e8 or size < 1e-3:
        return f"{value:.0e}"
    for limit, divisor, letter in ((1e4, 1e3, "k"), (1e6, 1e6, "M")):
        if size >= limit and (letter == "M" or size < 9.995e5):
            return f"{_trim(value / divisor, digits)}{letter}"
    return _trim(value, digits)


def count(value: int) -> str:
    """A number of things: whole as long as it is short. 96, 9999, 12.35k."""
    return str(value) if abs(value) < 10_000 else number(value, 4)


def _trim(value: float, digits: int) -> str:
    whole = len(str(int(abs(value)))) if abs(value) >= 1 else 0
    return f"{value:.{max(digits - whole, 0)}f}"


def tick_label(value: float, step: float) -> str:
    """A value on an axis, with the decimals that the distance of the ticks asks for."""
    if abs(value) < step * 1e-6:
        return "0"
    if abs(value) >= 1e4 or step < 1e-4:
        return number(value)
    return f"{value:.{max(0, -math.floor(math.log10(step) + 1e-9))}f}"


def axis_label(value: float, axis: Axis) -> str:
    """A place on the x axis: a step, a number of completions, or a time."""
    if axis == "seconds":
        return duration(value)
    return f"{value:.0f}" if value < 1e5 else number(value)


def duration(seconds: float) -> str:
    """A time in two units at most: 8 s, 1 m 20 s, 2 h 05 m."""
    if not math.isfinite(seconds):
        return "?"
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02d} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} m"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"
