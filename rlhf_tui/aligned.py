"""Two texts made easy to compare: what one of them lacks is highlighted, what both have stands in the same columns."""

from rich.cells import cell_len
from textual.content import Content

from core.preferences.differences import Span, differing_spans
from rlhf_tui.safe_text import visible

DIFFERENT = "bold underline $text-accent"  # the line under it tells without colour
GAP = "·"
Piece = tuple[str, str, bool]  # of the left text, of the right text, and: do they differ?


def highlighted(text: str, other: str) -> Content:
    """``text`` with what ``other`` lacks highlighted."""
    spans, _ = differing_spans(text, other)
    shown, at = Content(""), 0
    for low, high in spans:
        shown += Content(visible(text[at:low])) + Content.styled(visible(text[low:high]), DIFFERENT)
        at = high
    return shown + Content(visible(text[at:]))


def aligned_rows(left: str, right: str) -> tuple[Content, Content]:
    """Both texts on a line each, with gaps so that what they share stands in the same columns."""
    rows = [Content(""), Content("")]
    for one, other, differ in pieces(left, right):
        shown = visible(one), visible(other)
        width = max(map(cell_len, shown))
        for at, text in enumerate(shown):
            rows[at] += Content.styled(text, DIFFERENT) if differ else Content(text)
            rows[at] += Content.styled(GAP * (width - cell_len(text)), "dim")
    return rows[0], rows[1]


def pieces(left: str, right: str) -> list[Piece]:
    """The texts cut where they begin or cease to agree; joined again, the parts of each side are that text."""
    left_spans, right_spans = differing_spans(left, right)
    cut: list[Piece] = []
    at = [0, 0]
    ends = [_next(left_spans, 0), _next(right_spans, 0)]
    while at[0] < len(left) or at[1] < len(right):
        # What is shared reaches as far as the nearer of the two next differences.
        shared = min(
            (ends[side][0] if ends[side] else len((left, right)[side])) - at[side]  # type: ignore[index]
            for side in (0, 1)
        )
        if shared > 0:
            cut.append((left[at[0] : at[0] + shared], right[at[1] : at[1] + shared], False))
            at = [at[0] + shared, at[1] + shared]
        parts = ["", ""]
        for side, (text, spans) in enumerate(((left, left_spans), (right, right_spans))):
            span = ends[side]
            if span is not None and span[0] == at[side]:
                parts[side] = text[span[0] : span[1]]
                at[side] = span[1]
                ends[side] = _next(spans, span[1])
        if any(parts):
            cut.append((parts[0], parts[1], True))
    return cut


def _next(spans: tuple[Span, ...], at: int) -> Span | None:
    return next((each for each in spans if each[0] >= at), None)
