"""The pipeline strip: SFT → reward model → PPO / DPO / …, each with where its newest run stands."""

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from core.methods.base import Method
from core.methods.table import METHODS
from rlhf_tui.flow import key_of
from rlhf_tui.safe_text import safe_str
from rlhf_tui.scale import duration
from rlhf_tui.screens.topics import HelpTopic
from rlhf_tui.state import Run

STATE_GLYPHS = {
    "waiting": "◌", "running": "▶", "pausing": "◌", "paused": "‖", "interrupted": "!",
    "done": "✓", "stopped": "■", "failed": "✗",
}  # fmt: skip
STATE_STYLES = {
    "running": "$text-success", "pausing": "$text-warning", "paused": "$text-warning",
    "interrupted": "$text-warning", "failed": "$text-error", "done": "$text-success",
}  # fmt: skip
_WAY, _BESIDE = " → ", " · "  # of the same length
_TITLE = 30  # cells, at most


def _more(hidden: int) -> str:
    return f" +{hidden} ›" if hidden else ""


class Pipeline(Widget, can_focus=True):
    """One line of methods; the selected one is reversed, and stands there even if the table does not have it."""

    DEFAULT_CSS = """
    Pipeline { height: 1; padding: 0 1; background: $surface; }
    Pipeline:focus { background: $panel; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "move(-1)", "Previous method", show=False, id="pipeline.left"),
        Binding("right", "move(1)", "Next method", show=False, id="pipeline.right"),
    ]

    class Chosen(Message):
        def __init__(self, method: str) -> None:
            super().__init__()
            self.method = method

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.method = next(iter(METHODS.values()))
        self.runs: dict[str, Run | None] = {}
        self._places: list[tuple[int, int, str]] = []  # where each method is drawn, for the mouse

    def show(self, method: Method, runs: dict[str, Run | None]) -> None:
        """``runs``: what to tell of each method – the shown run, else its newest."""
        self.method, self.runs = method, runs
        self.refresh()

    @property
    def methods(self) -> dict[str, Method]:
        """Those of the table, and the selected one."""
        return {**METHODS, self.method.name: self.method}

    def render(self) -> Content:
        """Every method with its progress where there is room for that, else fewer methods, else no progress."""
        width = self.size.width
        names = list(self.methods)
        items = {name: self._item(name, detailed=True) for name in names}
        while self._length(names, items) > width and (dropped := self._least_needed(names)) is not None:
            names.remove(dropped)
        if self._length(names, items) > width:
            items = {name: self._item(name, detailed=False) for name in names}
        return self._line(names, items)

    def _least_needed(self, names: list[str]) -> str | None:
        """The last method that is neither selected, nor the way there, nor ever tried."""
        spare = [name for name in names[2:] if name != self.method.name and self.runs.get(name) is None]
        tried = [name for name in names[2:] if name != self.method.name]
        return spare[-1] if spare else tried[-1] if tried else None

    def _item(self, name: str, detailed: bool) -> Content:
        key = f"{key_of(name)} " if key_of(name) else ""
        progress, style = self._progress(self.runs.get(name), detailed)
        parts = ((f" {key}", "dim"), (safe_str(self.methods[name].title, _TITLE), "bold"), (progress, style), " ")
        item = Content.assemble(*parts)
        # One style throughout: reversed colours of several kinds would be a patchwork.
        return Content.styled(item.plain, "bold reverse") if name == self.method.name else item

    @staticmethod
    def _progress(run: Run | None, detailed: bool) -> tuple[str, str]:
        """How far a run is, and the style to say it in."""
        if run is None:
            return " ○", "dim"
        text = f" {STATE_GLYPHS.get(run.state, '?')}"
        if detailed and run.state != "done":
            text += f" {run.step}/{run.steps}"
            if run.eta is not None:
                text += f" {duration(run.eta)} left"
        return text, STATE_STYLES.get(run.state, "")

    def _length(self, names: list[str], items: dict[str, Content]) -> int:
        """Cells of the line of ``names``."""
        between = len(_WAY) * (len(names) - 1)
        return sum(items[name].cell_length for name in names) + between + len(_more(len(self.methods) - len(names)))

    def _line(self, names: list[str], items: dict[str, Content]) -> Content:
        parts: list[Content | tuple[str, str]] = []
        self._places = []
        at = 0
        for index, name in enumerate(names):
            if index:
                parts.append((_WAY if index <= 2 else _BESIDE, "dim"))
                at += len(_WAY)
            parts.append(items[name])
            self._places.append((at, at + items[name].cell_length, name))
            at += items[name].cell_length
        return Content.assemble(*parts, (_more(len(self.methods) - len(names)), "dim"))

    def action_move(self, distance: int) -> None:
        names = list(self.methods)
        self.post_message(self.Chosen(names[(names.index(self.method.name) + distance) % len(names)]))

    def on_click(self, event: events.Click) -> None:
        x = event.get_content_offset_capture(self).x
        for start, end, name in self._places:
            if start <= x < end:
                self.post_message(self.Chosen(name))

    def help_topic(self) -> HelpTopic:
        method = self.method
        return HelpTopic(
            method.title,
            (
                ("What it does", method.summary),
                ("When to use it", method.when),
                ("What goes wrong", method.pitfalls),
                ("Signs", "○ not yet  ▶ training  ‖ paused  ✓ done  ■ stopped  ! interrupted  ✗ failed"),
            ),
        )
