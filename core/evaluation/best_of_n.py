"""Best of n as a policy: what it writes, how much reward it gets and how far it is from the model it draws from."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from core.models.language_model import LanguageModel
from core.rewards.sources import RewardSource
from core.sampling import Rollout, generate, token_width


@dataclass(frozen=True)
class BestOfNPoint:
    """Where best of n stands on the plane of reward against KL, averaged over prompts."""

    n: int
    reward: float
    kl: float  # nats a sequence
    kl_bound: float  # log n − (n−1)/n


def kl_bound(n: int) -> float:
    """log n − (n−1)/n nats: the KL of best of n if no two draws ever had the same reward (arXiv 2401.01879)."""
    return math.log(n) - (n - 1) / n


def best_of_n(
    model: LanguageModel, prompts: Sequence[Sequence[int]], n: int, reward: RewardSource, max_new_tokens: int,
    temperature: float = 1.0, generator: torch.Generator | None = None,
) -> Rollout:  # fmt: skip
    """Of ``n`` completions of each prompt the one with the highest reward (the first of equals)."""
    drawn = generate(model, [p for p in prompts for _ in range(n)], max_new_tokens, temperature, generator=generator)
    scores = reward(drawn).view(-1, n)
    rows = torch.arange(len(prompts), device=scores.device) * n + scores.argmax(1)
    best = drawn.rows(rows)
    return Rollout(best.prompts, best.prompt_mask, best.tokens, best.mask, drawn.logprobs[rows, : token_width(best)])


def best_of_n_point(rewards: Tensor, n: int) -> BestOfNPoint:
    """Estimate best of n from rewards [P, N] of N completions of each of P prompts.

    The reward is the mean over all n-subsets of the N draws, hence without bias. The KL is exact for the distribution
    that the draws make up: best of n multiplies the probability of every completion of reward r by
    (F(r)ⁿ − F(r−)ⁿ) / (F(r) − F(r−)), F being the distribution of rewards, if one of the best is taken at random. From
    few draws it is too low, at most log N: take N well above n. Raises ValueError unless 1 ≤ n ≤ N.
    """
    prompts, count = rewards.shape
    if not 1 <= n <= count:
        raise ValueError(f"n must be at least 1 and at most the {count} completions of a prompt, not {n}")
    ordered = rewards.double().sort(1).values
    # The i-th smallest (i from 1) is the best of an n-subset with probability C(i−1, n−1) / C(N, n).
    ranks = torch.arange(1, count + 1, dtype=torch.float64, device=rewards.device)
    log_share = torch.where(
        ranks >= n,
        _log_choose(ranks - 1, n - 1) - _log_choose(torch.tensor(float(count), dtype=torch.float64), n),
        -torch.inf,
    )
    reward = (ordered * log_share.exp()).sum(1)
    divergences = [_divergence(row, n) for row in ordered]
    return BestOfNPoint(n, reward.mean().item(), sum(divergences) / prompts, kl_bound(n))


def _divergence(rewards: Tensor, n: int) -> float:
    """Σ over distinct rewards of (F(r)ⁿ − F(r−)ⁿ)·log of that over F(r) − F(r−)."""
    _, counts = rewards.unique_consecutive(return_counts=True)
    shares = counts.double() / len(rewards)
    up_to = shares.cumsum(0).clamp(max=1)
    chosen = up_to**n - (up_to - shares).clamp(min=0) ** n
    return torch.where(chosen > 0, chosen * (chosen / shares).clamp(min=1e-300).log(), 0.0).sum().item()


def _log_choose(total: Tensor, some: int) -> Tensor:
    """log of the binomial coefficient; undefined where ``total < some``."""
    return torch.lgamma(total + 1) - math.lgamma(some + 1) - torch.lgamma((total - some).clamp(min=0) + 1)
