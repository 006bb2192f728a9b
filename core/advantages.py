"""How much better than expected: generalised advantage estimation and group baselines."""

from typing import Literal

import torch
from torch import Tensor


def gae(rewards: Tensor, values: Tensor, mask: Tensor, gamma: float, lam: float) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation (arXiv 1506.02438 Eq 11–16).

    δ_t = r_t + γ·V_{t+1} − V_t with V = 0 after the last real token; A_t = δ_t + γλ·A_{t+1}.

    Args:
        rewards: [B, T]; values: [B, T]; mask: True at real tokens, which come first in each row, bool [B, T].

    Returns:
        (advantages, returns), both [B, T], 0 at masked slots; returns = advantages + values.
    """
    rewards, values = torch.where(mask, rewards, 0), torch.where(mask, values, 0)
    advantages = torch.zeros_like(values)
    following_value = torch.zeros_like(values[:, 0])
    following_advantage = torch.zeros_like(values[:, 0])
    for t in range(values.shape[1] - 1, -1, -1):
        delta = rewards[:, t] + gamma * following_value - values[:, t]
        advantage = torch.where(mask[:, t], delta + gamma * lam * following_advantage, 0)
        advantages[:, t] = advantage
        following_value, following_advantage = values[:, t], advantage
    return advantages, advantages + values


def group_advantages(rewards: Tensor, scale: Literal["std", "none"] = "std") -> Tensor:
    """Reward against the mean of its group (GRPO, arXiv 2402.03300 §4.1.2), [B, G] -> [B, G].

    ``std`` divides by the group's standard deviation (n − 1) + 1e-4; ``none`` does not (Dr.GRPO, arXiv 2503.20783).
    A group of one, or of equal rewards, gives exactly 0. Raises ValueError for another scale.
    """
    if scale not in ("std", "none"):
        raise ValueError(f"scale must be std or none, not {scale!r}")
    equal = (rewards == rewards[:, :1]).all(1, keepdim=True)
    centred = torch.where(equal, 0, rewards - rewards.mean(1, keepdim=True))
    if scale == "none" or rewards.shape[1] < 2:
        return centred
    return centred / (rewards.std(1, keepdim=True) + 1e-4)


def rloo_advantages(rewards: Tensor) -> Tensor:
    """Reward against the mean of the *other* members of its group (arXiv 2402.14740 Eq 7), [B, G] -> [B, G].

    A group of one has no others and gives 0, as does a group of equal rewards, exactly.
    """
    members = rewards.shape[1]
    if members < 2:
        return torch.zeros_like(rewards)
    equal = (rewards == rewards[:, :1]).all(1, keepdim=True)
    others = (rewards.sum(1, keepdim=True) - rewards) / (members - 1)
    return torch.where(equal, 0, rewards - others)
