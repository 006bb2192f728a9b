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

    def to_heads(self, values: Tensor, parts: int, heads: int) -> Tensor:
        """Packed [N, parts·heads·d] as [parts, heads·B, L, d]; what stands at padding is another token's, unread."""
        spread: Tensor = _ToHeads.apply(values, self, parts, heads)
        return spread

    def from_heads(self, values: Tensor) -> Tensor:
        """[heads·B, L, d] as packed [N, heads·d]."""
        packed: Tensor = _FromHeads.apply(values, self)
        return packed


class _ToHeads(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, packing: RowPacking, parts: int, heads: int) -> Tensor:
        ctx.packing = packing
        apart = values.view(len(values), parts, heads, -1).permute(1, 2, 0, 3)
        return apart.index_select(2, packing.sources).view(parts, heads * packing.rows, packing.length, -1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        packing = ctx.packing
        parts, width = grad.shape[0], grad.shape[-1]
        apart = grad.reshape(parts, -1, packing.rows * packing.length, width).index_select(2, packing.places)
        return apart.permute(2, 0, 1, 3).reshape(len(packing.places), -1), None, None, None


class _FromHeads(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, packing: RowPacking) -> Tensor:
        ctx.packing, ctx.width = packing, values.shape[-1]
        together = values.reshape(-1, packing.rows * packing.length, ctx.width).index_select(1, packing.places)
        return together.transpose(0, 1).reshape(len(packing.places), -1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        packing = ctx.packing
        apart = grad.view(len(grad), -1, ctx.width).transpose(0, 1).index_select(1, packing.sources)
        return (apart * packing.real).view(-1, packing.length, ctx.width), None
