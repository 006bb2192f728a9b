"""The command palette's commands: every action that has a key now, every screen, theme and method."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from textual.binding import ActiveBinding
from textual.command import DiscoveryHit, Hit, Hits, Provider

from core.methods.table import METHODS
from rlhf_tui.flow import key_of
from rlhf_tui.safe_text import safe_str
from rlhf_tui.screens.table import SCREENS

if TYPE_CHECKING:
    from rlhf_tui.app import PlaygroundApp
    from rlhf_tui.screens.train import TrainScreen


@dataclass(frozen=True)
class PaletteCommand:
    """Something to do by name."""

    name: str
    help: str
    run: Callable[[], Any]


async def _look_at(app: "PlaygroundApp", method: str) -> None:
    if app.current_mode != "train":
        await app.switch_mode("train")
    await cast("TrainScreen", app.screen).choose_method(method)


class ActionsProvider(Provider):
    """Finds actions by what their bindings say; a binding without a key on this screen is not offered."""

    def commands(self) -> Iterator[PaletteCommand]:
        app = cast("PlaygroundApp", self.app)
        seen = set()
        for active in sorted(self.screen.active_bindings.values(), key=self._distance):
            binding = active.binding
            if not binding.description or binding.system or not active.enabled or binding.action in seen:
                continue
            seen.add(binding.action)
            help_ = f"{active.tooltip or binding.description}  (key {app.get_key_display(binding)})"
            run = partial(app.run_action, binding.action, active.node)
            yield PaletteCommand(binding.description, help_, run)
        extra = getattr(self.screen, "palette_commands", None)
        if extra is not None:
            yield from extra()
        for method in METHODS.values():
            if f"choose({key_of(method.name)})" not in seen:  # more methods than digits, and a screen without either
                yield PaletteCommand(method.title, method.summary, partial(_look_at, app, method.name))
        for entry in SCREENS:
            yield PaletteCommand(f"Go to {entry.title}", entry.summary, partial(app.show_screen, entry.name))
        for name in sorted(app.available_themes):
            yield PaletteCommand(f"Theme: {name}", "change the colours", partial(setattr, app, "theme", name))

    @staticmethod
    def _distance(active: ActiveBinding) -> int:
        """What the footer shows comes first, and last come Textual's own moves of the focus, which alone have no id."""
        return 2 if active.binding.id is None else 0 if active.binding.show else 1

    async def discover(self) -> Hits:
        for command in self.commands():
            yield DiscoveryHit(command.name, command.run, help=safe_str(command.help))

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for command in self.commands():
            score = max(matcher.match(command.name), 0.5 * matcher.match(command.help))
            if score > 0:
                yield Hit(score, matcher.highlight(command.name), command.run, help=safe_str(command.help))
