"""How the cost of a label and of a metric point grows with how many a session holds, measured on a real session."""

import statistics
import tempfile
import time
from collections.abc import Generator, Sequence
from pathlib import Path

from core.evaluation.speed import Speed
from core.preferences.labels import Answer, LabelRecord, Side
from core.store import Session

LABELS = (100, 1_000, 10_000, 100_000)
POINTS = (1_000, 10_000, 100_000, 1_000_000)
METRICS_A_STEP = 10
ROWS_A_COMMIT = 100  # about what a run does between two commits of the engine
SINGLE = 20  # labels given one by one, each committed to disk


def store_growth(labels: Sequence[int] = LABELS, points: Sequence[int] = POINTS) -> Generator[Speed, None, None]:
    """Microseconds an item, each size in a session of its own."""
    for count in labels:
        with tempfile.TemporaryDirectory() as folder:
            yield from _labels(Path(folder), count)
    for count in points:
        with tempfile.TemporaryDirectory() as folder:
            yield from _points(Path(folder), count)


def _labels(folder: Path, count: int) -> Generator[Speed, None, None]:
    with Session.create(folder / "s") as session:
        session.labels.add([_label(number) for number in range(count)])
        taken = []
        for number in range(count, count + SINGLE):
            began = time.perf_counter()
            session.labels.add(_label(number))
            taken.append(time.perf_counter() - began)
        yield Speed(f"giving a label beside {count:,}", 1e6 * statistics.median(taken), "µs/label")
    with Session.open(folder / "s", read_only=True) as session:
        began = time.perf_counter()
        held = len(session.labels.current())
        yield Speed(f"reading {count:,} labels", 1e6 * (time.perf_counter() - began) / held, "µs/label")


def _points(folder: Path, count: int) -> Generator[Speed, None, None]:
    names = [f"metric_{number}" for number in range(METRICS_A_STEP)]
    with Session.create(folder / "s") as session:
        run = session.runs.add("sft", title="", config={}, seed=0, inputs={}, parent=None, parent_step=None)
        began = time.perf_counter()
        steps = count // METRICS_A_STEP
        for first in range(1, steps + 1, ROWS_A_COMMIT):
            rows = range(first, min(first + ROWS_A_COMMIT, steps + 1))
            session.metrics.append(run.id, [(step, step, 0.1 * step, dict.fromkeys(names, 1 / step)) for step in rows])
        yield Speed(f"storing {count:,} metric points", 1e6 * (time.perf_counter() - began) / count, "µs/point")
    with Session.open(folder / "s", read_only=True) as session:
        began = time.perf_counter()
        session.metrics.read(run.id)
        yield Speed(f"reading {count:,} metric points", 1e6 * (time.perf_counter() - began) / count, "µs/point")


def _label(number: int) -> LabelRecord:
    return LabelRecord(
        id=str(number), time=float(number), annotator="bench", prompt="tree", left=Side(f"elm {number}"),
        right=Side("oak"), answer=Answer.LEFT,
    )  # fmt: skip
