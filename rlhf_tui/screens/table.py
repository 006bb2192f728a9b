"""The one table of screens. A new screen is a pair of files (``name.py``, ``name.tcss``) and an entry here."""

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlhf_tui.screens.base import PlaygroundScreen


@dataclass(frozen=True)
class ScreenEntry:
    """A screen that ``[`` and ``]`` walk through, in the order of the table."""

    name: str
    title: str
    screen: str  # "module:class", a PlaygroundScreen; loaded when it is first shown
    summary: str  # one line for the command palette

    def load(self) -> "PlaygroundScreen":
        module, _, name = self.screen.partition(":")
        made: PlaygroundScreen = getattr(importlib.import_module(module), name)()
        return made


SCREENS: tuple[ScreenEntry, ...] = (
    ScreenEntry("train", "Train", "rlhf_tui.screens.train:TrainScreen", "train models and watch them learn"),
    ScreenEntry("label", "Label", "rlhf_tui.screens.label:LabelScreen", "judge pairs, and train on what you prefer"),
    ScreenEntry("compare", "Compare", "rlhf_tui.screens.compare:CompareScreen", "read two models side by side"),
    ScreenEntry(
        "frontier",
        "Frontier",
        "rlhf_tui.screens.frontier:FrontierScreen",
        "reward against KL: runs and what is possible",
    ),
    ScreenEntry("sessions", "Sessions", "rlhf_tui.screens.sessions:SessionsScreen", "open, make and keep sessions"),
)


def neighbour(name: str, distance: int) -> ScreenEntry:
    """The screen ``distance`` places after ``name``, round the ends of the table."""
    names = [entry.name for entry in SCREENS]
    return SCREENS[(names.index(name) + distance) % len(SCREENS)]
