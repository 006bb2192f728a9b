"""Rejection-sampling fine-tuning (arXiv 2304.06767): imitate the best of each group."""

import torch
from torch import Tensor

from core.losses import sft_loss
from core.methods.raft import RAFTConfig
from core.trainers.experience import Experience, Metrics, Scored, kl_penalties
from core.trainers.groups import GroupTrainer


class RAFTTrainer(GroupTrainer[RAFTConfig]):
    """Rank a group by reward less β times the log-ratio to the reference, then SFT on its best."""

    config_class = RAFTConfig

    def group_rewards(self, scored: Scored) -> Tensor:
        return scored.scores - self.kl_coef * kl_penalties(scored, "k1").sum(1)

    def advantages(self, rewards: Tensor) -> Tensor:
        """1 for the best (the first of equals), 0 for the rest."""
        return torch.zeros_like(rewards).scatter(1, rewards.argmax(1, keepdim=True), 1.0)

    @torch.no_grad()
    def estimate(self, scored: Scored) -> tuple[Experience, Metrics]:
        experience, metrics = super().estimate(scored)
        return experience.rows(experience.advantages[:, 0].nonzero().squeeze(1)), metrics

    def policy_loss(self, logits: Tensor, logprobs: Tensor, experience: Experience) -> tuple[Tensor, Metrics]:
        loss = sft_loss(logits, experience.batch.tokens, experience.batch.mask)
        return loss, {"loss/policy_avg": loss.detach()}
