"""The run log: what happened when, newest at the end."""

import time

from rich.text import Text
from textual import events
from textual.widgets import RichLog

from rlhf_tui.safe_text import safe_str
from rlhf_tui.screens.topics import HelpTopic
from rlhf_tui.state import AppState, LogEntry

_GLYPHS = {"info": " ", "knob": "▾", "alert": "!", "error": "✗"}
_LONGEST = 400  # characters of one entry
_AGAIN = 500  # entries written anew at most


class RunLog(RichLog):
    ALLOW_MAXIMIZE = True
    DEFAULT_CSS = """
    RunLog {
        border: round $panel-lighten-2; border-title-color: $foreground; padding: 0 1;
        background: transparent; overflow-y: auto;
        scrollbar-size-vertical: 1; scrollbar-background: $background;
        &:focus { border: round $accent; border-title-style: bold; background-tint: transparent; }
    }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, wrap=True, markup=False, highlight=False, max_lines=2000, min_width=10)
        self.border_title = "log"
        self._state: AppState | None = None
        self._shown = 0
        self._width = 0  # that the lines there were broken at

    def show(self, state: AppState) -> None:
        """Add what is new."""
        self._state = state
        if not self._width or not self.is_on_screen:
            return  # nobody knows yet where to break lines
        new = min(state.logged - self._shown, len(state.log), _AGAIN if not self._shown else state.logged)
        self._shown = state.logged
        for entry in list(state.log)[len(state.log) - new :]:
            self.write(self._line(entry))

    def on_show(self) -> None:
        if self._state is not None:
            self.show(self._state)

    def on_resize(self, event: events.Resize) -> None:
        """Lines are broken when they are written, so at another width they are written anew."""
        width = self.scrollable_content_region.width
        if width in (0, self._width):
            return
        self._width = width
        self.forget()
        if self._state is not None:
            self.show(self._state)

    def forget(self) -> None:
        """Begin with another session's log."""
        self.clear()
        self._shown = 0

    def _line(self, entry: LogEntry) -> Text:
        colours = self.app.theme_variables
        style = {"alert": colours.get("text-warning", ""), "error": colours.get("text-error", "")}.get(entry.kind, "")
        clock = time.strftime("%H:%M:%S", time.localtime(entry.time))
        return Text.assemble(
            (f"{clock} ", "dim"), (f"{_GLYPHS.get(entry.kind, ' ')} {safe_str(entry.text, _LONGEST)}", _rich(style))
        )  # fmt: skip

    def help_topic(self) -> HelpTopic:
        return HelpTopic(
            "Log",
            (
                (
                    "What it shows",
                    "Beginnings and ends of runs, knobs turned (▾), alerts (!) and errors (✗), also of the last time "
                    "the session was open. Marks of the same signs stand on the charts.",
                ),
            ),
        )


def _rich(colour: str) -> str:
    """A theme colour as Rich knows it; an ``auto`` or ``ansi_`` one says nothing to it."""
    return colour if colour.startswith("#") else colour.removeprefix("ansi_") if colour.startswith("ansi_") else ""
