"""Which checkpoints are worth their bytes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

SNAPSHOTS = 32  # of a run
RESUME_POINTS = 2


@dataclass(frozen=True)
class CheckpointRecord:
    """A file of weights that was complete when its row was written.

    ``kind`` is resume (everything that exact resume needs), snapshot (weights only) or inputs (what the run was given
    at its start: never dropped); ``score`` is the validation, higher is better; ``values`` are JSON values beside it;
    ``created`` is a Unix time.
    """

    id: int
    run: int
    step: int
    kind: str
    name: str
    file: str
    size: int
    sha256: str
    score: float | None
    values: dict[str, Any]
    created: float


def expendable(records: Sequence[CheckpointRecord]) -> list[CheckpointRecord]:
    """The checkpoints of one run that may go: all but named ones, the two newest and the best resume points, and
    about thirty snapshots, evenly spaced."""
    kept = {each.id for each in records if each.name or each.kind == "inputs"}
    resumes = sorted((each for each in records if each.kind == "resume"), key=lambda each: each.id)
    kept |= {each.id for each in resumes[-RESUME_POINTS:]}
    scored = [each for each in resumes if each.score is not None]
    if scored:
        kept.add(max(scored, key=lambda each: (each.score, each.id)).id)
    kept |= {each.id for each in thinned([each for each in records if each.kind == "snapshot" and not each.name])}
    return [each for each in records if each.id not in kept]


def thinned(snapshots: Sequence[CheckpointRecord]) -> list[CheckpointRecord]:
    """At most 32 snapshots, the first and the newest among them, by step.

    The one to go is always the one whose neighbours are nearest to each other (the earliest of several). Done after
    every save of a run that saves regularly, this leaves gaps of which none is three times another.
    """
    newest = {each.step: each for each in sorted(snapshots, key=lambda each: each.id)}
    kept = [newest[step] for step in sorted(newest)]
    while len(kept) > SNAPSHOTS:
        gaps = [after.step - before.step for before, after in zip(kept, kept[2:], strict=False)]
        del kept[1 + gaps.index(min(gaps))]
    return kept
