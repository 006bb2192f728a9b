"""Finding earlier labels: words that a label must match, as they are typed into the filter."""

import time
from collections.abc import Callable, Iterable

from core.config import ConfigError, nearest
from core.preferences.labels import Answer, LabelRecord, Reason

_IS: dict[str, Callable[[LabelRecord], bool]] = {
    "flagged": lambda label: label.flagged,
    "noted": lambda label: bool(label.note),
    "decided": lambda label: label.answer.decided,
    "tie": lambda label: label.answer is Answer.TIE,
    "bad": lambda label: label.answer is Answer.BOTH_BAD,
    "skipped": lambda label: label.answer is Answer.SKIP,
    "held-out": lambda label: label.held_out,
    "changed": lambda label: label.replaces is not None,
    "disputed": lambda label: _disputed(label),
    **{reason.value: (lambda label, reason=reason: label.reason is reason) for reason in Reason},  # type: ignore[misc]
}
WORDS = tuple(f"is:{name}" for name in _IS)


def matching(labels: Iterable[LabelRecord], query: str) -> list[LabelRecord]:
    """The labels that match every word of ``query``: ``is:flagged``, or letters in prompt, texts, note or names.

    Raises ConfigError for an ``is:`` word that there is none of.
    """
    tests = [_test(word) for word in query.split()]
    return [each for each in labels if all(test(each) for test in tests)]


def _test(word: str) -> Callable[[LabelRecord], bool]:
    if word.startswith("is:"):
        name = word.removeprefix("is:")
        if name not in _IS:
            raise ConfigError(f"nothing {word}{nearest(word, WORDS)}; there are {', '.join(WORDS)}")
        return _IS[name]
    letters = word.lower()
    return lambda label: any(letters in part.lower() for part in _words_of(label))


def _words_of(label: LabelRecord) -> tuple[str, ...]:
    sources = [side.source for side in (label.left, label.right) if side is not None]
    return (label.prompt, *label.texts, label.note, label.annotator, *sources)


def _disputed(label: LabelRecord) -> bool:
    """Did the reward model of the time say otherwise?"""
    if label.chosen is None or label.rejected is None or label.chosen.score is None or label.rejected.score is None:
        return False
    return label.chosen.score < label.rejected.score


def row_of(label: LabelRecord) -> tuple[str, ...]:
    """A label as a row: when, prompt, left, answer, right, marks, note."""
    marks = ("⚑" if label.flagged else "") + ("✎" if label.replaces else "") + ("▪" if label.held_out else "")
    right = label.right.text if label.right is not None else ""
    when = time.strftime("%m-%d %H:%M", time.localtime(label.time))
    return when, label.prompt, label.left.text, label.answer.symbol, right, marks, label.note


COLUMNS = (("when", 11), ("prompt", 12), ("A", 16), ("answer", 8), ("B", 16), ("", 3), ("note", 20))
