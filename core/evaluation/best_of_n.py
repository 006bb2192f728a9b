"""Best of n as a policy: what it writes, how much reward it gets and how far it is from the model it draws from."""

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from core.evaluation.optimal import Optimality, ReferenceSample, held_against, optimal_point
from core.models.language_model import LanguageModel
from core.randomness import generator_for
from core.rewards.sources import RewardSource
from core.sampling import Rollout, generate, token_width
from core.tasks.base import Task

KL_COMPLETIONS = 512  # of each prompt, from which the KL is estimated where that is not said
PARTS = 8  # of the draws, whose estimates show how far theirs together may be off


@dataclass(frozen=True)
class BestOf:
    """How best of n picks: of ``n`` completions the one with the highest ``reward``."""

    n: int
    reward: RewardSource

    @property
    def kl_bound(self) -> float:
        return kl_bound(self.n)

    def pick(self, drawn: Rollout) -> Rollout:
        """Of each ``n`` rows in turn the best one (the first of equals)."""
        scores = self.reward(drawn).view(-1, self.n)
        rows = torch.arange(len(scores), device=scores.device) * self.n + scores.argmax(1)
        best = drawn.rows(rows)
        return Rollout(
            best.prompts, best.prompt_mask, best.tokens, best.mask, drawn.logprobs[rows, : token_width(best)]
        )


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
    asked = [prompt for prompt in prompts for _ in range(n)]
    return BestOf(n, reward).pick(generate(model, asked, max_new_tokens, temperature, generator=generator))


def probe_best_of_n(
    model: LanguageModel, task: Task, prompts: Sequence[str], count: int, seed: int, best_of: BestOf,
    temperature: float = 1.0,
) -> Rollout:  # fmt: skip
    """``count`` completions of ``prompts`` in turn, as :func:`core.evaluation.probe.probe_rollout` gives a model's."""
    encoded = [task.encode_prompt(prompts[row % len(prompts)]) for row in range(count)]
    dice = generator_for(seed, "probe")
    return best_of_n(model, encoded, best_of.n, best_of.reward, task.max_new_tokens, temperature, dice)


def best_of_n_point(rewards: Tensor, n: int, judged: Tensor | None = None) -> BestOfNPoint:
    """Estimate best of n from rewards [P, N] of N completions of each of P prompts.

    ``judged``, of the same shape, is what the reward of the pick is read from where that is another than it picks by.
    The reward is the mean over all n-subsets of the N draws, hence without bias. The KL is exact for the distribution
    that the draws make up: best of n multiplies the probability of every completion of reward r by
    (F(r)ⁿ − F(r−)ⁿ) / (F(r) − F(r−)), F being the distribution of rewards, if one of the best is taken at random. From
    few draws it is too low, at most log N: take N well above n. Raises ValueError unless 1 ≤ n ≤ N.
    """
    prompts, count = rewards.shape
    if not 1 <= n <= count:
        raise ValueError(f"n must be at least 1 and at most the {count} completions of a prompt, not {n}")
    ordered, order = rewards.double().sort(1)
    read = ordered if judged is None else judged.double().gather(1, order)
    # The i-th smallest (i from 1) is the best of an n-subset with probability C(i−1, n−1) / C(N, n).
    ranks = torch.arange(1, count + 1, dtype=torch.float64, device=rewards.device)
    log_share = torch.where(
        ranks >= n,
        _log_choose(ranks - 1, n - 1) - _log_choose(torch.tensor(float(count), dtype=torch.float64), n),
        -torch.inf,
    )
    reward = (read * log_share.exp()).sum(1)
    divergences = [_divergence(row, n) for row in ordered]
    return BestOfNPoint(n, reward.mean().item(), sum(divergences) / prompts, kl_bound(n))


def best_of_n_optimality(best_of: BestOf, beta: float, sample: ReferenceSample) -> Generator[None, None, Optimality]:
    """How much of the way to the best at β best of n goes, all of it from the reference's own completions.

    Where it picks by another reward than the sample's, it is measured by the sample's. Yields between prompts. Raises
    ValueError when there are fewer than 2n completions of a prompt.
    """
    n, count = best_of.n, sample.rewards.shape[1]
    if count < 2 * n:
        raise ValueError(f"best of {n} needs at least {2 * n} completions of the reference a prompt, not {count}")
    scores = []
    for batch in sample.completions:
        scores.append(best_of.reward(batch))
        yield
    picked_by = torch.stack(scores)
    point = best_of_n_point(picked_by, n, sample.rewards)
    parts = min(PARTS, count // n)
    pieces = zip(picked_by.chunk(parts, 1), sample.rewards.chunk(parts, 1), strict=True)
    values = torch.tensor([part.reward - beta * part.kl for part in (best_of_n_point(p, n, r) for p, r in pieces)])
    return held_against(
        optimal_point(sample.rewards, beta), sample.rewards.mean().item(), point.reward - beta * point.kl,
        values.std().item() / math.sqrt(parts), point.reward, point.kl,
    )  # fmt: skip


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
