import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.content import Content

from rlhf_tui.safe_text import fit, safe_str, safe_text

# Letters that hypothesis would find late: what terminals obey or do not show.
TRICKY = "\x00\x07\x08\x1b\x7f\x80\x9b\x9d\u00ad\u034f\u061c\u115f\u180e\u200b\u200d\u200e\u2028\u202e\u2066"
TRICKY += "\u3164\ufe0f\ufeff\ud800\udfff\U000e0001\U000e0101\n\r\t[]\\日本👩🏽e\u0301\u0301\u0301\u0301"
any_text = st.text(st.one_of(st.characters(), st.sampled_from(TRICKY)), max_size=60)


@pytest.mark.parametrize(
    ("foreign", "shown"),
    [
        ("\x1b]0;hi\x07", "␛]0;hi␇"),
        ("\x9b5;5H", "‹9B›5;5H"),
        ("\u202eabc\u200b", "‹202E›abc‹200B›"),
        ("two\nlines\tand", "two↵lines⇥and"),
        ("\ud800", "‹D800›"),
        ("\u0301x", "◌\u0301x"),
        ("[red]hi[/red] [/", "[red]hi[/red] [/"),
        ("\x7f", "␡"),
        ("hello", "hello"),
    ],
)
def test_shows_what_cannot_be_seen(foreign: str, shown: str) -> None:
    assert safe_str(foreign) == shown


@given(any_text)
def test_nothing_reaches_the_terminal_that_it_obeys_or_hides(text: str) -> None:
    shown = safe_str(text)
    for letter in shown:
        assert unicodedata.category(letter) not in ("Cc", "Cf", "Cs", "Zl", "Zp", "Cn")
    shown.encode()


@given(any_text, any_text)
def test_different_texts_look_different(one: str, other: str) -> None:
    # A glyph such as ␛ or ‹ in the text itself is the only way to look like another text.
    if not set(one + other) & set("␛␇␀␈␍␡↵⇥‹›◌") and not any(0x2400 <= ord(letter) < 0x2422 for letter in one + other):
        assert (safe_str(one) == safe_str(other)) == (one == other)


@given(any_text, st.integers(0, 30))
def test_is_cut_to_a_width_in_cells(text: str, width: int) -> None:
    assert cell_len(safe_str(text, width)) <= width
    assert cell_len(fit(text, width)) == width
    if cell_len(safe_str(text)) <= width:
        assert safe_str(text, width) == safe_str(text)


def test_tells_that_it_was_cut() -> None:
    assert safe_str("日本語テキスト", 6) == "日本…"
    assert safe_str("abcdef", 6) == "abcdef"
    assert safe_str("abcdefg", 6) == "abcde…"
    assert fit("7.5", 6, align="right") == "   7.5"


@settings(max_examples=20)
@given(any_text)
def test_is_content_and_never_markup(text: str) -> None:
    content = safe_text(text, style="bold")
    assert isinstance(content, Content)
    assert content.plain == safe_str(text)


def test_a_long_text_costs_no_more_than_its_width() -> None:
    assert safe_str("\x1b" * 10_000_000, 5) == "␛␛␛␛…"
