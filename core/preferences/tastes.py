"""Automatic labellers: a taste in place of a person, right most of the time. Torch-free.

They let a demonstration run unattended and give tests a person to simulate.
"""

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass

from core.config import nearest
from core.preferences.labels import Answer
from core.preferences.pair import PreferencePair

Score = Callable[[str, str], float]  # (prompt, completion) -> how much it is liked
MAX_NOISE = 0.4


class TasteError(ValueError):
    """A taste that does not exist; one line that names the nearest."""


@dataclass(frozen=True)
class Taste:
    """What a labeller likes: a higher score is better, equal scores are a tie."""

    name: str
    description: str
    score: Score


SIMPLE_TASTES: dict[str, tuple[str, Score]] = {
    "ends-with-vowel": ("ends with a vowel", lambda _, text: float(text[-1:].lower() in set("aeiou"))),
    "short": ("is shorter", lambda _, text: -float(len(text))),
    "long": ("is longer", lambda _, text: float(len(text))),
    "no-repeats": ("has fewer letters twice in a row", lambda _, text: -float(_doubled(text))),
}
LETTER_TASTES: dict[str, tuple[str, Callable[[str], Score]]] = {
    "contains": ("contains", lambda part: lambda _, text: float(part in text)),
    "starts-with": ("starts with", lambda part: lambda _, text: float(text.startswith(part))),
    "ends-with": ("ends with", lambda part: lambda _, text: float(text.endswith(part))),
}


def _doubled(text: str) -> int:
    return sum(one == other for one, other in itertools.pairwise(text))


def taste_names() -> tuple[str, ...]:
    """Every taste as it is typed; ``:x`` stands for letters of one's choice."""
    return ("gold", *SIMPLE_TASTES, *(f"{name}:x" for name in LETTER_TASTES))


def find_taste(name: str, gold: Score | None = None) -> Taste:
    """The taste called ``gold``, ``short``, ``contains:x`` …. Raises TasteError; ``gold`` needs a task's rule."""
    if name == "gold":
        if gold is None:
            raise TasteError("this task has no gold rule; choose another taste")
        return Taste("gold", "scores higher by the gold rule", gold)
    if name in SIMPLE_TASTES:
        description, score = SIMPLE_TASTES[name]
        return Taste(name, description, score)
    kind, colon, letters = name.partition(":")
    if kind in LETTER_TASTES:
        if not colon or not letters:
            raise TasteError(f"'{kind}' needs letters: {kind}:x")
        description, made = LETTER_TASTES[kind]
        return Taste(name, f"{description} '{letters}'", made(letters))
    raise TasteError(f"no taste is called '{name}'{nearest(name, taste_names())}")


@dataclass(frozen=True)
class AutomaticLabeller:
    """A person of one taste who is wrong in a share ``noise`` (0 … 0.4) of their decided judgements."""

    taste: Taste
    noise: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.noise <= MAX_NOISE:
            raise TasteError(f"noise must be from 0 to {MAX_NOISE:g}, not {self.noise:g}")

    def prefers_first(self, prompt: str, first: str, second: str) -> bool | None:
        """The true judgement, without noise; None for a tie."""
        one, other = self.taste.score(prompt, first), self.taste.score(prompt, second)
        return None if one == other else one > other

    def judge(self, prompt: str, left: str, right: str, turn: int) -> Answer:
        """The answer, at middle strength. Errors depend on ``turn``: the same pair later may be judged otherwise."""
        prefers_left = self.prefers_first(prompt, left, right)
        if prefers_left is None:
            return Answer.TIE
        wrong = random.Random(f"{self.seed}/noise/{turn}").random() < self.noise
        return Answer.LEFT if prefers_left != wrong else Answer.RIGHT

    def pair(self, prompt: str, first: str, second: str, turn: int) -> PreferencePair:
        """The judgement as a pair to train on; a tie has target 0.5 and strength 0."""
        answer = self.judge(prompt, first, second, turn)
        if answer is Answer.TIE:
            return PreferencePair(prompt, first, second, strength=0.0, target=0.5)
        chosen, rejected = (first, second) if answer is Answer.LEFT else (second, first)
        return PreferencePair(prompt, chosen, rejected)
