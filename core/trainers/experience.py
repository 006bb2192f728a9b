"""What is known of a batch of completions once it is scored, and what its KL costs."""

from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from core.logprobs import exact_kl, masked_mean, token_logprobs
from core.losses import PolicyStats, ppo_policy_loss
from core.sampling import Completions, Rollout, token_width

Metrics = dict[str, Tensor | float]
E = TypeVar("E", bound="Experience")


@dataclass(frozen=True)
class Scored:
    """A rollout as reward and reference see it; constants."""

    rollout: Rollout  # with logits and hidden states
    reference_logits: Tensor  # [B, T, V]
    kl: Tensor  # exact KL to the reference at each position, nats, undefined where masked, [B, T]
    scores: Tensor  # reward less the missing-EOS penalty, [B]


@dataclass(frozen=True)
class Experience:
    """A scored batch of completions, everything an update needs; constants."""

    batch: Completions
    logprobs: Tensor  # under the policy that sampled, [B, T]
    advantages: Tensor  # [B, T]
    reference_logits: Tensor  # [B, T, V]
    kl_weight: Tensor | None  # scalar: weight of the KL's direct gradient; None where the reward alone pays for KL

    def __len__(self) -> int:
        return len(self.batch)

    def rows(self: E, index: Tensor) -> E:
        """Some completions, without columns that none of them needs."""
        batch = self.batch.rows(index)
        width = token_width(batch)
        values = ((name, value) for name, value in vars(self).items() if isinstance(value, Tensor) and value.dim() > 1)
        return replace(self, batch=batch, **{name: value[index, :width] for name, value in values})


def kl_penalties(scored: Scored, kind: str) -> Tensor:
    """What each token's KL costs at β = 1, ``exact`` or the drawn token's log-ratio ``k1``; 0 where masked, [B, T]."""
    if kind == "exact":
        return torch.where(scored.rollout.mask, scored.kl, 0.0)
    at_reference = token_logprobs(scored.reference_logits, scored.rollout.tokens)
    return torch.where(scored.rollout.mask, scored.rollout.logprobs - at_reference, 0.0)


def rewards_less_kl(scored: Scored, beta: float, kind: str) -> Tensor:
    """Scores less the price of each completion's whole KL, [B]."""
    return scored.scores - beta * kl_penalties(scored, kind).sum(1)


def direct_kl(logits: Tensor, experience: Experience) -> Tensor:
    """The KL's direct gradient, a scalar loss; 0 where the reward alone pays for KL.

    The exact KL of a position does not depend on the letter drawn there, so in the reward it pulls on earlier letters
    only; its own pull comes from here, in the units of the advantages.
    """
    if experience.kl_weight is None:
        return logits.new_zeros(())
    return experience.kl_weight * masked_mean(exact_kl(logits, experience.reference_logits), experience.batch.mask)


def clipped_loss(
    logits: Tensor, logprobs: Tensor, experience: Experience, clip: float | tuple[float, float]
) -> tuple[Tensor, Metrics]:
    """PPO's clipped loss on an experience, plus the KL's direct gradient, and what describes it."""
    loss, stats = ppo_policy_loss(
        logprobs, experience.logprobs, experience.advantages, experience.batch.mask, clip
    )  # fmt: skip
    return loss + direct_kl(logits, experience), clip_metrics(loss, stats)


def clip_metrics(loss: Tensor, stats: PolicyStats) -> Metrics:
    """How a clipped step went."""
    return {
        "loss/policy_avg": loss.detach(),
        "policy/clipfrac_avg": stats.clip_fraction,
        "policy/approxkl_avg": stats.approx_kl,
        "val/ratio": stats.ratio,
    }
