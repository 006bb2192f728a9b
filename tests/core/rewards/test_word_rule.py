"""The gold rule of ``words``: figures by hand, its highest value by enumeration, text against batch by hypothesis."""

import itertools
import math
import string

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.rewards import word_rule
from core.rewards.words_batched import word_rule_batched
from core.tokenizer import CharTokenizer

TOKENIZER = CharTokenizer(string.ascii_lowercase)


def closeness(n: int) -> float:
    return 2 * math.exp(-((n - 15) ** 2) / 50)


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ("", -3.0),
        ("hello", 3.970671),
        ("banana", 4.395797),
        ("fibudecolajerow", 7.4),
        ("a", closeness(1) + 3 - 2),
        ("zz", closeness(2) + 1.5 - 1 - 0.5),
        ("ab", closeness(2) + 3 + 1.5 - 1),
        ("abc", closeness(3) + 3 + 1),
        ("aaaa", closeness(4) + 0.75 - 1.5),
        ("aaaaa", closeness(5) + 0.6 - 2),  # four equal neighbours cost 2, the most they can
        ("aaaaaaaa", closeness(8) + 3 / 8 - 2),
        ("ae", closeness(2) + 3 - 1),  # two vowels do not alternate
    ],
)
def test_word_rule_by_hand(text, reward):
    assert word_rule(text) == pytest.approx(reward, abs=1e-6)


def test_7_4_is_the_most_there_is_at_15_letters():
    """Every pattern of vowels and consonants, with as many different letters as it allows and no equal neighbours."""
    best = 0.0
    for pattern in itertools.product((True, False), repeat=15):
        vowels = sum(pattern)
        distinct = min(5, vowels) + min(21, 15 - vowels)
        alternating = sum(left != right for left, right in itertools.pairwise(pattern))
        best = max(best, 2 + 3 * distinct / 15 + 3 * alternating / 15)
    assert best == pytest.approx(7.4)
    assert word_rule("fibudecolajerow") == pytest.approx(best)


def batched(texts: list[str], ended: bool = True) -> list[float]:
    rows = [[*TOKENIZER.encode(text), *([2] if ended else [])] for text in texts]
    longest = max(1, *(len(row) for row in rows))
    tokens = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    mask = torch.tensor([[True] * len(row) + [False] * (longest - len(row)) for row in rows])
    return word_rule_batched(tokens, mask).tolist()


words = st.text(string.ascii_lowercase, max_size=24) | st.text("aeb", max_size=24)


@given(st.lists(words, min_size=1, max_size=8), st.booleans())
def test_the_batched_rule_equals_the_rule_on_text(texts, ended):
    assert batched(texts, ended) == pytest.approx([word_rule(text) for text in texts], abs=1e-5)


@given(words, st.lists(st.integers(0, 29), min_size=1, max_size=5))
def test_what_stands_behind_the_end_does_not_count(text, garbage):
    tokens = torch.tensor([[*TOKENIZER.encode(text), 2, *garbage]])
    mask = torch.arange(tokens.shape[1]).unsqueeze(0) <= len(text)
    assert word_rule_batched(tokens, mask).item() == pytest.approx(word_rule(text), abs=1e-5)


def test_the_batched_rule_gives_one_float_a_row():
    rewards = word_rule_batched(torch.tensor([[2, 0], [4, 2]]), torch.tensor([[True, False], [True, True]]))
    assert rewards.dtype == torch.float32
    assert rewards.shape == (2,)
    assert rewards[0] == -3
