"""The pipeline strip: SFT → reward model → PPO / DPO / …, each with where its newest run stands."""

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from core.methods.table import METHODS
from rlhf_tui.flow import key_of
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


class Pipeline(Widget, can_focus=True):
    """One line of methods; the selected one is reversed."""

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
        self.selected = next(iter(METHODS))
        self.runs: dict[str, Run | None] = {}
        self._places: list[tuple[int, int, str]] = []  # where each method is drawn, for the mouse

    def show(self, selected: str, runs: dict[str, Run | None]) -> None:
        """``runs``: what to tell of each method – the shown run, else its newest."""
        self.selected, self.runs = selected, runs
        self.refresh()

    def render(self) -> Content:
        names, width = list(METHODS), self.size.width
        line = self._line(names, detailed=True)
        while line.cell_length > width and (dropped := self._least_needed(names)) is not None:
            names.remove(dropped)
            line = self._line(names, detailed=line.cell_length < 2 * width)
        return line if line.cell_length <= width else self._line(names, detailed=False)

    def _least_needed(self, names: list[str]) -> str | None:
        """The last method that is neither selected, nor the way there, nor ever tried."""
        spare = [name for name in names[2:] if name != self.selected and self.runs.get(name) is None]
        tried = [name for name in names[2:] if name != self.selected]
        return spare[-1] if spare else tried[-1] if tried else None

    def _line(self, names: list[str], detailed: bool) -> Content:
        line = Content("")
        self._places = []
        for index, name in enumerate(names):
            method = METHODS[name]
            if index:
                line += Content.styled(" → " if index <= 2 else " · ", "dim")
            key = f"{key_of(name)} " if key_of(name) else ""
            item = Content.styled(f" {key}", "dim") + Content.styled(method.title, "bold")
            item += self._progress(self.runs.get(name), detailed) + Content(" ")
            start = line.cell_length
            # One style throughout: reversed colours of several kinds would be a patchwork.
            line += Content.styled(item.plain, "bold reverse") if name == self.selected else item
            self._places.append((start, line.cell_length, name))
        hidden = len(METHODS) - len(names)
        return line + Content.styled(f" +{hidden} ›", "dim") if hidden else line

    @staticmethod
    def _progress(run: Run | None, detailed: bool) -> Content:
        if run is None:
            return Content.styled(" ○", "dim")
        style = STATE_STYLES.get(run.state, "")
        text = f" {STATE_GLYPHS.get(run.state, '?')}"
        if detailed and run.state != "done":
            text += f" {run.step}/{run.steps}"
            if run.eta is not None:
                text += f" {duration(run.eta)} left"
        return Content.styled(text, style)

    def action_move(self, distance: int) -> None:
        names = list(METHODS)
        self.post_message(self.Chosen(names[(names.index(self.selected) + distance) % len(names)]))

    def on_click(self, event: events.Click) -> None:
        x = event.get_content_offset_capture(self).x
        for start, end, name in self._places:
            if start <= x < end:
                self.post_message(self.Chosen(name))

    def help_topic(self) -> HelpTopic:
        method = METHODS[self.selected]
        return HelpTopic(
            method.title,
            (
                ("What it does", method.summary),
                ("When to use it", method.when),
                ("What goes wrong", method.pitfalls),
                ("Signs", "○ not yet  ▶ training  ‖ paused  ✓ done  ■ stopped  ! interrupted  ✗ failed"),
            ),
        )
