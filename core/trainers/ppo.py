"""Proximal policy optimisation from a reward (arXiv 1707.06347, 1909.08593, 2203.02155)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from core.advantages import gae
from core.logprobs import masked_mean, masked_sum, masked_whiten
from core.losses import ppo_value_loss
from core.methods.alignment import CriticConfig
from core.methods.ppo import PPOConfig
from core.models.build import build_language_model
from core.models.critic import Critic
from core.randomness import derived_seed
from core.trainers.base import TrainerInputs, TrainerState
from core.trainers.experience import Experience, Metrics, Scored, clipped_loss, kl_penalties
from core.trainers.rollouts import RolloutTrainer
from core.trainers.updates import learning_rate, make_optimizer

C = TypeVar("C", bound=CriticConfig)


@dataclass(frozen=True)
class ValuedExperience(Experience):
    """Experience with what the critic thought of it, [B, T] each."""

    values: Tensor
    returns: Tensor


class ActorCriticTrainer(RolloutTrainer[C], Generic[C]):
    """A policy and a critic: advantages by GAE, whitened, at a price for leaving the reference."""

    def __init__(self, config: C, inputs: TrainerInputs) -> None:
        super().__init__(config, inputs)
        trunk = None
        if config.critic == "own":
            seed = derived_seed(inputs.seed, "critic")
            trunk = build_language_model(inputs.backbone, len(inputs.task.tokenizer), seed)
            trunk.load_state_dict(self.policy.state_dict())
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derived_seed(inputs.seed, "value head"))
            self.critic = Critic(self.policy.width, trunk).to(inputs.device)
        self.critic_optimizer = make_optimizer(self.critic.parameters(), config)
        self.baseline: float | None = None  # mean score of the first batch, so that values may start at 0

    @torch.no_grad()
    def estimate(self, scored: Scored) -> tuple[ValuedExperience, Metrics]:
        """Rewards per token, values and advantages."""
        rollout, config = scored.rollout, self.config
        mask = rollout.mask
        assert rollout.hidden is not None
        if self.baseline is None:
            self.baseline = scored.scores.mean().item()
        rewards = -self.kl_coef * kl_penalties(scored, config.kl_penalty)
        last = (mask.sum(1, keepdim=True) - 1).clamp(min=0)  # of a completion without tokens: masked out in the end
        rewards = rewards.scatter_add(1, last, (scored.scores - self.baseline).unsqueeze(1))
        values = torch.where(mask, self.critic(rollout, rollout.hidden), 0.0)
        advantages, returns = gae(rewards, values, mask, config.gamma, config.lam)
        spread = whitening_scale(advantages, mask)
        experience = ValuedExperience(
            rollout, rollout.logprobs, masked_whiten(advantages, mask), scored.reference_logits,
            self.kl_coef * spread if config.kl_penalty == "exact" else None, values, returns,
        )  # fmt: skip
        variance = whitening_scale(returns, mask) ** -2
        return experience, {"explained_variance": 1 - masked_mean((returns - values).square(), mask) / variance}

    def loss_beside(self, experience: Experience, hidden: Tensor) -> tuple[Tensor, Metrics]:
        assert isinstance(experience, ValuedExperience)
        values = self.critic(experience.batch, hidden)
        loss, stats = ppo_value_loss(
            values, experience.values, experience.returns, experience.batch.mask, self.value_clip
        )
        return self.config.value_coefficient * loss, {
            "loss/value_avg": loss.detach(),
            "val/clipfrac_avg": stats.clip_fraction,
        }

    def rates(self, rate: float) -> dict[torch.optim.Optimizer, float]:
        peak = self.config.critic_learning_rate
        own = learning_rate(self.config, self.step_number, peak) if peak else rate
        return super().rates(rate) | {self.critic_optimizer: own}

    @property
    def value_clip(self) -> float:
        """How far a value may move from its old one in a step."""
        return float("inf")

    def modules(self) -> Mapping[str, nn.Module]:
        return {**super().modules(), "critic": self.critic}

    def optimizers(self) -> Mapping[str, torch.optim.Optimizer]:
        return {**super().optimizers(), "critic": self.critic_optimizer}

    def extra_state(self) -> TrainerState:
        return TrainerState({}, {**super().extra_state().values, "baseline": self.baseline})

    def load_extra_state(self, state: TrainerState) -> None:
        super().load_extra_state(state)
        self.baseline = state.values["baseline"]


class PPOTrainer(ActorCriticTrainer[PPOConfig]):
    """Several clipped steps on each batch (arXiv 1707.06347 Eq 9)."""

    config_class = PPOConfig

    @property
    def epochs(self) -> int:
        return self.config.epochs

    @property
    def minibatch_size(self) -> int:
        return self.config.minibatch_size

    @property
    def value_clip(self) -> float:
        return self.config.value_clip

    def policy_loss(self, logits: Tensor, logprobs: Tensor, experience: Experience) -> tuple[Tensor, Metrics]:
        return clipped_loss(logits, logprobs, experience, self.config.clip)


def whitening_scale(x: Tensor, mask: Tensor) -> Tensor:
    """What :func:`core.logprobs.masked_whiten` multiplies by: 1 over the deviation of the kept slots; scalar."""
    count = mask.sum()
    mean = masked_mean(x, mask)
    variance = masked_sum((x - mean).square(), mask) / (count - 1).clamp(min=1)
    return torch.rsqrt(variance + 1e-8)
