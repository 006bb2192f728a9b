"""Group relative policy optimisation (arXiv 2402.03300) with the options of DAPO (2503.14476) and Dr.GRPO (2503.20783),
and group sequence policy optimisation (2507.18071)."""

from typing import Generic, Literal, TypeVar, cast

import torch
from torch import Tensor

from core.advantages import group_advantages
from core.logprobs import exact_kl, kl_estimate, masked_mean, masked_sum, token_logprobs
from core.losses import PolicyStats, ppo_policy_loss
from core.methods.grpo import GroupRelativeConfig, GRPOConfig, GSPOConfig
from core.trainers.experience import Experience, Metrics, Scored, clip_metrics
from core.trainers.groups import GroupTrainer

G = TypeVar("G", bound=GroupRelativeConfig)


class GroupRelativeTrainer(GroupTrainer[G], Generic[G]):
    """Reward against the group's mean, and the KL in the loss."""

    def advantages(self, rewards: Tensor) -> Tensor:
        return group_advantages(rewards, cast(Literal["std", "none"], self.config.scale))

    @property
    def clip(self) -> tuple[float, float]:
        """How far below and above 1 a ratio counts."""
        return self.config.clip_low, self.config.clip_high

    def token_kl(self, logits: Tensor, logprobs: Tensor, experience: Experience) -> Tensor:
        """The KL of the loss at each token, [B, T]; undefined where masked."""
        mask = experience.batch.mask
        if self.config.kl == "exact":
            return exact_kl(logits, experience.reference_logits)
        at_reference = token_logprobs(experience.reference_logits, experience.batch.tokens)
        drawn, at_reference = torch.where(mask, logprobs, 0.0), torch.where(mask, at_reference, 0.0)
        return kl_estimate(drawn, at_reference, cast(Literal["k2", "k3"], self.config.kl))

    def metrics(self, loss: Tensor, stats: PolicyStats, kl: Tensor) -> Metrics:
        return {**clip_metrics(loss, stats), "loss/kl_avg": kl.detach()}


class GRPOTrainer(GroupRelativeTrainer[GRPOConfig]):
    """PPO's clipped loss on group advantages plus β·KL (Eq 3); each token's weight is that of ``loss_type``."""

    config_class = GRPOConfig
    tokens_per_completion: Tensor  # mean over the batch of this step, so that a minibatch counts as its share of it

    def estimate(self, scored: Scored) -> tuple[Experience, Metrics]:
        self.tokens_per_completion = scored.rollout.mask.sum() / len(scored.rollout)
        return super().estimate(scored)

    def policy_loss(self, logits: Tensor, logprobs: Tensor, experience: Experience) -> tuple[Tensor, Metrics]:
        mask, weights = experience.batch.mask, self.token_weights(experience.batch.mask)
        # The clipped loss is proportional to the advantages, so a token's weight can go into its advantage.
        loss, stats = ppo_policy_loss(
            logprobs, experience.logprobs, weights * experience.advantages, mask, self.clip, normalizer=1.0
        )
        kl = masked_sum(weights * self.token_kl(logits, logprobs, experience), mask)
        return loss + self.kl_coef * kl, self.metrics(loss, stats, kl)

    def token_weights(self, mask: Tensor) -> Tensor:
        """What each token of a completion counts for, [B, 1]."""
        rows, lengths = len(mask), mask.sum(1, keepdim=True)
        if self.config.loss_type == "grpo":
            return 1 / (rows * lengths.clamp(min=1))
        if self.config.loss_type == "dr_grpo":
            return torch.full_like(lengths, 1 / (rows * self.inputs.task.max_new_tokens), dtype=torch.float32)
        return torch.ones_like(lengths) / (rows * self.tokens_per_completion).clamp(min=1)


class GSPOTrainer(GroupRelativeTrainer[GSPOConfig]):
    """One ratio a completion, (π/π_old)^(1/length), clipped as a whole (Eq 5–7)."""

    config_class = GSPOConfig

    def policy_loss(self, logits: Tensor, logprobs: Tensor, experience: Experience) -> tuple[Tensor, Metrics]:
        mask = experience.batch.mask
        loss, stats = ppo_policy_loss(
            masked_mean(logprobs, mask, 1).unsqueeze(1), masked_mean(experience.logprobs, mask, 1).unsqueeze(1),
            experience.advantages[:, :1], mask.any(1, keepdim=True), self.clip,
        )  # fmt: skip
        kl = masked_mean(masked_mean(self.token_kl(logits, logprobs, experience), mask, 1), mask.any(1))
        return loss + self.kl_coef * kl, self.metrics(loss, stats, kl)
