"""Weights that many tests start from, trained once."""

import pytest
import torch
from trainer_toys import copied, inputs, judged_pairs, steps

from core.methods.reward import RewardConfig
from core.methods.sft import SFTConfig
from core.trainers.base import Weights
from core.trainers.reward import RewardTrainer
from core.trainers.sft import SFTTrainer


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Small matrices: a second thread costs more than it helps, and equal thread counts give equal sums."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def sft_weights() -> Weights:
    """A policy that half knows the micro task: it still writes different texts, some of them too long."""
    trainer = SFTTrainer(SFTConfig(steps=40, batch_size=16, learning_rate=1e-2, evaluate_every=100), inputs())
    steps(trainer, 25)
    return copied(trainer.weights())


@pytest.fixture(scope="session")
def reward_weights(sft_weights: Weights) -> Weights:
    """An ensemble of two reward models."""
    config = RewardConfig(steps=20, batch_size=16, ensemble=2, pairs="labels", learning_rate=1e-2)
    trainer = RewardTrainer(config, inputs(policy=sft_weights, pairs=judged_pairs()))
    steps(trainer, 20)
    return copied(trainer.weights())
