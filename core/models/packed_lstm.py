"""An LSTM over rows of different lengths that does no work on padding.

Packed layout: the tokens of all rows in the order of time – first every row's first token, longest row first, then
every second token, and so on. At step t only the first ``sizes[t]`` rows are still going. torch's own LSTM can take
this layout too, but on the CPU it is slower packed than padded; here the products with the inputs and all weight
gradients are one large matrix product each, and only the recurrence goes step by step.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.utils.rnn import pack_padded_sequence


@dataclass(frozen=True)
class Packing:
    """How rows of a batch lie in the packed layout; N tokens in all."""

    tokens: Tensor  # int64 [N]
    rows: Tensor  # row of each packed token, int64 [N]
    times: Tensor  # its position in that row, int64 [N]
    sizes: Sequence[int]  # rows still going at each position

    @classmethod
    def of(cls, tokens: Tensor, lengths: Tensor) -> "Packing":
        """Pack tokens [B, L] of ``lengths`` [B], each at least 1, lengths on the CPU."""
        packed = pack_padded_sequence(tokens, lengths, batch_first=True, enforce_sorted=False)
        sizes = packed.batch_sizes
        places = torch.arange(len(packed.data))
        times = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
        starts = sizes.cumsum(0) - sizes
        assert packed.sorted_indices is not None
        rows = packed.sorted_indices[(places - starts[times]).to(tokens.device)]
        return cls(packed.data, rows, times.to(tokens.device), sizes.tolist())

    def unpack(self, values: Tensor, shape: torch.Size) -> Tensor:
        """Packed values [N, H] as [B, L, H] for tokens of shape [B, L]; 0 behind each row's end."""
        empty = values.new_zeros(*shape, values.shape[-1])
        return empty.index_put((self.rows, self.times), values)


class Recurrence(torch.autograd.Function):
    """One layer's recurrence (gates in torch's order: input, forget, cell, output); N tokens, H hidden width."""

    @staticmethod
    def forward(ctx: Any, projected: Tensor, weight: Tensor, sizes: Sequence[int]) -> Tensor:
        """Inputs times their weights plus biases [N, 4H], recurrent weight [4H, H] -> hidden states [N, H]."""
        count, width = projected.shape[0], weight.shape[1]
        gates = projected.detach().clone()
        cells, squashed, hidden = (projected.new_empty(count, width) for _ in range(3))
        transposed = weight.t()
        before, here = 0, 0
        for step, size in enumerate(sizes):
            now = slice(here, here + size)
            gate = gates[now]
            if step:
                gate.addmm_(hidden[before : before + size], transposed)
            gate[:, : 2 * width].sigmoid_()
            gate[:, 2 * width : 3 * width].tanh_()
            gate[:, 3 * width :].sigmoid_()
            i, f, g, o = gate.chunk(4, 1)
            torch.mul(i, g, out=cells[now])
            if step:
                cells[now].addcmul_(f, cells[before : before + size])
            torch.tanh(cells[now], out=squashed[now])
            torch.mul(o, squashed[now], out=hidden[now])
            before, here = here, here + size
        ctx.save_for_backward(weight, gates, cells, squashed, hidden)
        ctx.sizes = sizes
        return hidden

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        """Back through time; what does not depend on the recursion is computed for all tokens at once."""
        weight, gates, cells, squashed, hidden = ctx.saved_tensors
        sizes, width = ctx.sizes, weight.shape[1]
        i, f, g, o = gates.chunk(4, 1)
        first = sizes[0]
        previous = _one_step_earlier(sizes, torch.stack([cells, hidden], 1))
        # d(gate input)/d(cell) of the input, forget and cell gates, [N, 3, H]; d(output gate input)/d(hidden)
        to_cell = torch.empty(len(gates), 3, width, dtype=gates.dtype, device=gates.device)
        torch.mul(g * i, 1 - i, out=to_cell[:, 0])
        to_cell[:first, 1] = 0
        to_cell[first:, 1] = previous[:, 0] * f[first:] * (1 - f[first:])
        torch.mul(i, 1 - g * g, out=to_cell[:, 2])
        to_output = squashed * o * (1 - o)
        through = o * (1 - squashed * squashed)  # d(hidden)/d(cell)

        projected = torch.empty_like(gates)
        end = len(gates)
        later_hidden = later_cell = None
        for size in reversed(sizes):
            now = slice(end - size, end)
            d_hidden = grad[now].clone()
            if later_hidden is not None:
                d_hidden[: len(later_hidden)] += later_hidden
            d_cell = d_hidden * through[now]
            if later_cell is not None:
                d_cell[: len(later_cell)] += later_cell
            d_gates = projected[now]
            torch.mul(d_cell.unsqueeze(1), to_cell[now], out=d_gates.view(size, 4, width)[:, :3])
            torch.mul(d_hidden, to_output[now], out=d_gates[:, 3 * width :])
            later_hidden, later_cell = d_gates @ weight, d_cell * f[now]
            end -= size
        return projected, projected[first:].t() @ previous[:, 1], None


def _one_step_earlier(sizes: Sequence[int], values: Tensor) -> Tensor:
    """For each packed token but the rows' first ones: the value of the same row one step before."""
    if len(sizes) == 1:
        return values[:0]
    starts = [0]
    for size in sizes[:-1]:
        starts.append(starts[-1] + size)
    return torch.cat([values[start : start + size] for start, size in zip(starts, sizes[1:], strict=False)])


def recurrence(projected: Tensor, weight: Tensor, sizes: Sequence[int]) -> Tensor:
    """See :meth:`Recurrence.forward`."""
    hidden: Tensor = Recurrence.apply(projected, weight, sizes)
    return hidden
