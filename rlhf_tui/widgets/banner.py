"""The banner: what went wrong with the engine or with saving, and the key that helps. Hidden while all is well."""

from typing import TYPE_CHECKING, cast

from textual.content import Content

from rlhf_tui.safe_text import safe_text
from rlhf_tui.widgets.still_text import StillText

if TYPE_CHECKING:
    from rlhf_tui.app import PlaygroundApp


class EngineBanner(StillText):
    DEFAULT_CSS = """
    EngineBanner {
        height: auto; max-height: 3; padding: 0 1; display: none;
        background: $error 25%; color: $foreground;
        &.-shown { display: block; }
    }
    """

    def on_mount(self) -> None:
        self.show_state()

    def show_state(self) -> None:
        """Say what the app's state asks for."""
        app = cast("PlaygroundApp", self.app)
        state = app.state
        words = Content("")
        if state.engine == "dead":
            words = safe_text(f"✗ {state.engine_line[:1].upper()}{state.engine_line[1:]}. ", style="bold $text-error")
            going_on = "start it again and go on from the last resume point" if app.interrupted else "start it again"
            words += Content.from_markup(
                "Everything up to the last save is kept. Press [bold]e[/bold] to $what.", what=going_on
            )
        elif state.storage_trouble or state.own_trouble:
            trouble = state.storage_trouble or state.own_trouble
            words = safe_text(f"! Saving failed: {trouble}. ", style="bold $text-error")
            words += Content("Training goes on and the last good copy is kept; saving is tried again and again.")
        elif app.session.read_only:
            words = Content("Read-only: you can look, compare and copy; nothing is trained or saved.")
        self.set_class(bool(words.plain), "-shown")
        self.show(words)
