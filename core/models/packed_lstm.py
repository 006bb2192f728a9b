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


def hyperbolic_tangent(x: Tensor, out: Tensor) -> Tensor:
    """tanh(x) into ``out``, as 2σ(2x) − 1: on the CPU torch's sigmoid takes a quarter of the time of its tanh."""
    return torch.mul(x, 2.0, out=out).sigmoid_().mul_(2.0).sub_(1.0)


def activate(gates: Tensor) -> tuple[Tensor, ...]:
    """Gate inputs [B, 4H] in torch's order, changed in place -> input, forget, cell and output gates, [B, H] each.

    One sigmoid over all four, for the reason given at :func:`hyperbolic_tangent`.
    """
    width = gates.shape[1] // 4
    cell = gates[:, 2 * width : 3 * width]
    cell.mul_(2.0)
    gates.sigmoid_()
    cell.mul_(2.0).sub_(1.0)
    return gates.chunk(4, 1)


class Recurrence(torch.autograd.Function):
    """One layer's recurrence (gates in torch's order: input, forget, cell, output); N tokens, H hidden width."""

    @staticmethod
    def forward(ctx: Any, projected: Tensor, weight: Tensor, sizes: Sequence[int]) -> Tensor:
        """Inputs times their weights plus biases [N, 4H], recurrent weight [4H, H] -> hidden states [N, H]."""
        count, width = projected.shape[0], weight.shape[1]
        gates = torch.empty_like(projected)
        cells, squashed, hidden = (projected.new_empty(count, width) for _ in range(3))
        transposed = weight.t()
        before, here = 0, 0
        for step, size in enumerate(sizes):
            now = slice(here, here + size)
            gate = gates[now]
            if step:
                torch.addmm(projected[now], hidden[before : before + size], transposed, out=gate)
            else:
                gate.copy_(projected[now])
            i, f, g, o = activate(gate)
            torch.mul(i, g, out=cells[now])
            if step:
                cells[now].addcmul_(f, cells[before : before + size])
            torch.mul(o, hyperbolic_tangent(cells[now], out=squashed[now]), out=hidden[now])
            before, here = here, here + size
        ctx.save_for_backward(weight, gates, cells, squashed, hidden)
        ctx.sizes = sizes
        return hidden

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        """Back through time, step by step; the weight's gradient is one product at the end."""
        weight, gates, cells, squashed, hidden = ctx.saved_tensors
        sizes = ctx.sizes
        through_sigmoid, through_tanh = torch.ops.aten.sigmoid_backward, torch.ops.aten.tanh_backward
        projected = torch.empty_like(gates)
        end = len(gates)
        later_hidden = later_cell = None
        for step in reversed(range(len(sizes))):
            start = end - sizes[step]
            i, f, g, o = gates[start:end].chunk(4, 1)
            d_i, d_f, d_g, d_o = projected[start:end].chunk(4, 1)
            d_hidden = grad[start:end]
            if later_hidden is not None:
                d_hidden = d_hidden.clone()
                d_hidden[: len(later_hidden)] += later_hidden
            d_cell = through_tanh(d_hidden * o, squashed[start:end])
            if later_cell is not None:
                d_cell[: len(later_cell)] += later_cell
            through_sigmoid(d_hidden * squashed[start:end], o, grad_input=d_o)
            through_sigmoid(d_cell * g, i, grad_input=d_i)
            through_tanh(d_cell * i, g, grad_input=d_g)
            if step:
                earlier = cells[start - sizes[step - 1] :][: sizes[step]]
                through_sigmoid(d_cell * earlier, f, grad_input=d_f)
                later_hidden, later_cell = projected[start:end] @ weight, d_cell * f
            else:
                d_f.zero_()
            end = start
        return projected, projected[sizes[0] :].t() @ _one_step_earlier(sizes, hidden), None


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
