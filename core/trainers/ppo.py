"""Proximal policy optimisation from a reward (arXiv 1707.06347, 1909.08593, 2203.02155)."""

import copy
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from core.advantages import gae
from core.logprobs import entropy, exact_kl, masked_mean, masked_sum, masked_whiten
from core.losses import ppo_policy_loss, ppo_value_loss
from core.methods.ppo import PPOConfig
from core.models.build import build_language_model
from core.models.critic import Critic
from core.models.language_model import LanguageModel
from core.randomness import derived_seed, generator_for
from core.rewards.sources import RewardSource, WeightedSum
from core.sampling import Completions, Rollout, completion_hidden, completion_logits, generate, token_width
from core.trainers.base import Phase, TrainerInputs, TrainerState, Weights
from core.trainers.models import frozen
from core.trainers.policy import PolicyTrainer
from core.trainers.updates import (
    example_order,
    follow,
    learning_rate,
    make_optimizer,
    minibatches,
    to_floats,
    update,
)  # fmt: skip


@dataclass(frozen=True)
class Experience:
    """A scored batch of completions, everything an update needs; constants, [B, T] but for the logits' [B, T, V]."""

    batch: Completions
    logprobs: Tensor
    values: Tensor
    advantages: Tensor  # whitened
    returns: Tensor
    reference_logits: Tensor
    kl_weight: Tensor  # scalar: weight of the KL's direct gradient, 0 for the penalty k1

    def rows(self, index: Tensor) -> "Experience":
        """Some completions, without columns that none of them needs."""
        batch = self.batch.rows(index)
        width = token_width(batch)
        narrow = {
            name: getattr(self, name)[index, :width]
            for name in ("logprobs", "values", "advantages", "returns", "reference_logits")
        }
        return replace(self, batch=batch, **narrow)


class PPOTrainer(PolicyTrainer[PPOConfig]):
    """Sample, score, estimate advantages, take clipped steps."""

    config_class = PPOConfig

    def __init__(self, config: PPOConfig, inputs: TrainerInputs) -> None:
        super().__init__(config, inputs)
        self.reward = self._reward_source()
        trunk = None
        if config.critic == "own":
            seed = derived_seed(inputs.seed, "critic")
            trunk = build_language_model(inputs.backbone, len(inputs.task.tokenizer), seed)
            trunk.load_state_dict(self.policy.state_dict())
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derived_seed(inputs.seed, "value head"))
            self.critic = Critic(self.policy.width, trunk).to(inputs.device)
        self.average = frozen(copy.deepcopy(self.policy))
        self.policy_optimizer = make_optimizer(self.policy.parameters(), config)
        self.critic_optimizer = make_optimizer(self.critic.parameters(), config)
        self.kl_coef = config.beta
        self.baseline: float | None = None  # mean score of the first batch, so that values may start at 0

    def _reward_source(self) -> RewardSource:
        sources = {"gold": self.gold, "learned": self.learned}
        for name, source in sources.items():
            if source is None and self.config.reward in (name, "mixed"):
                raise ValueError(f"reward={self.config.reward} needs a {name} reward, and there is none")
        if self.config.reward == "mixed":
            assert self.learned is not None and self.gold is not None
            return WeightedSum(self.learned, self.gold, self.config.learned_weight)
        source = sources[self.config.reward]
        assert source is not None
        return source

    def step(self) -> Generator[Phase, None, dict[str, float]]:
        """One batch of completions and the updates on it."""
        config = self.config
        rollout = self.rollout()
        yield "rollout"
        experience, metrics = self.score(rollout)
        yield "scoring"
        rate = learning_rate(config, self.step_number)
        updates: list[dict[str, Tensor | float]] = []
        for epoch in range(config.epochs):
            for rows in minibatches(len(rollout), config.minibatch_size, self.inputs.seed, self.step_number, epoch):
                updates.append(self.update(experience.rows(rows.to(self.inputs.device)), rate))
                yield "minibatch"
        if config.average:
            follow(self.average, self.policy, config.average)
        metrics |= {name: torch.stack([torch.as_tensor(u[name]) for u in updates]).mean() for name in updates[0]}
        found = to_floats(metrics | {"lr": rate, "kl_coef": self.kl_coef, "episode": self.completions})
        self.adapt_kl_coef(found["objective/kl"])
        self.watch_kl(found["objective/kl"])
        validation = None
        if self.validates:
            probed, validation = self.validate(self.kl_coef)
            found |= probed
        return self.end_step(found, validation)

    def rollout(self) -> Rollout:
        """Completions of this step's prompts by the policy as it is."""
        task = self.inputs.task
        order = example_order(len(task.prompts), self.config.batch_size, self.inputs.seed, self.step_number)
        prompts = [task.encode_prompt(task.prompts[index]) for index in order.tolist()]
        dice = generator_for(self.inputs.seed, "rollout", self.step_number)
        self.completions += len(prompts)
        temperature = self.config.temperature
        return self.checked(generate(self.policy, prompts, task.max_new_tokens, temperature, generator=dice, keep=True))

    @torch.no_grad()
    def score(self, rollout: Rollout) -> tuple[Experience, dict[str, Tensor | float]]:
        """Rewards, KL, values and advantages of a rollout, and the metrics that describe it."""
        assert rollout.logits is not None and rollout.hidden is not None
        config, mask = self.config, rollout.mask
        reference_logits = completion_logits(self.reference, rollout, config.temperature)
        kl = exact_kl(rollout.logits, reference_logits)
        scores = self.reward(rollout) - config.missing_eos_penalty * (~rollout.ended).float()
        if self.baseline is None:
            self.baseline = scores.mean().item()
        if config.kl_penalty == "exact":
            penalty = kl
        else:
            drawn = torch.log_softmax(reference_logits, -1).gather(-1, rollout.tokens.unsqueeze(-1)).squeeze(-1)
            penalty = rollout.logprobs - drawn
        rewards = torch.where(mask, -self.kl_coef * penalty, 0.0)
        last = mask.sum(1, keepdim=True) - 1
        rewards = rewards.scatter_add(1, last, (scores - self.baseline).unsqueeze(1))
        values = torch.where(mask, self.critic(rollout, rollout.hidden), 0.0)
        advantages, returns = gae(rewards, values, mask, config.gamma, config.lam)
        spread = whitening_scale(advantages, mask)
        experience = Experience(
            rollout, rollout.logprobs, values, masked_whiten(advantages, mask), returns, reference_logits,
            kl_weight=self.kl_coef * spread if config.kl_penalty == "exact" else torch.zeros_like(spread),
        )  # fmt: skip
        sequence_kl = masked_sum(kl, mask, 1).mean()
        residual = returns - values
        variance = whitening_scale(returns, mask) ** -2
        metrics: dict[str, Tensor | float] = {
            "objective/kl": sequence_kl,
            "kl": masked_mean(kl, mask),
            "objective/entropy": masked_mean(entropy(rollout.logits), mask),
            "objective/scores": scores.mean(),
            "objective/rlhf_reward": scores.mean() - self.kl_coef * sequence_kl,
            "val/num_eos_tokens": rollout.ended.float().sum(),
            "completions/mean_length": (mask & (rollout.tokens >= 4)).sum(1).float().mean(),
            "explained_variance": 1 - masked_mean(residual.square(), mask) / variance,
        }
        if self.gold is not None:
            metrics["gold_reward"] = self.gold(rollout).mean()
        if self.learned is not None:
            metrics["learned_reward"] = self.learned(rollout).mean()
        return experience, metrics

    def update(self, experience: Experience, rate: float) -> dict[str, Tensor | float]:
        """One clipped step on a minibatch (Eq 9), with the KL's direct gradient where the penalty is exact."""
        config, batch = self.config, experience.batch
        hidden = completion_hidden(self.policy, batch)
        logits = self.policy.logits(hidden) / config.temperature
        logprobs = torch.log_softmax(logits, -1).gather(-1, batch.tokens.unsqueeze(-1)).squeeze(-1)
        policy_loss, policy = ppo_policy_loss(
            logprobs, experience.logprobs, experience.advantages, batch.mask, config.clip
        )
        values = self.critic(batch, hidden)
        value_loss, value = ppo_value_loss(values, experience.values, experience.returns, batch.mask, config.value_clip)
        loss = policy_loss + config.value_coefficient * value_loss
        if config.kl_penalty == "exact":
            # The KL of a position does not depend on the letter drawn there: its own pull comes from here, in the
            # units of the whitened advantages.
            loss = loss + experience.kl_weight * masked_mean(exact_kl(logits, experience.reference_logits), batch.mask)
        if config.entropy_coefficient:
            loss = loss - config.entropy_coefficient * masked_mean(entropy(logits), batch.mask)
        norm = update(loss, [self.policy_optimizer, self.critic_optimizer], rate, config.max_grad_norm)
        return {
            "loss/policy_avg": policy_loss.detach(),
            "loss/value_avg": value_loss.detach(),
            "policy/clipfrac_avg": policy.clip_fraction,
            "policy/approxkl_avg": policy.approx_kl,
            "val/clipfrac_avg": value.clip_fraction,
            "val/ratio": policy.ratio,
            "grad_norm": norm,
        }

    def adapt_kl_coef(self, kl: float) -> None:
        """Proportional control of β towards the target KL (arXiv 1909.08593 §2.2), or the knob's β."""
        config = self.config
        if not config.kl_target:
            self.kl_coef = config.beta
            return
        error = min(0.2, max(-0.2, kl / config.kl_target - 1))
        self.kl_coef *= 1 + error * min(1.0, config.batch_size / config.kl_horizon)

    def set_knob(self, name: str, value: object) -> None:
        super().set_knob(name, value)
        if name == "beta":
            self.kl_coef = self.config.beta

    def watched_reward(self, gold: float | None, learned: float | None) -> float:
        mixed = self.config.learned_weight if self.config.reward == "mixed" else float(self.config.reward == "learned")
        return mixed * (learned or 0.0) + (1 - mixed) * (gold or 0.0)

    def final_policy(self) -> LanguageModel:
        return self.average if self.config.average else self.policy

    def use_weights(self, weights: Weights) -> None:
        self.policy.load_state_dict(weights)
        self.average.load_state_dict(weights)

    def modules(self) -> Mapping[str, nn.Module]:
        return {"policy": self.policy, "average": self.average, "critic": self.critic}

    def optimizers(self) -> Mapping[str, torch.optim.Optimizer]:
        return {"policy": self.policy_optimizer, "critic": self.critic_optimizer}

    def extra_state(self) -> TrainerState:
        return TrainerState({}, {"kl_coef": self.kl_coef, "baseline": self.baseline, "alarmed": self.alarmed})

    def load_extra_state(self, state: TrainerState) -> None:
        self.kl_coef, self.baseline = state.values["kl_coef"], state.values["baseline"]
        self.alarmed = state.values["alarmed"]


def whitening_scale(x: Tensor, mask: Tensor) -> Tensor:
    """What :func:`core.logprobs.masked_whiten` multiplies by: 1 over the deviation of the kept slots; scalar."""
    count = mask.sum()
    mean = masked_mean(x, mask)
    variance = masked_sum((x - mean).square(), mask) / (count - 1).clamp(min=1)
    return torch.rsqrt(variance + 1e-8)
