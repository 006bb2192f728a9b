"""The plane of reward against KL as a picture: the best that is possible, best of n, and the paths of runs. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from core.engine.protocol import Plane
from rlhf_tui.plotting import GLYPHS, Cell, Picture, braille, words
from rlhf_tui.safe_text import fit
from rlhf_tui.scale import Scale, tick_label, ticks, value_range
from rlhf_tui.series import Array, RunSeries, exponential_average

FINAL = 20  # the figure of a run is the mean of the measurements of its last steps
FRONTIER, BEST_OF_N, FAINT = 7, 8, 8  # palette numbers; the last is added for what is faint
_HUGE = 1e6  # beyond it nothing is drawn
_POINTS = 300  # of a path
_SMOOTHING = 0.8


@dataclass(frozen=True)
class Path:
    """The way of one run: KL in nats a sequence and reward, one entry a measurement."""

    label: str
    kl: Array
    reward: Array
    chosen: bool = False
    last: int = FINAL  # of the measurements, those that are averaged for the figure of the run

    @property
    def final(self) -> tuple[float, float] | None:
        """KL and reward at its end; None before anything is measured."""
        if not len(self.kl):
            return None
        return float(self.kl[-self.last :].mean()), float(self.reward[-self.last :].mean())


@dataclass(frozen=True)
class PlaneData:
    """What is drawn; ``square_root``: x is √KL, on which best of n and the frontier begin as straight lines."""

    plane: Plane | None
    paths: tuple[Path, ...] = ()
    bests: tuple[tuple[float, float], ...] = ()  # KL and reward of further optimal policies, which runs helped to find
    square_root: bool = True
    empty: str = ""


def path_of(series: RunSeries, reward: str, label: str, chosen: bool = False) -> Path:
    """The steps at which both KL and ``reward`` were measured.

    KL counts from what the run began with, also where its reference was refreshed: the frontier does so too.
    """
    kl = series.track("objective/kl_from_start") or series.track("objective/kl")
    scores = series.track(reward)
    if kl is None or scores is None:
        return Path(label, np.empty(0), np.empty(0), chosen)
    rows, of_kl, of_scores = np.intersect1d(kl.rows.values, scores.rows.values, return_indices=True)
    last = int((rows > rows[-1] - FINAL).sum()) if len(rows) else 0  # a row is a step; some methods measure few
    return Path(label, kl.values.values[of_kl], scores.values.values[of_scores], chosen, last)


def draw_plane(data: PlaneData, width: int, height: int) -> Picture:
    """The cells of a plane of ``width`` × ``height``."""
    plane = data.plane
    paths = [(number, path) for number, path in enumerate(map(_smooth, data.paths)) if len(path.kl)]
    if width < 20 or height < 4 or (plane is None and not paths):
        return Picture(words(data.empty if width >= 20 and height >= 4 else "", width, height))
    trusted = sorted([*_optimal(plane, True), *data.bests])
    weak = [point for point in _optimal(plane, False) if point[0] > max((kl for kl, _ in trusted), default=0.0)]
    draws = [(each.kl, each.reward) for each in plane.best_of_n] if plane else []
    start = [(0.0, plane.reference_reward)] if plane else []
    sure = [*start, *trusted, *draws, *(point for _, path in paths for point in _points(path))]
    right = max(kl for kl, _ in sure)
    # What is estimated from too few completions is drawn as far as the rest reaches, and sets no range.
    weak = [point for point in weak if point[0] <= right]
    low, high = value_range([np.array([reward for _, reward in sure])])
    rows = height - 1
    high += 2 * (high - low) / rows  # for the words above the frontier
    y_scale = Scale(low, high, 4 * rows)
    at = ticks(y_scale, max(1, min(rows // 2, 6)))
    step = at[1] - at[0] if len(at) > 1 else (high - low) / 4
    labels = {rows - 1 - int(y_scale.place(np.array([value]))[0]) // 4: tick_label(value, step) for value in at}
    left = max(map(len, labels.values()), default=0) + 1
    columns = width - left - 1
    x_scale = Scale(0.0, max(_x(right, data), 1e-3) * 1.03, 2 * columns)

    def dots(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
        x = np.array([_x(kl, data) for kl, _ in points])
        y = np.array([reward for _, reward in points])
        return x_scale.place(x).tolist(), y_scale.place(y).tolist()

    lines = []
    if weak:
        lines.append((FRONTIER + FAINT, *dots([*(trusted[-1:] or start), *weak])))
    for number, path in sorted(paths, key=lambda each: each[1].chosen):
        lines.append((1 + number % 6 + (0 if path.chosen else FAINT), *dots(_points(path))))
    if plane is not None:
        lines.append((FRONTIER, *dots([*start, *trusted])))
    canvas = braille(lines, columns, rows)

    def put(kl: float, reward: float, glyph: str, style: str, label: str = "", above: bool = False) -> None:
        """A glyph at its place, and its label where that hides nothing."""
        (x,), (y,) = dots([(kl, reward)])
        row, column = rows - 1 - int(y) // 4, int(x) // 2
        canvas[row][column] = Cell(glyph, style)
        start = column - len(label) if above else column + 1
        for at in (row - 1, row - 2) if above else (row, row + 1):
            there = canvas[at][start : start + len(label)] if 0 <= at < rows and start >= 0 else []
            if len(there) == len(label) and all(cell.glyph == " " for cell in there):
                canvas[at][start : start + len(label)] = [Cell(letter, style) for letter in label]
                return

    for number, _ in paths:
        final = data.paths[number].final
        if final is not None and max(map(abs, final)) < _HUGE:
            put(*final, GLYPHS[number % 6], f"line-{1 + number % 6}")
    if plane is not None:
        for n in plane.best_of_n:
            put(n.kl, n.reward, "×", f"line-{BEST_OF_N}", f"{n.n}")
        for best in plane.optimal:
            if best.effective_sample_size >= plane.least_effective and best.beta in _LABELLED:
                # Nothing lies above the frontier, so there is room for words.
                put(best.kl, best.reward, "+", f"line-{FRONTIER}", f"β{best.beta:g}", above=True)
        put(0.0, plane.reference_reward, "○", "axis", "reference")
    picture = Picture([], left, columns, x_scale)
    for row in range(rows):
        label = labels.get(row, "")
        axis = [Cell(letter, "axis") for letter in f"{label:>{left - 1}}{'┤' if label else '│'}"]
        picture.rows.append([*axis, *canvas[row], Cell(" ", "")])
    picture.rows.append([Cell(letter, "axis") for letter in _x_labels(x_scale, data, left, columns, width)])
    if plane is not None and weak:
        picture.notes.append(f"faint: effective sample size below {plane.least_effective:g}")
    return picture


_LABELLED = (2.0, 1.0, 0.5, 0.2, 0.1)


def _optimal(plane: Plane | None, trusted: bool) -> list[tuple[float, float]]:
    """KL and reward of the optimal points whose effective sample size is large enough, or of the others."""
    if plane is None:
        return []
    return [
        (each.kl, each.reward)
        for each in plane.optimal
        if (each.effective_sample_size >= plane.least_effective) == trusted
    ]


def _x(kl: float, data: PlaneData) -> float:
    return math.sqrt(max(kl, 0.0)) if data.square_root else kl


def _points(path: Path) -> list[tuple[float, float]]:
    return list(zip(path.kl.tolist(), path.reward.tolist(), strict=True))


def _smooth(path: Path) -> Path:
    """A path whose noise does not hide it, in few points, all of them finite."""
    keep = (np.abs(path.kl) < _HUGE) & (np.abs(path.reward) < _HUGE)  # false for NaN
    kl, reward = path.kl[keep], path.reward[keep]
    if len(kl) > FINAL:
        kl, reward = exponential_average(kl, _SMOOTHING), exponential_average(reward, _SMOOTHING)
    every = max(1, len(kl) // _POINTS)
    return Path(path.label, kl[::every], reward[::every], path.chosen)


def _x_labels(scale: Scale, data: PlaneData, left: int, columns: int, width: int) -> str:
    """Round values under their columns, and at the end what they are; of √KL, the KL that each stands for."""
    name = "√KL" if data.square_root else "KL, nats"
    line = " " * (left + columns - len(name)) + name
    at = ticks(scale, max(2, columns // 10))
    step = at[1] - at[0] if len(at) > 1 else scale.high
    for value in at:
        label = tick_label(value, step)
        start = left + int(scale.place(np.array([value]))[0]) // 2 - len(label) // 2
        if start >= 0 and not line[max(0, start - 2) : start + len(label) + 2].strip():
            line = line[:start] + label + line[start + len(label) :]
    return fit(line, width)
