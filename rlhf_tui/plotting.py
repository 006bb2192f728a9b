"""Drawing a chart: data to rows of cells. The only module that knows the plotting library.

Why plotext 6 and not 5.3 with textual-plotext: tried beside each other under textual 8.2, a 60×18 braille canvas with
two noisy series took 4.4 ms with 6.1, 8.1 ms with a bare 5.3 figure and 16.9 ms through textual-plotext's widget;
120×40 took 7.6 against 16 ms. textual-plotext needs plotext below 6, was last released in November 2024 and reaches
into plotext's private modules, and 5.3 raises on ±inf and on a logarithm of 0. The price of 6.1 is that a NaN in a
line aborts the process, so plotext sees neither data nor axes here: values are filtered, thinned, scaled to whole
dots of the canvas (``Scale.place``) and only then handed over to be joined by lines; range, logarithm, labels, marks
and colours are ours. Colours travel as palette numbers that stand for the styles of the theme. plotext takes 0.2 s to
import, so it is imported after the first frame (:func:`prepare`), when the first line is drawn at the latest.
"""

import importlib
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from rlhf_tui.safe_text import fit, safe_str
from rlhf_tui.scale import Scale, axis_label, number, tick_label, ticks, value_range
from rlhf_tui.series import Array, Axis, thin

GLYPHS = "●◆▲■▼★"
MARK_GLYPHS = {"knob": "▾", "alert": "!"}
_ESCAPE = re.compile(r"\x1b\[([0-9;]*)m")
_FAINT = 8  # added to a line's palette number for its raw values
_HUGE = 1e150  # beyond it differences overflow
_END_MARGIN = 2  # cells right of the canvas for the glyphs of the lines


@dataclass(frozen=True)
class Line:
    """One metric of one run: raw values and, where smoothing is on, the same number of smoothed ones."""

    label: str
    x: Array
    y: Array
    smooth: Array | None = None
    overlay: bool = False  # of a pinned run, drawn behind

    @property
    def bright(self) -> Array:
        return self.y if self.smooth is None else self.smooth


@dataclass(frozen=True)
class Mark:
    """Something that happened at one place of the x axis: ``kind`` is knob or alert."""

    x: float
    kind: str
    text: str


@dataclass(frozen=True)
class ChartData:
    """What a chart shows at one moment. ``x`` of every line must not fall."""

    lines: tuple[Line, ...] = ()
    marks: tuple[Mark, ...] = ()
    axis: Axis = "step"
    log: bool = False
    empty: str = "no measurement yet"  # said instead of lines


class Cell(NamedTuple):
    glyph: str
    style: str  # a component class, or "" for the background


@dataclass
class Picture:
    """A drawn chart: rows of cells, and what the cursor needs to read them."""

    rows: list[list[Cell]]
    left: int = 0  # where the canvas begins
    columns: int = 0
    scale: Scale | None = None
    notes: list[str] = field(default_factory=list)


def draw(data: ChartData, width: int, height: int) -> Picture:
    """The cells of a chart of ``width`` × ``height``. Pure, but for plotext's one figure."""
    lines = [_visible(line, data.log) for line in data.lines]
    drawn = [(index, line) for index, line in enumerate(lines) if len(line.x)]
    if width < 12 or height < 3 or not drawn:
        return Picture(words(data.empty if not drawn else "", width, height))
    x_low, x_high = min(float(line.x[0]) for _, line in drawn), max(float(line.x[-1]) for _, line in drawn)
    if x_high <= x_low:
        x_low, x_high = x_low - 1, x_high + 1
    # The smoothed line sets the range where raw values are wild: outliers are put on the edge.
    low, high = value_range([array for _, line in drawn for array in _felt(line)], data.log)
    rows = height - 1
    y_scale = Scale(low, high, 4 * rows, data.log)
    at = ticks(y_scale, max(1, min(rows // 2, 6)))
    step = at[1] - at[0] if len(at) > 1 and not data.log else (high - low) / 4
    labels = {rows - 1 - int(y_scale.place(np.array([value]))[0]) // 4: _tick(value, step, data.log) for value in at}
    left = max((len(label) for label in labels.values()), default=0) + 1
    columns = width - left - _END_MARGIN
    if columns < 4:
        return Picture(words("", width, height))
    x_scale = Scale(x_low, x_high, 2 * columns)

    canvas = _canvas(drawn, x_scale, y_scale, columns, rows)
    picture = Picture([], left, columns, x_scale)
    _put_marks(canvas, data.marks, x_scale, x_low, x_high)
    ends = _ends(drawn, y_scale, rows)
    blank = Cell(" ", "")
    for row in range(rows):
        label = labels.get(row, "")
        axis = [Cell(letter, "axis") for letter in f"{label:>{left - 1}}{'┤' if label else '│'}"]
        picture.rows.append([*axis, *canvas[row], blank, ends.get(row, blank)])
    picture.rows.append([Cell(letter, "axis") for letter in _x_labels(x_scale, data.axis, left, columns, width)])
    hidden = sum(len(line.y) for line in data.lines) - sum(len(line.y) for line in lines)
    if hidden:
        picture.notes.append(f"{hidden} values ≤ 0 not shown")
    return picture


def _visible(line: Line, log: bool) -> Line:
    """The line as far as it can be drawn: finite (NaN fails every comparison), and positive on a logarithmic axis."""
    keep = (np.abs(line.y) < _HUGE) & (np.abs(line.x) < _HUGE) & (np.abs(line.bright) < _HUGE)
    if log:
        keep &= (line.y > 0) & (line.bright > 0)
    if keep.all():
        return line
    return Line(
        line.label, line.x[keep], line.y[keep], None if line.smooth is None else line.smooth[keep], line.overlay
    )


def _felt(line: Line) -> Sequence[Array]:
    """What sets the range of y: all values, or, of a smoothed line, its middle 98% beside the smooth ones."""
    if line.smooth is None:
        return (line.y,)
    if len(line.y) < 100:
        return (line.y, line.smooth)
    # Of very many values a sample tells the percentiles well enough, at the same cost for any length.
    sample = line.y[:: max(1, len(line.y) // 4096)]
    return (np.percentile(sample, (1, 99)), line.smooth)


def _tick(value: float, step: float, log: bool) -> str:
    return number(value) if log else tick_label(value, step)


def _canvas(drawn: list[tuple[int, Line]], x_scale: Scale, y_scale: Scale, columns: int, rows: int) -> list[list[Cell]]:
    """Lines as rows of cells: pinned runs behind, raw values over them, smoothed ones in front."""
    layers: list[tuple[int, Array, Array]] = []
    for index, line in drawn:
        number_ = 1 + index % 6
        if line.overlay:
            layers.insert(0, (number_ + _FAINT, line.x, line.bright))
        elif line.smooth is None:
            layers.append((number_, line.x, line.y))
        else:
            layers.insert(0, (number_ + _FAINT, line.x, line.y))
            layers.append((number_, line.x, line.smooth))
    paths = []
    for number_, x, y in layers:
        thin_x, thin_y = thin(x, y, x_scale.low, x_scale.high, columns)
        paths.append((number_, x_scale.place(thin_x).tolist(), y_scale.place(thin_y).tolist()))
    return braille(paths, columns, rows)


def prepare() -> None:
    """Import the plotting library ahead of the first line."""
    importlib.import_module("plotext")


def braille(paths: list[tuple[int, list[float], list[float]]], columns: int, rows: int) -> list[list[Cell]]:
    """Cells of paths, each a palette number from 1 to 8 (8 more: faint) with the whole dots it leads through."""
    return [_parse(row, columns) for row in _rasterise(paths, columns, rows)]


def _rasterise(paths: list[tuple[int, list[float], list[float]]], columns: int, rows: int) -> list[str]:
    """Each path (palette number, dots of x, dots of y) as a braille line. Finite whole numbers only."""
    import plotext

    plotext.terminal.limit(False, False)
    figure = plotext.figure
    figure.clear.data()
    figure.plot_size(columns, rows)
    figure.axes(False)
    figure.legend(False)
    figure.canvas("default")
    for axis, dots in (("x", 2 * columns), ("y", 4 * rows)):
        figure.ruler(axis, "both").ticks([])
        figure.ruler(axis).lim(0, dots).alignment(lim="edge")
    for number_, x, y in paths:
        marker = plotext.marker("braille", plotext.pixel(foreground=number_))
        middle = ([each + 0.5 for each in x], [each + 0.5 for each in y])
        figure.draw(figure.signal(*middle, marker=marker).lines())
    return figure.build().string().split("\n")[:rows]


def _parse(row: str, columns: int) -> list[Cell]:
    cells: list[Cell] = []
    style = ""
    for index, part in enumerate(_ESCAPE.split(row)):
        if index % 2:
            number_ = int(part.rpartition(";")[2] or 0) if part.startswith("38;5;") else 0
            style = "" if not number_ else f"faint-{number_ - _FAINT}" if number_ > _FAINT else f"line-{number_}"
        else:
            cells += [Cell(letter, style if letter != " " else "") for letter in part]
    return (cells + [Cell(" ", "")] * columns)[:columns]


def _put_marks(canvas: list[list[Cell]], marks: Sequence[Mark], scale: Scale, low: float, high: float) -> None:
    for mark in marks:
        if low <= mark.x <= high:
            column = int(scale.place(np.array([mark.x]))[0]) // 2
            for row in canvas[1:]:
                if row[column].style == "":
                    row[column] = Cell("┊", "mark")
            canvas[0][column] = Cell(MARK_GLYPHS[mark.kind], "mark")


def _ends(drawn: list[tuple[int, Line]], scale: Scale, rows: int) -> dict[int, Cell]:
    """The glyph of each line at the height of its last value, moved to the nearest free row."""
    ends: dict[int, Cell] = {}
    for index, line in drawn:
        wanted = rows - 1 - int(scale.place(line.bright[-1:])[0]) // 4
        free = sorted((row for row in range(rows) if row not in ends), key=lambda row: abs(row - wanted))
        if free:
            ends[free[0]] = Cell(GLYPHS[index % 6], f"line-{1 + index % 6}")
    return ends


def _x_labels(scale: Scale, axis: Axis, left: int, columns: int, width: int) -> str:
    """Round values under their columns, as many as have room, the newest value at the end."""
    last = axis_label(scale.high, axis)
    line = " " * (left + columns - len(last)) + last
    for value in ticks(scale, max(2, columns // 10)):
        if abs(value - round(value)) > 1e-9:
            continue  # labels are whole: 1.5 would say 2
        label = axis_label(value, axis)
        start = left + int(scale.place(np.array([value]))[0]) // 2 - len(label) // 2
        if start >= 0 and not line[max(0, start - 2) : start + len(label) + 2].strip():
            line = line[:start] + label + line[start + len(label) :]
    return fit(line, width)


def words(text: str, width: int, height: int) -> list[list[Cell]]:
    """Words in the middle of the space, wrapped."""
    lines = textwrap.wrap(safe_str(text), max(width - 4, 1))[: max(height, 0)] if width > 4 else []
    lines = [""] * ((height - len(lines)) // 2) + lines
    return [[Cell(letter, "empty") for letter in f"{line:^{width}}"[:width]] for line in lines]
