"""The charts of a method side by side, and the one timer that draws them: one a tick, each at most twice a second.

Four charts in one tick would keep a key press waiting; one is drawn in a few milliseconds. A key that has just come is
answered first. What is off the screen, or has nothing new, is not drawn at all.
"""

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, ClassVar, cast

from textual.containers import VerticalScroll
from textual.widget import Widget

from rlhf_tui.plotting import ChartData
from rlhf_tui.widgets.chart import Chart

if TYPE_CHECKING:
    from rlhf_tui.app import PlaygroundApp

TICK = 1 / 12  # seconds
REDRAW_EVERY = 0.5  # seconds, of a chart that has only got new numbers
ANSWERED_IN = 0.04  # seconds, a key with what it changes on the screen


class ChartDeck(VerticalScroll, can_focus=False):
    DEFAULT_CSS = """
    ChartDeck { layout: grid; grid-size: 2; grid-gutter: 0; scrollbar-size-vertical: 1; }
    """
    MIN_ROWS: ClassVar[int] = 8
    clock: Callable[[], float] = staticmethod(time.monotonic)
    _gave_way = False  # to a key, at the last tick; no two ticks in a row, so that a held key stops no chart

    def on_mount(self) -> None:
        self.set_interval(TICK, self.draw_one)

    async def show(self, feeds: Iterable[tuple[str, Callable[[], ChartData]]]) -> None:
        """Put one chart for each (title, feed). Charts are used again: to mount new ones takes long."""
        wanted = list(feeds)
        pool = list(self.query(Chart))
        missing = [Chart(title, feed) for title, feed in wanted[len(pool) :]]
        for chart in pool:
            chart.display = False
        for chart, (title, feed) in zip(pool, wanted, strict=False):
            chart.display = True
            chart.show(title, feed)
        if missing:
            await self.mount(*missing)
        self.lay_out()
        self.touch(fresh=True)

    @property
    def charts(self) -> list[Chart]:
        """Those in use."""
        return [chart for chart in self.query(Chart) if chart.display]

    def touch(self, fresh: bool = False) -> None:
        """There are new numbers; ``fresh``: draw at the next ticks, however lately each chart was drawn."""
        for chart in self.charts:
            chart.stale = True
            chart.misfit = chart.misfit or fresh

    def draw_one(self) -> None:
        """Draw the chart that has waited longest, if one needs it."""
        if not self.screen.is_current or not self.display:
            return
        now = self.clock()
        key = cast("PlaygroundApp", self.app).key_pressed
        self._gave_way = not self._gave_way and 0 <= now - key < ANSWERED_IN
        if self._gave_way:
            return
        waiting = [
            chart
            for chart in self.charts
            if chart.size.width and (chart.misfit or (chart.stale and now - chart.drawn >= REDRAW_EVERY))
        ]
        on_screen = [chart for chart in waiting if self._on_screen(chart)]
        if on_screen:
            chosen = min(on_screen, key=lambda chart: (not chart.misfit, chart.drawn))
            chosen.drawn = now
            chosen.redraw()

    def _on_screen(self, chart: Widget) -> bool:
        maximized = self.screen.maximized
        if maximized is not None:
            return maximized in chart.ancestors_with_self
        return bool(chart.region.overlaps(self.screen.region)) and self.region.overlaps(chart.region)

    def lay_out(self) -> None:
        """As many columns as the width bears, rows that fill the height but are never too low to read."""
        charts = self.charts
        width, height = self.size
        if not charts or not width:
            return
        columns = max(1, min(3 if len(charts) > 4 else 2, width // 36, len(charts)))
        rows = -(-len(charts) // columns)
        self.styles.grid_size_columns = columns
        visible = max(1, min(rows, height // self.MIN_ROWS))
        row_height = max(height // visible, 3)
        spare = height - row_height * visible if visible == rows else 0
        for index, chart in enumerate(charts):
            last_row = index // columns == rows - 1
            chart.styles.height = row_height + (spare if last_row else 0)
            chart.styles.column_span = columns - (len(charts) - 1) % columns if chart is charts[-1] else 1
        self.styles.grid_rows = " ".join(str(row_height + (spare if r == rows - 1 else 0)) for r in range(rows))

    def on_resize(self) -> None:
        self.lay_out()
