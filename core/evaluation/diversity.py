"""How different the completions of a model are. Torch-free."""

from collections.abc import Sequence


def distinct_2(texts: Sequence[str]) -> float:
    """Distinct pairs of neighbouring letters over all such pairs, pooled over the texts (arXiv 1510.03055).

    It falls with the number of texts: compare only what was measured on equally many. 0 when there is no pair.
    """
    pairs = [text[at : at + 2] for text in texts for at in range(len(text) - 1)]
    return len(set(pairs)) / len(pairs) if pairs else 0.0


def unique_fraction(texts: Sequence[str]) -> float:
    """Share of different texts among all; 0 of none."""
    return len(set(texts)) / len(texts) if texts else 0.0
