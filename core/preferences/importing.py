"""Foreign judgements as labels of a session. Torch-free."""

import random
from typing import Any

from core.preferences.formats.files import ImportedFile
from core.preferences.formats.reading import FileRefusedError, Problem
from core.preferences.labels import Answer, LabelRecord, Reason, Side, answer_for, new_label_id


def labels_from_file(imported: ImportedFile, *, time: float, seed: int, annotator: str = "") -> list[LabelRecord]:
    """A label for each row of a preference, unpaired or judged-pair file, in the file's order.

    A file says which text was chosen, not where it stood: a seeded coin puts it left or right, so that imported
    labels favour no side. Of margins the nearest of the three strengths is kept. Raises FileRefusedError for a file
    of another kind.
    """
    source = imported.file.name

    def label(prompt: str, left: str, right: str | None, answer: Answer, **more: Any) -> LabelRecord:
        return LabelRecord(
            id=new_label_id(), time=time, prompt=prompt, left=Side(left, source),
            right=None if right is None else Side(right, source), answer=answer, reason=Reason.IMPORTED,
            **{"annotator": annotator or source, **more},
        )  # fmt: skip

    if imported.judged:
        return [
            label(
                each.prompt, each.left, each.right, each.answer, note=each.note, guideline=each.guideline,
                held_out=each.held_out, annotator=each.annotator or annotator or source,
            )
            for each in imported.judged
        ]  # fmt: skip
    labels = []
    for number, pair in enumerate(imported.pairs):
        left = random.Random(f"{seed}/import/{source}/{number}").random() < 0.5
        first, second = (pair.chosen, pair.rejected) if left else (pair.rejected, pair.chosen)
        labels.append(label(pair.prompt, first, second, answer_for(left, pair.strength)))
    labels += [
        label(each.prompt, each.completion, None, Answer.GOOD if each.label else Answer.BAD)
        for each in imported.unpaired
    ]
    if not labels:
        reason = f"{imported.kind} rows are no judgements; labels are preference or unpaired rows"
        raise FileRefusedError(imported.file, [Problem(0, reason)])
    return labels
