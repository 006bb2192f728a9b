"""Supervised fine-tuning."""

from collections.abc import Generator, Mapping
from typing import ClassVar

import torch
from torch import nn

from core.evaluation.probe import measure, probe_rollout
from core.logprobs import entropy, masked_mean
from core.losses import sft_loss
from core.methods.sft import SFTConfig
from core.models.language_model import LanguageModel
from core.rewards.sources import GoldReward
from core.sampling import completion_logits, completions_of
from core.trainers.base import Phase, Trainer, TrainerInputs, Weights
from core.trainers.models import fresh_policy
from core.trainers.updates import example_order, learning_rate, make_optimizer, to_floats, update

PROBE_COMPLETIONS = 256


class SFTTrainer(Trainer[SFTConfig]):
    """Cross-entropy on the letters of demonstrations, EOS included, given their prompts."""

    config_class = SFTConfig
    higher_is_better: ClassVar[bool] = False

    def __init__(self, config: SFTConfig, inputs: TrainerInputs) -> None:
        super().__init__(config, inputs)
        task = inputs.task
        if not task.demonstrations:
            raise ValueError(f"the task {task.name} has no demonstrations to imitate")
        self.policy = fresh_policy(inputs)
        self.optimizer = make_optimizer(self.policy.parameters(), config)
        self.demonstrations, self.held_out = (
            completions_of(
                [task.encode_prompt(each.prompt) for each in demonstrations],
                [task.encode_completion(each.completion) for each in demonstrations],
                inputs.device,
            )
            for demonstrations in (task.demonstrations, task.held_out_demonstrations)
        )
        self.gold = GoldReward(task) if task.gold else None

    def step(self) -> Generator[Phase, None, dict[str, float]]:
        """One batch of demonstrations."""
        config = self.config
        order = example_order(len(self.demonstrations), config.batch_size, self.inputs.seed, self.step_number)
        batch = self.demonstrations.rows(order.to(self.inputs.device))
        logits = completion_logits(self.policy, batch)
        loss = sft_loss(logits, batch.tokens, batch.mask)
        rate = learning_rate(config, self.step_number)
        norm = update(loss, {self.optimizer: rate}, config.max_grad_norm)
        self.completions += len(batch)
        right = (logits.argmax(-1) == batch.tokens).float()
        metrics = to_floats(
            {
                "loss": loss,
                "entropy": masked_mean(entropy(logits.detach()), batch.mask),
                "mean_token_accuracy": masked_mean(right, batch.mask),
                "grad_norm": norm,
                "lr": rate,
            }
        )
        if not self.validates:
            return self.end_step(metrics)
        yield "update"
        validation = self.validation_loss() if len(self.held_out) else None
        yield "validation"
        rollout = probe_rollout(self.policy, self.inputs.task, self.inputs.task.probe_prompts, PROBE_COMPLETIONS, 0)
        metrics |= measure(rollout, self.inputs.task, self.gold, None, None).metrics()
        if validation is not None:
            metrics["validation_loss"] = validation
        return self.end_step(metrics, validation)

    @torch.no_grad()
    def validation_loss(self) -> float:
        """The loss on held-out prompts and words."""
        logits = completion_logits(self.policy, self.held_out)
        return sft_loss(logits, self.held_out.tokens, self.held_out.mask).item()

    def modules(self) -> Mapping[str, nn.Module]:
        return {"policy": self.policy}

    def optimizers(self) -> Mapping[str, torch.optim.Optimizer]:
        return {"policy": self.optimizer}

    def weights(self) -> Weights:
        return self.policy.state_dict()

    def use_weights(self, weights: Weights) -> None:
        self.policy.load_state_dict(weights)

    def sampler(self) -> LanguageModel:
        return self.policy
