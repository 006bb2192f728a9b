import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlhf_tui.plotting import ChartData, Line, Mark, Picture, draw
from rlhf_tui.series import exponential_average


def rows_of(picture: Picture) -> list[str]:
    return ["".join(cell.glyph for cell in row) for row in picture.rows]


def rising(count: int = 100) -> Line:
    x = np.arange(1.0, count + 1)
    return Line("gold", x, x / count)


def test_a_rising_line_goes_from_the_lower_left_to_the_upper_right() -> None:
    picture = draw(ChartData((rising(),)), 40, 10)
    canvas = [row[picture.left : picture.left + picture.columns] for row in rows_of(picture)[:-1]]
    assert [len(row) for row in rows_of(picture)] == [40] * 10
    assert canvas[-1].strip() and canvas[-1].index(canvas[-1].strip()) == 0
    assert canvas[0].rstrip() == canvas[0] and canvas[0].strip()
    firsts = [len(row) - len(row.lstrip()) for row in canvas if row.strip()]
    assert firsts == sorted(firsts, reverse=True)


def test_each_line_ends_in_its_glyph_at_its_height() -> None:
    falling = Line("learned", rising().x, rising().y[::-1].copy())
    picture = draw(ChartData((rising(), falling)), 40, 10)
    ends = [row[-1] for row in rows_of(picture)]
    assert ends.index("●") <= 1 and ends.index("◆") >= 7


@pytest.mark.parametrize(("steps", "labels"), [(1, ["1", "2"]), (3, ["1", "2", "3"]), (4, ["1", "2", "3", "4"])])
def test_a_step_is_named_once_under_a_chart_of_few_steps(steps: int, labels: list[str]) -> None:
    found = rows_of(draw(ChartData((rising(steps),)), 100, 10))[-1].split()
    assert [each for each in found if each != "0"] == labels


def test_two_lines_with_one_end_keep_two_glyphs() -> None:
    assert {row[-1] for row in rows_of(draw(ChartData((rising(), rising())), 40, 10))} >= {"●", "◆"}


def test_marks_stand_where_they_happened() -> None:
    marks = (Mark(50, "knob", "beta"), Mark(100, "alert", "KL"), Mark(500, "alert", "outside"))
    picture = draw(ChartData((rising(),), marks), 60, 12)
    top = rows_of(picture)[0]
    assert top.index("▾") - picture.left == pytest.approx(49 / 99 * (picture.columns - 1), abs=1)
    assert top.index("!") - picture.left == picture.columns - 1
    assert top.count("!") == 1


def test_a_log_axis_leaves_out_what_it_cannot_show_and_says_so() -> None:
    y = np.array([-1.0, 0.0, 0.01, 1.0, 100.0])
    picture = draw(ChartData((Line("loss", np.arange(5.0), y),), log=True), 40, 10)
    assert picture.notes == ["2 values ≤ 0 not shown"]
    assert any("1.00" in row or "100" in row for row in rows_of(picture))


def test_without_numbers_it_says_what_will_stand_here() -> None:
    assert "Mean score of fresh" in "\n".join(rows_of(draw(ChartData(empty="Mean score of fresh\x1b"), 40, 8)))
    assert "\x1b" not in "".join(rows_of(draw(ChartData(empty="\x1b[5;5H"), 40, 8)))


values = st.lists(st.floats(), min_size=1, max_size=40)


@settings(max_examples=150, deadline=None)
@given(values, st.booleans(), st.booleans(), st.integers(0, 50), st.integers(0, 14))
def test_no_number_and_no_size_breaks_it(y: list[float], log: bool, smooth: bool, width: int, height: int) -> None:
    # A NaN that reached the plotting library would abort the whole process.
    array = np.array(y)
    with np.errstate(all="ignore"):
        line = Line("any", np.arange(float(len(y))), array, exponential_average(array, 0.9) if smooth else None)
        picture = draw(ChartData((line,), (Mark(0.0, "knob", ""),), log=log), width, height)
    assert all(len(row) == width for row in picture.rows)
    assert len(picture.rows) <= max(height, 0)


def test_redraw_costs_the_same_for_a_thousand_and_a_hundred_thousand_points() -> None:
    def cost(count: int) -> float:
        generator = np.random.default_rng(0)
        line = Line("x", np.arange(float(count)), generator.normal(size=count), generator.normal(size=count))
        times = []
        for _ in range(9):
            start = time.perf_counter()
            draw(ChartData((line,)), 60, 18)
            times.append(time.perf_counter() - start)
        return min(times)

    cost(1000)
    assert cost(100_000) < 2.0 * cost(1000) + 0.002
