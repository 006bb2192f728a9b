"""The desk at which a person judges: a pool of completions, the item on the table, the next one ready, the labels.

Nothing here draws. An answer is on disk before the next item can be seen; what is shown next was chosen while the
person looked at the one before, so that a keypress costs a commit and a line of code.
"""

import dataclasses
import functools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from core.preferences.labels import Answer, LabelRecord, Reason, Side, model_verdict, new_label_id
from core.preferences.selection import (
    Candidate,
    ChosenFour,
    ChosenPair,
    NothingToLabelError,
    SelectionConfig,
    choose_four,
    choose_pair,
    duplicates_line,
)
from core.store.labels import LabelStore

MOST_CANDIDATES = 2_048  # in the pool: older ones go first
Item = ChosenPair | ChosenFour
Reward = tuple[int, int]  # run and step of a reward model


@dataclass(frozen=True)
class Scored:
    """Candidates and whose scores they carry."""

    candidates: tuple[Candidate, ...]
    reward: Reward | None = None


@dataclass(frozen=True)
class Outcome:
    """What the last key did: the labels that it wrote, or took back."""

    records: tuple[LabelRecord, ...] = ()
    undone: bool = False


class Desk:
    """One person at one session. Methods that write raise StoreError, and then nothing has moved."""

    def __init__(
        self, labels: LabelStore, seed: int, selection: SelectionConfig, *, annotator: str = "", guideline: str = "",
        fours: bool = False, clock: Callable[[], float] = time.time, stopwatch: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.labels = labels
        self.seed = seed
        self.selection = selection
        self.annotator = annotator
        self.guideline = guideline
        self.fours = fours
        self.item: Item | None = None
        self.problem = ""  # why there is no item
        self.best: int | None = None  # the first of the two keys of a best-and-worst answer
        self.note = ""
        self.flagged = False
        self.last = Outcome()
        self._clock, self._stopwatch = clock, stopwatch
        self._pool: list[Candidate] = []
        self._reward: Reward | None = None
        self._returned: list[Item] = []  # taken back by undo, to be judged again first
        self._ahead: Item | None = None
        self._passed = 0
        self._shown_at = 0.0

    # --- the pool ----------------------------------------------------------------------------------------------

    def offer(self, new: Scored, *, fresh: bool = False) -> None:
        """Put completions into the pool, beside those there (``fresh``: instead of them)."""
        if fresh:
            self._pool = []
        elif new.reward != self._reward:
            # Scores of another reward model cannot be compared with these: those texts stay, without them.
            self._pool = [_unscored(each) for each in self._pool]
        self._reward = new.reward
        known = {(each.prompt, each.side.text, each.side.source) for each in new.candidates}
        kept = [each for each in self._pool if (each.prompt, each.side.text, each.side.source) not in known]
        self._pool = [*kept, *new.candidates][-MOST_CANDIDATES:]
        self._ahead = None
        if self.item is None:
            self.advance()

    @property
    def pool_size(self) -> int:
        return len(self._pool)

    def pool_line(self) -> str:
        """``180 different of 256``."""
        return duplicates_line(self._pool)

    # --- what is on the table ----------------------------------------------------------------------------------

    def advance(self) -> None:
        """Put the next item on the table: the one prepared, else one chosen now."""
        self.best, self.note, self.flagged = None, "", False
        if self._returned:
            self.item, self.problem = self._returned.pop(), ""
        else:
            ahead, self._ahead = self._ahead, None
            self.item = ahead if ahead is not None and not self._stale(ahead) else self._choose()
        self._shown_at = self._stopwatch()

    def prepare(self) -> None:
        """Choose what comes after this item; call it when nobody waits."""
        if self._ahead is None and self.item is not None and not self._returned:
            self._ahead = self._choose(ahead=True)

    def pass_by(self) -> None:
        """Another item; nothing is written about this one."""
        self._passed += 1
        self.advance()

    def retune(self, selection: SelectionConfig, *, annotator: str, guideline: str, fours: bool) -> None:
        """Go by other options from here on."""
        another = selection != self.selection or fours != self.fours
        self.selection, self.annotator, self.guideline, self.fours = selection, annotator, guideline, fours
        if another:
            self._ahead, self._returned = None, []
            self.advance()

    @property
    def turn(self) -> int:
        """Counts what was shown; every choice follows from it and the seed."""
        return len(self.labels.history()) + self._passed

    def _choose(self, ahead: bool = False) -> Item | None:
        if not ahead:
            self.problem = ""
        choose = choose_four if self.fours else choose_pair
        try:
            return choose(self._pool, self.labels.current(), self.selection, self.seed, self.turn + ahead)
        except NothingToLabelError as error:
            if not ahead:
                self.problem = str(error)
            return None

    def _stale(self, item: Item) -> bool:
        """Chosen while another was judged: is it the same one, or does it not fit any more?"""
        if isinstance(item, ChosenFour) != self.fours:
            return True
        before = self.item
        if isinstance(item, ChosenPair) and item.repeats is not None:
            again = isinstance(before, ChosenPair) and before.repeats == item.repeats
            return again or all(each.root != item.repeats for each in self.labels.current())
        return before is not None and before.prompt == item.prompt and set(_texts(before)) == set(_texts(item))

    # --- answers -----------------------------------------------------------------------------------------------

    def answer(self, answer: Answer, *, annotator: str | None = None) -> tuple[LabelRecord, ...]:
        """Write what was said about the pair, then put the next item on the table; () when there is none.

        Four completions take ``skip`` here, and two calls of :meth:`pick` otherwise.
        """
        item = self.item
        if isinstance(item, ChosenPair):
            return self._write([item.label(answer, **self._details(item, annotator))])
        if isinstance(item, ChosenFour) and answer is Answer.SKIP:
            pair = ChosenPair(
                prompt=item.prompt, left=item.sides[0], right=item.sides[1], reason=Reason.RANDOM,
                held_out=item.held_out,
            )  # fmt: skip
            return self._write([pair.label(answer, **self._details(pair, annotator))])
        return ()

    def pick(self, position: int, *, annotator: str | None = None) -> tuple[LabelRecord, ...]:
        """The best of four (from 0), then the worst, which writes five labels."""
        item = self.item
        if not isinstance(item, ChosenFour) or position == self.best or not 0 <= position < len(item.sides):
            return ()
        if self.best is None:
            self.best = position
            return ()
        return self._write(item.labels(self.best, position, **self._details(item, annotator)))

    def _details(self, item: Item, annotator: str | None) -> dict[str, Any]:
        run, step = self._reward or (None, None)
        if isinstance(item, ChosenPair) and item.repeats is not None:
            # It is shown with the scores that it had the first time.
            original = next((each for each in self.labels.current() if each.root == item.repeats), None)
            run, step = (original.reward_run, original.reward_step) if original is not None else (None, None)
        return {
            "time": self._clock(),
            "annotator": self.annotator if annotator is None else annotator,
            "latency": max(0.0, self._stopwatch() - self._shown_at) if annotator is None else None,
            "reward_run": run,
            "reward_step": step,
            "guideline": self.guideline,
            "note": self.note,
            "flagged": self.flagged,
        }

    def _write(self, records: Sequence[LabelRecord]) -> tuple[LabelRecord, ...]:
        self.labels.add(records)
        self.last = Outcome(tuple(records))
        self.advance()
        return tuple(records)

    def undo(self) -> Outcome | None:
        """Take back the first of two keys, else the newest change of the labels; what was judged comes back.

        None when there is nothing to take back.
        """
        if self.best is not None:
            self.best = None
            return Outcome(undone=True)
        event = self.labels.undo()
        if event is None or event.undoes is None:
            return None
        undone = self.labels.history()[event.undoes - 1]
        if undone.action == "add":
            if self.item is not None:
                self._returned.append(self.item)
            returned = _item_of(undone.records)
            if returned is not None:
                self._returned.append(returned)
            self.advance()
            if undone.records:
                self.note, self.flagged = undone.records[0].note, undone.records[0].flagged
        self.last = Outcome(undone.records, undone=True)
        return self.last

    # --- editing earlier labels --------------------------------------------------------------------------------

    def change(self, label: str, **changes: object) -> LabelRecord:
        """Put a corrected label in the place of an earlier one. Raises LabelError, StoreError."""
        old = self.labels.get(label)
        record = old.corrected(new_label_id(), self._clock(), **changes)
        self.labels.replace(label, record)
        return record

    def delete(self, labels: Sequence[str]) -> None:
        """Take earlier labels out of what counts; the history keeps them. Raises LabelError, StoreError."""
        self.labels.delete(labels)


def sources_line(records: Iterable[LabelRecord]) -> str:
    """How many shown texts came from where: ``reference 84, PPO #3 40``."""
    counts = Counter(side.source for each in records for side in (each.left, each.right) if side is not None)
    return ", ".join(f"{source or 'unknown'} {count}" for source, count in counts.most_common())


def after_vote(record: LabelRecord, labels: Sequence[LabelRecord]) -> str:
    """What was hidden until the vote: what the reward model would have said, who wrote what, was it a repeat?"""
    parts = [model_verdict(record)]
    if record.right is not None:
        parts.append(f"A {_origin(record.left)}, B {_origin(record.right)}")
    if record.repeats is not None:
        first = next((each for each in labels if each.root == record.repeats), None)
        if first is not None:
            agrees = first.answer.flipped.prefers_left == record.answer.prefers_left and (
                first.answer.decided == record.answer.decided
            )
            parts.append(f"shown again with sides exchanged: you said {'the same' if agrees else 'otherwise'} before")
    if record.held_out:
        parts.append("held out")
    return " · ".join(part for part in parts if part)


def _origin(side: Side) -> str:
    return side.source + (f"@{side.step}" if side.step is not None and "@" not in side.source else "")


def _unscored(candidate: Candidate) -> Candidate:
    return dataclasses.replace(candidate, side=dataclasses.replace(candidate.side, score=None), scores=())


def _texts(item: Item) -> tuple[str, ...]:
    return tuple(side.text for side in (item.sides if isinstance(item, ChosenFour) else (item.left, item.right)))


def _item_of(records: Sequence[LabelRecord]) -> Item | None:
    """What was on the table when these labels were given; None for an import."""
    first = records[0] if records else None
    if first is None or first.reason is Reason.IMPORTED or first.right is None:
        return None
    if first.group is not None:
        sides: dict[str, Side] = {}
        for each in records:
            sides.setdefault(each.left.text, each.left)
            if each.right is not None:
                sides.setdefault(each.right.text, each.right)
        return ChosenFour(prompt=first.prompt, sides=_in_order(records, sides), held_out=first.held_out)
    return ChosenPair(
        prompt=first.prompt, left=first.left, right=first.right, reason=first.reason, held_out=first.held_out,
        repeats=first.repeats,
    )  # fmt: skip


def _in_order(records: Sequence[LabelRecord], sides: dict[str, Side]) -> tuple[Side, ...]:
    """The four as they stood: in each of their pairs the left one stood before the right one.

    Five of six pairs are known. Where the sixth is of neighbours, nothing tells which of them was the first.
    """
    known = {(each.left.text, each.right.text) for each in records if each.right is not None}
    before = Counter(first for first, _ in known)

    def order(one: Side, other: Side) -> int:
        if (one.text, other.text) in known:
            return -1
        return 1 if (other.text, one.text) in known else before[other.text] - before[one.text]

    return tuple(sorted(sides.values(), key=functools.cmp_to_key(order)))
