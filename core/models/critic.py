"""The critic: what reward is still to come, at each position."""

import torch
from torch import Tensor, nn

from core.models.language_model import LanguageModel
from core.sampling import Completions, completion_hidden


class ValueHead(nn.Module):
    """One hidden layer and a number, [..., H] -> [...]; starts at 0 everywhere."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width, width)
        self.outer = nn.Linear(width, 1)
        nn.init.zeros_(self.outer.weight)
        nn.init.zeros_(self.outer.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        value: Tensor = self.outer(torch.tanh(self.inner(hidden))).squeeze(-1)
        return value


class Critic(nn.Module):
    """Values of a completion's positions from a trunk of its own, or from the policy's hidden states, detached."""

    def __init__(self, width: int, trunk: LanguageModel | None = None) -> None:
        super().__init__()
        self.trunk = trunk
        self.head = ValueHead(width)

    def forward(self, batch: Completions, policy_hidden: Tensor) -> Tensor:
        """V before each completion token, [B, T]. The policy's trunk never learns from the value loss."""
        hidden = policy_hidden.detach() if self.trunk is None else completion_hidden(self.trunk, batch)
        values: Tensor = self.head(hidden)
        return values
