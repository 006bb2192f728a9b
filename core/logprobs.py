"""Log-probabilities, entropy and KL of next-token distributions; means over what counts.

Shapes: B batch, T time, V vocabulary. Masks are bool and True where a token counts. Masked slots are selected away,
never multiplied by 0, so that whatever they hold – NaN too – reaches neither a value nor a gradient.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F


def token_logprobs(logits: Tensor, tokens: Tensor) -> Tensor:
    """log p(tokens[:, t]) under logits[:, t].

    Args:
        logits: [B, T, V]; position t predicts ``tokens[:, t]`` (already shifted by the caller).
        tokens: int64 [B, T].

    Returns:
        [B, T], nats.
    """
    return F.log_softmax(logits, dim=-1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)


def entropy(logits: Tensor) -> Tensor:
    """Exact entropy −Σ p log p over the last axis, [..., V] -> [...], nats."""
    logprobs = F.log_softmax(logits, dim=-1)
    return -(logprobs.exp() * logprobs).sum(-1)


def exact_kl(policy_logits: Tensor, reference_logits: Tensor) -> Tensor:
    """KL(policy ‖ reference) = Σ π (log π − log π_ref) over the last axis, [..., V] -> [...], nats."""
    policy = F.log_softmax(policy_logits, dim=-1)
    reference = F.log_softmax(reference_logits, dim=-1)
    return (policy.exp() * (policy - reference)).sum(-1)


def kl_estimate(policy_logprobs: Tensor, reference_logprobs: Tensor, kind: Literal["k1", "k2", "k3"] = "k1") -> Tensor:
    """Estimate KL(π ‖ π_ref) from the log-probs of tokens that were drawn from π; same shape, nats.

    With d = log π − log π_ref: k1 = d (unbiased, may be negative), k2 = d²/2 (biased, its gradient is that of the
    KL), k3 = e^(−d) − 1 + d (unbiased, never negative). http://joschu.net/blog/kl-approx.html
    Raises ValueError for another kind.
    """
    d = policy_logprobs - reference_logprobs
    if kind == "k1":
        return d
    if kind == "k2":
        return d.square() / 2
    if kind == "k3":
        return torch.expm1(-d) + d
    raise ValueError(f"kind must be k1, k2 or k3, not {kind!r}")


def masked_sum(x: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Sum of ``x`` where ``mask`` is True, over ``dim`` or everything."""
    kept = torch.where(mask, x, 0)
    return kept.sum() if dim is None else kept.sum(dim)


def masked_mean(x: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Mean of ``x`` where ``mask`` is True, over ``dim`` or everything; the mean of nothing is 0."""
    count = mask.sum() if dim is None else mask.sum(dim)
    return masked_sum(x, mask, dim) / count.clamp(min=1)


def masked_whiten(x: Tensor, mask: Tensor, keep_mean: bool = False) -> Tensor:
    """``x`` with the variance (n − 1) of its kept slots scaled to 1; other slots are 0.

    ``keep_mean=False`` also takes the mean away. With fewer than two kept slots there is no variance: all 0.
    """
    count = mask.sum()
    if count < 2:
        return torch.zeros_like(x)
    x = torch.where(mask, x, 0)
    mean = masked_mean(x, mask)
    variance = masked_sum((x - mean).square(), mask) / (count - 1)
    whitened = (x - mean) * torch.rsqrt(variance + 1e-8)
    if keep_mean:
        whitened = whitened + mean
    return torch.where(mask, whitened, 0)
