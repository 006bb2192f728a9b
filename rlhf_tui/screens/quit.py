"""Asks before quitting, and only where something would be lost: it says what."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from rlhf_tui.safe_text import safe_text


class QuitScreen(ModalScreen[bool]):
    """Dismissed with True to leave all the same."""

    CSS_PATH = "quit.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,n", "answer(False)", "Stay", id="quit.stay"),
        Binding("y", "answer(True)", "Quit anyway", id="quit.leave"),
    ]

    def __init__(self, lost: list[str]) -> None:
        super().__init__()
        self.lost = lost

    def compose(self) -> ComposeResult:
        with Vertical(id="quit") as box:
            box.border_title = "Quit?"
            yield Static("This would be lost:")
            for line in self.lost:
                yield Static(safe_text(f"  ! {line}", style="$text-warning"))
            with Horizontal():
                yield Button("Stay (n)", id="stay", variant="primary", compact=True)
                yield Button("Quit anyway (y)", id="leave", variant="error", compact=True)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "leave")

    def action_answer(self, leave: bool) -> None:
        self.dismiss(leave)
