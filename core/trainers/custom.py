"""A policy gradient with advantages from a function outside."""

import torch
from torch import Tensor

from core.extension import load_function
from core.methods.custom import CustomConfig
from core.methods.grpo import GRPOConfig
from core.trainers.base import TrainerInputs
from core.trainers.grpo import GRPOTrainer


class CustomTrainer(GRPOTrainer):
    """GRPO whose advantages are ``function(rewards [groups, group size])``."""

    config_class = CustomConfig

    def __init__(self, config: GRPOConfig, inputs: TrainerInputs) -> None:
        assert isinstance(config, CustomConfig)
        self.name = config.function
        self.function = load_function(config.function)
        super().__init__(config, inputs)

    def advantages(self, rewards: Tensor) -> Tensor:
        found = self.function(rewards)
        if not isinstance(found, Tensor) or found.shape != rewards.shape:
            what = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise ValueError(f"{self.name} must return a tensor of shape {tuple(rewards.shape)}, not {what}")
        return found.to(torch.float32)
