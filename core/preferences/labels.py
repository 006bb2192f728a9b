"""The record of one judgement: what was shown, on which side, and what a person answered. Torch-free."""

import dataclasses
import functools
import math
import types
import typing
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from core.config import nearest


class LabelError(ValueError):
    """A label that cannot be; one line that says which field and why."""


class Answer(StrEnum):
    """What can be said about two completions shown side by side, or (the last two) about one by itself."""

    LEFT_MUCH = "left_much"
    LEFT = "left"
    LEFT_SLIGHTLY = "left_slightly"
    TIE = "tie"
    RIGHT_SLIGHTLY = "right_slightly"
    RIGHT = "right"
    RIGHT_MUCH = "right_much"
    BOTH_BAD = "both_bad"
    SKIP = "skip"
    GOOD = "good"
    BAD = "bad"

    @property
    def strength(self) -> float | None:
        """0 slightly, 0.5 better, 1 much better; None where no side was preferred."""
        return _STRENGTHS.get(self)

    @property
    def decided(self) -> bool:
        """Was one side preferred?"""
        return self in _STRENGTHS

    @property
    def prefers_left(self) -> bool:
        return self in (Answer.LEFT_MUCH, Answer.LEFT, Answer.LEFT_SLIGHTLY)

    @property
    def flipped(self) -> "Answer":
        """The same judgement with the sides exchanged."""
        return _FLIPPED.get(self, self)

    @property
    def symbol(self) -> str:
        """As the screen writes it, A being the left side."""
        return _SYMBOLS[self]


_STRENGTHS = {
    Answer.LEFT_MUCH: 1.0, Answer.LEFT: 0.5, Answer.LEFT_SLIGHTLY: 0.0,
    Answer.RIGHT_SLIGHTLY: 0.0, Answer.RIGHT: 0.5, Answer.RIGHT_MUCH: 1.0,
}  # fmt: skip
_FLIPPED = {
    Answer.LEFT_MUCH: Answer.RIGHT_MUCH, Answer.LEFT: Answer.RIGHT, Answer.LEFT_SLIGHTLY: Answer.RIGHT_SLIGHTLY,
    Answer.RIGHT_MUCH: Answer.LEFT_MUCH, Answer.RIGHT: Answer.LEFT, Answer.RIGHT_SLIGHTLY: Answer.LEFT_SLIGHTLY,
}  # fmt: skip
_SYMBOLS = {
    Answer.LEFT_MUCH: "A≫B", Answer.LEFT: "A>B", Answer.LEFT_SLIGHTLY: "A≥B", Answer.TIE: "A=B",
    Answer.RIGHT_SLIGHTLY: "B≥A", Answer.RIGHT: "B>A", Answer.RIGHT_MUCH: "B≫A",
    Answer.BOTH_BAD: "both bad", Answer.SKIP: "skipped", Answer.GOOD: "good", Answer.BAD: "bad",
}  # fmt: skip

KEYS: dict[str, Answer] = {
    "1": Answer.LEFT_MUCH, "2": Answer.LEFT, "3": Answer.LEFT_SLIGHTLY, "4": Answer.TIE,
    "5": Answer.RIGHT_SLIGHTLY, "6": Answer.RIGHT, "7": Answer.RIGHT_MUCH,
    "left": Answer.LEFT, "right": Answer.RIGHT, "b": Answer.BOTH_BAD, "s": Answer.SKIP,
}  # fmt: skip
"""The key that gives each answer, under the names that Textual gives to keys."""

SINGLE_ANSWERS = (Answer.GOOD, Answer.BAD)


def answer_for(prefers_left: bool, strength: float) -> Answer:
    """The decided answer whose strength is nearest to ``strength`` (0 … 1)."""
    near = min((0.0, 0.5, 1.0), key=lambda each: abs(each - strength))
    left = {0.0: Answer.LEFT_SLIGHTLY, 0.5: Answer.LEFT, 1.0: Answer.LEFT_MUCH}[near]
    return left if prefers_left else left.flipped


class Reason(StrEnum):
    """Why a pair was chosen to be judged."""

    RANDOM = "random"
    UNCERTAIN = "uncertain"
    REPEAT = "repeat"
    IMPORTED = "imported"


@dataclass(frozen=True)
class Side:
    """One completion that was shown and where it came from."""

    text: str
    source: str = ""  # as a person calls it: "reference", "run 3", the name of a file
    run: int | None = None
    step: int | None = None
    temperature: float | None = None
    seed: int | None = None  # of the sampling
    score: float | None = None  # the reward model's, when the pair was shown


@dataclass(frozen=True, kw_only=True)
class LabelRecord:
    """One judgement. ``left`` and ``right`` are as they were displayed; ``right`` is None for a judgement of one text.

    Raises LabelError when the fields contradict each other.
    """

    id: str
    time: float  # seconds since 1970, UTC
    annotator: str
    prompt: str
    left: Side
    right: Side | None
    answer: Answer
    latency: float | None = None  # seconds from the pair on screen to the answer
    reward_run: int | None = None  # whose reward model gave the sides' scores, and at which step
    reward_step: int | None = None
    reason: Reason = Reason.RANDOM
    held_out: bool = False  # kept from training, to measure accuracy
    repeats: str | None = None  # id of the label whose pair is shown again
    replaces: str | None = None  # id of the label that this one corrects
    original: str | None = None  # id of the first one of several corrections
    group: str | None = None  # shared by the pairs that one best-and-worst-of-four gave
    guideline: str = ""  # what *better* meant, as it stood above the pair
    note: str = ""
    flagged: bool = False

    def __post_init__(self) -> None:
        if not self.id:
            raise LabelError("a label needs an id")
        if (self.right is None) != (self.answer in SINGLE_ANSWERS):
            raise LabelError(f"'{self.answer}' is no answer to {'one text' if self.right is None else 'two texts'}")
        if self.right is not None and self.left.text == self.right.text:
            raise LabelError("both sides are the same text")
        if self.latency is not None and self.latency < 0:
            raise LabelError(f"latency must be ≥ 0, not {self.latency:g}")
        if self.reason is Reason.REPEAT and self.repeats is None:
            raise LabelError("a repeat must say which label it repeats")
        if self.id in (self.repeats, self.replaces, self.original):
            raise LabelError("a label cannot repeat or replace itself")

    @property
    def strength(self) -> float | None:
        """0 slightly, 0.5 better, 1 much better; None where no side was preferred."""
        return self.answer.strength

    @property
    def root(self) -> str:
        """The id that this judgement had before it was ever corrected: what a repeat of it names."""
        return self.original or self.replaces or self.id

    def corrected(self, id: str, time: float, **changes: Any) -> "LabelRecord":
        """The label that takes the place of this one. Raises LabelError."""
        return dataclasses.replace(self, id=id, time=time, replaces=self.id, original=self.root, **changes)

    @property
    def texts(self) -> tuple[str, ...]:
        """What was shown, left first."""
        return (self.left.text,) if self.right is None else (self.left.text, self.right.text)

    @property
    def chosen(self) -> Side | None:
        """The preferred side, or None."""
        if not self.answer.decided:
            return None
        return self.left if self.answer.prefers_left else self.right

    @property
    def rejected(self) -> Side | None:
        """The other side of a decided pair, or None."""
        if not self.answer.decided:
            return None
        return self.right if self.answer.prefers_left else self.left

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON values, with its strength for whoever reads without this module."""
        return {**dataclasses.asdict(self), "answer": self.answer.value, "reason": self.reason.value,
                "strength": self.strength}  # fmt: skip

    @classmethod
    def from_dict(cls, body: Mapping[str, Any]) -> "LabelRecord":
        """The record that :meth:`to_dict` wrote. Raises LabelError for anything else."""
        values = dict(body)
        strength = values.pop("strength", None)
        record: LabelRecord = _build(cls, values, "label")
        if strength is not None and strength != record.strength:
            raise LabelError(f"label.strength {strength!r} is not that of '{record.answer}' ({record.strength})")
        return record


def new_label_id() -> str:
    """An id that no other label has, in this session or in one it is merged with."""
    return uuid.uuid4().hex


def model_probability(record: LabelRecord) -> float | None:
    """P(left is better) by the reward model at the moment of judging (Bradley–Terry), or None without scores."""
    if record.right is None or record.left.score is None or record.right.score is None:
        return None
    difference = record.left.score - record.right.score
    # The exponent is never positive, so that no difference of scores overflows.
    smaller = math.exp(-abs(difference)) / (1 + math.exp(-abs(difference)))
    return 1 - smaller if difference >= 0 else smaller


def model_verdict(record: LabelRecord) -> str:
    """The line shown after the vote: ``the reward model agreed: 71% B``; empty without scores."""
    probability = model_probability(record)
    if probability is None:
        return ""
    prefers_left = probability >= 0.5
    side = f"{max(probability, 1 - probability):.0%} {'A' if prefers_left else 'B'}"
    if not record.answer.decided or probability == 0.5:
        return f"the reward model says {side}"
    return f"the reward model {'agreed' if prefers_left == record.answer.prefers_left else 'disagreed'}: {side}"


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _build(cls: Any, body: Mapping[str, Any], where: str) -> Any:
    """An instance of a dataclass from JSON values, each checked against its type."""
    hints = _hints(cls)
    fields = {each.name: each for each in dataclasses.fields(cls)}
    for key in body:
        if key not in fields:
            raise LabelError(f"{where} has no field '{key}'{nearest(str(key), fields)}"[:300])
    for key, each in fields.items():
        if key not in body and each.default is dataclasses.MISSING:
            raise LabelError(f"{where} lacks '{key}'")
    return cls(**{key: _check(value, hints[key], f"{where}.{key}") for key, value in body.items()})


def _check(value: Any, hint: Any, where: str) -> Any:
    if isinstance(hint, types.UnionType):
        if value is None:
            return None
        return _check(value, typing.get_args(hint)[0], where)
    if hint is Side:
        if isinstance(value, Mapping):
            return _build(Side, value, where)
    elif issubclass(hint, StrEnum):
        if value in list(hint):
            return hint(value)
        raise LabelError(f"{where} must be one of {', '.join(hint)}, not {str(value)[:80]!r}")
    elif hint is float:
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 1e300:
            return float(value)
    elif hint is str:
        if isinstance(value, str) and not has_half_surrogate(value):
            return value
    elif isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value
    kind = {float: "a finite number", int: "a whole number", str: "text", bool: "true or false"}.get(hint, "an object")
    raise LabelError(f"{where} must be {kind}, not {str(value)[:80]!r}")


def has_half_surrogate(text: str) -> bool:
    """Is there half of a surrogate pair, which JSON escapes can smuggle in and no encoding can write?"""
    return any("\ud800" <= letter <= "\udfff" for letter in text) if not text.isascii() else False
