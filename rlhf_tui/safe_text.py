"""Foreign text made safe to show: samples, prompts, labels, names, errors – whatever this program did not write.

A terminal obeys what it is sent: an escape sequence inside a sample moves its cursor, a bidirectional override turns
a line round, a zero-width letter makes two texts look alike. Here every character that is not plainly visible
becomes a visible glyph, and the result is a Content (or a str for a Segment), never markup.
"""

import unicodedata
from functools import lru_cache

from rich.cells import cell_len
from textual.content import Content

NEWLINE, TAB, DELETE = "↵", "⇥", "␡"
ELLIPSIS = "…"

_INVISIBLE_CATEGORIES = {"Cc", "Cf", "Cs", "Cn", "Zl", "Zp"}  # control, format, surrogate, unassigned, separators
_INVISIBLE_RANGES = (
    (0x034F, 0x034F),  # combining grapheme joiner
    (0x115F, 0x1160), (0x3164, 0x3164), (0xFFA0, 0xFFA0),  # Hangul fillers: letters without ink
    (0x17B4, 0x17B5),  # Khmer vowels without ink
    (0x180B, 0x180F), (0xFE00, 0xFE0F), (0xE0100, 0xE01EF),  # variation selectors: they change a width unseen
)  # fmt: skip
_MAX_MARKS = 2  # combining marks on one letter; more would climb over the lines above


def safe_text(text: object, width: int | None = None, style: str = "") -> Content:
    """``str(text)`` as Content on one line, cut to ``width`` cells (… at the end tells that it was cut)."""
    return Content.styled(safe_str(text, width), style) if style else Content(safe_str(text, width))


def safe_str(text: object, width: int | None = None) -> str:
    """As :func:`safe_text`, but a plain str for a Segment or a notification with markup switched off."""
    whole = str(text)
    if width is None:
        return visible(whole)
    if width <= 0:
        return ""
    # A cell needs at most one letter and its marks: what lies further right need not be looked at.
    head = whole[: width * (_MAX_MARKS + 1) + 1]
    shown = visible(head)
    if len(head) == len(whole) and cell_len(shown) <= width:
        return shown
    return _cut(shown, width - 1) + ELLIPSIS


def fit(text: object, width: int, align: str = "left") -> str:
    """Safe ``text`` in exactly ``width`` cells, cut or padded with blanks; ``align`` is left or right."""
    shown = safe_str(text, width)
    blanks = " " * (width - cell_len(shown))
    return blanks + shown if align == "right" else shown + blanks


def visible(text: str) -> str:
    """``text`` with every character that is not plainly visible shown as a glyph."""
    if text.isascii() and text.isprintable():
        return text
    shown: list[str] = []
    marks = _MAX_MARKS  # a mark needs a letter to stand on
    for letter in text:
        if unicodedata.category(letter) in ("Mn", "Me"):
            if marks >= _MAX_MARKS:
                shown.append(f"◌{letter}" if not _is_invisible(letter) else _glyph(letter))
                marks = 1
            elif _is_invisible(letter):
                shown.append(_glyph(letter))
                marks = _MAX_MARKS
            else:
                shown.append(letter)
                marks += 1
            continue
        shown.append(_glyph(letter))
        marks = 0
    return "".join(shown)


@lru_cache(maxsize=4096)
def _glyph(letter: str) -> str:
    if letter == "\n":
        return NEWLINE
    if letter == "\t":
        return TAB
    code = ord(letter)
    if code < 0x20:
        return chr(0x2400 + code)  # ␀ … ␟, made for this
    if code == 0x7F:
        return DELETE
    return f"‹{code:02X}›" if _is_invisible(letter) else letter


@lru_cache(maxsize=4096)
def _is_invisible(letter: str) -> bool:
    code = ord(letter)
    return unicodedata.category(letter) in _INVISIBLE_CATEGORIES or any(
        low <= code <= high for low, high in _INVISIBLE_RANGES
    )


def _cut(text: str, width: int) -> str:
    """The longest beginning of ``text`` that fits ``width`` cells."""
    if cell_len(text) <= width:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if cell_len(text[:middle]) <= width else (low, middle - 1)
    return text[:low]
