import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlhf_tui.series import Array, RunSeries, Track, exponential_average, thin

finite = st.floats(-1e6, 1e6)


@given(st.lists(finite, min_size=1, max_size=700), st.sampled_from([0.5, 0.9, 0.97]))
def test_smoothing_is_the_debiased_recursion(values: list[float], factor: float) -> None:
    state, expected = 0.0, []
    for step, value in enumerate(values, start=1):
        state = factor * state + (1 - factor) * value
        expected.append(state / (1 - factor**step))
    assert np.allclose(exponential_average(np.array(values), factor), expected, rtol=1e-9, atol=1e-6)


def test_smoothing_of_a_constant_is_the_constant() -> None:
    assert np.allclose(exponential_average(np.full(500, 3.0), 0.97), 3.0)


@given(st.lists(finite, min_size=1, max_size=300), st.integers(1, 299))
def test_a_track_goes_on_smoothing_where_it_stood(values: list[float], cut: int) -> None:
    track = Track()
    track.extend(0, np.array(values[:cut]))
    track.smoothed(0.9)
    for row, value in enumerate(values[cut:], start=cut):
        track.append(row, value)
    assert np.allclose(track.smoothed(0.9), exponential_average(np.array(values), 0.9), rtol=1e-9, atol=1e-6)


@given(st.lists(finite, min_size=1, max_size=2000), st.integers(1, 40))
def test_thinning_keeps_every_extreme_of_every_column(values: list[float], columns: int) -> None:
    x, y = np.arange(len(values), dtype=float), np.array(values)
    low, high = 0.0, float(max(len(values) - 1, 1))
    kept_x, kept_y = thin(x, y, low, high, columns)
    assert len(kept_x) <= 2 * columns
    assert (np.diff(kept_x) > 0).all()
    assert kept_y.max() == y.max() and kept_y.min() == y.min()
    edges = np.linspace(low, high, columns + 1)
    edges[-1] = np.inf  # the last column holds its right end
    for left, right in itertools.pairwise(edges):
        inside, kept = y[(x >= left) & (x < right)], kept_y[(kept_x >= left) & (kept_x < right)]
        if len(inside):
            assert kept.max() == inside.max() and kept.min() == inside.min()


def test_non_finite_values_are_left_out() -> None:
    series = RunSeries()
    for step, value in enumerate([1.0, float("nan"), float("inf"), 4.0], start=1):
        series.append(step, 10 * step, 0.5 * step, {"loss": value})
    x, y = series.line("loss", "completions")
    assert x.tolist() == [10, 40] and y.tolist() == [1, 4]
    assert series.latest("loss") == 4.0
    assert series.line("unknown", "step")[0].size == 0


def test_an_earlier_step_begins_anew_there() -> None:
    series = RunSeries()
    for step in range(1, 11):
        series.append(step, step, step, {"loss": float(step)})
    series.append(6, 6, 6, {"loss": -1.0})
    assert series.line("loss", "step")[0].tolist() == [1, 2, 3, 4, 5, 6]
    assert series.line("loss", "step")[1].tolist() == [1, 2, 3, 4, 5, -1]


def test_a_table_with_gaps_is_read_as_steps_are() -> None:
    one, other = RunSeries(), RunSeries()
    values = {"loss": np.array([1.0, 2.0, 3.0]), "validation_loss": np.array([np.nan, 5.0, np.nan])}
    one.extend(np.array([1.0, 2.0, 3.0]), np.array([4.0, 8.0, 12.0]), np.array([0.1, 0.2, 0.3]), values)
    for row in range(3):
        other.append(row + 1, 4 * row + 4, 0.1 * row + 0.1, {name: column[row] for name, column in values.items()})
    for name in values:
        for axis in ("step", "completions", "seconds"):
            assert np.allclose(one.line(name, axis), other.line(name, axis))
    assert one.line("validation_loss", "step")[0].tolist() == [2.0]


@pytest.mark.parametrize("factor", [0.0, 0.9])
def test_a_run_that_goes_back_forgets_its_smoothing(factor: float) -> None:
    series = RunSeries()
    for step in range(1, 51):
        series.append(step, step, step, {"loss": 100.0})
    series.line("loss", "step", factor)
    series.truncate(after_step=0)
    series.append(1, 1, 1, {"loss": 2.0})
    assert series.line("loss", "step", factor)[1].tolist() == pytest.approx([2.0])


def test_a_gap_is_filled_from_what_was_stored_and_newer_steps_stay() -> None:
    seen, stored, whole = RunSeries(), RunSeries(), RunSeries()
    for step in range(1, 21):
        values = {"loss": float(step)} | ({"validation_loss": -float(step)} if step % 5 == 0 else {})
        whole.append(step, step, step, values)
        if step <= 3 or step >= 12:
            seen.append(step, step, step, values)
        if step <= 17:
            stored.append(step, step, step, values)
    seen.complete(stored)
    for name in ("loss", "validation_loss"):
        assert [each.tolist() for each in seen.line(name, "step")] == [
            each.tolist() for each in whole.line(name, "step")
        ]
    seen.append(21, 21, 21, {"loss": 21.0})
    assert seen.latest("loss") == 21.0 and len(seen) == 21


def test_a_metric_left_in_the_session_is_read_when_it_is_asked_for_and_all_of_them_before_a_new_step() -> None:
    stored = {"loss": np.array([3.0, np.nan, 1.0, 9.0]), "kl": np.array([0.1, 0.2, 0.3, 9.0])}
    asked: list[str] = []

    def read(names: Sequence[str]) -> dict[str, Array]:
        asked.extend(names)
        return {name: stored[name] for name in names}

    series, whole = RunSeries(), RunSeries()
    steps = np.array([1.0, 2.0, 3.0])
    series.extend(steps, 4 * steps, steps / 2, {})
    series.leave(stored, read)
    whole.extend(steps, 4 * steps, steps / 2, {name: column[:3] for name, column in stored.items()})
    assert asked == [] and series.latest("nothing") is None
    assert series.latest("loss") == 1.0 and asked == ["loss"]
    assert series.line("loss", "completions")[0].tolist() == [4.0, 12.0]
    for each in (series, whole):
        each.append(4, 16, 2.0, {"kl": 0.4})
    assert sorted(asked) == ["kl", "loss"], "each once"
    for name in stored:
        for one, other in zip(series.line(name, "step", 0.6), whole.line(name, "step", 0.6), strict=True):
            assert one.tolist() == other.tolist()
