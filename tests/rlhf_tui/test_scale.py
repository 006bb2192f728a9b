import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlhf_tui.scale import Scale, count, duration, number, tick_label, ticks, value_range


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.71234, "0.712"), (12.345, "12.3"), (123.45, "123"), (1234.0, "1234"), (45_100.0, "45.1k"),
        (2_500_000.0, "2.50M"), (3e-4, "3e-04"), (0.0, "0"), (-0.5, "-0.500"), (float("nan"), "nan"),
    ],
)  # fmt: skip
def test_numbers_in_few_cells(value: float, written: str) -> None:
    assert number(value) == written


@pytest.mark.parametrize(("things", "written"), [(0, "0"), (96, "96"), (9_999, "9999"), (12_345, "12.35k")])
def test_things_are_counted_whole_as_long_as_they_are_few(things: int, written: str) -> None:
    assert count(things) == written


def test_a_span_that_no_label_can_tell_is_drawn_as_a_flat_line() -> None:
    low, high = value_range([np.array([0.0, 4e-14])])
    assert low < -1e-4 and high > 1e-4
    low, high = value_range([np.array([0.0, 4e-9])])
    assert -1e-9 < low < 0 and 4e-9 < high < 5e-9


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_no_number_is_wide(value: float) -> None:
    assert len(number(value)) <= 7


@pytest.mark.parametrize(
    ("seconds", "written"),
    [(8.2, "8 s"), (80, "1 m 20 s"), (7500, "2 h 05 m"), (90_000, "1 d 1 h"), (float("inf"), "?"), (-3, "0 s")],
)
def test_durations(seconds: float, written: str) -> None:
    assert duration(seconds) == written


def test_ticks_are_round() -> None:
    assert ticks(Scale(0.0, 1.0, 40), 5) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert ticks(Scale(-3.0, 7.0, 40), 4) == pytest.approx([0, 5])
    assert ticks(Scale(0.001, 100.0, 40, log=True), 6) == pytest.approx([0.001, 0.01, 0.1, 1, 10, 100])
    assert [tick_label(value, 0.2) for value in (0.0, 0.2, 1.0)] == ["0", "0.2", "1.0"]


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9), st.integers(1, 8))
def test_ticks_lie_inside_and_are_few(low: float, span: float, count: int) -> None:
    scale = Scale(low, low + span, 40)
    if scale.high - scale.low > 1e-9 * abs(low):  # not lost in rounding
        found = ticks(scale, count)
        assert len(found) <= count + 1
        assert all(scale.low <= value <= scale.high for value in found)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1, max_size=30))
def test_every_value_falls_on_the_canvas(values: list[float]) -> None:
    array = np.array(values)
    low, high = value_range([array])
    assert low < array.min() and array.max() < high
    dots = Scale(low, high, 40).place(array)
    assert ((dots >= 0) & (dots <= 39)).all()


def test_place_and_value_are_inverse() -> None:
    for log in (False, True):
        scale = Scale(1.0, 1000.0, 100, log)
        assert scale.place(np.array([scale.value(dot) for dot in range(100)])).tolist() == list(range(100))
