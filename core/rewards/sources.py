"""Reward sources: whatever turns a batch of completions into one score each."""

import importlib
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from core.models.reward_model import RewardEnsemble
from core.sampling import Completions
from core.tasks.base import Task


class RewardSource(Protocol):
    """Scores a batch of completions, float32 [B]."""

    def __call__(self, batch: Completions) -> Tensor: ...


class GoldReward:
    """A task's own rule. Raises ValueError for a task that has none."""

    def __init__(self, task: Task) -> None:
        if task.gold is None:
            raise ValueError(f"the task {task.name} has no gold rule: train a reward model on labels or a file")
        self.task = task
        self.batched: Callable[[Tensor, Tensor], Tensor] | None = None
        if task.gold_batched:
            module, _, name = task.gold_batched.partition(":")
            self.batched = getattr(importlib.import_module(module), name)

    def __call__(self, batch: Completions) -> Tensor:
        if self.batched is not None:
            return self.batched(batch.tokens, batch.mask)
        assert self.task.gold is not None
        tokenizer = self.task.tokenizer
        prompts = [tokenizer.decode(row) for row in batch.prompts.tolist()]
        texts = batch.texts(tokenizer)
        scores = [self.task.gold(prompt, text) for prompt, text in zip(prompts, texts, strict=True)]
        return torch.tensor(scores, dtype=torch.float32, device=batch.tokens.device)


class LearnedReward:
    """A frozen reward model; its members' scores become one by their ``mean`` or their ``minimum``.

    The minimum is what no member objects to (arXiv 2310.02743: it resists over-optimisation).
    """

    def __init__(self, model: RewardEnsemble, combine: str = "mean") -> None:
        if combine not in ("mean", "minimum"):
            raise ValueError(f"combine must be mean or minimum, not {combine!r}")
        self.model = model
        self.combine = combine

    @torch.no_grad()
    def __call__(self, batch: Completions) -> Tensor:
        scores: Tensor = self.model.each(batch).amin(0) if self.combine == "minimum" else self.model(batch)
        return scores


class WeightedSum:
    """``weight`` of the first source, the rest of the second."""

    def __init__(self, first: RewardSource, second: RewardSource, weight: float) -> None:
        self.first, self.second, self.weight = first, second, weight

    def __call__(self, batch: Completions) -> Tensor:
        return self.weight * self.first(batch) + (1 - self.weight) * self.second(batch)


def chosen_reward(
    wanted: str, gold: GoldReward | None, learned: LearnedReward | None, learned_weight: float
) -> RewardSource:
    """The source that a ``reward`` knob names: gold, learned or mixed. Raises ValueError for one that there is not."""
    sources: dict[str, RewardSource | None] = {"gold": gold, "learned": learned}
    for name, source in sources.items():
        if source is None and wanted in (name, "mixed"):
            raise ValueError(f"reward={wanted} needs a {name} reward, and there is none")
    if wanted == "mixed":
        assert learned is not None and gold is not None
        return WeightedSum(learned, gold, learned_weight)
    source = sources[wanted]
    assert source is not None
    return source
