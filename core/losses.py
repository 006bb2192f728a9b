"""The losses of RLHF: tensors in, tensors out.

Preference losses take summed (or, where said, mean) log-probabilities of completions, [B] each, and return one value
per example, [B]. Losses over tokens return a scalar: the sum over the tokens that count divided by ``normalizer`` –
by default their number, at least 1; give the whole batch's number to make micro-batches add up.
Write h = (log π(y_w) − log π_ref(y_w)) − (log π(y_l) − log π_ref(y_l)).
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from core.logprobs import masked_mean, masked_sum, token_logprobs

Clip = float | tuple[float, float]


class PolicyStats(NamedTuple):
    """How a policy update stands to the policy that sampled; scalars, detached."""

    clip_fraction: Tensor  # share of tokens whose clipped term is the larger one
    approx_kl: Tensor  # ½·mean(Δ²) of the log-probs
    ratio: Tensor  # mean of π/π_old


class ValueStats(NamedTuple):
    """How a value update stands to the values at sampling; scalars, detached."""

    clip_fraction: Tensor  # share of tokens whose clipped error is the larger one
    error: Tensor  # mean squared error, unclipped


def _normalizer(mask: Tensor, normalizer: float | Tensor | None) -> float | Tensor:
    return mask.sum().clamp(min=1) if normalizer is None else normalizer


def _bounds(clip: Clip) -> tuple[float, float]:
    return clip if isinstance(clip, tuple) else (clip, clip)


def sft_loss(logits: Tensor, tokens: Tensor, mask: Tensor, normalizer: float | Tensor | None = None) -> Tensor:
    """Cross-entropy over the tokens that count. logits [B, T, V], tokens and mask [B, T] -> scalar, nats."""
    logits = torch.where(mask.unsqueeze(-1), logits, 0)
    tokens = torch.where(mask, tokens, 0)
    return -masked_sum(token_logprobs(logits, tokens), mask) / _normalizer(mask, normalizer)


def reward_loss(
    chosen: Tensor,
    rejected: Tensor,
    margin: Tensor | float | None = None,
    target: Tensor | float | None = None,
    center: float = 0.0,
) -> Tensor:
    """Bradley–Terry with margin and soft target, [B] -> [B].

    With Δ = r_w − r_l − m: t·softplus(−Δ) + (1−t)·softplus(Δ) + c·(r_w + r_l)². t = 1, m = 0 and c = 0 is
    arXiv 2203.02155 Eq 1; the margin is that of arXiv 2307.09288 Eq 2; centring that of arXiv 2312.09244.
    """
    gap = chosen - rejected
    if margin is not None:
        gap = gap - margin
    loss = F.softplus(-gap)
    if target is not None:
        loss = target * loss + (1 - target) * F.softplus(gap)
    if center:
        loss = loss + center * (chosen + rejected).square()
    return loss


def _log_ratio_gap(
    policy_chosen: Tensor, policy_rejected: Tensor, reference_chosen: Tensor, reference_rejected: Tensor
) -> Tensor:
    return (policy_chosen - reference_chosen) - (policy_rejected - reference_rejected)


def dpo_loss(
    policy_chosen: Tensor,
    policy_rejected: Tensor,
    reference_chosen: Tensor,
    reference_rejected: Tensor,
    beta: float,
    label_smoothing: float = 0.0,
) -> Tensor:
    """−log σ(βh) (arXiv 2305.18290 Eq 7), with label smoothing ε (1−ε)·softplus(−βh) + ε·softplus(βh), [B] -> [B]."""
    h = _log_ratio_gap(policy_chosen, policy_rejected, reference_chosen, reference_rejected)
    return (1 - label_smoothing) * F.softplus(-beta * h) + label_smoothing * F.softplus(beta * h)


def robust_dpo_loss(
    policy_chosen: Tensor,
    policy_rejected: Tensor,
    reference_chosen: Tensor,
    reference_rejected: Tensor,
    beta: float,
    label_smoothing: float,
) -> Tensor:
    """[(1−ε)·softplus(−βh) − ε·softplus(βh)] / (1−2ε) (arXiv 2403.00409 Eq 12), [B] -> [B]; may be negative.

    Unbiased for the loss on clean labels when a share ε of them is flipped. Raises ValueError unless 0 ≤ ε < 0.5.
    """
    if not 0 <= label_smoothing < 0.5:
        raise ValueError(f"label_smoothing must be at least 0 and below 0.5, not {label_smoothing}")
    h = _log_ratio_gap(policy_chosen, policy_rejected, reference_chosen, reference_rejected)
    kept, flipped = F.softplus(-beta * h), F.softplus(beta * h)
    return ((1 - label_smoothing) * kept - label_smoothing * flipped) / (1 - 2 * label_smoothing)


def hinge_loss(
    policy_chosen: Tensor, policy_rejected: Tensor, reference_chosen: Tensor, reference_rejected: Tensor, beta: float
) -> Tensor:
    """max(0, 1 − βh) (SLiC, arXiv 2305.10425, against a reference), [B] -> [B]."""
    h = _log_ratio_gap(policy_chosen, policy_rejected, reference_chosen, reference_rejected)
    return torch.relu(1 - beta * h)


def ipo_loss(
    policy_chosen: Tensor, policy_rejected: Tensor, reference_chosen: Tensor, reference_rejected: Tensor, tau: float
) -> Tensor:
    """(h − 1/(2τ))² (arXiv 2310.12036 Eq 17), [B] -> [B]; log-probs are what the caller gives, summed or mean."""
    h = _log_ratio_gap(policy_chosen, policy_rejected, reference_chosen, reference_rejected)
    return (h - 1 / (2 * tau)).square()


def simpo_loss(policy_chosen_mean: Tensor, policy_rejected_mean: Tensor, beta: float, gamma: float) -> Tensor:
    """softplus(−(β(l̄_w − l̄_l) − γ)) of mean token log-probs (arXiv 2405.14734 Eq 6), [B] -> [B]; γ is absolute."""
    return F.softplus(gamma - beta * (policy_chosen_mean - policy_rejected_mean))


def kto_loss(
    policy: Tensor,
    reference: Tensor,
    label: Tensor,
    z0: Tensor | float,
    beta: float,
    desirable_weight: float = 1.0,
    undesirable_weight: float = 1.0,
) -> Tensor:
    """λ_D(1 − σ(β(a − z0))) for good and λ_U(1 − σ(β(z0 − a))) for bad examples (arXiv 2402.01306 Eq 7), [B] -> [B].

    a = log π − log π_ref of the completion; label: True where it is good, bool [B]; z0: the KL baseline, no gradient.
    """
    if isinstance(z0, Tensor):
        z0 = z0.detach()
    above = beta * (policy - reference - z0)
    good = desirable_weight * torch.sigmoid(-above)
    bad = undesirable_weight * torch.sigmoid(above)
    return torch.where(label, good, bad)


def reinforce_loss(
    logprobs: Tensor, advantages: Tensor, mask: Tensor, normalizer: float | Tensor | None = None
) -> Tensor:
    """−A·log π of what was drawn (Williams 1992); its gradient is the policy gradient. [B, T] each -> scalar.

    ``advantages`` are constants.
    """
    return -masked_sum(advantages.detach() * logprobs, mask) / _normalizer(mask, normalizer)


def ppo_policy_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    clip: Clip,
    normalizer: float | Tensor | None = None,
) -> tuple[Tensor, PolicyStats]:
    """Clipped policy loss max(−A·ρ, −A·clip(ρ, 1−ε_low, 1+ε_high)) (arXiv 1707.06347 Eq 7).

    All tensors [B, T]; ``old_logprobs`` and ``advantages`` are constants. Returns (scalar, stats).
    """
    low, high = _bounds(clip)
    difference = torch.where(mask, logprobs - old_logprobs.detach(), 0)
    advantages = torch.where(mask, advantages.detach(), 0)
    ratio = difference.exp()
    unclipped = -advantages * ratio
    clipped = -advantages * ratio.clamp(1 - low, 1 + high)
    loss = masked_sum(torch.maximum(unclipped, clipped), mask) / _normalizer(mask, normalizer)
    with torch.no_grad():
        stats = PolicyStats(
            clip_fraction=masked_mean((clipped > unclipped).float(), mask),
            approx_kl=masked_mean(difference.square(), mask) / 2,
            ratio=masked_mean(ratio, mask),
        )
    return loss, stats


def ppo_value_loss(
    values: Tensor,
    old_values: Tensor,
    returns: Tensor,
    mask: Tensor,
    clip: Clip,
    normalizer: float | Tensor | None = None,
) -> tuple[Tensor, ValueStats]:
    """½·max((V − R)², (clip(V, V_old − c, V_old + c) − R)²), the value loss of PPO's reference implementation.

    All tensors [B, T]; ``old_values`` and ``returns`` are constants. Returns (scalar, stats).
    """
    low, high = _bounds(clip)
    values = torch.where(mask, values, 0)
    old_values = torch.where(mask, old_values.detach(), 0)
    returns = torch.where(mask, returns.detach(), 0)
    error = (values - returns).square()
    clipped_error = (torch.clamp(values, old_values - low, old_values + high) - returns).square()
    loss = masked_sum(torch.maximum(error, clipped_error), mask) / (2 * _normalizer(mask, normalizer))
    with torch.no_grad():
        stats = ValueStats(
            clip_fraction=masked_mean((clipped_error > error).float(), mask), error=masked_mean(error, mask)
        )
    return loss, stats
