"""Names of panes, one shown at a time: for screens too narrow to show all."""

from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget


class PaneTabs(Widget):
    """``panes``: (name, label). Keys belong to the screen; a click chooses."""

    DEFAULT_CSS = """
    PaneTabs { height: 1; padding: 0 1; background: $surface; }
    """

    class Chosen(Message):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    def __init__(self, panes: tuple[tuple[str, str], ...], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.panes = panes
        self.current = panes[0][0]

    def show(self, name: str) -> None:
        self.current = name
        self.refresh()

    def render(self) -> Content:
        parts = [
            Content.styled(f" {label} ", "bold reverse" if name == self.current else "") for name, label in self.panes
        ]
        return Content(" ").join(parts) + Content.styled("   Tab, v: next pane", "dim")

    def on_click(self, event: events.Click) -> None:
        at = 0
        for name, label in self.panes:
            at += len(label) + 3
            if event.get_content_offset_capture(self).x < at:
                self.post_message(self.Chosen(name))
                return
