"""Where two texts differ, for highlighting. Torch-free."""

from difflib import SequenceMatcher

LONGEST_COMPARED = 2_000  # letters; comparing takes time with the square of the length

Span = tuple[int, int]


def differing_spans(left: str, right: str) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """The half-open spans of each text that the other lacks, by character, in order.

    Without those spans both texts are the same. Of long texts only the common beginning and end are told apart.
    """
    start = _common_prefix(left, right)
    end = _common_prefix(left[start:][::-1], right[start:][::-1])
    left_middle, right_middle = left[start : len(left) - end], right[start : len(right) - end]
    if max(len(left_middle), len(right_middle)) > LONGEST_COMPARED:
        blocks = [("replace", 0, len(left_middle), 0, len(right_middle))]
    else:
        blocks = [*SequenceMatcher(None, left_middle, right_middle, autojunk=False).get_opcodes()]
    changed = [block for block in blocks if block[0] != "equal"]
    return (
        tuple((start + low, start + high) for _, low, high, _, _ in changed if low < high),
        tuple((start + low, start + high) for _, _, _, low, high in changed if low < high),
    )


def similarity(left: str, right: str) -> float:
    """Share of letters that both have in common, in order: 0 nothing … 1 the same text (difflib's ratio)."""
    total = len(left) + len(right)
    if not total:
        return 1.0
    lacking = sum(high - low for spans in differing_spans(left, right) for low, high in spans)
    return 1 - lacking / total


def _common_prefix(left: str, right: str) -> int:
    length = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        length += 1
    return length
