"""The best and the worst of four completions: two keys that give five pairs. Torch-free."""

from collections.abc import Sequence
from typing import Any

from core.preferences.labels import Answer, LabelError, LabelRecord, Side, new_label_id


def best_worst_orders(best: int, worst: int, count: int = 4) -> list[tuple[int, int]]:
    """The (better, worse) positions that follow: the best before all others, all others before the worst.

    Nothing is known between the ones in the middle, so four give 5 of the 6 possible pairs.
    """
    if best == worst or not {best, worst} <= set(range(count)):
        raise LabelError(f"best and worst must be two different ones of {count}, not {best + 1} and {worst + 1}")
    others = [each for each in range(count) if each not in (best, worst)]
    return [(best, each) for each in (*others, worst)] + [(each, worst) for each in others]


def best_worst_labels(prompt: str, shown: Sequence[Side], best: int, worst: int, **details: Any) -> list[LabelRecord]:
    """The labels of one answer; ``best`` and ``worst`` are positions in ``shown``, from 0.

    ``details`` are further fields of each LabelRecord (time, annotator …). Each label keeps the order of the screen,
    has middle strength (two keys say nothing about strength) and shares the ``group`` that undo takes back as one.
    Raises LabelError when two of the texts are the same.
    """
    if len({each.text for each in shown}) != len(shown):
        raise LabelError("two of the texts are the same")
    group = new_label_id()
    labels = []
    for better, worse in best_worst_orders(best, worst, len(shown)):
        first, second = sorted((better, worse))
        labels.append(
            LabelRecord(
                id=new_label_id(),
                prompt=prompt,
                left=shown[first],
                right=shown[second],
                answer=Answer.LEFT if better == first else Answer.RIGHT,
                group=group,
                **details,
            )
        )
    return labels
