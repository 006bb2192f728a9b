"""Learning rates worked out by hand, the order of examples, one checked update, averages."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from core.methods.base import TrainingConfig
from core.trainers.base import TrainingDivergedError
from core.trainers.updates import example_order, follow, learning_rate, make_optimizer, minibatches, to_floats, update


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [0.5, 1, 1, 1, 1, 1, 1, 1, 1, 1]),
        ("linear", [0.5, 1, 8 / 8, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8]),
        ("cosine", [0.5, 1, *((1 + math.cos(math.pi * n / 8)) / 2 for n in range(8))]),
    ],
)
def test_learning_rate_of_ten_steps_two_of_them_warm_up(schedule, expected):
    config = TrainingConfig(steps=10, warmup=0.2, schedule=schedule, learning_rate=0.4)
    assert [learning_rate(config, step) for step in range(10)] == pytest.approx([0.4 * each for each in expected])


def test_learning_rate_without_warm_up_and_with_nothing_else():
    config = TrainingConfig(steps=4, warmup=0.0, schedule="linear", learning_rate=1.0)
    assert [learning_rate(config, step) for step in range(4)] == [1.0, 0.75, 0.5, 0.25]
    config = TrainingConfig(steps=4, warmup=1.0, schedule="linear", learning_rate=1.0)
    assert [learning_rate(config, step) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]
    assert learning_rate(TrainingConfig(steps=1, warmup=0.0, learning_rate=1.0), 0) == 1.0


@given(count=st.integers(1, 30), batch=st.integers(1, 40), seed=st.integers(0, 2**40))
def test_every_epoch_names_each_example_once(count, batch, seed):
    rounds = math.ceil(3 * count / batch)
    drawn = torch.cat([example_order(count, batch, seed, step) for step in range(rounds)]).tolist()
    assert len(drawn) == rounds * batch
    for epoch in range(3):
        assert sorted(drawn[epoch * count : (epoch + 1) * count]) == list(range(count))


def test_epochs_seeds_and_steps_differ_and_repeat():
    first, second = example_order(50, 50, 1, 0), example_order(50, 50, 1, 1)
    assert not torch.equal(first, second)
    assert not torch.equal(first, example_order(50, 50, 2, 0))
    assert torch.equal(second, example_order(50, 50, 1, 1))


@given(count=st.integers(1, 50), size=st.integers(1, 60))
def test_minibatches_hold_each_row_once(count, size):
    pieces = minibatches(count, size, seed=3, step=5, epoch=1)
    assert sorted(torch.cat(pieces).tolist()) == list(range(count))
    assert all(len(piece) == size for piece in pieces[:-1])


def test_minibatches_of_two_epochs_differ():
    first, second = (torch.cat(minibatches(40, 8, seed=3, step=5, epoch=epoch)) for epoch in (0, 1))
    assert not torch.equal(first, second)


def weight(*values: float) -> nn.Parameter:
    return nn.Parameter(torch.tensor(values))


def test_first_step_of_adam_has_the_length_of_the_learning_rate():
    """Adam's first step is lr·g/(|g| + ε), here with ε 1e-5; weight decay is decoupled: w·(1 − lr·decay) before it."""
    config = TrainingConfig(weight_decay=0.5, learning_rate=123.0 / 1000)
    w = weight(2.0, -1.0)
    norm = update((w * torch.tensor([3.0, -4.0])).sum(), {make_optimizer([w], config): 0.1}, 1e9)
    assert norm == pytest.approx(5.0)
    expected = [2.0 * 0.95 - 0.1 * 3 / (3 + 1e-5), -1.0 * 0.95 + 0.1 * 4 / (4 + 1e-5)]
    torch.testing.assert_close(w.detach(), torch.tensor(expected))


def test_gradients_are_shortened_each_optimizer_by_itself():
    """A long gradient of the critic leaves the policy's alone; each goes at its own rate."""
    policy, critic = weight(0.0), weight(0.0, 0.0)
    rates = {torch.optim.SGD([policy], lr=0): 0.1, torch.optim.SGD([critic], lr=0): 1.0}
    norm = update(0.5 * policy.sum() + 300 * critic[0] + 400 * critic[1], rates, 1.0)
    assert norm == pytest.approx(math.hypot(0.5, 500))
    torch.testing.assert_close(policy.detach(), torch.tensor([-0.05]))
    torch.testing.assert_close(critic.detach(), torch.tensor([-0.6, -0.8]))


def test_gradients_of_an_earlier_update_are_forgotten():
    w = weight(0.0)
    optimizer = torch.optim.SGD([w], lr=0)
    for _ in range(3):
        update(w.sum(), {optimizer: 1.0}, 10.0)
    assert w.item() == -3.0


@pytest.mark.parametrize(
    "loss",
    [
        lambda w: w.sum() * math.nan,
        lambda w: w.sum() * math.inf,
        lambda w: w.sum() - math.inf,
        lambda w: (w * 0).sqrt().sum(),  # 0, with a gradient that is not finite
    ],
)
def test_an_update_that_diverges_touches_nothing(loss):
    config = TrainingConfig(learning_rate=0.1, weight_decay=0.1)
    w, other = weight(1.0, 2.0), weight(3.0)
    optimizers = [make_optimizer([w], config), make_optimizer([other], config)]
    update(w.square().sum() + other.square().sum(), dict.fromkeys(optimizers, 0.1), 1.0)
    before = [w.detach().clone(), other.detach().clone()]
    moments = [each.state_dict()["state"][0]["exp_avg"].clone() for each in optimizers]
    with pytest.raises(TrainingDivergedError, match="not both finite; the weights are those before this update"):
        update(loss(w) + other.sum(), dict.fromkeys(optimizers, 0.1), 1.0)
    assert torch.equal(w.detach(), before[0])
    assert torch.equal(other.detach(), before[1])
    assert all(
        torch.equal(each.state_dict()["state"][0]["exp_avg"], was) and each.state_dict()["state"][0]["step"] == 1
        for each, was in zip(optimizers, moments, strict=True)
    )
    update(w.sum() + other.sum(), dict.fromkeys(optimizers, 0.1), 1.0)
    assert w.isfinite().all(), "and it goes on from there"


def test_averages_follow_by_hand():
    average, model = nn.Linear(1, 1), nn.Linear(1, 1)
    for module, values in ((average, (1.0, 2.0)), (model, (3.0, -2.0))):
        nn.init.constant_(module.weight, values[0])
        nn.init.constant_(module.bias, values[1])
    follow(average, model, 0.75)
    assert (average.weight.item(), average.bias.item()) == (1.5, 1.0)
    assert (model.weight.item(), model.bias.item()) == (3.0, -2.0)


def test_metrics_become_numbers():
    found = to_floats({"a": torch.tensor(1.5, requires_grad=True), "b": 2, "c": torch.tensor(3)})
    assert found == {"a": 1.5, "b": 2.0, "c": 3.0}
    assert {type(value) for value in found.values()} == {float}
