"""The chart: lines of metrics over steps, and the only module that knows the plotting library.

Why plotext 6 and not 5.3 with textual-plotext: tried beside each other under textual 8.2, a 60×18 braille canvas with
two noisy series took 4.4 ms with 6.1, 8.1 ms with a bare 5.3 figure and 16.9 ms through textual-plotext's widget;
120×40 took 7.6 against 16 ms. textual-plotext needs plotext below 6, was last released in November 2024 and reaches
into plotext's private modules, and 5.3 raises on ±inf and on a logarithm of 0. The price of 6.1 is that a NaN in a
line aborts the process, so plotext sees neither data nor axes here: values are filtered, thinned, scaled to whole
dots of the canvas (``Scale.place``) and only then handed over to be joined by lines; range, logarithm, labels, marks
and colours are ours. Colours travel as palette numbers that stand for the styles of the theme. plotext takes 0.2 s to
import, so it is imported when the first line is drawn, after the first frame.
"""

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from rlhf_tui.safe_text import fit, safe_str, safe_text
from rlhf_tui.scale import Scale, axis_label, number, tick_label, ticks, value_range
from rlhf_tui.series import Array, Axis, thin

GLYPHS = "●◆▲■▼★"
PALETTE = ("line-1", "line-2", "line-3", "line-4", "line-5", "line-6")
_ESCAPE = re.compile(r"\x1b\[([0-9;]*)m")
_FAINT = 8  # added to a line's palette number for its raw values
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


class _Cell(NamedTuple):
    glyph: str
    style: str  # a component class, or "" for the background


@dataclass
class _Picture:
    """A drawn chart: rows of cells, and what the cursor needs to read them."""

    rows: list[list[_Cell]]
    left: int = 0  # where the canvas begins
    columns: int = 0
    scale: Scale | None = None
    notes: list[str] = field(default_factory=list)


class Chart(Widget, can_focus=True):
    """Draws what ``feed`` gives when :meth:`redraw` is called; whoever owns charts decides when that is."""

    DEFAULT_CSS = """
    Chart {
        border: round $panel-lighten-2; border-title-color: $foreground; border-subtitle-color: $text-muted;
        min-height: 5; height: 1fr; width: 1fr;
        &:focus { border: round $accent; border-title-style: bold; }
        & > .chart--axis { color: $text-muted; }
        & > .chart--empty { color: $text-muted; }
        & > .chart--mark { color: $text-warning; }
        & > .chart--cursor { color: $foreground; text-style: bold; }
        & > .chart--line-1 { color: $line-1; text-style: bold; } & > .chart--faint-1 { color: $line-1 40%; }
        & > .chart--line-2 { color: $line-2; text-style: bold; } & > .chart--faint-2 { color: $line-2 40%; }
        & > .chart--line-3 { color: $line-3; text-style: bold; } & > .chart--faint-3 { color: $line-3 40%; }
        & > .chart--line-4 { color: $line-4; text-style: bold; } & > .chart--faint-4 { color: $line-4 40%; }
        & > .chart--line-5 { color: $line-5; text-style: bold; } & > .chart--faint-5 { color: $line-5 40%; }
        & > .chart--line-6 { color: $line-6; text-style: bold; } & > .chart--faint-6 { color: $line-6 40%; }
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "chart--axis", "chart--empty", "chart--mark", "chart--cursor",
        *(f"chart--{kind}-{index}" for kind in ("line", "faint") for index in range(1, 7)),
    }  # fmt: skip
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "cursor(-1)", "Read a value", show=False, id="chart.left", tooltip="Move the reading line left"),
        Binding("right", "cursor(1)", "Read a value", show=False, id="chart.right", tooltip="Move the reading line right"),
        Binding("home", "cursor(-9999)", "First value", show=False, id="chart.first"),
        Binding("end", "cursor(9999)", "Last value", show=False, id="chart.last"),
        Binding("backspace", "clear_cursor", "Stop reading", show=False, id="chart.clear"),
    ]  # fmt: skip

    class Read(Message):
        """The reading line of ``chart`` was moved to ``x`` (None: taken away)."""

        def __init__(self, chart: "Chart", x: float | None) -> None:
            super().__init__()
            self.chart, self.x = chart, x

        @property
        def control(self) -> "Chart":
            return self.chart

    def __init__(
        self, title: str, feed: Callable[[], ChartData], *, id: str | None = None, classes: str | None = None
    ) -> None:
        super().__init__(id=id, classes=classes)
        self.title = title
        self.feed = feed
        self.stale = True  # there are newer data
        self.misfit = True  # the picture has the wrong size or style
        self.drawn = 0.0  # when, by the owner's clock
        self.data = ChartData()
        self.reading: float | None = None  # x of the reading line
        self._picture = _Picture([])
        self._strips: list[Strip] = []
        self.border_title = safe_text(title)

    # --- drawing -----------------------------------------------------------------------------------------------

    def redraw(self) -> None:
        """Fetch the data and draw them."""
        self.data = self.feed()
        self._picture = draw(self.data, self.size.width, self.size.height)
        self.stale = self.misfit = False
        self._finish()

    def _finish(self) -> None:
        styles: dict[str, Style] = {"": self.rich_style}
        for row in self._picture.rows:
            for cell in row:
                if cell.style not in styles:
                    styles[cell.style] = self.get_component_rich_style(f"chart--{cell.style}")
        cursor = self._cursor_column()
        self._strips = [self._strip(row, styles, cursor) for row in self._picture.rows]
        self._title()
        self.refresh()

    def _strip(self, row: list[_Cell], styles: dict[str, Style], cursor: int | None) -> Strip:
        if cursor is not None and row[cursor].style == "":
            row = [*row[:cursor], _Cell("│", "cursor"), *row[cursor + 1 :]]
            styles["cursor"] = self.get_component_rich_style("chart--cursor")
        return Strip(
            Segment("".join(cell.glyph for cell in cells), styles[style])
            for style, cells in itertools.groupby(row, key=lambda cell: cell.style)
        )

    def render_line(self, y: int) -> Strip:
        if y >= len(self._strips):
            return Strip.blank(self.size.width, self.rich_style)
        return self._strips[y].adjust_cell_length(self.size.width, self.rich_style)

    def _title(self) -> None:
        """The name, then each line's glyph, name and latest value – or the value at the reading line."""
        room = self.size.width - 4
        title = safe_text(self.title, room)
        for index, line in enumerate(self.data.lines):
            if not len(line.y):
                continue
            at = -1 if self.reading is None else int(np.argmin(np.abs(line.x - self.reading)))
            name = "" if line.label == self.title else f"{safe_str(line.label, 24)} "
            part = f"  {GLYPHS[index % 6]} {name}{number(float(line.bright[at]))}"
            if title.cell_length + len(part) > room:
                title += "…" if title.cell_length < room else ""
                break
            title += safe_text(part, style=f"${PALETTE[index % 6]}")
        self.border_title = title
        self.border_subtitle = safe_text(self._place(), room)

    def _place(self) -> str:
        axis = self.data.axis
        if self.reading is None:
            return "  ".join([*self._picture.notes, "log" if self.data.log else ""]).strip()
        near = [mark for mark in self.data.marks if self._column(mark.x) == self._column(self.reading)]
        where = f"{axis} {axis_label(self.reading, axis)}"
        return "  ".join([where, *(f"{_MARK_GLYPHS[mark.kind]} {mark.text}" for mark in near)])

    # --- reading -----------------------------------------------------------------------------------------------

    def _column(self, x: float) -> int | None:
        scale = self._picture.scale
        return None if scale is None else int(scale.place(np.array([x]))[0]) // 2

    def _cursor_column(self) -> int | None:
        column = None if self.reading is None else self._column(self.reading)
        return None if column is None else self._picture.left + column

    def action_cursor(self, cells: int) -> None:
        """Move the reading line by cells; it begins at the newest value."""
        scale = self._picture.scale
        if scale is None:
            return
        at = self._picture.columns if self.reading is None else self._column(self.reading) or 0
        self.read_at(min(max(at + cells, 0), self._picture.columns - 1))

    def read_at(self, column: int) -> None:
        """Put the reading line on a column of the canvas, at the measurement nearest to it."""
        assert self._picture.scale is not None
        x = self._picture.scale.value(2 * column + 0.5)
        lines = [line.x for line in self.data.lines if len(line.x) and not line.overlay]
        if lines:
            here = [each for each in (xs[np.abs(xs - x).argmin()] for xs in lines) if self._column(each) == column]
            x = float(here[0]) if here else x
        self.reading = x
        self._finish()
        self.post_message(self.Read(self, x))

    def action_clear_cursor(self) -> None:
        self.reading = None
        self._finish()
        self.post_message(self.Read(self, None))

    # --- events ------------------------------------------------------------------------------------------------

    def on_resize(self) -> None:
        self.misfit = True

    def on_click(self, event: events.Click) -> None:
        column = event.get_content_offset_capture(self).x - self._picture.left
        if self._picture.scale is not None and 0 <= column < self._picture.columns:
            self.read_at(column)

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self.misfit = True


_MARK_GLYPHS = {"knob": "▾", "alert": "!"}


# --- from data to cells ------------------------------------------------------------------------------------------


def draw(data: ChartData, width: int, height: int) -> _Picture:
    """The cells of a chart of ``width`` × ``height``. Pure, but for plotext's one figure."""
    lines = [_visible(line, data.log) for line in data.lines]
    drawn = [(index, line) for index, line in enumerate(lines) if len(line.x)]
    if width < 12 or height < 3 or not drawn:
        return _Picture(_words(data.empty if not drawn else "", width, height))
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
        return _Picture(_words("", width, height))
    x_scale = Scale(x_low, x_high, 2 * columns)

    canvas = _canvas(drawn, x_scale, y_scale, columns, rows)
    picture = _Picture([], left, columns, x_scale)
    _put_marks(canvas, data.marks, x_scale, x_low, x_high)
    ends = _ends(drawn, y_scale, rows)
    blank = _Cell(" ", "")
    for row in range(rows):
        label = labels.get(row, "")
        axis = [_Cell(letter, "axis") for letter in f"{label:>{left - 1}}{'┤' if label else '│'}"]
        picture.rows.append([*axis, *canvas[row], blank, ends.get(row, blank)])
    picture.rows.append([_Cell(letter, "axis") for letter in _x_labels(x_scale, data.axis, left, columns, width)])
    hidden = sum(len(line.y) for line in data.lines) - sum(len(line.y) for line in lines)
    if hidden:
        picture.notes.append(f"{hidden} values ≤ 0 not shown")
    return picture


def _visible(line: Line, log: bool) -> Line:
    """The line as far as it can be drawn: finite, and positive where the axis is logarithmic."""
    keep = np.isfinite(line.y) & np.isfinite(line.x) & np.isfinite(line.bright)
    if log:
        keep &= (line.y > 0) & (line.bright > 0)
    if keep.all():
        return line
    return Line(line.label, line.x[keep], line.y[keep], None if line.smooth is None else line.smooth[keep], line.overlay)


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


def _canvas(
    drawn: list[tuple[int, Line]], x_scale: Scale, y_scale: Scale, columns: int, rows: int
) -> list[list[_Cell]]:
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
    return [_parse(row, columns) for row in _rasterise(paths, columns, rows)]


def _rasterise(paths: list[tuple[int, list[float], list[float]]], columns: int, rows: int) -> list[str]:
    """Each path (palette number, dots of x, dots of y) as a braille line. Finite whole numbers only."""
    import plotext  # 0.2 s: not before the first frame

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


def _parse(row: str, columns: int) -> list[_Cell]:
    cells: list[_Cell] = []
    style = ""
    for index, part in enumerate(_ESCAPE.split(row)):
        if index % 2:
            number_ = int(part.rpartition(";")[2] or 0) if part.startswith("38;5;") else 0
            style = "" if not number_ else f"faint-{number_ - _FAINT}" if number_ > _FAINT else f"line-{number_}"
        else:
            cells += [_Cell(letter, style if letter != " " else "") for letter in part]
    return (cells + [_Cell(" ", "")] * columns)[:columns]


def _put_marks(canvas: list[list[_Cell]], marks: Sequence[Mark], scale: Scale, low: float, high: float) -> None:
    for mark in marks:
        if low <= mark.x <= high:
            column = int(scale.place(np.array([mark.x]))[0]) // 2
            for row in canvas[1:]:
                if row[column].style == "":
                    row[column] = _Cell("┊", "mark")
            canvas[0][column] = _Cell(_MARK_GLYPHS[mark.kind], "mark")


def _ends(drawn: list[tuple[int, Line]], scale: Scale, rows: int) -> dict[int, _Cell]:
    """The glyph of each line at the height of its last value, moved to the nearest free row."""
    ends: dict[int, _Cell] = {}
    for index, line in drawn:
        wanted = rows - 1 - int(scale.place(line.bright[-1:])[0]) // 4
        free = sorted((row for row in range(rows) if row not in ends), key=lambda row: abs(row - wanted))
        if free:
            ends[free[0]] = _Cell(GLYPHS[index % 6], f"line-{1 + index % 6}")
    return ends


def _x_labels(scale: Scale, axis: Axis, left: int, columns: int, width: int) -> str:
    first, last = axis_label(scale.low, axis), axis_label(scale.high, axis)
    line = f"{'':{left}}{first}".ljust(left + columns - len(last)) + last
    middle = axis_label(scale.value(columns), axis)
    start = left + (columns - len(middle)) // 2
    if not line[max(0, start - 2) : start + len(middle) + 2].strip():
        line = line[:start] + middle + line[start + len(middle) :]
    return fit(line, width)


def _words(text: str, width: int, height: int) -> list[list[_Cell]]:
    """Words in the middle of the space, wrapped."""
    import textwrap

    lines = textwrap.wrap(safe_str(text), max(width - 4, 1))[: max(height, 0)] if width > 4 else []
    lines = [""] * ((height - len(lines)) // 2) + lines
    return [[_Cell(letter, "empty") for letter in f"{line:^{width}}"[:width]] for line in lines]
