"""The best that is possible: for a reward r, a reference and a price β, the policy π* ∝ π_ref·exp(r/β).

Its value J*(β) = β·log E_ref[exp(r/β)] and its place on the plane of reward against KL are estimated from completions
of the reference alone, by self-normalised importance weights. The effective sample size says how far to trust them.
"""

import math
from collections.abc import Generator
from dataclasses import dataclass

import torch
from torch import Tensor

from core.evaluation.probe import sequence_kl
from core.models.language_model import LanguageModel
from core.randomness import generator_for
from core.rewards.sources import RewardSource
from core.sampling import generate
from core.tasks.base import Task

LEAST_EFFECTIVE = 30.0  # below this effective sample size no optimality is given
REFERENCE_PER_PROMPT = 4096
POLICY_COMPLETIONS = 20_480
CHUNK = 512


@dataclass(frozen=True)
class OptimalPoint:
    """What the best policy at one β reaches, averaged over prompts."""

    beta: float
    objective: float  # J*(β) = reward − β·kl
    reward: float
    kl: float  # nats a sequence
    effective_sample_size: float  # the smallest of any prompt


@dataclass(frozen=True)
class Optimality:
    """How much of the way from the reference to the best a policy has gone at one β."""

    value: float | None  # (J − R_ref) / (J* − R_ref); None where J* cannot be trusted
    standard_error: float
    objective: float  # J = reward − β·kl of the policy
    objective_error: float
    reward: float
    kl: float
    reference_reward: float
    best: OptimalPoint


def reference_rewards(
    reference: LanguageModel, task: Task, reward: RewardSource, per_prompt: int = REFERENCE_PER_PROMPT, seed: int = 0
) -> Generator[None, None, Tensor]:
    """Rewards of fresh reference completions of the probe prompts, [prompts, ≥ per_prompt]; yields between batches."""
    rewards = []
    prompts = task.probe_prompts
    for number, prompt in enumerate(prompts):
        dice = generator_for(seed, "reference rewards", number)
        parts = []
        for _ in range(math.ceil(per_prompt / CHUNK)):
            encoded = [task.encode_prompt(prompt)] * CHUNK
            parts.append(reward(generate(reference, encoded, task.max_new_tokens, generator=dice)))
            yield
        rewards.append(torch.cat(parts))
    return torch.stack(rewards)


def optimal_point(rewards: Tensor, beta: float) -> OptimalPoint:
    """The best policy at β from the reference's rewards [prompts, n]. Raises ValueError unless β > 0."""
    if not beta > 0:
        raise ValueError(f"β must be positive for an optimal policy to exist, not {beta:g}")
    rewards = rewards.double()
    scaled = rewards / beta
    log_partition = scaled.logsumexp(1) - math.log(rewards.shape[1])
    weights = torch.softmax(scaled, 1)
    reward = (weights * rewards).sum(1)
    return OptimalPoint(
        beta=beta,
        objective=(beta * log_partition).mean().item(),
        reward=reward.mean().item(),
        kl=(reward / beta - log_partition).mean().item(),
        effective_sample_size=(1 / weights.square().sum(1)).min().item(),
    )


def optimality(
    policy: LanguageModel, reference: LanguageModel, task: Task, reward: RewardSource, beta: float,
    rewards: Tensor, completions: int = POLICY_COMPLETIONS, seed: int = 1,
) -> Generator[None, None, Optimality]:  # fmt: skip
    """Measure J on fresh completions at temperature 1 and hold it against J*; yields between batches.

    ``rewards`` are those of :func:`reference_rewards` for the same reference and reward source.
    """
    prompts = task.probe_prompts
    scores, kls = [], []
    for number in range(math.ceil(completions / CHUNK)):
        rows = [(number * CHUNK + row) % len(prompts) for row in range(CHUNK)]
        encoded = [task.encode_prompt(prompts[row]) for row in rows]
        dice = generator_for(seed, "optimality", number)
        rollout = generate(policy, encoded, task.max_new_tokens, generator=dice, keep=True)
        scores.append(reward(rollout))
        kls.append(sequence_kl(rollout, reference))
        yield
    reached, kl = torch.cat(scores), torch.cat(kls)
    values = reached - beta * kl
    objective, error = values.mean().item(), (values.std() / math.sqrt(len(values))).item()
    best = optimal_point(rewards, beta)
    reference_reward = rewards.mean().item()
    distance = best.objective - reference_reward
    trusted = best.effective_sample_size >= LEAST_EFFECTIVE and distance > 0
    return Optimality(
        value=(objective - reference_reward) / distance if trusted else None,
        standard_error=error / distance if trusted else 0.0,
        objective=objective,
        objective_error=error,
        reward=reached.mean().item(),
        kl=kl.mean().item(),
        reference_reward=reference_reward,
        best=best,
    )
