"""Advantage actor-critic (arXiv 1602.01783, synchronous): PPO without its several epochs and its clip."""

from torch import Tensor

from core.losses import reinforce_loss
from core.methods.a2c import A2CConfig
from core.trainers.experience import Experience, Metrics, direct_kl
from core.trainers.ppo import ActorCriticTrainer


class A2CTrainer(ActorCriticTrainer[A2CConfig]):
    """−log π · A with A from the critic, one update a batch."""

    config_class = A2CConfig

    def policy_loss(self, logits: Tensor, logprobs: Tensor, experience: Experience) -> tuple[Tensor, Metrics]:
        loss = reinforce_loss(logprobs, experience.advantages, experience.batch.mask)
        return loss + direct_kl(logits, experience), {"loss/policy_avg": loss.detach()}
