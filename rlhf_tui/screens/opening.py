"""What stands on the screen before the first screen of the table does: where its panes will be, nothing in them yet.

It needs little beyond Textual itself, so that it shows in half the time that the rest takes to import.
"""

from typing import TYPE_CHECKING, Any, cast

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.screen import Screen
from textual.widgets import Static

from rlhf_tui.safe_text import safe_text
from rlhf_tui.screens.breakpoints import HORIZONTAL, VERTICAL
from rlhf_tui.widgets.key_bar import KeyBar
from rlhf_tui.widgets.title_bar import TitleBar

if TYPE_CHECKING:
    from rlhf_tui.app import PlaygroundApp


class OpeningScreen(Screen[Any]):
    """``entry_name``: the screen of the table that takes its place."""

    # No style sheet beside it: Textual reads none for the screen that an app begins with.
    DEFAULT_CSS = """
    OpeningScreen { layout: vertical; }
    OpeningScreen .line { height: 1; padding: 0 1; color: $text-muted; text-wrap: nowrap; text-overflow: ellipsis; }
    OpeningScreen .frame {
        height: 100%; width: 1fr; border: round $panel-lighten-2; border-title-color: $foreground;
    }
    OpeningScreen .upper { height: 1fr; }
    OpeningScreen .lower { height: 10; }
    OpeningScreen .knobs { width: 34; }
    OpeningScreen .samples { width: 2fr; }
    OpeningScreen.-wide .knobs { width: 40; }
    OpeningScreen.-wide .lower { height: 14; }

    /* One pane at a time: which one is not known yet. */
    OpeningScreen.-narrow, OpeningScreen.-short, OpeningScreen.-tiny {
        .upper, .lower { display: none; }
    }
    """
    HORIZONTAL_BREAKPOINTS = HORIZONTAL
    VERTICAL_BREAKPOINTS = VERTICAL

    def __init__(self, entry_name: str) -> None:
        super().__init__(id="opening")
        self.entry_name = entry_name
        self.typed: list[events.Key] = []  # keys that are meant for the screen to come

    def compose(self) -> ComposeResult:
        session = cast("PlaygroundApp", self.app).session
        yield TitleBar(self.entry_name)
        yield Static(safe_text(f"Opening {session.title or session.folder.name} …"), classes="line")
        if self.entry_name == "train":
            with Horizontal(classes="upper"):
                yield _frame("knobs")
                yield _frame("charts")
            with Horizontal(classes="lower"):
                yield _frame("samples")
                yield _frame("log")
            yield Static(classes="line")
        yield KeyBar()

    def on_key(self, event: events.Key) -> None:
        event.stop()
        self.typed.append(events.Key(event.key, event.character))


def _frame(title: str) -> Static:
    frame = Static(classes=f"frame {title}")
    frame.border_title = title
    return frame
