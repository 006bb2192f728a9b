"""Which checkpoints are worth their bytes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

SNAPSHOTS = 32
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
    """The first snapshot of each stretch of 2^k steps, k the smallest that leaves at most 32 stretches, and the last.

    Stretches nest, so thinning after every save keeps the same snapshots as thinning once at the end.
    """
    newest = {each.step: each for each in sorted(snapshots, key=lambda each: each.id)}
    stretch = 1
    while len({step // stretch for step in newest}) > SNAPSHOTS:
        stretch *= 2
    first: dict[int, CheckpointRecord] = {}
    for step in sorted(newest):
        first.setdefault(step // stretch, newest[step])
    if newest:
        first[-1] = newest[max(newest)]
    return sorted({each.id: each for each in first.values()}.values(), key=lambda each: (each.step, each.id))
