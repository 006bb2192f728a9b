"""What methods share that compare several completions of one prompt."""

from abc import abstractmethod
from typing import Generic, TypeVar

import torch
from torch import Tensor

from core.methods.alignment import GroupConfig
from core.sampling import Rollout
from core.trainers.base import TrainerInputs
from core.trainers.experience import Experience, Metrics, Scored
from core.trainers.rollouts import RolloutTrainer

G = TypeVar("G", bound=GroupConfig)


class GroupTrainer(RolloutTrainer[G], Generic[G]):
    """Groups of completions; an advantage is the same for all letters of a completion."""

    def __init__(self, config: G, inputs: TrainerInputs) -> None:
        super().__init__(config, inputs)
        if config.batch_size % config.group_size:
            raise ValueError(
                f"batch_size must be a multiple of group_size, and {config.batch_size} is none of {config.group_size}"
            )

    @abstractmethod
    def advantages(self, rewards: Tensor) -> Tensor:
        """How much better than its group each completion is, [groups, group size] -> the same."""

    def group_rewards(self, scored: Scored) -> Tensor:
        """What is compared, [B]: the scores, unless KL is paid for here."""
        return scored.scores

    def kl_weight(self, rewards: Tensor) -> Tensor | None:
        """Weight of the KL's direct gradient; None where the loss has a KL term of its own, or none at all."""
        return None

    def score(self, rollout: Rollout) -> tuple[Scored, Metrics]:
        scored, metrics = super().score(rollout)
        return scored, metrics | {"entropy": metrics["objective/entropy"]}  # TRL's name for it here

    @torch.no_grad()
    def estimate(self, scored: Scored) -> tuple[Experience, Metrics]:
        rollout = scored.rollout
        rewards = self.group_rewards(scored)
        advantages = self.advantages(rewards.view(-1, self.group_size)).reshape(-1, 1)
        experience = Experience(
            rollout, rollout.logprobs, advantages.expand_as(rollout.logprobs), scored.reference_logits,
            self.kl_weight(rewards),
        )  # fmt: skip
        return experience, group_metrics(scored.scores.view(-1, self.group_size))

    @property
    def group_size(self) -> int:
        return self.config.group_size

    @property
    def epochs(self) -> int:
        return self.config.epochs

    @property
    def minibatch_size(self) -> int:
        return self.config.minibatch_size


def group_metrics(scores: Tensor) -> Metrics:
    """TRL's description of groups' scores [groups, group size]; the deviation within a group of one is 0."""
    deviations = scores.std(1) if scores.shape[1] > 1 else torch.zeros_like(scores[:, 0])
    return {
        "reward": scores.mean(),
        "reward_std": deviations.mean(),
        "frac_reward_zero_std": (scores == scores[:, :1]).all(1).float().mean(),
    }
