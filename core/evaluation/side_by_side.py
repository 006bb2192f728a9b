"""Two sets of completions of the same prompts, compared: averages, who wins, letters, lengths. Torch-free."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from core.evaluation.diversity import distinct_2, unique_fraction


class ScoredText(Protocol):
    """A completion with what is known of it; None is unknown."""

    @property
    def text(self) -> str: ...
    @property
    def ended(self) -> bool: ...
    @property
    def gold_reward(self) -> float | None: ...
    @property
    def learned_reward(self) -> float | None: ...
    @property
    def kl(self) -> float | None: ...


@dataclass(frozen=True)
class Summary:
    """Averages over ``count`` completions; None where a score is known of none. ``length`` in letters, ``kl`` in nats
    a completion, ``distinct_2`` and ``unique`` as in :mod:`core.evaluation.diversity`."""

    count: int
    gold_reward: float | None
    learned_reward: float | None
    kl: float | None
    distinct_2: float
    unique: float
    length: float
    ended: float


def summarise(texts: Sequence[ScoredText]) -> Summary:
    """The averages of one side."""
    words = [each.text for each in texts]
    return Summary(
        count=len(texts),
        gold_reward=_mean(each.gold_reward for each in texts),
        learned_reward=_mean(each.learned_reward for each in texts),
        kl=_mean(each.kl for each in texts),
        distinct_2=distinct_2(words),
        unique=unique_fraction(words),
        length=_mean(float(len(each)) for each in words) or 0.0,
        ended=_mean(float(each.ended) for each in texts) or 0.0,
    )


def score_of(text: ScoredText) -> float | None:
    """The gold reward, else the learned one."""
    return text.gold_reward if text.gold_reward is not None else text.learned_reward


def win_rate(ours: Sequence[ScoredText], theirs: Sequence[ScoredText]) -> float | None:
    """How often ours scores higher than theirs at the same place, a tie counting half. None without scores."""
    points = []
    for one, other in zip(ours, theirs, strict=True):
        mine, yours = score_of(one), score_of(other)
        if mine is not None and yours is not None:
            points.append(0.5 if mine == yours else float(mine > yours))
    return _mean(points)


def letter_shares(texts: Iterable[str]) -> dict[str, float]:
    """Share of each letter among all letters."""
    counts = Counter(letter for text in texts for letter in text)
    total = counts.total()
    return {letter: count / total for letter, count in counts.items()}


def length_shares(texts: Sequence[str]) -> dict[int, float]:
    """Share of the texts of each length, in letters."""
    counts = Counter(map(len, texts))
    return {length: count / len(texts) for length, count in counts.items()}


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
