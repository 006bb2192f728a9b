"""An LSTM over rows of different lengths that does no work on padding.

Packed layout: the tokens of all rows in the order of time – first every row's first token, longest row first, then
every second token, and so on. At step t only the first ``sizes[t]`` rows are still going. torch's own LSTM can take
this layout too, but on the CPU it is slower packed than padded; here the products with the inputs and all weight
gradients are one large matrix product each, and only the recurrence goes step by step.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

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

    def sources(self, shape: torch.Size) -> Tensor:
        """The packed token at each place of padded [B, L], int64 [B·L]; 0 at padding."""
        count = torch.arange(len(self.tokens), device=self.tokens.device)
        return count.new_zeros(shape.numel()).index_copy_(0, self.rows * shape[1] + self.times, count)

    def unpack(self, values: Tensor, shape: torch.Size) -> Tensor:
        """Packed values [N, H] as [B, L, H] for tokens of shape [B, L]; 0 behind each row's end."""
        empty = values.new_zeros(*shape, values.shape[-1])
        return empty.index_put((self.rows, self.times), values)


MINUS_ONE = torch.tensor(-1.0)


def step(gates: Sequence[Tensor], cell_before: Tensor | None, into: Sequence[Tensor]) -> None:
    """One step of one layer: what the four gates read, in torch's order (input, forget, cell, output), already squashed
    by :func:`squash`, and the cells before (None: 0) -> candidates, cells, tanh of the cells, hidden states,
    written ``into`` four tensors; all are [B, H].
    """
    i, f, g, o = gates
    candidate, cell, squashed, hidden = into
    torch.add(MINUS_ONE, g, alpha=2, out=candidate)
    torch.mul(i, candidate, out=cell)
    if cell_before is not None:
        cell.addcmul_(f, cell_before)
    torch.mul(cell, 2.0, out=squashed).sigmoid_()
    torch.add(MINUS_ONE, squashed, alpha=2, out=squashed)
    torch.mul(o, squashed, out=hidden)


def squash(gates: Tensor, cell_gates: Tensor) -> None:
    """Sigmoids of what the gates read, [B, 4H], in place; those of the cell's part, a view of it, of twice its values.

    tanh(x) is 2σ(2x) − 1: on the CPU torch's sigmoid takes a quarter of the time of its tanh, and one does for all
    four gates.
    """
    cell_gates.mul_(2.0)
    gates.sigmoid_()


class Run(NamedTuple):
    """What a layer's recurrence leaves behind, packed; N tokens, H hidden width."""

    gates: Tensor  # as :func:`squash` leaves them, [N, 4H]
    candidates: Tensor  # what the input gate lets into the cell, [N, H]
    cells: Tensor  # [N, H]
    squashed: Tensor  # tanh of the cells, [N, H]
    hidden: Tensor  # [N, H]


def run(projected: Tensor, weight: Tensor, sizes: Sequence[int]) -> Run:
    """One layer over packed rows that begin at state 0: inputs times their weights plus biases [N, 4H], written over;
    recurrent weight [4H, H]."""
    result = Run(projected, *(projected.new_empty(len(projected), weight.shape[1]) for _ in range(4)))
    read = zip(*(part.split(sizes) for part in projected.chunk(4, 1)), strict=True)
    written = zip(*(part.split(sizes) for part in result), strict=True)
    transposed = weight.t()
    cell_before = hidden_before = None
    for size, parts, (gates, *into) in zip(sizes, read, written, strict=True):
        if hidden_before is not None and cell_before is not None:
            gates.addmm_(hidden_before[:size], transposed)
            cell_before = cell_before[:size]
        squash(gates, parts[2])
        step(parts, cell_before, into)
        _, cell_before, _, hidden_before = into
    return result


class Recurrence(torch.autograd.Function):
    """One layer's recurrence; N tokens, H hidden width. See :func:`recurrence`."""

    @staticmethod
    def forward(ctx: Any, projected: Tensor, weight: Tensor, sizes: Sequence[int]) -> Tensor:
        result = run(projected, weight, sizes)
        ctx.save_for_backward(weight, *result)
        ctx.sizes = sizes
        return result.hidden

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        """Back through time, step by step; the weight's gradient is one product at the end."""
        weight, *saved = ctx.saved_tensors
        result, sizes = Run(*saved), ctx.sizes
        i, f, _, o = (part.split(sizes) for part in result.gates.chunk(4, 1))
        gates, candidates, cells, squashed, _ = (part.split(sizes) for part in result)
        projected = torch.empty_like(result.gates)
        d_i, d_f, d_g, d_o = (part.split(sizes) for part in projected.chunk(4, 1))
        d_gates, d_outputs = projected.split(sizes), grad.split(sizes)
        later_cell = None
        for step in reversed(range(len(sizes))):
            d_hidden, size = d_outputs[step], sizes[step]
            if later_cell is not None:
                d_hidden = d_hidden.clone()
                d_hidden[: len(later_cell)].addmm_(d_gates[step + 1], weight)
            d_cell = torch.ops.aten.tanh_backward(d_hidden * o[step], squashed[step])
            if later_cell is not None:
                d_cell[: len(later_cell)].add_(later_cell)
            torch.mul(d_hidden, squashed[step], out=d_o[step])
            torch.mul(d_cell, candidates[step], out=d_i[step])
            torch.mul(d_cell, i[step], out=d_g[step]).mul_(4.0)  # the slope of 2σ(2x) − 1 is 4σ'(2x)
            if step:
                torch.mul(d_cell, cells[step - 1][:size], out=d_f[step])
                later_cell = d_cell.mul_(f[step])
            else:
                d_f[step].zero_()
            torch.ops.aten.sigmoid_backward(d_gates[step], gates[step], grad_input=d_gates[step])
        return projected, projected[sizes[0] :].t() @ _one_step_earlier(sizes, result.hidden), None


def _one_step_earlier(sizes: Sequence[int], values: Tensor) -> Tensor:
    """For each packed token but the rows' first ones: the value of the same row one step before."""
    steps = values.split(sizes)
    return torch.cat([values[:0], *(before[:size] for before, size in zip(steps, sizes[1:], strict=False))])


def recurrence(projected: Tensor, weight: Tensor, sizes: Sequence[int]) -> Tensor:
    """Hidden states [N, H] of one layer over packed rows that begin at state 0, with gradients.

    Inputs times their weights plus biases, [N, 4H], are written over: nothing else may need them, the backward pass
    of what made them neither. Recurrent weight [4H, H], gates in torch's order.
    """
    hidden: Tensor = Recurrence.apply(projected, weight, sizes)
    return hidden
