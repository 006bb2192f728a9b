"""The transformer language model: causal, pre-norm, with learned positions and a cache of keys and values."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from core.models.config import FEED_FORWARD, ContextError
from core.models.language_model import LanguageModel
from core.models.row_packing import RowPacking

OUT_OF_SIGHT = -1e9  # finite on purpose, see language_model.FORBIDDEN_LOGIT
SPARE = 8  # places by which a full cache grows


class Block(nn.Module):
    """One pre-norm layer (arXiv 1706.03762, 2002.04745): x + attention(norm(x)), then x + feed_forward(norm(x)).

    N tokens, of however many rows; D hidden width. No dropout, so that KL is 0 at step 0.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.feed_forward_in = nn.Linear(width, FEED_FORWARD * width)
        self.feed_forward_out = nn.Linear(FEED_FORWARD * width, width)

    def project(self, x: Tensor) -> Tensor:
        """Queries, keys and values of each token, [N, D] -> [N, 3D]."""
        projected: Tensor = self.queries_keys_values(self.attention_norm(x))
        return projected

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """The layer's output from its input and what its heads attended to, both [N, D].

        ReLU, since on a CPU the time of GELU is that of a quarter of the matrix products.
        """
        x = x + self.attention_out(attended)
        inner = F.relu(self.feed_forward_in(self.feed_forward_norm(x)), inplace=True)
        out: Tensor = x + self.feed_forward_out(inner)
        return out


def attend(queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
    """softmax(QKᵀ/√d + bias)·V: [G, Q, d], [G, K, d], [G, K, d], bias that expands to [G, Q, K] -> [G, Q, d].

    For rows this short plain products beat torch's own attention on the CPU (half the time, with the gradient).
    """
    shape = (queries.shape[0], queries.shape[1], keys.shape[1])
    scores = torch.baddbmm(bias.expand(shape), queries, keys.transpose(1, 2), alpha=queries.shape[-1] ** -0.5)
    return torch.bmm(scores.softmax(-1), values)


class Cache:
    """Keys and values of what was read, per layer [heads, B, S, d]; written in place, one place a row and step."""

    def __init__(self, layers: list[tuple[Tensor, Tensor]]) -> None:
        self.layers = layers
        self.steps = 0  # places written since it was made

    def copy(self, spare: int = 0) -> "Cache":
        """The same in memory of its own, with ``spare`` more places."""
        return Cache([(_roomier(k, spare), _roomier(v, spare)) for k, v in self.layers])


def _roomier(x: Tensor, spare: int) -> Tensor:
    return F.pad(x, (0, 0, 0, spare)) if spare else x.clone()


@dataclass(frozen=True)
class State:
    """What was read so far. What stands in the cache at or behind a row's length is unseen, whatever it is."""

    cache: Cache
    steps: int  # the cache's when this state was made: behind it when another continuation has written since
    lengths: Tensor  # tokens read of each row, int64 [B]
    longest: int  # no row is longer; rows that are gone may have been as long


class TransformerLanguageModel(LanguageModel):
    """Embedding plus position, blocks, a last norm, linear head.

    A narrower embedding is widened by a matrix (arXiv 1909.11942 §3.1). Raises ContextError for sequences longer
    than the context.
    """

    def __init__(
        self, vocabulary_size: int, embedding: int = 96, hidden: int = 96, layers: int = 2, heads: int = 4,
        context: int = 64,
    ) -> None:  # fmt: skip
        super().__init__(vocabulary_size, hidden)
        self.heads = heads
        self.context = context
        self.embedding = nn.Embedding(vocabulary_size, embedding)
        self.widen: nn.Module = nn.Linear(embedding, hidden, bias=False) if embedding != hidden else nn.Identity()
        self.positions = nn.Parameter(torch.empty(context, hidden))
        self.blocks: Sequence[Block]
        self.blocks = nn.ModuleList(Block(hidden) for _ in range(layers))  # type: ignore[assignment]
        self.norm = nn.LayerNorm(hidden)
        self._draw_weights()

    def _draw_weights(self) -> None:
        """Small weights, those that end a branch smaller by its number of layers, as in GPT-2."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for block in self.blocks:
            for last in (block.attention_out, block.feed_forward_out):
                nn.init.normal_(last.weight, std=0.02 / (2 * len(self.blocks)) ** 0.5)
        nn.init.normal_(self.embedding.weight, std=0.02)
        if isinstance(self.widen, nn.Linear):
            nn.init.normal_(self.widen.weight, std=self.widen.in_features**-0.5)  # as wide apart as it was
        nn.init.normal_(self.positions, std=0.02)

    def hidden(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """See :meth:`LanguageModel.hidden`; no work but attention's is done on padding."""
        packing = self._packing(tokens, lengths)
        x, _ = self._read(packing.pack(tokens), packing)
        return packing.unpack(self.norm(x))

    def begin(self, prompts: Tensor, lengths: Tensor) -> tuple[Tensor, State]:
        """See :meth:`LanguageModel.begin`."""
        packing = self._packing(prompts, lengths)
        x, kept = self._read(packing.pack(prompts), packing)
        shape = (self.heads, packing.rows, packing.length, -1)
        cache = Cache([(keys.view(shape), values.view(shape)) for keys, values in kept]).copy(SPARE)
        ends = lengths.to(x.device)
        return self.norm(x[ends.cumsum(0) - 1]), State(cache, 0, ends, packing.length)

    def advance(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """See :meth:`LanguageModel.advance`; each row's token takes the place behind its last one."""
        cache, places = self._room(state), state.lengths
        rows, size = torch.arange(len(tokens), device=tokens.device), cache.layers[0][0].shape[2]
        unseen = torch.arange(size, device=tokens.device) > places.unsqueeze(1)
        bias = torch.zeros(unseen.shape, device=tokens.device, dtype=self.positions.dtype)
        bias = bias.masked_fill(unseen, OUT_OF_SIGHT).expand(self.heads, -1, -1).reshape(-1, 1, size)
        x = self.widen(self.embedding(tokens)) + self.positions[places]
        for block, (keys, values) in zip(self.blocks, cache.layers, strict=True):
            query, key, value = block.project(x).view(len(x), 3, self.heads, -1).permute(1, 2, 0, 3)
            keys[:, rows, places] = key
            values[:, rows, places] = value
            attended = attend(query.reshape(bias.shape[0], 1, -1), keys.flatten(0, 1), values.flatten(0, 1), bias)
            x = block.finish(x, attended.view(self.heads, len(x), -1).transpose(0, 1).reshape(len(x), -1))
        cache.steps += 1
        return self.norm(x), State(cache, cache.steps, places + 1, state.longest + 1)

    def select(self, state: State, rows: Tensor) -> State:
        """See :meth:`LanguageModel.select`."""
        layers = [(keys[:, rows], values[:, rows]) for keys, values in state.cache.layers]
        return State(Cache(layers), 0, state.lengths[rows], state.longest)

    def _packing(self, tokens: Tensor, lengths: Tensor) -> RowPacking:
        longest = tokens.shape[1]
        if longest > self.context and (longest := int(lengths.max())) > self.context:
            raise ContextError(f"a text takes {longest} tokens, and the context has {self.context}")
        return RowPacking.of(lengths, tokens.shape[1], tokens.device)

    def _read(self, tokens: Tensor, packing: RowPacking) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """Packed tokens [N] -> states before the last norm [N, D], and each layer's keys and values [heads·B, L, d].

        Padding stands behind every real token of its row, so that being causal is enough to keep it unseen.
        """
        bias = torch.full((packing.length,) * 2, OUT_OF_SIGHT, device=tokens.device, dtype=self.positions.dtype).triu(1)
        x = self.widen(self.embedding(tokens)) + self.positions[packing.positions]
        kept = []
        for block in self.blocks:
            queries, keys, values = packing.to_heads(block.project(x), 3, self.heads)
            kept.append((keys, values))
            x = block.finish(x, packing.from_heads(attend(queries, keys, values, bias), self.heads))
        return x, kept

    def _room(self, state: State) -> Cache:
        """The state's cache, or a copy where there is no room left, or where another continuation has gone on in it."""
        cache = state.cache
        if state.longest >= self.context and int(state.lengths.max()) >= self.context:
            raise ContextError(f"a text takes more than {self.context} tokens, which is the context")
        if state.longest >= cache.layers[0][0].shape[2]:
            return cache.copy(SPARE)
        return cache if cache.steps == state.steps else cache.copy()
