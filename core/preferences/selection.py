"""Which pair is judged next: mostly random, some that the reward model is unsure of, some shown again. Torch-free.

Random pairs keep what is measured honest, uncertain ones teach most per key pressed, repeats tell how well a person
agrees with themselves. Every choice is a function of (seed, turn), so a session that is opened again goes on as it
would have.
"""

import itertools
import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from core.config import Config, ConfigError, knob
from core.preferences.best_worst import best_worst_labels
from core.preferences.labels import Answer, LabelRecord, Reason, Side, new_label_id

# Of a large pool, so many are looked at for an uncertain pair: enough to find the extremes, a few milliseconds.
PROMPTS_CONSIDERED = 48
COMPLETIONS_CONSIDERED = 96  # of each prompt
PAIRS_CONSIDERED = 2_048  # the least certain ones of each prompt, together
RECENT_LABELS = 50
RANDOM_TRIES = 12


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
    dice = _chance(seed, "pair", turn)
    by_prompt = _different_texts(pool)
    judged = _judged(history, by_prompt)
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
    judged = _judged(history, by_prompt)
    shown = Counter((each.prompt, text) for each in history for text in each.texts)
    for prompt in _shuffled(by_prompt, dice):
        texts = {each.side.text: each for each in _shuffled(by_prompt[prompt], dice)}
        least = sorted(texts.values(), key=lambda each: shown[each.prompt, each.side.text])[:4]
        names = [each.side.text for each in least]
        all_judged = all(frozenset(two) in judged[prompt] for two in itertools.combinations(names, 2))
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


def uncertainty(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """How unsure the reward model is which of two completions is better; larger is more.

    Scores [P, M] of P pairs by M members -> [P]. Of an ensemble, the variance of its members' probabilities: what a
    label would teach, not what is a tie anyway. Of one model, the probability of the less likely side: 0.5 at
    margin 0.
    """
    chances = 0.5 * (1 + np.tanh((first - second) / 2))  # the logistic function, without overflow
    if chances.shape[1] > 1:
        return chances.var(axis=1)
    return np.minimum(chances, 1 - chances)[:, 0]


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


Judged = dict[str, set[frozenset[str]]]  # the pairs of texts that were judged, whatever their sides, by prompt


def _judged(history: Sequence[LabelRecord], prompts: Iterable[str]) -> Judged:
    judged: Judged = {prompt: set() for prompt in prompts}
    for each in history:
        if each.prompt in judged:
            judged[each.prompt].add(frozenset(each.texts))
    return judged


def _fits(one: Candidate, other: Candidate, judged: Judged, across: bool) -> bool:
    """May these two be shown: different texts, not judged yet, of different sources where that is wanted?"""
    texts = one.side.text, other.side.text
    return (
        texts[0] != texts[1]
        and not (across and one.side.source == other.side.source)
        and frozenset(texts) not in judged[one.prompt]
    )


def _across(candidates: Sequence[Candidate], config: SelectionConfig) -> bool:
    return config.across_sources and len({each.side.source for each in candidates}) > 1


def _fresh_pair(
    by_prompt: dict[str, list[Candidate]], judged: Judged, config: SelectionConfig, dice: random.Random
) -> tuple[Candidate, Candidate] | None:
    """A random prompt that has a pair left, and a random pair of it."""
    for prompt in _shuffled(by_prompt, dice):
        candidates = by_prompt[prompt]
        if len(candidates) < 2:
            continue
        across = _across(candidates, config)
        for _ in range(RANDOM_TRIES):
            one, other = dice.sample(candidates, 2)
            if _fits(one, other, judged, across):
                return one, other
        left = [pair for pair in itertools.combinations(candidates, 2) if _fits(*pair, judged, across)]
        if left:
            return dice.choice(left)
    return None


def _uncertain_pair(
    by_prompt: dict[str, list[Candidate]], judged: Judged, history: Sequence[LabelRecord],
    config: SelectionConfig, seed: int, dice: random.Random,
) -> tuple[Candidate, Candidate] | None:  # fmt: skip
    """The least certain pair outside the held-out slice; a text counts a quarter for each time it came lately.

    Without that, one odd text would come again and again until the reward model is trained anew.
    """
    lately = Counter((each.prompt, text) for each in history[-RECENT_LABELS:] for text in each.texts)
    worths: list[np.ndarray] = []
    pairs: list[tuple[Candidate, Candidate]] = []
    prompts = _shuffled(by_prompt, dice)[:PROMPTS_CONSIDERED]
    for prompt in prompts:
        # After a change of the ensemble's size some may still have the scores of the one before.
        members = max(len(each.scores) for each in by_prompt[prompt])
        scored = [each for each in by_prompt[prompt] if members and len(each.scores) == members]
        some = dice.sample(scored, min(len(scored), COMPLETIONS_CONSIDERED))
        if len(some) < 2:
            continue
        first, second = np.triu_indices(len(some), 1)
        scores = np.array([each.scores for each in some])
        damping = 0.25 ** np.array([lately[prompt, each.side.text] for each in some])
        worth = uncertainty(scores[first], scores[second]) * damping[first] * damping[second]
        kept = np.argsort(-worth)[: PAIRS_CONSIDERED // len(prompts)]
        worths.append(worth[kept])
        pairs += [(some[one], some[other]) for one, other in zip(first[kept], second[kept], strict=True)]
    if not worths:
        return None
    across = {prompt: _across(candidates, config) for prompt, candidates in by_prompt.items()}
    for position in np.argsort(-np.concatenate(worths), kind="stable"):
        one, other = pairs[position]
        texts = one.side.text, other.side.text
        if _fits(one, other, judged, across[one.prompt]) and not is_held_out(one.prompt, texts, seed, config.held_out):
            return one, other
    return None


def _repeat(history: Sequence[LabelRecord], config: SelectionConfig, dice: random.Random) -> ChosenPair | None:
    """An earlier pair with its sides exchanged, never the same one twice."""
    repeated = {each.repeats for each in history}
    old = [
        each
        for each in history[: max(0, len(history) - config.repeat_gap)]
        if each.right is not None
        and each.answer is not Answer.SKIP
        and each.reason in (Reason.RANDOM, Reason.UNCERTAIN)
        and each.root not in repeated
    ]
    if not old:
        return None
    first = dice.choice(old)
    assert first.right is not None
    return ChosenPair(
        prompt=first.prompt, left=first.right, right=first.left, reason=Reason.REPEAT,
        held_out=first.held_out, repeats=first.root,
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
