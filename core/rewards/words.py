"""The gold rule of the ``words`` task: long, varied, speakable words score high. Torch-free."""

import math
from itertools import pairwise

VOWELS = "aeiou"
IDEAL_LENGTH = 15
NO_LETTERS = -3.0


def word_rule(text: str) -> float:
    """The gold reward of a completion of n letters.

    2·exp(−(n−15)²/50) + 3·(distinct letters / n) + (3/n)·(neighbours of which one is a vowel and one is not)
    − max(0, 3−n) − min(2, 0.5·equal neighbours); −3 when there are no letters. At 15 letters 7.4 is the most there is.
    """
    n = len(text)
    if n == 0:
        return NO_LETTERS
    neighbours = list(pairwise(text))
    alternating = sum((left in VOWELS) != (right in VOWELS) for left, right in neighbours)
    equal = sum(left == right for left, right in neighbours)
    return (
        2 * math.exp(-((n - IDEAL_LENGTH) ** 2) / 50)
        + 3 * len(set(text)) / n
        + 3 * alternating / n
        - max(0, 3 - n)
        - min(2.0, 0.5 * equal)
    )
