"""Which pair is judged next: mostly random, some that the reward model is unsure of, some shown again. Torch-free.

Random pairs keep what is measured honest, uncertain ones teach most per key pressed, repeats tell how well a person
agrees with themselves. Every choice is a function of (seed, turn), so a session that is opened again goes on as it
would have.
"""

import itertools
import json
import math
import random
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from core.config import Config, ConfigError, knob
from core.preferences.best_worst import best_worst_labels
from core.preferences.labels import Answer, LabelRecord, Reason, Side, new_label_id

PAIRS_CONSIDERED = 2_000  # for the uncertain ones; enough to find the extremes, few enough to take milliseconds
COMPLETIONS_PER_PROMPT = 64  # of which pairs are made


@dataclass(frozen=True, kw_only=True)
class SelectionConfig(Config):
    """Knobs of the selection; the three shares count relative to each other."""

    random: float = knob(0.5, "share of pairs drawn at random", minimum=0, maximum=1)
    uncertain: float = knob(0.4, "share of pairs that the reward model is least sure of", minimum=0, maximum=1)
    repeats: float = knob(0.1, "share of earlier pairs shown again with sides exchanged", minimum=0, maximum=1)
    repeat_gap: int = knob(10, "labels between a pair and its repeat, at least", minimum=1, maximum=10_000)
    held_out: float = knob(0.2, "share of all possible pairs that is kept from training", minimum=0, maximum=0.9)
    across_sources: bool = knob(True, "pair completions of different sources where there are several")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.random + self.uncertain + self.repeats:
            raise ConfigError("random, uncertain and repeats cannot all be 0")


class NothingToLabelError(RuntimeError):
    """No pair is left to show; one line that says why and what would help."""


@dataclass(frozen=True)
class Candidate:
    """A completion that may be shown. ``scores`` has one of each member of a reward-model ensemble, or is empty."""

    prompt: str
    side: Side
    scores: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ChosenPair:
    """The next pair, sides as they shall be displayed."""

    prompt: str
    left: Side
    right: Side
    reason: Reason
    held_out: bool
    repeats: str | None = None
    note: str = ""  # why it is not of the kind whose turn it was

    def label(self, answer: Answer, *, time: float, annotator: str, **details: Any) -> LabelRecord:
        """The record of an answer to this pair; ``details`` are further fields (latency, guideline, note …)."""
        return LabelRecord(
            id=new_label_id(), time=time, annotator=annotator, prompt=self.prompt, left=self.left, right=self.right,
            answer=answer, reason=self.reason, held_out=self.held_out, repeats=self.repeats, **details,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ChosenFour:
    """Four different completions of one prompt, in the order of the screen."""

    prompt: str
    sides: tuple[Side, ...]
    held_out: bool

    def labels(self, best: int, worst: int, **details: Any) -> list[LabelRecord]:
        """The five labels that the best and the worst position (from 0) give; see :func:`best_worst_labels`."""
        return best_worst_labels(
            self.prompt, self.sides, best, worst, reason=Reason.RANDOM, held_out=self.held_out, **details
        )


PairKey = tuple[str, frozenset[str]]


def pair_key(prompt: str, texts: Iterable[str]) -> PairKey:
    """What two showings of one pair have in common, whatever the sides."""
    return prompt, frozenset(texts)


def is_held_out(prompt: str, texts: Iterable[str], seed: int, share: float) -> bool:
    """Does this pair belong to the slice that is never trained on? The same for both orders and for ever."""
    return _chance(seed, "held out", json.dumps([prompt, *sorted(texts)])).random() < share


def shown_left(seed: int, turn: int) -> bool:
    """A fair coin per turn: does the first of the two stand on the left?"""
    return _chance(seed, "side", turn).random() < 0.5


def choose_pair(
    pool: Sequence[Candidate], history: Sequence[LabelRecord], config: SelectionConfig, seed: int, turn: int
) -> ChosenPair:
    """The pair to show as number ``turn`` (from 0), given the current labels in the order they were given.

    Raises NothingToLabelError when the pool holds no pair that was not judged yet.
    """
    judged = {pair_key(each.prompt, each.texts) for each in history}
    dice = _chance(seed, "pair", turn)
    by_prompt = _different_texts(pool)
    fresh = _fresh_pair(by_prompt, judged, config, dice)
    if fresh is None:
        raise NothingToLabelError(_why_nothing(pool, by_prompt))

    kind = dice.choices((Reason.RANDOM, Reason.UNCERTAIN, Reason.REPEAT), _weights(config))[0]
    note = ""
    if kind is Reason.REPEAT:
        repeat = _repeat(history, config, dice)
        if repeat is not None:
            return repeat
        note = "no earlier pair is old enough to be shown again: a random one instead"
    if kind is Reason.UNCERTAIN:
        unsure = _uncertain_pair(by_prompt, judged, history, config, seed, dice)
        if unsure is not None:
            return _displayed(unsure, Reason.UNCERTAIN, False, seed, turn, "")
        note = "no scored pair to be unsure of: a random one instead"
    texts = [each.side.text for each in fresh]
    return _displayed(
        fresh, Reason.RANDOM, is_held_out(fresh[0].prompt, texts, seed, config.held_out), seed, turn, note
    )


def choose_four(
    pool: Sequence[Candidate], history: Sequence[LabelRecord], config: SelectionConfig, seed: int, turn: int
) -> ChosenFour:
    """Four different completions of one prompt, those judged least often first. Raises NothingToLabelError."""
    dice = _chance(seed, "four", turn)
    by_prompt = _different_texts(pool)
    shown = _times_shown(history)
    judged = {pair_key(each.prompt, each.texts) for each in history}
    for prompt in _shuffled(by_prompt, dice):
        texts = {each.side.text: each for each in _shuffled(by_prompt[prompt], dice)}
        least = sorted(texts.values(), key=lambda each: shown[each.prompt, each.side.text])[:4]
        names = [each.side.text for each in least]
        all_judged = all(pair_key(prompt, two) in judged for two in itertools.combinations(names, 2))
        if len(least) == 4 and not all_judged:
            dice.shuffle(least)
            return ChosenFour(
                prompt=prompt,
                sides=tuple(each.side for each in least),
                held_out=is_held_out(prompt, names, seed, config.held_out),
            )
    raise NothingToLabelError(
        f"no prompt has four different completions left to judge {_size(pool, by_prompt)}: draw new ones, "
        "at a higher temperature where the model repeats itself"
    )


def uncertainty(first: Sequence[float], second: Sequence[float]) -> float | None:
    """How unsure the reward model is which of two completions is better: larger is more; None without scores.

    With an ensemble, the variance of its members' probabilities (what a label would teach, not what is a tie
    anyway); with one model, the probability of the less likely side, 0.5 at margin 0.
    """
    if not first or len(first) != len(second):
        return None
    chances = [0.5 * (1 + math.tanh((one - other) / 2)) for one, other in zip(first, second, strict=True)]
    if len(chances) > 1:
        return statistics.pvariance(chances)
    return min(chances[0], 1 - chances[0])


def duplicates_line(pool: Sequence[Candidate]) -> str:
    """How many different texts a pool holds, for the progress line: ``180 different of 256``."""
    different = len({(each.prompt, each.side.text) for each in pool})
    return f"{different} different of {len(pool)}"


# --- pieces --------------------------------------------------------------------------------------------------


def _chance(seed: int, purpose: str, about: object) -> random.Random:
    """Dice that depend on the arguments alone (a str seed is hashed by SHA-512, the same in every process)."""
    return random.Random(f"{seed}/{purpose}/{about}")


def _weights(config: SelectionConfig) -> tuple[float, float, float]:
    return config.random, config.uncertain, config.repeats


def _shuffled(items: Iterable[Any], dice: random.Random) -> list[Any]:
    shuffled = list(items)
    dice.shuffle(shuffled)
    return shuffled


def _different_texts(pool: Sequence[Candidate]) -> dict[str, list[Candidate]]:
    """Candidates by prompt, each text once per source."""
    by_prompt: dict[str, dict[tuple[str, str], Candidate]] = {}
    for each in pool:
        by_prompt.setdefault(each.prompt, {}).setdefault((each.side.source, each.side.text), each)
    return {prompt: list(candidates.values()) for prompt, candidates in by_prompt.items()}


def _pairs(
    candidates: Sequence[Candidate], judged: set[PairKey], across: bool, dice: random.Random
) -> Iterator[tuple[Candidate, Candidate]]:
    """Pairs of different texts that were not judged, in random order; of different sources where there are several."""
    some = dice.sample(candidates, min(len(candidates), COMPLETIONS_PER_PROMPT))
    across = across and len({each.side.source for each in some}) > 1
    pairs = list(itertools.combinations(some, 2))
    dice.shuffle(pairs)
    for one, other in pairs:
        same = one.side.text == other.side.text or (across and one.side.source == other.side.source)
        if not same and pair_key(one.prompt, (one.side.text, other.side.text)) not in judged:
            yield one, other


def _fresh_pair(
    by_prompt: dict[str, list[Candidate]], judged: set[PairKey], config: SelectionConfig, dice: random.Random
) -> tuple[Candidate, Candidate] | None:
    for prompt in _shuffled(by_prompt, dice):
        pair = next(_pairs(by_prompt[prompt], judged, config.across_sources, dice), None)
        if pair is not None:
            return pair
    return None


def _uncertain_pair(
    by_prompt: dict[str, list[Candidate]], judged: set[PairKey], history: Sequence[LabelRecord],
    config: SelectionConfig, seed: int, dice: random.Random,
) -> tuple[Candidate, Candidate] | None:  # fmt: skip
    """The least certain pair outside the held-out slice; a text shown before counts less each time.

    Without that, one odd text would come again and again until the reward model is trained anew.
    """
    shown = _times_shown(history)
    pairs = itertools.chain.from_iterable(
        _pairs(by_prompt[prompt], judged, config.across_sources, dice) for prompt in _shuffled(by_prompt, dice)
    )
    best: tuple[float, tuple[Candidate, Candidate]] | None = None
    for one, other in itertools.islice(pairs, PAIRS_CONSIDERED):
        doubt = uncertainty(one.scores, other.scores)
        if doubt is None:
            continue
        times = shown[one.prompt, one.side.text] + shown[other.prompt, other.side.text]
        worth = doubt / (1 + times)
        if best is not None and worth <= best[0]:
            continue
        if not is_held_out(one.prompt, (one.side.text, other.side.text), seed, config.held_out):
            best = worth, (one, other)
    return best[1] if best is not None else None


def _times_shown(history: Sequence[LabelRecord]) -> Counter[tuple[str, str]]:
    return Counter((each.prompt, text) for each in history for text in each.texts)


def _repeat(history: Sequence[LabelRecord], config: SelectionConfig, dice: random.Random) -> ChosenPair | None:
    """An earlier pair with its sides exchanged, never the same one twice."""
    repeated = {each.repeats for each in history}
    old = [
        each
        for each in history[: max(0, len(history) - config.repeat_gap)]
        if each.right is not None
        and each.answer is not Answer.SKIP
        and each.reason in (Reason.RANDOM, Reason.UNCERTAIN)
        and each.id not in repeated
    ]
    if not old:
        return None
    first = dice.choice(old)
    assert first.right is not None
    return ChosenPair(
        prompt=first.prompt, left=first.right, right=first.left, reason=Reason.REPEAT,
        held_out=first.held_out, repeats=first.id,
    )  # fmt: skip


def _displayed(
    pair: tuple[Candidate, Candidate], reason: Reason, held_out: bool, seed: int, turn: int, note: str
) -> ChosenPair:
    # By source and text, so that the coin alone decides the side, not the order of the pool.
    first, second = sorted((each.side for each in pair), key=lambda each: (each.source, each.text))
    left, right = (first, second) if shown_left(seed, turn) else (second, first)
    return ChosenPair(
        prompt=pair[0].prompt, left=left, right=right, reason=reason, held_out=held_out, note=note
    )  # fmt: skip


def _size(pool: Sequence[Candidate], by_prompt: dict[str, list[Candidate]]) -> str:
    return f"among {len(pool)} completions of {len(by_prompt)} prompt{'s' if len(by_prompt) != 1 else ''}"


def _why_nothing(pool: Sequence[Candidate], by_prompt: dict[str, list[Candidate]]) -> str:
    if not pool:
        return "there are no completions to choose from: pick a source"
    if all(len(candidates) == 1 for candidates in by_prompt.values()) and len(pool) == len(by_prompt):
        return f"each of the {len(by_prompt)} prompts has one completion: draw at least two"
    if all(len({each.side.text for each in candidates}) == 1 for candidates in by_prompt.values()):
        return (
            f"only duplicates are left {_size(pool, by_prompt)}: the model repeats itself; "
            "raise the temperature or choose another source"
        )
    return f"every pair {_size(pool, by_prompt)} has been judged: draw new completions"
