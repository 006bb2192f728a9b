"""The gold rule of the ``words`` task on a batch of token ids, without a loop over rows."""

import string

import torch
from torch import Tensor

from core.rewards.words import IDEAL_LENGTH, NO_LETTERS, VOWELS
from core.tokenizer import CharTokenizer

FIRST_LETTER = 4
_TOKENIZER = CharTokenizer(string.ascii_lowercase)


def word_rule_batched(tokens: Tensor, mask: Tensor) -> Tensor:
    """:func:`core.rewards.words.word_rule` of each row.

    Args:
        tokens: ids of the ``words`` vocabulary, [B, T]; each row's letters come first.
        mask: True at the real tokens (letters and EOS), bool [B, T].

    Returns:
        Rewards, float32 [B].
    """
    letters = mask & (tokens >= FIRST_LETTER)
    length = letters.sum(1)
    n = length.clamp(min=1).float()

    seen = torch.zeros(len(tokens), len(_TOKENIZER), dtype=torch.bool, device=tokens.device)
    seen.scatter_(1, torch.where(letters, tokens, 0), True)
    distinct = seen[:, FIRST_LETTER:].sum(1)

    is_vowel = torch.zeros(len(_TOKENIZER), dtype=torch.bool, device=tokens.device)
    is_vowel[_TOKENIZER.encode(VOWELS)] = True
    vowel = is_vowel[tokens]
    both = letters[:, 1:] & letters[:, :-1]
    alternating = (both & (vowel[:, 1:] != vowel[:, :-1])).sum(1)
    equal = (both & (tokens[:, 1:] == tokens[:, :-1])).sum(1)

    reward = (
        2 * torch.exp(-((n - IDEAL_LENGTH) ** 2) / 50)
        + 3 * distinct / n
        + 3 * alternating / n
        - (3 - n).clamp(min=0)
        - (0.5 * equal).clamp(max=2)
    )
    return torch.where(length == 0, NO_LETTERS, reward)
