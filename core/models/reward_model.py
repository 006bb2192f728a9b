"""The reward model: a backbone and one number read at the last real token."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from core.models.language_model import LanguageModel
from core.sampling import Completions


class RewardModel(nn.Module):
    """Scores prompt + completion (arXiv 2203.02155 §3.5); starts from a language model's weights.

    :meth:`normalise_on` fixes a shift and scale once trained, so that scores of reference completions have mean 0 and
    deviation 1 and one β means the same whatever the head's scale.
    """

    def __init__(self, backbone: LanguageModel) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(backbone.width, 1)
        nn.init.normal_(self.head.weight, std=backbone.width**-0.5 / 10)
        nn.init.zeros_(self.head.bias)
        self.shift: Tensor
        self.scale: Tensor
        self.register_buffer("shift", torch.zeros(()))
        self.register_buffer("scale", torch.ones(()))

    def raw(self, batch: Completions) -> Tensor:
        """Scores before shift and scale, [B], as the loss sees them.

        A completion without any token is read at its prompt's last one.
        """
        sequences, lengths = batch.sequences()
        hidden = self.backbone.hidden(sequences, lengths)
        last = (lengths - 1).to(hidden.device)
        at_last = hidden[torch.arange(len(last), device=hidden.device), last]
        scores: Tensor = self.head(at_last).squeeze(-1)
        return scores

    def forward(self, batch: Completions) -> Tensor:
        """Scores [B]."""
        return (self.raw(batch) - self.shift) / self.scale

    @torch.no_grad()
    def normalise_on(self, batch: Completions) -> None:
        """Let the scores of ``batch`` have mean 0 and deviation 1 from here on."""
        scores = self.raw(batch)
        self.shift.copy_(scores.mean())
        self.scale.copy_(scores.std().clamp(min=1e-6))


class RewardEnsemble(nn.Module):
    """Reward models trained apart; one of them is an ensemble of one.

    They begin alike but for their heads and see the pairs in orders of their own.
    """

    def __init__(self, backbones: Iterable[LanguageModel]) -> None:
        super().__init__()
        self.members: Sequence[RewardModel]
        self.members = nn.ModuleList(RewardModel(each) for each in backbones)  # type: ignore[assignment]

    def each(self, batch: Completions) -> Tensor:
        """Every member's scores, [members, B]."""
        return torch.stack([member(batch) for member in self.members])

    def forward(self, batch: Completions) -> Tensor:
        """The mean of the members' scores, [B]."""
        return self.each(batch).mean(0)

    def normalise_on(self, batch: Completions) -> None:
        """Normalise each member; see :meth:`RewardModel.normalise_on`."""
        for member in self.members:
            member.normalise_on(batch)
