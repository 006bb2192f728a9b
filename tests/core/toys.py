"""Models small enough that every completion can be written down, and the lists of all completions."""

import itertools

import torch
from torch import Tensor

from core.models.language_model import LanguageModel
from core.models.lstm import LSTMLanguageModel
from core.sampling import Completions, completions_of

BOS, EOS = 1, 2
A, B, C = 4, 5, 6  # the letters of a three-letter alphabet
VOCABULARY = 7


class HistoryModel(LanguageModel):
    """Logits that depend on the whole prefix and on nothing else: a row of a table, chosen by a rolling hash."""

    SIZE = 211

    def __init__(self, vocabulary: int = VOCABULARY, seed: int = 0, spread: float = 1.5) -> None:
        super().__init__(vocabulary, vocabulary)
        generator = torch.Generator().manual_seed(seed)
        self.table = torch.randn(self.SIZE, vocabulary, generator=generator) * spread
        with torch.no_grad():
            self.head.weight.copy_(torch.eye(vocabulary))
            self.head.bias.zero_()

    def _read(self, state: Tensor, tokens: Tensor) -> Tensor:
        return (state * 31 + tokens + 1) % self.SIZE

    def hidden(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        state = torch.zeros(len(tokens), dtype=torch.long, device=tokens.device)
        states = []
        for t in range(tokens.shape[1]):
            state = self._read(state, tokens[:, t])
            states.append(state)
        return self.table[torch.stack(states, 1)]

    def begin(self, prompts: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        state = torch.zeros(len(prompts), dtype=torch.long, device=prompts.device)
        for t in range(prompts.shape[1]):
            state = torch.where(t < lengths, self._read(state, prompts[:, t]), state)
        return self.table[state], state

    def advance(self, tokens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        state = self._read(state, tokens)
        return self.table[state], state

    def select(self, state: Tensor, rows: Tensor) -> Tensor:
        return state[rows]


def tiny_lstm(seed: int = 0, vocabulary: int = VOCABULARY, layers: int = 1) -> LSTMLanguageModel:
    """An LSTM in float64 with weights large enough that prompts and letters matter."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LSTMLanguageModel(vocabulary, embedding=3, hidden=4, layers=layers).double()
        for weight in model.parameters():
            torch.nn.init.normal_(weight, std=0.8)
    return model


def every_completion(cap: int, letters: tuple[int, ...] = (A, B, C)) -> list[list[int]]:
    """All that can be sampled within ``cap`` tokens: letters then EOS, or ``cap`` letters and no EOS."""
    ended = [[*word, EOS] for n in range(cap) for word in itertools.product(letters, repeat=n)]
    return ended + [list(word) for word in itertools.product(letters, repeat=cap)]


def all_with_prompt(prompt: list[int], cap: int) -> Completions:
    """Every completion of one prompt as a batch."""
    completions = every_completion(cap)
    return completions_of([prompt] * len(completions), completions)


def gradients(loss: Tensor, model: torch.nn.Module) -> Tensor:
    """The gradient of a scalar in all weights of a model, in one vector (0 where a weight plays no part)."""
    weights = list(model.parameters())
    found = torch.autograd.grad(loss, weights, allow_unused=True, retain_graph=True)
    return torch.cat([(torch.zeros_like(w) if g is None else g).flatten() for w, g in zip(weights, found, strict=True)])
