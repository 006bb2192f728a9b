"""What every screen of the table has: the title bar, the engine's banner, the footer, and hooks of the app."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.reactive import Reactive
from textual.screen import Screen
from textual.widget import Widget

from rlhf_tui.screens.breakpoints import HORIZONTAL, VERTICAL
from rlhf_tui.screens.topics import HelpTopic
from rlhf_tui.widgets.banner import EngineBanner
from rlhf_tui.widgets.key_bar import KeyBar
from rlhf_tui.widgets.title_bar import TitleBar

if TYPE_CHECKING:
    from core.engine.protocol import Event
    from rlhf_tui.app import PlaygroundApp


class PlaygroundScreen(Screen[None]):
    """A screen of the table. Override :meth:`compose_body` and whichever hooks the screen needs."""

    entry_name: ClassVar[str] = ""  # its name in the table of screens
    # Textual draws the whole screen when another widget has the focus; the two that look different do so themselves.
    focused: Reactive[Widget | None] = Reactive(None, repaint=False)
    HORIZONTAL_BREAKPOINTS = HORIZONTAL
    VERTICAL_BREAKPOINTS = VERTICAL
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("[", "app.switch_screen_by(-1)", "Previous screen", show=False, id="screen.previous"),
        Binding("]", "app.switch_screen_by(1)", "Next screen", show=False, id="screen.next"),
    ]

    @property
    def playground(self) -> "PlaygroundApp":
        """The app, with its type: ``state``, ``session``, ``ask`` …"""
        return cast("PlaygroundApp", self.app)

    def compose(self) -> ComposeResult:
        yield TitleBar(self.entry_name)
        yield EngineBanner()
        yield from self.compose_body()
        yield KeyBar()

    def compose_body(self) -> Iterable[Any]:
        """The widgets between banner and footer."""
        return ()

    # --- hooks: the app calls these on every loaded screen -----------------------------------------------------

    def engine_event(self, event: "Event") -> None:
        """The engine said something and the app's state has taken it in. Mark what to draw; do not draw."""

    def engine_changed(self) -> None:
        """The engine started, ended, or could not save."""

    def session_changed(self) -> None:
        """Another session is open: forget what belonged to the one before."""

    def runs_changed(self) -> None:
        """Runs were deleted: forget them."""

    def ui_state(self) -> dict[str, Any]:
        """What to keep so that the screen reopens as it was; plain JSON."""
        return {}

    def restore(self, saved: dict[str, Any]) -> None:
        """Be as :meth:`ui_state` told. Must bear keys that are missing or mean nothing any more."""

    def would_be_lost(self) -> list[str]:
        """What the person would lose by quitting now, a line each; empty when everything is saved."""
        return []

    def help_topic(self) -> HelpTopic | None:
        """What F1 says where the focused widget has no topic of its own."""
        return None
