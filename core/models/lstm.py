"""The LSTM language model."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence

from core.models.language_model import LanguageModel
from core.models.packed_lstm import Packing, recurrence

State = list[tuple[Tensor, Tensor]]  # (h, c) of each layer, [B, H] each


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
            if below is None:  # few letters, many tokens: project each letter once, then look it up
                projected = F.embedding(packing.tokens, F.linear(self.embedding.weight, w_ih, b_ih + b_hh))
            else:
                projected = F.linear(below, w_ih, b_ih + b_hh)
            below = recurrence(projected, w_hh, packing.sizes)
        assert below is not None
        return packing.unpack(below, tokens.shape)

    def begin(self, prompts: Tensor, lengths: Tensor) -> tuple[Tensor, State]:
        """See :meth:`LanguageModel.begin`; packing ends each row's recurrence at its own last token."""
        packed = pack_padded_sequence(self.embedding(prompts), lengths.cpu(), batch_first=True, enforce_sorted=False)
        _, (h, c) = self.lstm(packed)
        state = list(zip(h.unbind(0), c.unbind(0), strict=True))
        return state[-1][0], state

    def advance(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """See :meth:`LanguageModel.advance`."""
        below = self.embedding(tokens)
        following: State = []
        for layer, (h, c) in enumerate(state):
            w_ih, w_hh, b_ih, b_hh = self.lstm.all_weights[layer]
            h, c = torch.lstm_cell(below, (h, c), w_ih, w_hh, b_ih, b_hh)
            following.append((h, c))
            below = h
        return below, following

    def select(self, state: State, rows: Tensor) -> State:
        """See :meth:`LanguageModel.select`."""
        return [(h[rows], c[rows]) for h, c in state]
