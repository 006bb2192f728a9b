"""The reward model: a backbone and one number read at the last real token.

The head reads that token's hidden state beside the mean of the completion's states so far. A state alone has to carry
every count through the recurrence; the mean hands it over. On ``words`` that lifts the accuracy on fresh pairs from
0.65 to 0.70 with 200 pairs, and from 0.80 to 0.82 with 2,000.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from core.logprobs import masked_mean
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
        self.head = nn.Linear(2 * backbone.width, 1)
        nn.init.normal_(self.head.weight, std=backbone.width**-0.5 / 10)
        nn.init.zeros_(self.head.bias)
        self.shift: Tensor
        self.scale: Tensor
        self.register_buffer("shift", torch.zeros(()))
        self.register_buffer("scale", torch.ones(()))

    def raw(self, batch: Completions) -> Tensor:
        """Scores before shift and scale, [B], as the loss sees them.

        A completion without any token is read at its prompt's last one, with a mean of 0.
        """
        sequences, lengths = batch.sequences()
        hidden = self.backbone.hidden(sequences, lengths)
        last = (lengths - 1).to(hidden.device)
        place = torch.arange(hidden.shape[1], device=hidden.device)
        begin = batch.prompt_mask.sum(1, keepdim=True)
        inside = (place >= begin) & (place <= last.unsqueeze(1))
        at_last = hidden[torch.arange(len(last), device=hidden.device), last]
        mean = masked_mean(hidden, inside.unsqueeze(-1), 1)
        scores: Tensor = self.head(torch.cat([at_last, mean], 1)).squeeze(-1)
        return scores

    def forward(self, batch: Completions) -> Tensor:
        """Scores [B]."""
        return (self.raw(batch) - self.shift) / self.scale

    @torch.no_grad()
    def normalise_on(self, batch: Completions) -> None:
        """Let the scores of ``batch`` have mean 0 and deviation 1 from here on; equal scores keep their scale."""
        scores = self.raw(batch)
        deviation = scores.std()
        self.shift.copy_(scores.mean())
        self.scale.copy_(torch.where(deviation > 1e-6, deviation, 1.0))


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
