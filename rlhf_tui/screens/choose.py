"""Asks for one of a few things by name."""

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from rlhf_tui.safe_text import safe_text
from rlhf_tui.widgets.line_list import LineList, Row


class ChooseScreen(ModalScreen[Any]):
    """Dismissed with the key of the chosen option, or None. ``options``: (key, text)."""

    CSS_PATH = "choose.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "cancel", "Cancel", id="choose.cancel")]

    def __init__(self, title: str, about: str, options: Sequence[tuple[Any, str]], current: Any = None) -> None:
        super().__init__()
        self._title, self._about, self._options, self._current = title, about, list(options), current

    def compose(self) -> ComposeResult:
        with Vertical(id="choose") as box:
            box.border_title = safe_text(self._title)
            box.border_subtitle = "Enter chooses · Esc cancels"
            if self._about:
                yield Static(safe_text(self._about), id="about")
            yield LineList(id="options")

    def on_mount(self) -> None:
        options = self.query_one(LineList)
        options.styles.height = min(len(self._options), 14)
        options.show(
            [Row(key, partial(_lines, text)) for key, text in self._options],
            key=self._current,
        )
        options.focus()

    @on(LineList.Chosen)
    def _chosen(self, message: LineList.Chosen) -> None:
        message.stop()
        self.dismiss(message.key)

    @on(LineList.Moved)
    def _moved(self, message: LineList.Moved) -> None:
        message.stop()

    def action_cancel(self) -> None:
        self.dismiss(None)


def _lines(text: str, width: int, here: bool) -> list[Content]:
    return [safe_text(text, width, "reverse" if here else "")]
