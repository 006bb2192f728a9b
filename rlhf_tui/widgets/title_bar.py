"""The top line: the screens to go to, the session, and what the engine runs on."""

from typing import TYPE_CHECKING, cast

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.widget import Widget

from rlhf_tui.safe_text import safe_text
from rlhf_tui.screens.table import SCREENS

if TYPE_CHECKING:
    from rlhf_tui.app import PlaygroundApp


class TitleBar(Widget):
    """One line; a click on a screen's name goes there."""

    DEFAULT_CSS = """
    TitleBar { dock: top; height: 1; background: $panel; color: $foreground; }
    """

    def __init__(self, current: str) -> None:
        super().__init__()
        self.current = current

    @property
    def _tabs(self) -> list[tuple[str, str]]:
        return [(entry.name, f" {entry.title} ") for entry in SCREENS]

    def render(self) -> Content:
        app = cast("PlaygroundApp", self.app)
        bar = Content("")
        for name, label in self._tabs:
            bar += Content.styled(label, "bold reverse" if name == self.current else "")
        state = app.state
        briefly = state.engine_line.partition(";")[0].partition(" (")[0]  # the reasons stand in the log and in doctor
        room = self.size.width - bar.cell_length - 2
        title = safe_text(f"{app.session.title or app.session.folder.name} · {app.session.task}", max(room, 0))
        bar += Content("  ") + title
        left = self.size.width - bar.cell_length
        if left > 14:
            if cell_len(briefly) > left - 5:
                briefly = briefly.partition(" with ")[0]
            end = safe_text(f"{_ENGINE_GLYPHS[state.engine]} {briefly} ", left - 2)
            bar += Content(" " * (left - end.cell_length)) + end.stylize("$error" if state.engine == "dead" else "dim")
        return bar

    def on_click(self, event: events.Click) -> None:
        at = 0
        for name, label in self._tabs:
            at += cell_len(label)
            if event.x < at:
                cast("PlaygroundApp", self.app).show_screen(name)
                return


_ENGINE_GLYPHS = {"starting": "◌", "ready": "●", "closing": "◌", "dead": "✗", "none": "○"}
