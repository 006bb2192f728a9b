"""The tokens of padded rows without their padding, row after row: what works on single tokens wastes nothing.

Between this layout and the padded one that attention needs, each real token is copied once and no gradient is ever
added up, unlike in what torch derives for indexing.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class RowPacking:
    """Where the tokens of B rows padded on the right to length L lie; N real tokens."""

    rows: int
    length: int
    places: Tensor  # padded place of each real token, int64 [N], in 0 … B·L−1
    sources: Tensor  # real token at each padded place, int64 [B·L]; 0 at padding
    real: Tensor  # which padded places hold a token, bool [B·L, 1]

    @classmethod
    def of(cls, lengths: Tensor, length: int, device: torch.device) -> "RowPacking":
        """Rows of ``lengths`` [B], padded to ``length``."""
        real = (torch.arange(length) < lengths.cpu().unsqueeze(1)).flatten()
        places = real.nonzero().squeeze(1)
        sources = (real.cumsum(0) - 1).clamp(min=0) * real
        return cls(len(lengths), length, places.to(device), sources.to(device), real.unsqueeze(1).to(device))

    @property
    def positions(self) -> Tensor:
        """Position of each real token in its row, int64 [N]."""
        return self.places % self.length

    def pack(self, padded: Tensor) -> Tensor:
        """[B, L] -> [N]."""
        return padded.flatten()[self.places]

    def unpack(self, values: Tensor) -> Tensor:
        """[N, D] -> [B, L, D]; 0 at padding."""
        empty = values.new_zeros(self.rows * self.length, values.shape[1])
        return empty.index_copy(0, self.places, values).view(self.rows, self.length, -1)

    def to_heads(self, values: Tensor, parts: int, heads: int) -> tuple[Tensor, ...]:
        """Packed [N, parts·heads·d] as so many [heads·B, L, d]; what stands at padding is another token's, unread."""
        spread: tuple[Tensor, ...] = _ToHeads.apply(values, self, parts, heads)
        return spread

    def from_heads(self, values: Tensor, heads: int) -> Tensor:
        """[heads·B, L, d] as packed [N, heads·d]."""
        packed: Tensor = _FromHeads.apply(values, self, heads)
        return packed

    def spread(self, rows: Tensor, part: int, parts: int, heads: int) -> Tensor:
        """One part of packed [N·parts·heads, d] as [heads·B, L, d]: whole rows are copied, which is what is fast."""
        heads_first = torch.arange(heads, device=rows.device).unsqueeze(1) + part * heads
        picked = rows.index_select(0, (self.sources * (parts * heads) + heads_first).flatten())
        return picked.view(heads * self.rows, self.length, -1)

    def gather(self, spread: Tensor, heads: int) -> Tensor:
        """[heads·B, L, d] as packed [N, heads·d]."""
        places = self.places.unsqueeze(1) + torch.arange(heads, device=spread.device) * (self.rows * self.length)
        picked = spread.reshape(-1, spread.shape[-1]).index_select(0, places.flatten())
        return picked.view(len(self.places), -1)


class _ToHeads(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, packing: RowPacking, parts: int, heads: int) -> tuple[Tensor, ...]:
        ctx.packing, ctx.heads = packing, heads
        rows = values.view(len(values) * parts * heads, -1)
        return tuple(packing.spread(rows, part, parts, heads) for part in range(parts))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        return torch.cat([ctx.packing.gather(grad, ctx.heads) for grad in grads], 1), None, None, None


class _FromHeads(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, packing: RowPacking, heads: int) -> Tensor:
        ctx.packing, ctx.heads = packing, heads
        return packing.gather(values, heads)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        packing, heads = ctx.packing, ctx.heads
        spread = packing.spread(grad.reshape(len(grad) * heads, -1), 0, 1, heads)
        spread.view(heads, packing.rows * packing.length, -1).mul_(packing.real)
        return spread, None, None
