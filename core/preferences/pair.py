"""A preference as trainers see it. Torch-free."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PreferencePair:
    """Two completions of one prompt and how they were judged.

    ``strength`` 0 (slightly) … 1 (much better) scales the margin; ``target`` is the probability that ``chosen`` is
    better: 1 for a decision, 0.5 for a tie.
    """

    prompt: str
    chosen: str
    rejected: str
    strength: float = 0.5
    target: float = 1.0
    source: str = "automatic"  # automatic | labels | file


@dataclass(frozen=True)
class UnpairedExample:
    """A completion judged by itself: good (label true) or bad."""

    prompt: str
    completion: str
    label: bool
    source: str = "labels"
