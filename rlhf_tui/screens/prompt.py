"""Asks for one line of text, checked as it is typed."""

from collections.abc import Callable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from rlhf_tui.safe_text import safe_text


class PromptScreen(ModalScreen[str | None]):
    """Dismissed with the text, or None. ``check`` gives what is wrong with a text, or ""."""

    CSS_PATH = "prompt.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", "Cancel", id="prompt.cancel")]

    def __init__(
        self,
        title: str,
        about: str,
        *,
        value: str = "",
        placeholder: str = "",
        check: Callable[[str], str] | None = None,
    ) -> None:
        super().__init__()
        self._title, self._about, self._value, self._placeholder = title, about, value, placeholder
        self._wrong = check or (lambda text: "")

    def compose(self) -> ComposeResult:
        with Vertical(id="prompt") as box:
            box.border_title = safe_text(self._title)
            box.border_subtitle = "Enter accepts · Esc cancels"
            yield Static(safe_text(self._about), id="about")
            yield Input(self._value, placeholder=self._placeholder, id="text", compact=True)
            yield Static(id="wrong")

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        self._say(self._wrong(event.value))

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        wrong = self._wrong(event.value)
        self._say(wrong)
        if not wrong:
            self.dismiss(event.value)

    def _say(self, wrong: str) -> None:
        self.query_one("#wrong", Static).update(safe_text(f"✗ {wrong}" if wrong else "", style="$text-error"))

    def action_cancel(self) -> None:
        self.dismiss(None)
