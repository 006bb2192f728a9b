"""The best that is possible: for a reward r, a reference and a price β, the policy π* ∝ π_ref·exp(r/β).

Its value J*(β) = β·log E_ref[exp(r/β)] and its place on the plane of reward against KL are estimated by self-normalised
importance sampling. The reference alone hardly ever writes what π* writes most: of 4,096 completions a prompt the worst
prompt of ``words`` had an effective sample size of 5 at β 0.2. So where a policy is at hand its completions are added,
each weighted by π_ref over the mixture of both (the balance heuristic, Veach and Guibas 1995): the estimate stays
consistent, and the effective sample size grows to hundreds. That size says how far to trust the rest.
"""

import math
from collections.abc import Generator
from dataclasses import dataclass

import torch
from torch import Tensor

from core.evaluation.probe import completions_only, joined, sequence_kl
from core.logprobs import masked_sum, token_logprobs
from core.models.language_model import LanguageModel
from core.randomness import generator_for
from core.rewards.sources import RewardSource
from core.sampling import Completions, completion_logits, generate
from core.tasks.base import Task

LEAST_EFFECTIVE = 30.0  # below this effective sample size no optimality is given
REFERENCE_PER_PROMPT = 4096
POLICY_PER_PROMPT = 1024
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


@dataclass(frozen=True)
class ReferenceSample:
    """Completions of the probe prompts by the reference; P prompts, n completions of each."""

    completions: tuple[Completions, ...]  # one batch of n rows per prompt
    rewards: Tensor  # [P, n]
    logprobs: Tensor  # of each completion under the reference, [P, n]


def sequence_logprobs(model: LanguageModel, batch: Completions) -> Generator[None, None, Tensor]:
    """log p(completion | prompt) at temperature 1, [B]; yields between chunks."""
    parts = []
    for rows in torch.arange(len(batch), device=batch.tokens.device).split(CHUNK):
        part = batch.rows(rows)
        with torch.no_grad():
            parts.append(masked_sum(token_logprobs(completion_logits(model, part), part.tokens), part.mask, 1))
        yield
    return torch.cat(parts)


def reference_sample(
    reference: LanguageModel, task: Task, reward: RewardSource, per_prompt: int = REFERENCE_PER_PROMPT, seed: int = 0
) -> Generator[None, None, ReferenceSample]:
    """Fresh completions of each probe prompt with their rewards; yields between batches."""
    batches, rewards, logprobs = [], [], []
    for number, prompt in enumerate(task.probe_prompts):
        dice = generator_for(seed, "reference sample", number)
        encoded = [task.encode_prompt(prompt)] * per_prompt
        pieces, scores = [], []
        for first in range(0, per_prompt, CHUNK):
            pieces.append(generate(reference, encoded[first : first + CHUNK], task.max_new_tokens, generator=dice))
            scores.append(reward(pieces[-1]))
            yield
        rollout = joined(pieces)
        batches.append(completions_only(rollout))
        rewards.append(torch.cat(scores))
        logprobs.append(masked_sum(rollout.logprobs, rollout.mask, 1))
    return ReferenceSample(tuple(batches), torch.stack(rewards), torch.stack(logprobs))


def optimal_point(rewards: Tensor, beta: float, log_weights: Tensor | None = None) -> OptimalPoint:
    """The best policy at β from rewards [P, n] of completions of P prompts.

    ``log_weights`` [P, n] are log π_ref − log q for completions that were drawn from q; none where q is the reference.
    Raises ValueError unless β > 0.
    """
    if not beta > 0:
        raise ValueError(f"β must be positive for an optimal policy to exist, not {beta:g}")
    rewards = rewards.double()
    scaled = rewards / beta
    if log_weights is not None:
        scaled = scaled + log_weights.double()
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
    sample: ReferenceSample, per_prompt: int = POLICY_PER_PROMPT, seed: int = 1,
) -> Generator[None, None, Optimality]:  # fmt: skip
    """Measure J on fresh completions at temperature 1 and hold it against J*; yields between batches.

    ``sample`` is that of :func:`reference_sample` for the same reference and reward source.
    """
    reached, kls, all_rewards, log_weights = [], [], [], []
    for number, prompt in enumerate(task.probe_prompts):
        dice = generator_for(seed, "optimality", number)
        encoded = [task.encode_prompt(prompt)] * per_prompt
        rollout = generate(policy, encoded, task.max_new_tokens, generator=dice, keep=True)
        reached.append(reward(rollout))
        kls.append(sequence_kl(rollout, reference))
        yield
        by_reference = yield from sequence_logprobs(reference, rollout)
        elsewhere = yield from sequence_logprobs(policy, sample.completions[number])
        under_policy = torch.cat([elsewhere, masked_sum(rollout.logprobs, rollout.mask, 1)]).double()
        under_reference = torch.cat([sample.logprobs[number], by_reference]).double()
        share = per_prompt / len(under_policy)
        mixture = torch.logaddexp(under_reference + math.log(1 - share), under_policy + math.log(share))
        log_weights.append(under_reference - mixture)
        all_rewards.append(torch.cat([sample.rewards[number], reached[-1]]))
    scores, kl = torch.cat(reached), torch.cat(kls)
    values = scores - beta * kl
    objective, error = values.mean().item(), (values.std() / math.sqrt(len(values))).item()
    best = optimal_point(torch.stack(all_rewards), beta, torch.stack(log_weights))
    return held_against(best, sample.rewards.mean().item(), objective, error, scores.mean().item(), kl.mean().item())


def held_against(
    best: OptimalPoint, reference_reward: float, objective: float, error: float, reward: float, kl: float
) -> Optimality:
    """A policy's J = reward − β·KL, known up to ``error``, as a share of the way from the reference to ``best``."""
    distance = best.objective - reference_reward
    trusted = best.effective_sample_size >= LEAST_EFFECTIVE and distance > 0
    return Optimality(
        value=(objective - reference_reward) / distance if trusted else None,
        standard_error=error / distance if trusted else 0.0,
        objective=objective,
        objective_error=error,
        reward=reward,
        kl=kl,
        reference_reward=reference_reward,
        best=best,
    )
