"""What methods share that learn from judged completions: log-probs of completions, the SFT mix, cached references."""

from collections.abc import Generator, Mapping
from typing import Generic, TypeVar

import torch
from torch import Tensor

from core.logprobs import masked_sum, token_logprobs
from core.losses import sft_loss
from core.methods.preference_losses import DemonstrationMixConfig
from core.models.language_model import LanguageModel
from core.randomness import derived_seed
from core.sampling import Completions, completion_logits, completions_of
from core.trainers.base import Phase, TrainerInputs, TrainerState
from core.trainers.policy import PolicyTrainer
from core.trainers.updates import example_order, make_optimizer

CHUNK = 512  # completions whose reference log-probs are computed between two returns of control
D = TypeVar("D", bound=DemonstrationMixConfig)


class PreferenceTrainer(PolicyTrainer[D], Generic[D]):
    """A policy that learns from completions judged against one another, or by themselves."""

    def __init__(self, config: D, inputs: TrainerInputs) -> None:
        super().__init__(config, inputs)
        self.optimizer = make_optimizer(self.policy.parameters(), config)
        self.demonstrations: Completions | None = None  # encoded when they are first asked for
        self.fixed_reference: Tensor | None = None  # log-probs of the fixed completions, of the reference as it is
        if config.sft_weight and config.sft_from == "demonstrations" and not inputs.task.demonstrations:
            raise ValueError(f"the task {inputs.task.name} has no demonstrations; mix with sft_from=chosen")

    @property
    def beta(self) -> float:
        """β of the step in progress."""
        return self.scheduled_beta(self.config.beta)

    def sequence_logprobs(self, model: LanguageModel, batch: Completions) -> Tensor:
        """log p(completion | prompt) at the training temperature, summed over its tokens, [B]."""
        logits = completion_logits(model, batch, self.config.temperature)
        return masked_sum(token_logprobs(logits, batch.tokens), batch.mask, 1)

    def reference_logprobs(self, batch: Completions) -> Generator[Phase, None, Tensor]:
        """:meth:`sequence_logprobs` of the reference, [B]; yields between chunks."""
        parts = []
        for rows in torch.arange(len(batch), device=self.inputs.device).split(CHUNK):
            with torch.no_grad():
                parts.append(self.sequence_logprobs(self.reference, batch.rows(rows)))
            yield "reference"
        return torch.cat(parts)

    def with_sft(self, loss: Tensor, good: Tensor, lengths: Tensor) -> tuple[Tensor, dict[str, Tensor | float]]:
        """``loss`` plus the weighted SFT loss, and its metric; nothing at weight 0.

        ``good`` are the policy's summed log-probs of the good completions of the batch, ``lengths`` their tokens, [B].
        """
        config = self.config
        if not config.sft_weight:
            return loss, {}
        if config.sft_from == "chosen":
            sft = -good.sum() / lengths.sum().clamp(min=1)
        else:
            batch = self.some_demonstrations()
            sft = sft_loss(completion_logits(self.policy, batch), batch.tokens, batch.mask)
        return loss + config.sft_weight * sft, {"loss/sft": sft.detach()}

    def some_demonstrations(self) -> Completions:
        """A batch of demonstrations for this step. Raises ValueError when the task has none."""
        task, device = self.inputs.task, self.inputs.device
        if not task.demonstrations:
            raise ValueError(f"the task {task.name} has no demonstrations; mix with sft_from=chosen")
        if self.demonstrations is None:
            self.demonstrations = completions_of(
                [task.encode_prompt(each.prompt) for each in task.demonstrations],
                [task.encode_completion(each.completion) for each in task.demonstrations],
                device,
            )
        seed = derived_seed(self.inputs.seed, "demonstrations")
        order = example_order(len(self.demonstrations), self.config.batch_size, seed, self.step_number)
        return self.demonstrations.rows(order.to(device))

    def refresh_reference(self) -> None:
        super().refresh_reference()
        self.fixed_reference = None

    def set_knob(self, name: str, value: object) -> None:
        super().set_knob(name, value)
        if name == "temperature":
            self.fixed_reference = None  # it divides the logits of policy and reference alike

    def measured_by_sampling(self) -> tuple[dict[str, float], float]:
        """A validation whose reward and KL also count as the step's: nothing else shows them where all is fixed."""
        probed, validation = self.validate(self.beta)
        named = ("gold_reward", "learned_reward", "objective/kl")
        return probed | {n: probed[f"probe/{n}"] for n in named if f"probe/{n}" in probed}, validation

    def optimizers(self) -> Mapping[str, torch.optim.Optimizer]:
        return {"policy": self.optimizer}

    def load_extra_state(self, state: TrainerState) -> None:
        super().load_extra_state(state)
        self.fixed_reference = None  # of another temperature, or another reference
