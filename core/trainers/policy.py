"""What methods that move a policy away from a reference share: validation by sampling, KL alarm and KL limit."""

from collections.abc import Mapping
from typing import Generic, TypeVar

from torch import nn

from core.evaluation.diversity import distinct_2, unique_fraction
from core.evaluation.probe import DIVERSITY_COMPLETIONS, Measured, measure, probe_rollout, sequence_kl
from core.methods.alignment import AlignmentConfig
from core.models.language_model import LanguageModel
from core.models.reward_model import RewardEnsemble
from core.rewards.sources import GoldReward, LearnedReward
from core.sampling import Rollout
from core.trainers.base import (
    Trainer,
    TrainerAlert,
    TrainerInputs,
    TrainerState,
    TrainingDivergedError,
    Weights,
)
from core.trainers.models import fresh_policy, frozen_reward_model, reference_policy

DIVERSITY = {"distinct_2": distinct_2, "unique_fraction": unique_fraction}  # of 256 completions at temperature 1
P = TypeVar("P", bound=AlignmentConfig)


class PolicyTrainer(Trainer[P], Generic[P]):
    """A policy that learns, the frozen reference beside it, and whoever scores: the gold rule, a reward model."""

    def __init__(self, config: P, inputs: TrainerInputs) -> None:
        super().__init__(config, inputs)
        self.reference = reference_policy(inputs)
        self.policy = fresh_policy(inputs)
        self.gold = GoldReward(inputs.task) if inputs.task.gold else None
        self.reward_model: RewardEnsemble | None = None
        if inputs.reward_model is not None:
            self.reward_model = frozen_reward_model(inputs)
        self.learned = LearnedReward(self.reward_model, config.ensemble) if self.reward_model is not None else None
        self.alarmed = False

    def final_policy(self) -> LanguageModel:
        """The policy that is sampled and kept."""
        return self.policy

    def validate(self, beta: float) -> tuple[dict[str, float], float]:
        """Probe the final policy: its metrics, and what early stopping watches.

        That is reward − β·KL: the reward alone rarely falls while a policy drifts into nonsense.
        """
        count, temperature = self.config.probe_completions, self.config.temperature
        rollout = self.probe(count, temperature)
        found = measure(rollout, self.inputs.task, self.gold, self.learned, None)
        kls = self.probed_kls(rollout, temperature)
        gold, learned = (each.mean if each else None for each in (found.gold_reward, found.learned_reward))
        objective = self.watched_reward(gold, learned) - beta * kls["probe/objective/kl"]
        metrics = {f"probe/{name}": value for name, value in found.metrics().items() if name not in DIVERSITY}
        metrics |= kls | {"probe/objective": objective}
        if temperature != 1 or count < DIVERSITY_COMPLETIONS:
            rollout = self.probe(DIVERSITY_COMPLETIONS, 1.0)
        texts = rollout.texts(self.inputs.task.tokenizer)[:DIVERSITY_COMPLETIONS]
        return metrics | {name: figure(texts) for name, figure in DIVERSITY.items()}, objective

    def probe(self, count: int, temperature: float) -> Rollout:
        """Completions of the probe prompts in turn, always with the same random numbers."""
        task = self.inputs.task
        return probe_rollout(self.final_policy(), task, task.probe_prompts, count, 0, temperature)

    def probed_kls(self, rollout: Rollout, temperature: float) -> dict[str, float]:
        """Sequence KL of a probe to the reference, and to what the run began with where the reference moves."""
        kl = Measured.of(sequence_kl(rollout, self.reference, temperature))
        found = {"probe/objective/kl": kl.mean, "probe/objective/kl_error": kl.standard_error}
        if self.config.reference_refresh:
            drift = sequence_kl(rollout, self.first_reference(), temperature)
            found["objective/kl_from_start"] = drift.mean().item()
        return found

    def watched_reward(self, gold: float | None, learned: float | None) -> float:
        """The reward that validation goes by: the gold rule where there is one."""
        return gold if gold is not None else learned if learned is not None else 0.0

    def checked(self, rollout: Rollout) -> Rollout:
        """``rollout`` as it is. Raises TrainingDivergedError when the policy that wrote it was not finite."""
        if not rollout.logprobs.isfinite().all():
            raise TrainingDivergedError("the policy's probabilities are not finite; go back to an earlier checkpoint")
        return rollout

    def scheduled_beta(self, beta: float, step: int | None = None) -> float:
        """β at a step (from 0; None: the next one): on its way from ``beta_start``, or ``beta`` all along."""
        config = self.config
        if not config.beta_start:
            return beta
        progress = (self.step_number if step is None else step) / max(1, config.steps - 1)
        return config.beta_start + (beta - config.beta_start) * min(1.0, progress)

    def refresh_reference(self) -> None:
        """Let the reference become the policy that is kept (arXiv 2404.09656, a hard update)."""
        self.reference.load_state_dict(self.final_policy().state_dict())
        self.reference_step = self.step_number

    def first_reference(self) -> LanguageModel:
        """The reference that the run began with, whatever it has become since."""
        return reference_policy(self.inputs) if self.config.reference_refresh else self.reference

    def end_step(self, metrics: dict[str, float], validation: float | None = None) -> dict[str, float]:
        metrics = super().end_step(metrics, validation)
        every = self.config.reference_refresh
        if every and self.step_number % every == 0 and not self.finished:
            self.refresh_reference()
            self.alerts.append(
                TrainerAlert("reference", f"step {self.step_number} is the reference now: KL counts from here")
            )
        return metrics

    def watch_kl(self, kl: float) -> None:
        """Alarm once when the KL passes the alarm, and stop when it passes the limit."""
        config = self.config
        if config.kl_limit and kl > config.kl_limit and not self.stop_reason:
            if self.best is None:
                self.use_weights(fresh_policy(self.inputs).state_dict())
            back = f"the weights of step {self.best.step}" if self.best is not None else "the weights it began with"
            self.stop("early_stop", f"KL {kl:.2f} passed the limit of {config.kl_limit:g} nats; back to {back}")
        elif config.kl_alarm and kl > config.kl_alarm and not self.alarmed:
            self.alerts.append(
                TrainerAlert("kl_alarm", f"KL {kl:.2f} passed {config.kl_alarm:g} nats: read the samples")
            )
        self.alarmed = bool(config.kl_alarm) and kl > config.kl_alarm

    def modules(self) -> Mapping[str, nn.Module]:
        kept: dict[str, nn.Module] = {"policy": self.policy}
        return kept | {"reference": self.reference} if self.config.reference_refresh else kept

    def extra_state(self) -> TrainerState:
        return TrainerState({}, {"alarmed": self.alarmed, "reference_step": self.reference_step})

    def load_extra_state(self, state: TrainerState) -> None:
        self.alarmed = state.values["alarmed"]
        self.reference_step = state.values.get("reference_step", 0)  # sessions of the first format may lack it

    def weights(self) -> Weights:
        return self.final_policy().state_dict()

    def use_weights(self, weights: Weights) -> None:
        self.final_policy().load_state_dict(weights)

    def sampler(self) -> LanguageModel:
        return self.final_policy()

    def reference_sampler(self) -> LanguageModel:
        return self.reference
