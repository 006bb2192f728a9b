"""How good a set of labels is: pace, bias, consistency, and who agrees with it. Torch-free.

Wilson's interval (Wilson 1927, J. Am. Stat. Assoc. 22, 209–212) is used throughout, since it is sensible at few labels
and at shares near 0 and 1.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from core.preferences.labels import Answer, LabelRecord, Reason

LONGEST_PAUSE = 60.0  # seconds of one label that count; a longer latency was a break


@dataclass(frozen=True)
class Rate:
    """A share with its sample size; an undecided case counts half."""

    successes: float
    count: int

    @property
    def value(self) -> float:
        """NaN when nothing was counted."""
        return self.successes / self.count if self.count else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95% interval; 0 … 1 when nothing was counted."""
        return wilson_interval(self.successes, self.count)

    def __str__(self) -> str:
        if not self.count:
            return "–"
        low, high = self.interval
        return f"{self.value:.0%} ({low:.0%}–{high:.0%}, n={self.count})"


def wilson_interval(successes: float, count: int, z: float = 1.959964) -> tuple[float, float]:
    """Score interval of a binomial share: (p + z²/2n ± z·√(p(1−p)/n + z²/4n²)) / (1 + z²/n)."""
    if not count:
        return 0.0, 1.0
    share = successes / count
    centre = share + z * z / (2 * count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    scale = 1 + z * z / count
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)


def labels_per_minute(records: Iterable[LabelRecord]) -> float:
    """Answers per minute of looking (pauses count as a minute at most); NaN when no latency is known."""
    latencies = [min(each.latency, LONGEST_PAUSE) for each in records if each.latency is not None]
    seconds = sum(latencies)
    return 60 * len(latencies) / seconds if seconds else math.nan


def left_pick_rate(records: Iterable[LabelRecord]) -> Rate:
    """How often the left one was preferred, of decided pairs; far from ½ means that the side was judged."""
    decided = [each for each in records if each.answer.decided]
    return Rate(sum(each.answer.prefers_left for each in decided), len(decided))


def self_agreement(records: Sequence[LabelRecord]) -> Rate:
    """How often a pair shown again with sides exchanged got the same judgement (strength aside).

    A judgement that was corrected meanwhile counts as corrected.
    """
    first = {each.root: each for each in records}
    twice = [
        (first[each.repeats], each)
        for each in records
        if each.reason is Reason.REPEAT and each.repeats in first and each.answer is not Answer.SKIP
    ]
    return Rate(sum(_verdict(first) == _verdict(again) for first, again in twice), len(twice))


def _verdict(record: LabelRecord) -> str:
    """What was judged, independent of sides and strength: the preferred text, tie or both bad."""
    return f"chosen {record.chosen.text}" if record.chosen is not None else record.answer.value


@dataclass(frozen=True)
class Cycle:
    """Three completions of one prompt of which each was preferred to the next, and the last to the first."""

    prompt: str
    texts: tuple[str, str, str]


def intransitive_triples(records: Iterable[LabelRecord]) -> tuple[list[Cycle], int]:
    """Cycles a > b > c > a, and the number of triples whose three pairs were all decided.

    A pair judged several times counts by its majority; a split vote decides nothing.
    """
    votes: dict[tuple[str, str, str], int] = defaultdict(int)
    for each in records:
        if each.chosen is not None and each.rejected is not None:
            votes[each.prompt, each.chosen.text, each.rejected.text] += 1
    beats: dict[tuple[str, str], set[str]] = defaultdict(set)
    for (prompt, better, worse), count in votes.items():
        if count > votes.get((prompt, worse, better), 0):
            beats[prompt, better].add(worse)

    cycles: list[Cycle] = []
    transitive = 0
    for (prompt, first), below in beats.items():
        for second in below:
            thirds = beats.get((prompt, second), set())
            transitive += len(thirds & below)  # a transitive triple has one such top: first > second > third
            cycles += [
                Cycle(prompt, (first, second, third))
                for third in sorted(thirds)
                # Each cycle is found from all three of its texts; it is kept where it starts with the smallest.
                if first == min(first, second, third) and first in beats.get((prompt, third), set())
            ]
    return cycles, transitive + len(cycles)


def gold_agreement(records: Iterable[LabelRecord], gold: Callable[[str, str], float]) -> Rate:
    """How often the gold rule prefers what was chosen; where it scores both alike it counts half."""
    decided = [each for each in records if each.chosen is not None and each.rejected is not None]
    agreed = 0.0
    for each in decided:
        assert each.chosen is not None and each.rejected is not None
        agreed += _order(gold(each.prompt, each.chosen.text), gold(each.prompt, each.rejected.text))
    return Rate(agreed, len(decided))


def next_label_accuracy(records: Iterable[LabelRecord], reasons: Iterable[Reason] = tuple(Reason)) -> Rate:
    """How often the reward model, before it could learn from a label, scored the chosen text higher.

    Repeats are left out, since the model may have learned from their first showing. Over random pairs alone this is
    the model's accuracy; over uncertain ones it is lower by their choice.
    """
    wanted = set(reasons) - {Reason.REPEAT}
    agreed, count = 0.0, 0
    for each in records:
        if each.reason not in wanted or each.chosen is None or each.rejected is None:
            continue
        if each.chosen.score is None or each.rejected.score is None:
            continue
        agreed += _order(each.chosen.score, each.rejected.score)
        count += 1
    return Rate(agreed, count)


def _order(better: float, worse: float) -> float:
    return 1.0 if better > worse else 0.5 if better == worse else 0.0


@dataclass(frozen=True)
class LabelQuality:
    """All that the quality panel and ``labels stats`` tell about the labels themselves."""

    per_minute: float
    left_picks: Rate
    self_agreement: Rate
    cycles: tuple[Cycle, ...]
    triples: int
    model_accuracy: Rate  # of the reward model on labels it had not seen, all fresh pairs
    model_accuracy_random: Rate  # the same over random pairs only
    gold_agreement: Rate | None  # None: the task has no gold rule

    def lines(self) -> list[str]:
        """One line a measure, for the terminal."""
        pace = "–" if math.isnan(self.per_minute) else f"{self.per_minute:.1f}"
        low, high = self.left_picks.interval
        biased = self.left_picks.count > 0 and not low <= 0.5 <= high
        lines = [
            f"labels per minute         {pace}",
            f"left preferred            {self.left_picks}{'  (a side is favoured)' if biased else ''}",
            f"agreement with yourself   {self.self_agreement}",
            f"intransitive triples      {len(self.cycles)} of {self.triples}",
            f"reward model, next label  {self.model_accuracy}",
            f"  on random pairs         {self.model_accuracy_random}",
        ]
        if self.gold_agreement is not None:
            lines.append(f"agreement with gold rule  {self.gold_agreement}")
        return lines


def label_quality(records: Sequence[LabelRecord], gold: Callable[[str, str], float] | None = None) -> LabelQuality:
    """Every measure of the current labels, in the order in which they were given."""
    cycles, triples = intransitive_triples(records)
    return LabelQuality(
        per_minute=labels_per_minute(records),
        left_picks=left_pick_rate(records),
        self_agreement=self_agreement(records),
        cycles=tuple(cycles),
        triples=triples,
        model_accuracy=next_label_accuracy(records),
        model_accuracy_random=next_label_accuracy(records, (Reason.RANDOM,)),
        gold_agreement=gold_agreement(records, gold) if gold is not None else None,
    )


@dataclass(frozen=True)
class ModelChange:
    """What new labels did to the reward model: accuracy before and after, and the pairs it now ranks otherwise."""

    before: Rate
    after: Rate
    flipped: tuple[LabelRecord, ...]
    agreeing: int  # how many of the flipped ones now agree with the person

    def line(self) -> str:
        """``accuracy 71% → 78% on 45 labels; 6 pairs flipped, 5 of them to agree with you``."""
        if not self.after.count:
            return "no decided labels to measure the reward model on"
        line = f"accuracy {self.before.value:.0%} → {self.after.value:.0%} on {self.after.count} labels"
        if not self.flipped:
            return f"{line}; no pair flipped"
        pairs = "1 pair" if len(self.flipped) == 1 else f"{len(self.flipped)} pairs"
        return f"{line}; {pairs} flipped, {self.agreeing} of them to agree with you"


Scores = Mapping[str, tuple[float, float]]  # label id -> scores of its left and right text


def model_change(records: Iterable[LabelRecord], before: Scores, after: Scores) -> ModelChange:
    """Compare two reward models on the decided labels that both have scored; held-out ones make it honest."""
    hits_before = hits_after = 0.0
    count = agreeing = 0
    flipped: list[LabelRecord] = []
    for each in records:
        if not each.answer.decided or each.id not in before or each.id not in after:
            continue
        old, new = (_hit(each.answer, *scores[each.id]) for scores in (before, after))
        hits_before, hits_after, count = hits_before + old, hits_after + new, count + 1
        if old != new:
            flipped.append(each)
            agreeing += new > old
    return ModelChange(Rate(hits_before, count), Rate(hits_after, count), tuple(flipped), agreeing)


def _hit(answer: Answer, left: float, right: float) -> float:
    return _order(left, right) if answer.prefers_left else _order(right, left)
