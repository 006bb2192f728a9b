"""A list of lines with a cursor: draws only what is seen, so that a thousand rows cost no more than ten."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.visual import Visual

CURSOR, BLANK = "▸", " "


@dataclass(frozen=True)
class Row:
    """``draw`` gives ``height`` lines for a width and whether the cursor stands here."""

    key: Any
    draw: Callable[[int, bool], Sequence[Content]]
    height: int = 1


class LineList(ScrollView, can_focus=True):
    ALLOW_MAXIMIZE = True
    DEFAULT_CSS = """
    LineList {
        border: round $panel-lighten-2; border-title-color: $foreground; border-subtitle-color: $text-muted;
        scrollbar-size-vertical: 1; overflow-x: hidden; scrollbar-gutter: stable;
        scrollbar-background: $background;
    }
    LineList:focus { border: round $accent; border-title-style: bold; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "Line above", show=False, id="list.up"),
        Binding("down", "move(1)", "Line below", show=False, id="list.down"),
        Binding("pageup", "move_page(-1)", "Page up", show=False, id="list.page_up"),
        Binding("pagedown", "move_page(1)", "Page down", show=False, id="list.page_down"),
        Binding("home", "move(-1000000)", "First line", show=False, id="list.first"),
        Binding("end", "move(1000000)", "Last line", show=False, id="list.last"),
        Binding("enter", "choose", "Choose", show=False, id="list.choose"),
    ]

    class Moved(Message):
        """The cursor stands on another row; ``key`` is None where there are no rows."""

        def __init__(self, list_: "LineList", key: Any) -> None:
            super().__init__()
            self.list, self.key = list_, key

        @property
        def control(self) -> "LineList":
            return self.list

    class Chosen(Moved):
        """Enter, or a second click, on a row."""

    def __init__(self, *, empty: str = "", title: str = "", id: str | None = None) -> None:
        super().__init__(id=id)
        self.rows: list[Row] = []
        self.at = 0
        self.head: Callable[[int], Content] | None = None  # a line above, which does not scroll
        self.empty = empty
        self._ends: list[int] = []  # of each row, in lines
        self._drawn: dict[tuple[int, bool, int], list[Strip]] = {}
        if title:
            self.border_title = title

    @property
    def key(self) -> Any:
        """The key of the row with the cursor, None without rows."""
        return self.rows[self.at].key if self.rows else None

    def show(self, rows: Sequence[Row], key: Any = None) -> None:
        """Show ``rows``, the cursor on the row called ``key``, else where it stood, else at the same place."""
        before = self.key
        wanted = [key] if key is not None else [before] if self.rows else []
        self.rows = list(rows)
        keys = [row.key for row in self.rows]
        at = keys.index(wanted[0]) if wanted and wanted[0] in keys else self.at
        self.at = min(at, max(len(keys) - 1, 0))
        self._measure()
        self._into_view()
        if self.key != before:
            self.post_message(self.Moved(self, self.key))

    def draw_again(self) -> None:
        """What the rows show has changed; the rows are the same."""
        self._drawn.clear()
        self.refresh()

    # --- drawing -----------------------------------------------------------------------------------------------

    @property
    def _head_lines(self) -> int:
        return 1 if self.head is not None else 0

    def _measure(self) -> None:
        self._ends, total = [], 0
        for row in self.rows:
            total += row.height
            self._ends.append(total)
        self.virtual_size = Size(self.size.width, total + self._head_lines)
        self.draw_again()

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width  # beside the scrollbar
        if self.head is not None:
            if y == 0:
                return self._strips([self.head(width)], width)[0]
            y -= 1
        line = y + self.scroll_offset.y
        if not self.rows and line == 0:
            return self._strips([Content.styled(self.empty, "$text-muted")], width)[0]
        index = bisect_right(self._ends, line)
        if index >= len(self.rows):
            return Strip.blank(width, self.rich_style)
        strips = self._row_strips(index, width)
        return strips[line - (self._ends[index] - self.rows[index].height)]

    def _row_strips(self, index: int, width: int) -> list[Strip]:
        here = index == self.at
        found = self._drawn.get((index, here, width))
        if found is None:
            if len(self._drawn) > 500:
                self._drawn.clear()
            row = self.rows[index]
            mark = Content.styled(CURSOR if here else BLANK, "bold $accent")
            lines = list(row.draw(max(width - 1, 1), here))[: row.height]
            lines += [Content("")] * (row.height - len(lines))
            marked = [(mark if at == 0 else Content(BLANK)) + line for at, line in enumerate(lines)]
            if here and self.has_focus:
                marked = [line.stylize_before("bold") for line in marked]
            found = self._drawn[(index, here, width)] = self._strips(marked, width)
        return found

    def _strips(self, lines: Sequence[Content], width: int) -> list[Strip]:
        style = self.visual_style
        made = []
        for line in lines:
            strips = Visual.to_strips(self, line, max(width, 1), 1, style)
            made.append((strips[0] if strips else Strip([])).adjust_cell_length(width, self.rich_style))
        return made

    # --- moving ------------------------------------------------------------------------------------------------

    def action_move(self, distance: int) -> None:
        self.go_to(self.at + distance)

    def action_move_page(self, pages: int) -> None:
        self.go_to(self.at + pages * max(self.size.height - 1 - self._head_lines, 1))

    def go_to(self, index: int) -> None:
        index = min(max(index, 0), max(len(self.rows) - 1, 0))
        if index != self.at:
            self.at = index
            self.draw_again()
            self.post_message(self.Moved(self, self.key))
        self._into_view()

    def _into_view(self) -> None:
        if self.rows:
            height = self.rows[self.at].height
            top = self._ends[self.at] - height
            self.scroll_to_region(Region(0, top, 1, height + self._head_lines), animate=False, force=True)

    def action_choose(self) -> None:
        if self.rows:
            self.post_message(self.Chosen(self, self.key))

    def on_click(self, event: events.Click) -> None:
        line = event.get_content_offset_capture(self).y - self._head_lines + self.scroll_offset.y
        index = bisect_right(self._ends, line)
        if line >= 0 and index < len(self.rows):
            again = index == self.at
            self.go_to(index)
            if again and event.chain > 1:
                self.action_choose()

    def on_resize(self) -> None:
        self._measure()

    def on_focus(self) -> None:
        self.draw_again()

    def on_blur(self) -> None:
        self.draw_again()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._drawn.clear()
