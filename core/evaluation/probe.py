"""Measuring a policy by sampling from it: reward, KL, diversity, whether it heeds its prompt."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from core.evaluation.diversity import distinct_2, unique_fraction
from core.logprobs import exact_kl, masked_sum
from core.models.language_model import LanguageModel
from core.randomness import generator_for
from core.rewards.sources import RewardSource
from core.sampling import Completions, Rollout, completion_logits, generate
from core.tasks.base import Task

DIVERSITY_COMPLETIONS = 256  # distinct_2 and unique_fraction depend on how many are pooled


@dataclass(frozen=True)
class Measured:
    """A mean over n completions and its standard error."""

    mean: float
    standard_error: float

    @classmethod
    def of(cls, values: Tensor) -> "Measured":
        """Of values [n]; the error of a single value is 0."""
        error = values.std().item() / math.sqrt(len(values)) if len(values) > 1 else 0.0
        return cls(values.mean().item(), error)


@dataclass(frozen=True)
class ProbeResult:
    """What a sample of completions at temperature 1 says of a policy; None where it cannot be measured."""

    completions: int
    gold_reward: Measured | None
    learned_reward: Measured | None
    kl: Measured | None  # exact sequence KL to the reference, nats
    follows_prompt: float | None  # share of completions that heed their prompt
    mean_length: float  # letters
    ended: float  # share that ends with EOS
    distinct_2: float
    unique_fraction: float

    def metrics(self) -> dict[str, float]:
        """The figures by their metric names."""
        named = {
            "gold_reward": self.gold_reward, "learned_reward": self.learned_reward, "objective/kl": self.kl,
        }  # fmt: skip
        values = {name: value.mean for name, value in named.items() if value is not None}
        values |= {f"{name}_error": value.standard_error for name, value in named.items() if value is not None}
        if self.follows_prompt is not None:
            values["follows_prompt"] = self.follows_prompt
        return values | {
            "completions/mean_length": self.mean_length, "completions/clipped_ratio": 1 - self.ended,
            "distinct_2": self.distinct_2, "unique_fraction": self.unique_fraction,
        }  # fmt: skip


def probe_rollout(
    policy: LanguageModel, task: Task, prompts: Sequence[str], count: int, seed: int, temperature: float = 1.0
) -> Rollout:
    """``count`` completions of ``prompts`` in turn, the same texts for the same weights and seed."""
    encoded = [task.encode_prompt(prompts[row % len(prompts)]) for row in range(count)]
    generator = generator_for(seed, "probe")
    return generate(policy, encoded, task.max_new_tokens, temperature, generator=generator, keep=True)


def sequence_kl(rollout: Rollout, reference: LanguageModel, temperature: float = 1.0) -> Tensor:
    """Exact KL(π‖π_ref) at each position of what π wrote, summed over the completion, [B], nats.

    ``rollout`` must hold its logits (``keep=True``) and be at ``temperature``.
    """
    assert rollout.logits is not None
    with torch.no_grad():
        per_token = exact_kl(rollout.logits, completion_logits(reference, rollout, temperature))
    return masked_sum(per_token, rollout.mask, 1)


def measure(
    rollout: Rollout, task: Task, gold: RewardSource | None, learned: RewardSource | None,
    reference: LanguageModel | None, temperature: float = 1.0,
) -> ProbeResult:  # fmt: skip
    """What ``rollout`` shows; diversity is that of its first 256 completions."""
    texts = rollout.texts(task.tokenizer)
    follows = None
    if task.follows is not None:
        prompts = [task.tokenizer.decode(row) for row in rollout.prompts.tolist()]
        follows = sum(map(task.follows, prompts, texts)) / len(texts)
    return ProbeResult(
        completions=len(texts),
        gold_reward=None if gold is None else Measured.of(gold(rollout)),
        learned_reward=None if learned is None else Measured.of(learned(rollout)),
        kl=None if reference is None else Measured.of(sequence_kl(rollout, reference, temperature)),
        follows_prompt=follows,
        mean_length=sum(map(len, texts)) / len(texts),
        ended=rollout.ended.float().mean().item(),
        distinct_2=distinct_2(texts[:DIVERSITY_COMPLETIONS]),
        unique_fraction=unique_fraction(texts[:DIVERSITY_COMPLETIONS]),
    )


def win_rate(scores: Tensor, reference_scores: Tensor) -> float:
    """Share of rows whose score is higher than the reference's on the same prompt, ties counting half."""
    wins = (scores > reference_scores).float() + 0.5 * (scores == reference_scores).float()
    return wins.mean().item()


def batches(total: int, size: int) -> list[int]:
    """``total`` in pieces of at most ``size``."""
    return [min(size, total - start) for start in range(0, total, size)]


def joined(pieces: list[Rollout]) -> Rollout:
    """Rollouts with the same prompts' width as one; completions padded to the longest."""
    longest = max(each.tokens.shape[1] for each in pieces)
    widest = max(each.prompts.shape[1] for each in pieces)

    def grown(tensor: torch.Tensor, width: int) -> torch.Tensor:
        missing = width - tensor.shape[1]
        return torch.cat([tensor, tensor.new_zeros(len(tensor), missing, *tensor.shape[2:])], 1) if missing else tensor

    fields = {}
    for field in dataclasses.fields(Rollout):
        values = [getattr(each, field.name) for each in pieces]
        if any(value is None for value in values):
            continue
        width = widest if field.name.startswith("prompt") else longest
        fields[field.name] = torch.cat([grown(value, width) for value in values])
    return Rollout(**fields)


def completions_only(rollout: Rollout) -> Completions:
    """A rollout without logits and hidden states, to keep many of them."""
    return Completions(rollout.prompts, rollout.prompt_mask, rollout.tokens, rollout.mask)
