"""The bottom line: keys that work now. One widget that draws a line, where Textual's footer makes one for each key.

Those are mounted anew whenever the focus moves, which took a tenth of a second of every Tab.
"""

from rich.cells import cell_len
from textual import events
from textual.binding import Binding
from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget


class KeyBar(Widget):
    """Bindings that are shown, in their order, as far as there is room; the app's own are never pushed out."""

    DEFAULT_CSS = """
    KeyBar { dock: bottom; height: 1; background: $panel; color: $foreground; text-wrap: nowrap; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._places: list[tuple[int, int, str]] = []  # from, to, key to press

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._updated)

    def _updated(self, screen: Screen[object]) -> None:
        self.refresh()

    def render(self) -> Content:
        bindings = self._shown()
        while len(bindings) > 3 and sum(map(self._width, bindings)) > self.size.width:
            # The last of the screen's own keys goes first; quit, help and commands stay.
            own = [binding for binding in bindings if not (binding.id or "").startswith("app.")]
            if not own:
                break
            bindings.remove(own[-1])
        bar = Content("")
        self._places = []
        for binding in bindings:
            start = bar.cell_length
            bar += Content.styled(f" {self.app.get_key_display(binding)}", "bold $accent")
            bar += Content(f" {binding.description} ")
            self._places.append((start, bar.cell_length, binding.key))
        return bar

    def _shown(self) -> list[Binding]:
        shown: dict[str, Binding] = {}
        for active in self.screen.active_bindings.values():
            binding = active.binding
            if binding.show and active.enabled and not binding.system and binding.description:
                shown.setdefault(binding.action, binding)
        return list(shown.values())

    def _width(self, binding: Binding) -> int:
        return cell_len(self.app.get_key_display(binding)) + cell_len(binding.description) + 3

    def on_click(self, event: events.Click) -> None:
        for start, end, key in self._places:
            if start <= event.x < end:
                self.app.simulate_key(key)
