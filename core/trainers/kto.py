"""Kahneman–Tversky optimisation (arXiv 2402.01306): completions judged good or bad by themselves."""

from collections.abc import Generator, Sequence

import torch
from torch import Tensor

from core.losses import kto_loss
from core.methods.kto import KTOConfig
from core.preferences.conversion import unpaired_from_pairs
from core.preferences.pair import UnpairedExample
from core.sampling import Completions, completions_of
from core.tasks.base import Task
from core.trainers.base import Phase, TrainerInputs
from core.trainers.pairs import pairs_of_task
from core.trainers.preferences import PreferenceTrainer
from core.trainers.updates import example_order, learning_rate, to_floats, update

FEWEST_EXAMPLES = 2


class KTOTrainer(PreferenceTrainer[KTOConfig]):
    """Raise good completions and lower bad ones, against the average drift from the reference."""

    config_class = KTOConfig

    def __init__(self, config: KTOConfig, inputs: TrainerInputs) -> None:
        super().__init__(config, inputs)
        self.fixed: Completions | None = None  # the judged completions, made in the first step
        self.labels: Tensor | None = None  # bool [N]

    def step(self) -> Generator[Phase, None, dict[str, float]]:
        """One batch of judged completions (Eq 7–8)."""
        if self.fixed is None or self.labels is None:
            self.fixed, self.labels = yield from self.prepare()
        if self.fixed_reference is None:
            self.fixed_reference = yield from self.reference_logprobs(self.fixed)
        order = example_order(len(self.fixed), self.config.batch_size, self.inputs.seed, self.step_number)
        order = order.to(self.inputs.device)
        metrics = self.update(self.fixed.rows(order), self.labels[order], self.fixed_reference[order])
        self.completions += len(order)
        yield "update"
        found, validation = to_floats(metrics), None
        if self.validates:
            probed, validation = self.measured_by_sampling()
            found |= probed
            self.watch_kl(found["objective/kl"])
        return self.end_step(found, validation)

    def update(self, batch: Completions, labels: Tensor, reference: Tensor) -> dict[str, Tensor | float]:
        """One step on completions with their labels and reference log-probs, [B] each."""
        config, beta = self.config, self.beta
        z0 = self.drift(batch)
        policy = self.sequence_logprobs(self.policy, batch)
        losses = kto_loss(
            policy, reference, labels, z0, beta, config.desirable_weight, config.undesirable_weight
        )  # fmt: skip
        loss, more = self.with_sft(losses.mean(), policy[labels], batch.mask.sum(1)[labels])
        rate = learning_rate(config, self.step_number)
        norm = update(loss, {self.optimizer: rate}, config.max_grad_norm)
        metrics = more | {"loss": losses.detach().mean(), "kl": z0, "grad_norm": norm, "lr": rate}
        rewards = beta * (policy.detach() - reference)
        for name, some in (("chosen", labels), ("rejected", ~labels)):
            if some.any():  # a batch of one class has no mean of the other
                metrics |= {
                    f"rewards/{name}": rewards[some].mean(),
                    f"logps/{name}": policy.detach()[some].mean(),
                }
        if "rewards/chosen" in metrics and "rewards/rejected" in metrics:
            metrics["rewards/margins"] = metrics["rewards/chosen"] - metrics["rewards/rejected"]
        return metrics

    @torch.no_grad()
    def drift(self, batch: Completions) -> Tensor:
        """z₀ ≥ 0: the mean log-ratio of completions under prompts that they do not belong to; 0 for a batch of one."""
        if len(batch) < 2:
            return torch.zeros((), device=batch.tokens.device)
        mismatched = Completions(batch.prompts, batch.prompt_mask, batch.tokens.roll(1, 0), batch.mask.roll(1, 0))
        ratios = self.sequence_logprobs(self.policy, mismatched) - self.sequence_logprobs(self.reference, mismatched)
        return ratios.mean().clamp(min=0)

    def prepare(self) -> Generator[Phase, None, tuple[Completions, Tensor]]:
        """Collect the judged completions: single judgements, and both sides of each decided pair."""
        config, inputs = self.config, self.inputs
        examples: list[UnpairedExample] = []
        if config.pairs != "automatic":
            examples += [*inputs.unpaired, *unpaired_from_pairs(inputs.pairs)]
        if config.pairs in ("automatic", "mixed"):
            pairs = yield from pairs_of_task(
                self.first_reference(), inputs.task, config.taste, config.pair_count, config.label_noise, inputs.seed
            )
            examples += unpaired_from_pairs(pairs)
        if len(examples) < FEWEST_EXAMPLES:
            raise ValueError(
                f"{len(examples)} judged completions are too few to train on; give at least {FEWEST_EXAMPLES}"
            )
        batch = encode_examples(inputs.task, examples, inputs.device)
        return batch, torch.tensor([each.label for each in examples], device=inputs.device)


def encode_examples(task: Task, examples: Sequence[UnpairedExample], device: torch.device) -> Completions:
    """Judged texts as a batch. Raises TaskError for a completion with letters outside the alphabet."""
    return completions_of(
        [task.encode_prompt(each.prompt) for each in examples],
        [task.encode_completion(each.completion) for each in examples],
        device,
    )
