"""The chart widget: lines of metrics over steps, with their latest values and a line to read others by."""

import itertools
from collections.abc import Callable
from typing import ClassVar

import numpy as np
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip
from textual.style import Style as VisualStyle
from textual.widget import Widget

from rlhf_tui.plotting import GLYPHS, MARK_GLYPHS, Cell, ChartData, Picture, draw
from rlhf_tui.safe_text import safe_str, safe_text
from rlhf_tui.scale import axis_label, number

# By the theme's variables. As component classes they would be matched against the stylesheet at every change of focus.
_STYLES = {
    "mark": "$text-warning",
    "cursor": "bold $foreground",
    **{f"line-{index}": f"bold $line-{index}" for index in range(1, 7)},
    **{f"faint-{index}": f"$line-{index} 40%" for index in range(1, 7)},
}


class Chart(Widget, can_focus=True):
    """Draws what ``feed`` gives when :meth:`redraw` is called; whoever owns charts decides when that is."""

    DEFAULT_CSS = """
    Chart {
        border: round $panel-lighten-2; border-title-color: $foreground; border-subtitle-color: $text-muted;
        min-height: 5; height: 1fr; width: 1fr;
        &:focus { border: round $accent; border-title-style: bold; }
        & > .chart--muted { color: $text-muted; }
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {"chart--muted"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "cursor(-1)", "Read a value", show=False, id="chart.left",
                tooltip="Move the reading line left"),
        Binding("right", "cursor(1)", "Read a value", show=False, id="chart.right",
                tooltip="Move the reading line right"),
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
        self._picture = Picture([])
        self._strips: list[Strip] = []
        self._styles: dict[str, Style] = {}
        self._styled_for: tuple[str, VisualStyle] | None = None  # theme and own style that the styles belong to
        self.border_title = safe_text(title)

    def show(self, title: str, feed: Callable[[], ChartData]) -> None:
        """Draw something else from now on."""
        if title != self.title:
            self.title, self.border_title, self.border_subtitle = title, safe_text(title), ""
            self.data, self._picture, self._strips = ChartData(), Picture([]), []
            self.refresh()
        self.feed, self.reading = feed, None
        self.stale = self.misfit = True

    # --- drawing -----------------------------------------------------------------------------------------------

    def redraw(self) -> None:
        """Fetch the data and draw them."""
        self.data = self.feed()
        self._picture = draw(self.data, self.size.width, self.size.height)
        self.stale = self.misfit = False
        self._finish()

    def _finish(self) -> None:
        styles, cursor = self._rich_styles(), self._cursor_column()
        self._strips = [self._strip(row, styles, cursor) for row in self._picture.rows]
        self._title()
        self.refresh()

    def _rich_styles(self) -> dict[str, Style]:
        """What each style of a cell looks like in this theme."""
        own = (self.app.theme, self.visual_style)
        if own != self._styled_for:
            self._styled_for = own
            variables = self.app.theme_variables
            muted = self.get_component_rich_style("chart--muted")
            self._styles = {"": self.rich_style, "axis": muted, "empty": muted} | {
                name: (self.visual_style + VisualStyle.parse(words, variables)).rich_style
                for name, words in _STYLES.items()
            }
        return self._styles

    def _strip(self, row: list[Cell], styles: dict[str, Style], cursor: int | None) -> Strip:
        if cursor is not None and row[cursor].style == "":
            row = [*row[:cursor], Cell("│", "cursor"), *row[cursor + 1 :]]
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
            title += safe_text(part, style=f"$line-{1 + index % 6}")
        self.border_title = title
        self.border_subtitle = safe_text(self._place(), room)

    def _place(self) -> str:
        axis = self.data.axis
        if self.reading is None:
            return "  ".join([*self._picture.notes, "log" if self.data.log else ""]).strip()
        near = [mark for mark in self.data.marks if self._column(mark.x) == self._column(self.reading)]
        where = f"{axis} {axis_label(self.reading, axis)}"
        return "  ".join([where, *(f"{MARK_GLYPHS[mark.kind]} {mark.text}" for mark in near)])

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
        if self._picture.rows and self.is_attached:
            self.call_later(self._recolour)

    def _recolour(self) -> None:
        """Other colours, the same dots – where the colours are others at all."""
        if self._styled_for != (self.app.theme, self.visual_style):
            self._finish()
