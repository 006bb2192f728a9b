"""REINFORCE with a baseline (Williams 1992), on the reward less the price of a completion's KL."""

import torch
from torch import Tensor

from core.advantages import rloo_advantages
from core.losses import reinforce_loss
from core.methods.reinforce import ReinforceConfig
from core.trainers.base import TrainerInputs, TrainerState
from core.trainers.experience import Experience, Metrics, Scored, direct_kl, rewards_less_kl
from core.trainers.rollouts import RolloutTrainer

KEPT = 0.9  # of the running mean at each batch


class ReinforceTrainer(RolloutTrainer[ReinforceConfig]):
    """−log π · (r − baseline), one update a batch."""

    config_class = ReinforceConfig

    def __init__(self, config: ReinforceConfig, inputs: TrainerInputs) -> None:
        super().__init__(config, inputs)
        self.baseline: float | None = None  # mean reward of earlier batches

    @torch.no_grad()
    def estimate(self, scored: Scored) -> tuple[Experience, Metrics]:
        rollout, config = scored.rollout, self.config
        rewards = rewards_less_kl(scored, self.kl_coef, config.kl_penalty)
        advantages = self.above_baseline(rewards)
        experience = Experience(
            rollout, rollout.logprobs, advantages.unsqueeze(1).expand_as(rollout.logprobs), scored.reference_logits,
            rewards.new_tensor(self.kl_coef) if config.kl_penalty == "exact" else None,
        )  # fmt: skip
        return experience, {"advantage_std": advantages.std() if len(advantages) > 1 else 0.0}

    def above_baseline(self, rewards: Tensor) -> Tensor:
        """Reward minus what it is compared with, [B]."""
        mean = rewards.mean().item()
        before = mean if self.baseline is None else self.baseline
        self.baseline = KEPT * before + (1 - KEPT) * mean
        if self.config.baseline == "batch":
            return rloo_advantages(rewards.unsqueeze(0)).squeeze(0)
        return rewards - before if self.config.baseline == "running" else rewards

    def policy_loss(self, logits: Tensor, logprobs: Tensor, experience: Experience) -> tuple[Tensor, Metrics]:
        loss = reinforce_loss(logprobs, experience.advantages, experience.batch.mask)
        return loss + direct_kl(logits, experience), {"loss/policy_avg": loss.detach()}

    def extra_state(self) -> TrainerState:
        return TrainerState({}, {**super().extra_state().values, "baseline": self.baseline})

    def load_extra_state(self, state: TrainerState) -> None:
        super().load_extra_state(state)
        self.baseline = state.values["baseline"]
