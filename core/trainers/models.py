"""The models that trainers begin with."""

from typing import TypeVar

import torch

from core.models.build import build_language_model
from core.models.language_model import LanguageModel
from core.models.reward_model import RewardEnsemble
from core.trainers.base import TrainerInputs, Weights

M = TypeVar("M", bound=torch.nn.Module)


def fresh_policy(inputs: TrainerInputs) -> LanguageModel:
    """The policy to train: from the weights given, or new ones drawn from the run's seed."""
    model = build_language_model(inputs.backbone, len(inputs.task.tokenizer), inputs.seed)
    if inputs.policy is not None:
        model.load_state_dict(inputs.policy)
    return model.to(inputs.device)


def frozen_policy(inputs: TrainerInputs, weights: Weights | None) -> LanguageModel:
    """A language model that no one trains. Raises ValueError when there are no weights for it."""
    if weights is None:
        raise ValueError("this method needs a trained policy to start from; run sft first")
    model = build_language_model(inputs.backbone, len(inputs.task.tokenizer), inputs.seed)
    model.load_state_dict(weights)
    return frozen(model.to(inputs.device))


def reference_policy(inputs: TrainerInputs) -> LanguageModel:
    """The frozen reference: its own weights where given, else those that the policy starts from."""
    return frozen_policy(inputs, inputs.reference if inputs.reference is not None else inputs.policy)


def frozen_reward_model(inputs: TrainerInputs) -> RewardEnsemble:
    """The frozen reward model of the weights given. Raises ValueError when there are none."""
    if inputs.reward_model is None:
        raise ValueError("this method needs a reward model; run rm first, or choose the gold reward")
    return frozen(load_reward_model(inputs, inputs.reward_model))


def load_reward_model(inputs: TrainerInputs, weights: Weights) -> RewardEnsemble:
    """The ensemble whose :meth:`state_dict` is ``weights``."""
    members = 1 + max(int(name.split(".")[1]) for name in weights)
    with torch.random.fork_rng(devices=[]):  # the heads are drawn, then overwritten
        model = RewardEnsemble(
            build_language_model(inputs.backbone, len(inputs.task.tokenizer), inputs.seed) for _ in range(members)
        )
    model.load_state_dict(weights)
    return model.to(inputs.device)


def frozen(model: M) -> M:
    """``model`` without gradients, in evaluation mode."""
    model.requires_grad_(False)
    model.eval()
    return model
