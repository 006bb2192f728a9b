"""REINFORCE leave-one-out (arXiv 2402.14740)."""

from torch import Tensor

from core.advantages import rloo_advantages
from core.losses import ppo_policy_loss
from core.methods.rloo import RLOOConfig
from core.trainers.experience import Experience, Metrics, Scored, direct_kl, kl_penalties
from core.trainers.groups import GroupTrainer


class RLOOTrainer(GroupTrainer[RLOOConfig]):
    """Reward less the price of KL, against the mean of the other completions of the prompt."""

    config_class = RLOOConfig

    def group_rewards(self, scored: Scored) -> Tensor:
        return scored.scores - self.kl_coef * kl_penalties(scored, self.config.kl_penalty).sum(1)

    def advantages(self, rewards: Tensor) -> Tensor:
        return rloo_advantages(rewards)

    def kl_weight(self, rewards: Tensor) -> Tensor | None:
        return rewards.new_tensor(self.kl_coef) if self.config.kl_penalty == "exact" else None

    def policy_loss(self, logits: Tensor, logprobs: Tensor, experience: Experience) -> tuple[Tensor, Metrics]:
        loss, stats = ppo_policy_loss(
            logprobs, experience.logprobs, experience.advantages, experience.batch.mask, self.config.clip
        )
        return loss + direct_kl(logits, experience), {
            "loss/policy_avg": loss.detach(),
            "policy/clipfrac_avg": stats.clip_fraction,
            "policy/approxkl_avg": stats.approx_kl,
            "val/ratio": stats.ratio,
        }
