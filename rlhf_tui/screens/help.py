"""Help: what the focused pane means, the usual misreading, and every key that works there."""

from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen, Screen
from textual.widgets import Static

from rlhf_tui.safe_text import fit, safe_text
from rlhf_tui.screens.base import PlaygroundScreen
from rlhf_tui.screens.topics import HelpTopic

GENERAL = HelpTopic(
    "Help",
    (("", "Tab moves between panes, arrows inside one. The command palette (:) finds every action by its name."),),
)


def key_lines(screen: Screen[Any]) -> list[tuple[str, Content]]:
    """Every key that works now with what it does."""
    lines: dict[str, Content] = {}
    for active in screen.active_bindings.values():
        binding = active.binding
        if binding.description and not binding.system:
            key = screen.app.get_key_display(binding)
            lines.setdefault(key, Content(active.tooltip or binding.description))
    return list(lines.items())


def topic_of(screen: Screen[Any]) -> HelpTopic:
    """The topic of the focused widget, else of the widgets around it, else of the screen."""
    node: Any = screen.focused
    while node is not None:
        topic = getattr(node, "help_topic", None)
        found = topic() if topic is not None else None
        if found is not None:
            return found
        node = node.parent
    found = screen.help_topic() if isinstance(screen, PlaygroundScreen) else None
    return found or GENERAL


class HelpScreen(ModalScreen[None]):
    CSS_PATH = "help.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,f1,enter,space", "dismiss", "Close", key_display="Esc", id="help.close")
    ]

    def __init__(self, topic: HelpTopic, keys: list[tuple[str, Content]]) -> None:
        super().__init__()
        self.topic, self.keys = topic, keys

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help") as box:
            box.border_title = safe_text(self.topic.title)
            box.border_subtitle = "Esc closes"
            for heading, text in self.topic.paragraphs:
                if heading:
                    yield Static(safe_text(heading, style="bold $accent"), classes="heading")
                yield Static(safe_text(text), classes="paragraph")
            yield Static(safe_text("Keys", style="bold $accent"), classes="heading")
            lines = [Content.styled(fit(key, 11), "bold") + help_ for key, help_ in self.keys]
            yield Static(Content("\n").join(lines), classes="paragraph")

    def on_mount(self) -> None:
        self.query_one("#help").focus()

    async def action_dismiss(self, result: None = None) -> None:
        self.dismiss()
