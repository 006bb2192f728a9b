"""Warnings about any set of pairs, one's own labels or an imported file. Torch-free."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from core.preferences.differences import similarity
from core.preferences.pair import PreferencePair

FEW_PAIRS = 50
ALIKE = 0.9  # similarity from which two texts hardly differ
ONE_ANSWER = 0.8  # share of pairs with the same chosen text that is worth a warning
PAIRS_COMPARED = 500  # for similarity: enough to know a share within ±4%
LETTERS_COMPARED = 200


@dataclass(frozen=True)
class PairWarning:
    """Something about pairs that will spoil training; ``kind``: few, one_answer, alike, contradiction."""

    kind: str
    message: str


def check_pairs(pairs: Sequence[PreferencePair]) -> list[PairWarning]:
    """Every warning that applies; ties take part only where two texts are compared."""
    decided = [each for each in pairs if each.target != 0.5]
    found = (_few(decided), _one_answer(decided), _alike(pairs), _contradiction(decided))
    return [each for each in found if each is not None]


def _few(decided: Sequence[PreferencePair]) -> PairWarning | None:
    if len(decided) >= FEW_PAIRS:
        return None
    return PairWarning(
        "few", f"only {len(decided)} decided pair{'s' if len(decided) != 1 else ''}: below {FEW_PAIRS} a model learns "
        "the pairs, not the taste",
    )  # fmt: skip


def _one_answer(decided: Sequence[PreferencePair]) -> PairWarning | None:
    if len(decided) < 3:
        return None
    text, count = Counter(each.chosen for each in decided).most_common(1)[0]
    if count < ONE_ANSWER * len(decided):
        return None
    much = "all" if count == len(decided) else f"{count} of {len(decided)}"
    shown = text if len(text) <= 40 else f"{text[:39]}…"
    return PairWarning("one_answer", f"{much} chosen texts are one answer ('{shown}'): the policy will say only that")


def _alike(pairs: Sequence[PreferencePair]) -> PairWarning | None:
    if not pairs:
        return None
    some = pairs[:: -(-len(pairs) // PAIRS_COMPARED)]  # evenly over the whole set
    alike = sum(
        similarity(each.chosen[:LETTERS_COMPARED], each.rejected[:LETTERS_COMPARED]) >= ALIKE for each in some
    )  # fmt: skip
    if alike * 2 < len(some):
        return None
    return PairWarning(
        "alike", f"chosen and rejected hardly differ in {alike / len(some):.0%} of pairs: there is little to learn from"
    )


def _contradiction(decided: Sequence[PreferencePair]) -> PairWarning | None:
    judged = Counter((each.prompt, each.chosen, each.rejected) for each in decided)
    both_ways = [key for key in judged if key[1] < key[2] and (key[0], key[2], key[1]) in judged]
    if not both_ways:
        return None
    prompt, one, other = both_ways[0]
    count = f"{len(both_ways)} pair was" if len(both_ways) == 1 else f"{len(both_ways)} pairs were"
    example = f"'{one[:20]}' and '{other[:20]}' for '{prompt[:20]}'"
    return PairWarning("contradiction", f"{count} judged both ways: {example}")
