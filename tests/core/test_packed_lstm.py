"""The packed recurrence is torch's LSTM, row by row, without the padding."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from core.models.lstm import LSTMLanguageModel
from core.models.packed_lstm import Packing, recurrence


@given(st.lists(st.integers(1, 7), min_size=1, max_size=6))
def test_packing_and_unpacking_gives_each_row_back(lengths):
    tokens = torch.zeros(len(lengths), max(lengths), dtype=torch.long)
    for row, length in enumerate(lengths):
        tokens[row, :length] = torch.arange(1, length + 1) + 10 * row
    packing = Packing.of(tokens, torch.tensor(lengths))
    assert len(packing.tokens) == sum(lengths)
    restored = packing.unpack(packing.tokens.double().unsqueeze(1), tokens.shape)
    assert torch.equal(restored.squeeze(-1).long(), tokens)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.integers(0, 1000))
@settings(deadline=None, max_examples=25)
def test_hidden_states_and_gradients_are_those_of_torch_on_each_row_alone(lengths, seed):
    torch.manual_seed(seed)
    model = LSTMLanguageModel(9, embedding=5, hidden=4, layers=2).double()
    tokens = torch.randint(4, 9, (len(lengths), max(lengths)))
    weights = torch.randn(len(lengths), max(lengths), 4, dtype=torch.double)

    packed = model.hidden(tokens, torch.tensor(lengths))
    ours = sum((packed[row, :n] * weights[row, :n]).sum() for row, n in enumerate(lengths))
    gradients = torch.autograd.grad(ours, list(model.embedding.parameters()) + list(model.lstm.parameters()))

    alone = [model.lstm(model.embedding(tokens[row : row + 1, :n]))[0][0] for row, n in enumerate(lengths)]
    theirs = sum((hidden * weights[row, : len(hidden)]).sum() for row, hidden in enumerate(alone))
    expected = torch.autograd.grad(theirs, list(model.embedding.parameters()) + list(model.lstm.parameters()))

    for row, hidden in enumerate(alone):
        torch.testing.assert_close(packed[row, : len(hidden)], hidden)
    for gradient, right in zip(gradients, expected, strict=True):
        torch.testing.assert_close(gradient, right)


def test_the_backward_pass_agrees_with_finite_differences():
    torch.manual_seed(0)
    cell = nn.LSTM(3, 2).double()
    projected = torch.randn(6, 8, dtype=torch.double, requires_grad=True)
    weight = cell.weight_hh_l0.detach().requires_grad_()
    assert torch.autograd.gradcheck(lambda x, w: recurrence(x.clone(), w, [3, 2, 1]), (projected, weight))
