"""REINFORCE leave-one-out (arXiv 2402.14740)."""

from torch import Tensor

from core.advantages import rloo_advantages
from core.methods.rloo import RLOOConfig
from core.trainers.experience import Experience, Metrics, Scored, clipped_loss, rewards_less_kl
from core.trainers.groups import GroupTrainer


class RLOOTrainer(GroupTrainer[RLOOConfig]):
    """Reward less the price of KL, against the mean of the other completions of the prompt."""

    config_class = RLOOConfig

    def group_rewards(self, scored: Scored) -> Tensor:
        return rewards_less_kl(scored, self.kl_coef, self.config.kl_penalty)

    def advantages(self, rewards: Tensor) -> Tensor:
        return rloo_advantages(rewards)

    def kl_weight(self, rewards: Tensor) -> Tensor | None:
        return rewards.new_tensor(self.kl_coef) if self.config.kl_penalty == "exact" else None

    def policy_loss(self, logits: Tensor, logprobs: Tensor, experience: Experience) -> tuple[Tensor, Metrics]:
        return clipped_loss(logits, logprobs, experience, self.config.clip)
