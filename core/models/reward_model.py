"""The reward model: a backbone and one number read at the last real token."""

import torch
from torch import Tensor, nn

from core.models.language_model import LanguageModel
from core.sampling import Completions


class RewardModel(nn.Module):
    """Scores prompt + completion (arXiv 2203.02155 §3.5); starts from a language model's weights.

    ``normalise_to`` fixes a shift and scale once trained, so that scores of reference completions have mean 0 and
    deviation 1 and one β means the same whatever the head's scale.
    """

    def __init__(self, backbone: LanguageModel) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(backbone.width, 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.shift: Tensor
        self.scale: Tensor
        self.register_buffer("shift", torch.zeros(()))
        self.register_buffer("scale", torch.ones(()))

    def forward(self, batch: Completions) -> Tensor:
        """Scores [B]; a completion without any token is read at its prompt's last one."""
        sequences, lengths = batch.sequences()
        hidden = self.backbone.hidden(sequences, lengths)
        last = (lengths - 1).clamp(min=0).to(hidden.device)
        at_last = hidden[torch.arange(len(last), device=hidden.device), last]
        scores: Tensor = self.head(at_last).squeeze(-1)
        return (scores - self.shift) / self.scale

    @torch.no_grad()
    def normalise_to(self, scores: Tensor) -> None:
        """Let ``scores``, as this model gives them now, have mean 0 and deviation 1 from here on."""
        self.shift += scores.mean() * self.scale
        self.scale *= scores.std().clamp(min=1e-6)
