"""The simulated person: answers what is on the desk by a taste, so that a demonstration runs by itself."""

import shlex
from dataclasses import dataclass

from core.config import ConfigError, nearest
from core.preferences.labels import Answer, LabelRecord
from core.preferences.selection import ChosenFour, ChosenPair
from core.preferences.tastes import AutomaticLabeller, TasteError, find_taste, taste_names
from core.tasks.base import Task
from rlhf_tui.labelling.desk import Desk

MOST_LABELS = 100_000


@dataclass(frozen=True)
class Simulation:
    """Who judges, and how many more labels they give."""

    labeller: AutomaticLabeller
    count: int

    @property
    def annotator(self) -> str:
        """As labels name them."""
        noise = f", {self.labeller.noise:.0%} noise" if self.labeller.noise else ""
        return f"automatic: {self.labeller.taste.name}{noise}"


def parse_simulation(text: str, task: Task, seed: int) -> Simulation:
    """``ends-with-vowel noise=0.1 count=50``. Raises ConfigError in one line."""
    try:
        taste, *settings = shlex.split(text) or ["gold"]
    except ValueError:
        raise ConfigError(f"a quotation mark stands alone in {text!r}") from None
    values = {"noise": 0.0, "count": 50.0}
    for each in settings:
        name, equals, value = each.partition("=")
        if not equals or name not in values:
            raise ConfigError(f"expected noise=0.1 or count=50, not {each!r}{nearest(name, values)}")
        try:
            values[name] = float(value)
        except ValueError:
            raise ConfigError(f"{name} must be a number, not {value!r}") from None
    if not 1 <= values["count"] <= MOST_LABELS:
        raise ConfigError(f"count must be from 1 to {MOST_LABELS}")
    try:
        labeller = AutomaticLabeller(find_taste(taste, task.gold), values["noise"], seed)
    except TasteError as error:
        raise ConfigError(str(error)) from None
    return Simulation(labeller, int(values["count"]))


def tastes_line() -> str:
    """Every taste, for the question."""
    return ", ".join(taste_names())


def judge(desk: Desk, simulation: Simulation) -> tuple[LabelRecord, ...]:
    """Answer what is on the desk; () when nothing is. Raises StoreError."""
    item, labeller, who = desk.item, simulation.labeller, simulation.annotator
    if isinstance(item, ChosenPair):
        answer = labeller.judge(item.prompt, item.left.text, item.right.text, desk.turn)
        return desk.answer(answer, annotator=who)
    if isinstance(item, ChosenFour):
        scores = [labeller.taste.score(item.prompt, side.text) for side in item.sides]
        if min(scores) == max(scores):
            return desk.answer(Answer.SKIP, annotator=who)
        desk.pick(scores.index(max(scores)), annotator=who)
        return desk.pick(scores.index(min(scores)), annotator=who)
    return ()
