"""An engine with a trainer that costs nothing, for tests of everything around training.

``python fake_trainer.py`` is the real engine, real store and real pipes with :class:`FakeTrainer` behind ``sft`` and
``ppo``. Its weights are a language model of which one bias counts the steps, so that what a step did can be read off.
"""

import dataclasses
import math
import os
import signal
import sys
import time
from collections.abc import Generator, Mapping
from pathlib import Path

import torch
from torch import nn

from core.methods.base import TrainingConfig
from core.models.build import build_language_model
from core.models.language_model import LanguageModel
from core.randomness import generator_for
from core.trainers.base import Phase, Trainer, TrainerAlert, TrainerInputs, TrainingDivergedError, Weights


class FakeTrainer(Trainer[TrainingConfig]):
    """One noisy scalar learns by Adam with momentum; the batch size says how many milliseconds a step takes (from
    256 on, the default, none).

    Behaviour by ``max_grad_norm``: 666 diverges at step 5, 667 raises at step 5, 668 kills the process at step 5.
    """

    def __init__(self, config: TrainingConfig, inputs: TrainerInputs) -> None:
        super().__init__(config, inputs)
        self.policy = build_language_model(inputs.backbone, len(inputs.task.tokenizer), inputs.seed)
        if inputs.policy is not None:
            self.policy.load_state_dict(inputs.policy)
        self.reference = inputs.reference
        self.optimizer = torch.optim.AdamW(self.policy.head.parameters(), lr=config.learning_rate)
        self.touched = 0.0

    def step(self) -> Generator[Phase, None, dict[str, float]]:
        phases = 4
        for phase in range(phases):
            time.sleep(self.config.batch_size % 256 / phases / 1000)
            if phase < phases - 1:
                yield "waiting"
        if self.step_number == 4 and self.config.max_grad_norm == 666:
            raise TrainingDivergedError("the loss is NaN")
        if self.step_number == 4 and self.config.max_grad_norm == 667:
            raise RuntimeError("a bug in the trainer\nwith a second line")
        if self.step_number == 4 and self.config.max_grad_norm == 668:
            os.kill(os.getpid(), signal.SIGKILL)
        noise = torch.rand((), generator=generator_for(self.inputs.seed, "noise", self.step_number))
        loss = ((self.policy.head.bias - 1) ** 2).mean() * noise
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.learning_rate * (1 - self.step_number / self.config.steps)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.completions += self.config.batch_size
        self.touched += float(loss)
        if self.step_number == 2:
            self.alerts.append(TrainerAlert("kl_alarm", "KL 9 passed 5 nats"))
        metrics = {"loss": float(loss), "bias": float(self.policy.head.bias.sum()), "nothing": math.nan}
        print("a library that prints", flush=True)
        return self.end_step(metrics, -float(loss) if self.validates else None)

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


def install() -> None:
    from core.methods import table

    for name in ("sft", "ppo"):
        table.METHODS[name] = dataclasses.replace(table.METHODS[name], trainer="fake_trainer:FakeTrainer")


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parent))
    install()
    from core.engine.__main__ import main as engine

    engine()


if __name__ == "__main__":
    main()
