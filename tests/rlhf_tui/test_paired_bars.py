"""What stands below pairs of columns."""

import pytest

from rlhf_tui.widgets.paired_bars import _names


@pytest.mark.parametrize(
    ("labels", "cells", "shown"),
    [
        (["3", "5", "7", "9", "11", "13", "15"], 2, "3 5 7 9 11  15"),
        (["9", "10", "11"], 3, "9  10 11 "),
        (["a", " ", "b"], 2, "a ␣ b "),
        (["天", "气", "好"], 2, "天气好"),
    ],
)
def test_numbers_do_not_run_into_one_another(labels: list[str], cells: int, shown: str) -> None:
    assert _names(labels, cells) == shown
