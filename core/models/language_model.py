"""What every backbone offers: hidden states of whole sequences for training, one step at a time for sampling."""

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from core.tokenizer import CharTokenizer

NEVER_SAMPLED = (CharTokenizer.pad_id, CharTokenizer.bos_id, CharTokenizer.unk_id)
FORBIDDEN_LOGIT = -1e9  # finite on purpose: −inf turns 0·(log p) into NaN in KL, entropy and their gradients


class LanguageModel(nn.Module, ABC):
    """A causal model over letters: the hidden state at a position has read that position and those before it.

    B batch, L length, H hidden width, V vocabulary. Sequences are padded on the right. Gradients pass through
    :meth:`hidden` and :meth:`logits`; :meth:`begin`, :meth:`advance` and :meth:`select` are for sampling.
    """

    second_order = False
    """Set while second derivatives are asked for: only operations that autograd can differentiate twice are used."""

    def __init__(self, vocabulary_size: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.vocabulary_size = vocabulary_size
        self.head = nn.Linear(width, vocabulary_size)
        forbidden = torch.zeros(vocabulary_size)
        forbidden[list(NEVER_SAMPLED)] = FORBIDDEN_LOGIT
        self.register_buffer("forbidden", forbidden, persistent=False)
        self.forbidden: Tensor

    @abstractmethod
    def hidden(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Hidden states of whole sequences: tokens [B, L], lengths int64 [B] on the CPU -> [B, L, H].

        What stands at or behind a row's length is undefined and must not be read.
        """

    def hidden_at(self, tokens: Tensor, lengths: Tensor, places: Tensor) -> Tensor:
        """Hidden states at some places of the flattened [B·L], int64 [M] -> [M, H]; for the rest as :meth:`hidden`."""
        return self.hidden(tokens, lengths).flatten(0, 1).index_select(0, places)

    @abstractmethod
    def begin(self, prompts: Tensor, lengths: Tensor) -> tuple[Tensor, Any]:
        """Read prompts [B, P] of ``lengths`` [B]: the hidden state at each last token, [B, H], and a state to go on."""

    @abstractmethod
    def advance(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Read one more token a row, [B]: the hidden state there, [B, H], and the next state."""

    @abstractmethod
    def select(self, state: Any, rows: Tensor) -> Any:
        """The state of some rows, in that order (a row may be named several times)."""

    def logits(self, hidden: Tensor) -> Tensor:
        """Next-token logits, [..., H] -> [..., V]; PAD, BOS and UNK are out of reach."""
        return F.linear(hidden, self.head.weight, self.head.bias + self.forbidden)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits at each position of full rows, [B, L] -> [B, L, V]."""
        lengths = torch.full((tokens.shape[0],), tokens.shape[1])
        return self.logits(self.hidden(tokens, lengths))
