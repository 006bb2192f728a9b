"""The plane of reward against KL as a widget; draws when it is told to."""

import itertools
from collections.abc import Callable
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from rlhf_tui.plane import BEST_OF_N, FRONTIER, PlaneData, draw_plane
from rlhf_tui.plotting import Picture
from rlhf_tui.safe_text import safe_text


class PlaneView(Widget):
    """Draws what ``feed`` gives when :meth:`redraw` is called, and again by itself when its size changes."""

    DEFAULT_CSS = """
    PlaneView {
        border: round $panel-lighten-2; border-title-color: $foreground; border-subtitle-color: $text-muted;
        min-height: 6; height: 1fr; width: 1fr;
        & > .plane--axis { color: $text-muted; }
        & > .plane--empty { color: $text-muted; }
        & > .plane--line-1 { color: $line-1; text-style: bold; } & > .plane--faint-1 { color: $line-1 50%; }
        & > .plane--line-2 { color: $line-2; text-style: bold; } & > .plane--faint-2 { color: $line-2 50%; }
        & > .plane--line-3 { color: $line-3; text-style: bold; } & > .plane--faint-3 { color: $line-3 50%; }
        & > .plane--line-4 { color: $line-4; text-style: bold; } & > .plane--faint-4 { color: $line-4 50%; }
        & > .plane--line-5 { color: $line-5; text-style: bold; } & > .plane--faint-5 { color: $line-5 50%; }
        & > .plane--line-6 { color: $line-6; text-style: bold; } & > .plane--faint-6 { color: $line-6 50%; }
        & > .plane--line-7 { color: $foreground; text-style: bold; } & > .plane--faint-7 { color: $foreground 40%; }
        & > .plane--line-8 { color: $text-accent; }
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "plane--axis", "plane--empty", f"plane--faint-{FRONTIER}", f"plane--line-{FRONTIER}",
        f"plane--line-{BEST_OF_N}",
        *(f"plane--{kind}-{index}" for kind in ("line", "faint") for index in range(1, 7)),
    }  # fmt: skip

    def __init__(self, feed: Callable[[], PlaneData], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.feed = feed
        self._picture = Picture([])
        self._strips: list[Strip] = []

    def redraw(self) -> None:
        """Fetch the data and draw them."""
        self._picture = draw_plane(self.feed(), self.size.width, self.size.height)
        self._finish()

    def _finish(self) -> None:
        styles: dict[str, Style] = {"": self.rich_style}
        for row in self._picture.rows:
            for cell in row:
                if cell.style not in styles:
                    styles[cell.style] = self.get_component_rich_style(f"plane--{cell.style}")
        self._strips = [
            Strip(
                Segment("".join(cell.glyph for cell in cells), styles[style])
                for style, cells in itertools.groupby(row, key=lambda cell: cell.style)
            )
            for row in self._picture.rows
        ]
        self.border_subtitle = safe_text(" · ".join(self._picture.notes), max(self.size.width - 4, 0))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        if y >= len(self._strips):
            return Strip.blank(self.size.width, self.rich_style)
        return self._strips[y].adjust_cell_length(self.size.width, self.rich_style)

    def on_resize(self) -> None:
        self.redraw()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        if self._picture.rows and self.is_attached:
            self.call_later(self._finish)  # other colours, the same dots
