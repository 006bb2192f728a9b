"""What methods that learn from a reward share: one rollout, one scoring, one loop over minibatches."""

import copy
from abc import abstractmethod
from collections.abc import Generator, Mapping
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from core.logprobs import entropy, exact_kl, masked_mean, masked_sum, token_logprobs
from core.methods.alignment import RewardSeekingConfig
from core.models.language_model import LanguageModel
from core.randomness import generator_for
from core.rewards.sources import chosen_reward
from core.sampling import Rollout, completion_hidden, completion_logits, generate
from core.trainers.base import Phase, TrainerInputs, TrainerState, Weights
from core.trainers.experience import Experience, Metrics, Scored
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

R = TypeVar("R", bound=RewardSeekingConfig)


class RolloutTrainer(PolicyTrainer[R], Generic[R]):
    """Sample, score, estimate advantages, update: what each method adds is the estimate and the loss."""

    def __init__(self, config: R, inputs: TrainerInputs) -> None:
        super().__init__(config, inputs)
        self.reward = chosen_reward(config.reward, self.gold, self.learned, config.learned_weight)
        self.average = frozen(copy.deepcopy(self.policy))
        self.policy_optimizer = make_optimizer(self.policy.parameters(), config)
        self.kl_coef = self.scheduled_beta(config.beta)

    # --- what a method is made of ---

    @property
    def group_size(self) -> int:
        """Completions of each prompt in a batch."""
        return 1

    @property
    def epochs(self) -> int:
        """Passes over each batch."""
        return 1

    @property
    def minibatch_size(self) -> int:
        """Completions an update of the weights."""
        return self.config.batch_size

    @abstractmethod
    def estimate(self, scored: Scored) -> tuple[Experience, Metrics]:
        """How much better than expected each token was, and metrics that say so."""

    @abstractmethod
    def policy_loss(self, logits: Tensor, logprobs: Tensor, experience: Experience) -> tuple[Tensor, Metrics]:
        """The loss of a minibatch from the policy's logits [B, T, V] and log-probs of the drawn tokens [B, T]."""

    # --- what all share ---

    def step(self) -> Generator[Phase, None, dict[str, float]]:
        """One batch of completions and the updates on it."""
        config = self.config
        rollout = self.rollout()
        yield "rollout"
        scored, metrics = self.score(rollout)
        experience, more = self.estimate(scored)
        metrics |= more
        yield "scoring"
        rate = learning_rate(config, self.step_number)
        updates = yield from self.updates(experience, rate)
        if config.average:
            follow(self.average, self.policy, config.average)
        metrics |= {name: torch.stack([torch.as_tensor(u[name]) for u in updates]).mean() for name in updates[0]}
        return self.close_step(metrics | {"lr": rate})

    def updates(self, experience: Experience, rate: float) -> Generator[Phase, None, list[Metrics]]:
        """The passes over the batch; the metrics of each update."""
        done: list[Metrics] = []
        for epoch in range(self.epochs):
            for rows in minibatches(len(experience), self.minibatch_size, self.inputs.seed, self.step_number, epoch):
                done.append(self.update(experience.rows(rows.to(self.inputs.device)), rate))
                yield "minibatch"
        return done

    def close_step(self, metrics: Metrics) -> dict[str, float]:
        """Adapt β, watch the KL, validate where it is time."""
        found = to_floats(metrics | {"kl_coef": self.kl_coef, "episode": self.completions})
        self.adapt_kl_coef(found["objective/kl"])
        self.watch_kl(found["objective/kl"])
        validation = None
        if self.validates:
            probed, validation = self.validate(self.kl_coef)
            found |= probed
        return self.end_step(found, validation)

    def rollout(self) -> Rollout:
        """Completions of this step's prompts by the policy as it is, those of one prompt next to one another."""
        task, config = self.inputs.task, self.config
        count = config.batch_size // self.group_size
        order = example_order(len(task.prompts), count, self.inputs.seed, self.step_number)
        prompts = [task.encode_prompt(task.prompts[index]) for index in order.tolist() for _ in range(self.group_size)]
        dice = generator_for(self.inputs.seed, "rollout", self.step_number)
        self.completions += len(prompts)
        return self.checked(
            generate(self.policy, prompts, task.max_new_tokens, config.temperature, generator=dice, keep=True)
        )

    @torch.no_grad()
    def score(self, rollout: Rollout) -> tuple[Scored, Metrics]:
        """Reward and KL of a rollout, and the metrics that describe it."""
        assert rollout.logits is not None
        config, mask = self.config, rollout.mask
        reference_logits = completion_logits(self.reference, rollout, config.temperature)
        kl = exact_kl(rollout.logits, reference_logits)
        scores = self.reward(rollout) - config.missing_eos_penalty * (~rollout.ended).float()
        sequence_kl = masked_sum(kl, mask, 1).mean()
        metrics: Metrics = {
            "objective/kl": sequence_kl,
            "kl": masked_mean(kl, mask),
            "objective/entropy": masked_mean(entropy(rollout.logits), mask),
            "objective/scores": scores.mean(),
            "objective/rlhf_reward": scores.mean() - self.kl_coef * sequence_kl,
            "val/num_eos_tokens": rollout.ended.float().sum(),
            "completions/mean_length": (mask & (rollout.tokens >= 4)).sum(1).float().mean(),
            "completions/clipped_ratio": (~rollout.ended).float().mean(),
        }
        if self.gold is not None:
            metrics["gold_reward"] = self.gold(rollout).mean()
        if self.learned is not None:
            metrics["learned_reward"] = self.learned(rollout).mean()
        return Scored(rollout, reference_logits, kl, scores), metrics

    def update(self, experience: Experience, rate: float) -> Metrics:
        """One step on a minibatch."""
        config, batch = self.config, experience.batch
        hidden = completion_hidden(self.policy, batch)
        logits = self.policy.logits(hidden) / config.temperature
        loss, metrics = self.policy_loss(logits, token_logprobs(logits, batch.tokens), experience)
        if config.entropy_coefficient:
            loss = loss - config.entropy_coefficient * masked_mean(entropy(logits), batch.mask)
        beside, more = self.loss_beside(experience, hidden)
        norm = update(loss + beside, self.rates(rate), config.max_grad_norm)
        return metrics | more | {"grad_norm": norm}

    def rates(self, rate: float) -> dict[torch.optim.Optimizer, float]:
        """Each optimizer's learning rate in this step, in which the policy's is ``rate``."""
        return dict.fromkeys(self.optimizers().values(), rate)

    def loss_beside(self, experience: Experience, hidden: Tensor) -> tuple[Tensor, Metrics]:
        """What else is minimised, from the policy's hidden states [B, T, H]; nothing, unless there is a critic."""
        return hidden.new_zeros(()), {}

    def adapt_kl_coef(self, kl: float) -> None:
        """Proportional control of β towards the target KL (arXiv 1909.08593 §2.2), or the β of the next step."""
        config = self.config
        if not config.kl_target:
            self.kl_coef = self.scheduled_beta(config.beta, self.step_number + 1)
            return
        error = min(0.2, max(-0.2, kl / config.kl_target - 1))
        self.kl_coef *= 1 + error * min(1.0, config.batch_size / config.kl_horizon)

    def set_knob(self, name: str, value: object) -> None:
        super().set_knob(name, value)
        if name == "beta":
            self.kl_coef = self.scheduled_beta(self.config.beta)

    def watched_reward(self, gold: float | None, learned: float | None) -> float:
        mixed = self.config.learned_weight if self.config.reward == "mixed" else float(self.config.reward == "learned")
        return mixed * (learned or 0.0) + (1 - mixed) * (gold or 0.0)

    def final_policy(self) -> LanguageModel:
        return self.average if self.config.average else self.policy

    def use_weights(self, weights: Weights) -> None:
        self.policy.load_state_dict(weights)
        self.average.load_state_dict(weights)

    def modules(self) -> Mapping[str, nn.Module]:
        return {**super().modules(), "average": self.average}

    def optimizers(self) -> Mapping[str, torch.optim.Optimizer]:
        return {"policy": self.policy_optimizer}

    def extra_state(self) -> TrainerState:
        return TrainerState({}, super().extra_state().values | {"kl_coef": self.kl_coef})

    def load_extra_state(self, state: TrainerState) -> None:
        super().load_extra_state(state)
        self.kl_coef = state.values["kl_coef"]
