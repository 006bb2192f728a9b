"""Labels in few words, for tests."""

import itertools
from typing import Any

from core.preferences.labels import Answer, LabelRecord, Side

_numbers = itertools.count(1)


def label(
    left: str = "aa", right: str | None = "bb", answer: Answer = Answer.LEFT, prompt: str = "p", **fields: Any
) -> LabelRecord:
    """A label with an id of its own; ``left_score`` and ``right_score`` give the sides' scores."""
    scores = [fields.pop(name, None) for name in ("left_score", "right_score")]
    known = {"id": f"label-{next(_numbers)}", "time": 0.0, "annotator": "me"} | fields
    return LabelRecord(
        prompt=prompt,
        left=Side(left, score=scores[0]),
        right=None if right is None else Side(right, score=scores[1]),
        answer=answer,
        **known,
    )
