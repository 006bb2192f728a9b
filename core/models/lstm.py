"""The LSTM language model."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence

from core.models.language_model import LanguageModel
from core.models.packed_lstm import Packing, activate, hyperbolic_tangent, recurrence


@dataclass(frozen=True)
class State:
    """What was read so far, and what reading on begins with."""

    letters: Tensor  # each letter's part of the first layer's gates, [V, 4H]
    layers: Sequence[tuple[Tensor, Tensor]]  # (h, c) of each layer, [B, H] each


class LSTMLanguageModel(LanguageModel):
    """Embedding, stacked LSTM, linear head (arXiv 1308.0850); no dropout, so that KL is 0 at step 0."""

    def __init__(self, vocabulary_size: int, embedding: int = 64, hidden: int = 128, layers: int = 2) -> None:
        super().__init__(vocabulary_size, hidden)
        self.embedding = nn.Embedding(vocabulary_size, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers, batch_first=True)

    def hidden(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """See :meth:`LanguageModel.hidden`; no work is done on padding."""
        if self.second_order:
            with torch.backends.cudnn.flags(enabled=False):
                hidden, _ = self.lstm(self.embedding(tokens))
            return hidden
        if not tokens.is_cpu:
            hidden, _ = self.lstm(self.embedding(tokens))  # a GPU's own kernel wins, padding and all
            return hidden
        packing = Packing.of(tokens, lengths)
        below: Tensor | None = None
        for w_ih, w_hh, b_ih, b_hh in self.lstm.all_weights:
            if below is None:
                projected = F.embedding(packing.tokens, self._letters())
            else:
                projected = F.linear(below, w_ih, b_ih + b_hh)
            below = recurrence(projected, w_hh, packing.sizes)
        assert below is not None
        return packing.unpack(below, tokens.shape)

    def _letters(self) -> Tensor:
        """The first layer's gates as far as the letter read decides them, [V, 4H]: few letters, many tokens."""
        w_ih, _, b_ih, b_hh = self.lstm.all_weights[0]
        return F.linear(self.embedding.weight, w_ih, b_ih + b_hh)

    @torch.no_grad()
    def begin(self, prompts: Tensor, lengths: Tensor) -> tuple[Tensor, State]:
        """See :meth:`LanguageModel.begin`; packing ends each row's recurrence at its own last token."""
        packed = pack_padded_sequence(self.embedding(prompts), lengths.cpu(), batch_first=True, enforce_sorted=False)
        _, (h, c) = self.lstm(packed)
        layers = list(zip(h.unbind(0), c.unbind(0), strict=True))
        return layers[-1][0], State(self._letters(), layers)

    @torch.no_grad()
    def advance(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """See :meth:`LanguageModel.advance`."""
        gates = state.letters.index_select(0, tokens)
        layers: list[tuple[Tensor, Tensor]] = []
        for (w_ih, w_hh, b_ih, b_hh), (h, c) in zip(self.lstm.all_weights, state.layers, strict=True):
            if layers:
                gates = F.linear(layers[-1][0], w_ih, b_ih + b_hh)
            i, f, g, o = activate(gates.addmm_(h, w_hh.t()))
            c = torch.addcmul(i * g, f, c)
            layers.append((o * hyperbolic_tangent(c, out=torch.empty_like(c)), c))
        return layers[-1][0], replace(state, layers=layers)

    def select(self, state: State, rows: Tensor) -> State:
        """See :meth:`LanguageModel.select`."""
        return replace(state, layers=[(h.index_select(0, rows), c.index_select(0, rows)) for h, c in state.layers])
