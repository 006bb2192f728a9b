"""Two texts side by side: what is highlighted, and that shared letters stand in the same columns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from rlhf_tui.aligned import GAP, aligned_rows, highlighted, pieces


def test_shared_letters_stand_in_the_same_columns() -> None:
    left, right = aligned_rows("elevate", "eleven")
    assert (left.plain, right.plain) == ("elevate" + GAP, "elev" + GAP * 2 + "en")
    left, right = aligned_rows("stone", "throne")
    assert (left.plain, right.plain) == ("st" + GAP * 2 + "one", GAP + "throne")


def test_only_what_differs_is_highlighted() -> None:
    shown = highlighted("throne", "stone")
    assert shown.plain == "throne"
    assert [shown.plain[each.start : each.end] for each in shown.spans] == ["hr"]


@pytest.mark.parametrize("hostile", ["a\x1b[2Jb", "\u202egnp", "e\u0301\u0301\u0301", "日本語", "[/ b", "\x00"])
def test_hostile_texts_send_nothing_to_the_terminal(hostile: str) -> None:
    for shown in (highlighted(hostile, "abc"), *aligned_rows(hostile, "abc")):
        assert shown.plain.isprintable() and "\x1b" not in shown.plain


texts = st.text(st.sampled_from("abe日\u0301\x1b"), max_size=12)


@given(texts, texts)
def test_pieces_are_the_texts_and_agree_where_they_say_so(left: str, right: str) -> None:
    found = pieces(left, right)
    assert "".join(one for one, _, _ in found) == left
    assert "".join(other for _, other, _ in found) == right
    assert all((one == other) != differ for one, other, differ in found)
    assert all(one or other for one, other, _ in found)


@given(texts, texts)
def test_both_rows_are_equally_wide(left: str, right: str) -> None:
    one, other = aligned_rows(left, right)
    assert cell_len(one.plain) == cell_len(other.plain)
