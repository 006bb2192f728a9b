"""The LSTM language model."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from core.models.language_model import LanguageModel
from core.models.packed_lstm import Packing, recurrence, squash, step


@dataclass(frozen=True)
class State:
    """What was read so far, and what reading on begins with."""

    letters: Tensor  # each letter's part of the first layer's gates, [V, 4H]
    weights: Sequence[tuple[Tensor, Tensor, Tensor]]  # each layer's from below [E or H, 4H], recurrent [H, 4H], bias
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
        return packing.unpack(self._packed(packing), tokens.shape)

    def hidden_at(self, tokens: Tensor, lengths: Tensor, places: Tensor) -> Tensor:
        """See :meth:`LanguageModel.hidden_at`; packed states are picked as they lie."""
        if self.second_order or not tokens.is_cpu:
            return super().hidden_at(tokens, lengths, places)
        packing = Packing.of(tokens, lengths)
        return self._packed(packing).index_select(0, packing.sources(tokens.shape)[places])

    def _packed(self, packing: Packing) -> Tensor:
        """The last layer's hidden states, packed."""
        below: Tensor | None = None
        for layer in range(self.lstm.num_layers):
            below = recurrence(self._projected(packing, layer, below), self.lstm.all_weights[layer][1], packing.sizes)
        assert below is not None
        return below

    def _projected(self, packing: Packing, layer: int, below: Tensor | None) -> Tensor:
        """What a layer's gates read from below, biases included, packed: [N, 4H]."""
        if below is None:
            return F.embedding(packing.tokens, self._letters())
        w_ih, _, b_ih, b_hh = self.lstm.all_weights[layer]
        return F.linear(below, w_ih, b_ih + b_hh)

    def _letters(self) -> Tensor:
        """The first layer's gates as far as the letter read decides them, [V, 4H]: few letters, many tokens."""
        w_ih, _, b_ih, b_hh = self.lstm.all_weights[0]
        return F.linear(self.embedding.weight, w_ih, b_ih + b_hh)

    @torch.no_grad()
    def begin(self, prompts: Tensor, lengths: Tensor) -> tuple[Tensor, State]:
        """See :meth:`LanguageModel.begin`; what several prompts begin with is read once."""
        device, going = prompts.device, torch.arange(len(prompts))  # which rows have not ended
        prompts, lengths = prompts.cpu(), lengths.cpu()
        nothing = self.head.weight.new_zeros(1, self.width)
        state = State(self._letters(), self._steps(), [(nothing, nothing)] * self.lstm.num_layers)
        ends = [tuple(nothing.new_empty(len(prompts), self.width) for _ in range(2)) for _ in state.layers]
        beginning = torch.zeros_like(going)  # of those read so far, the one that each row has
        for position in range(prompts.shape[1]):
            keys = beginning * self.vocabulary_size + prompts[going, position]
            keys, beginning = keys.unique(return_inverse=True)
            before, letters = (keys // self.vocabulary_size).to(device), (keys % self.vocabulary_size).to(device)
            _, state = self.advance(letters, self.select(state, before))
            ended = lengths[going] == position + 1
            if not ended.any():
                continue
            rows, those = going[ended].to(device), beginning[ended].to(device)
            for end, now in zip(ends, state.layers, strict=True):
                for to, value in zip(end, now, strict=True):
                    to.index_copy_(0, rows, value.index_select(0, those))
            going, beginning = going[~ended], beginning[~ended]
        layers = [(h, c) for h, c in ends]
        return layers[-1][0], replace(state, layers=layers)

    def _steps(self) -> Sequence[tuple[Tensor, Tensor, Tensor]]:
        """:attr:`State.weights`."""
        return [(w_ih.t(), w_hh.t(), b_ih + b_hh) for w_ih, w_hh, b_ih, b_hh in self.lstm.all_weights]

    @torch.no_grad()
    def advance(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """See :meth:`LanguageModel.advance`."""
        gates = state.letters.index_select(0, tokens)
        layers: list[tuple[Tensor, Tensor]] = []
        for (from_below, recurrent, bias), (h, c) in zip(state.weights, state.layers, strict=True):
            if layers:
                gates = torch.addmm(bias, layers[-1][0], from_below)
            parts = gates.addmm_(h, recurrent).chunk(4, 1)
            squash(gates, parts[2])
            cell, hidden = torch.empty_like(c), torch.empty_like(c)
            step(parts, c, (parts[2], cell, hidden, hidden))  # what is not needed later is written over
            layers.append((hidden, cell))
        return layers[-1][0], replace(state, layers=layers)

    def select(self, state: State, rows: Tensor) -> State:
        """See :meth:`LanguageModel.select`."""
        return replace(state, layers=[(h.index_select(0, rows), c.index_select(0, rows)) for h, c in state.layers])
