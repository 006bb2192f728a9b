"""What trainers do to weights: which examples come next, how fast to learn, one checked update, an average."""

import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from core.methods.base import TrainingConfig
from core.randomness import generator_for
from core.trainers.base import TrainingDivergedError

ADAM_EPSILON = 1e-5


def example_order(count: int, batch_size: int, seed: int, step: int) -> Tensor:
    """The examples of a step, int64 [batch_size]: epoch after epoch, each in an order of its own.

    A function of its arguments alone, so that a resumed run goes on where it stood.
    """
    first, last = step * batch_size, (step + 1) * batch_size
    parts = []
    for epoch in range(first // count, (last - 1) // count + 1):
        order = torch.randperm(count, generator=generator_for(seed, "order", epoch))
        parts.append(order[max(0, first - epoch * count) : last - epoch * count])
    return torch.cat(parts)


def minibatches(count: int, size: int, seed: int, step: int, epoch: int) -> tuple[Tensor, ...]:
    """The rows of a step's batch in random order, in pieces of ``size`` (the last may be smaller)."""
    return torch.randperm(count, generator=generator_for(seed, f"minibatches/{epoch}", step)).split(size)


def learning_rate(config: TrainingConfig, step: int, peak: float | None = None) -> float:
    """The learning rate of step ``step`` (from 0): linear warm-up to the peak, then the schedule to 0 at the end.

    The peak is the configuration's, unless another is given.
    """
    peak = config.learning_rate if peak is None else peak
    warm_up = round(config.warmup * config.steps)
    if step < warm_up:
        return peak * (step + 1) / warm_up
    progress = (step - warm_up) / max(1, config.steps - warm_up)
    factor = {"linear": 1 - progress, "cosine": (1 + math.cos(math.pi * progress)) / 2, "constant": 1.0}
    return peak * factor[config.schedule]


def make_optimizer(parameters: Iterable[nn.Parameter], config: TrainingConfig) -> torch.optim.AdamW:
    """AdamW (arXiv 1711.05101) with the ε of PPO's reference implementation."""
    return torch.optim.AdamW(
        parameters, lr=config.learning_rate, eps=ADAM_EPSILON, weight_decay=config.weight_decay, fused=True
    )


def update(loss: Tensor, rates: Mapping[torch.optim.Optimizer, float], max_grad_norm: float) -> float:
    """One step of each optimizer, at its learning rate, down the gradient of ``loss``.

    Returns the gradient's norm before clipping.

    Each optimizer's gradient is clipped by itself, so that a large value error does not shorten the policy's step.
    Raises TrainingDivergedError before any weight moves when loss or gradient is not finite.
    """
    for optimizer in rates:
        optimizer.zero_grad()
    loss.backward()
    norms = [
        nn.utils.clip_grad_norm_([p for group in each.param_groups for p in group["params"]], max_grad_norm)
        for each in rates
    ]
    norm, value = torch.stack([torch.stack(norms).square().sum().sqrt(), loss.detach()]).tolist()
    if not (math.isfinite(norm) and math.isfinite(value)):
        raise TrainingDivergedError(
            f"loss {value:g} and gradient norm {norm:g} are not both finite; the weights are those before this update. "
            "A lower learning rate or a larger β usually helps"
        )
    for optimizer, rate in rates.items():
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
    return norm


@torch.no_grad()
def follow(average: nn.Module, model: nn.Module, decay: float) -> None:
    """Move the averaged weights towards the model's: a ← decay·a + (1 − decay)·w."""
    for averaged, current in zip(average.parameters(), model.parameters(), strict=True):
        averaged.lerp_(current, 1 - decay)


def to_floats(metrics: Mapping[str, Tensor | float]) -> dict[str, float]:
    """The metrics as Python numbers, fetched from the device at once."""
    tensors = {name: value.detach().float() for name, value in metrics.items() if isinstance(value, Tensor)}
    fetched = torch.stack(list(tensors.values())).tolist() if tensors else []
    numbers = dict(zip(tensors, fetched, strict=True))
    return {name: numbers[name] if name in numbers else float(value) for name, value in metrics.items()}
