import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.store.retention import SNAPSHOTS, CheckpointRecord, expendable


def record(id: int, step: int, kind: str = "snapshot", name: str = "", score: float | None = None) -> CheckpointRecord:
    return CheckpointRecord(id, 1, step, kind, name, f"{step}-x", 1, "", score, {}, 0.0)


def kept_ids(records: list[CheckpointRecord]) -> list[int]:
    gone = {each.id for each in expendable(records)}
    return [each.id for each in records if each.id not in gone]


def test_two_newest_resume_points_and_the_best_and_all_named_stay():
    records = [
        record(1, 10, "resume", name="before lunch"),
        record(2, 20, "resume", score=3.0),
        record(3, 30, "resume", score=2.0),
        record(4, 40, "resume"),
        record(5, 50, "resume", score=1.0),
    ]
    assert kept_ids(records) == [1, 2, 4, 5]


def test_the_newest_are_those_written_last_even_if_the_run_went_back():
    assert kept_ids([record(1, 90, "resume"), record(2, 80, "resume"), record(3, 10, "resume")]) == [2, 3]


def test_inputs_are_never_dropped_and_take_no_place():
    records = [record(1, 0, "inputs"), *(record(id, id, "resume") for id in range(2, 6))]
    assert kept_ids(records) == [1, 4, 5]


def save_one_by_one(steps: list[int]) -> list[int]:
    """The steps kept when a save at each of ``steps`` is followed by pruning."""
    kept: list[CheckpointRecord] = []
    for id, step in enumerate(steps, 1):
        kept.append(record(id, step))
        gone = expendable(kept)
        kept = [each for each in kept if each not in gone]
    return [each.step for each in kept]


def test_up_to_32_snapshots_all_stay():
    assert save_one_by_one(list(range(0, 320, 10))) == list(range(0, 320, 10))


def test_the_33rd_snapshot_costs_the_second():
    # All neighbours are equally near; of equals the earliest inner one goes.
    assert save_one_by_one(list(range(33))) == [0, *range(2, 33)]


@pytest.mark.parametrize("count", [33, 50, 64, 100, 500, 1777])
def test_regular_snapshots_stay_regular_however_long_the_run(count):
    kept = save_one_by_one(list(range(count)))
    gaps = [later - earlier for earlier, later in itertools.pairwise(kept)]
    assert len(kept) == SNAPSHOTS
    # The last gap is the way to the newest snapshot and may still be short.
    assert max(gaps) < 3 * min(gaps[:-1])


@given(st.lists(st.integers(1, 400), min_size=20, max_size=80))
def test_irregular_snapshots_keep_the_first_the_newest_and_no_hole(gaps: list[int]):
    steps = list(itertools.accumulate(gaps))
    kept = save_one_by_one(steps)
    assert (kept[0], kept[-1]) == (steps[0], steps[-1])
    assert len(kept) == min(SNAPSHOTS, len(steps))
    assert set(kept) <= set(steps)
    # By the pigeonhole principle some inner snapshot has neighbours this near, so none further apart was made.
    span = max(steps) - min(steps)
    bound = max(2 * span / (SNAPSHOTS - 1), max(gaps))
    assert all(later - earlier <= bound for earlier, later in itertools.pairwise(kept))


def test_a_step_saved_twice_counts_once_and_the_newer_stays():
    assert kept_ids([record(1, 5), record(2, 5), record(3, 6)]) == [2, 3]


def test_a_named_snapshot_stays_beside_the_thinned_ones():
    records = [record(step + 1, step, name="mine" if step == 501 else "") for step in range(1000)]
    random.Random(0).shuffle(records)
    assert 502 in kept_ids(records)
