"""Preference pairs as tensors, and the automatic labeller that makes them."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from core.models.language_model import LanguageModel
from core.preferences.pair import PreferencePair
from core.preferences.tastes import Score, TasteError, find_taste
from core.randomness import generator_for
from core.rewards.sources import GoldReward, RewardSource
from core.sampling import Completions, completions_of, generate
from core.tasks.base import Task
from core.trainers.base import Phase

ROUND = 256  # prompts sampled between two returns of control
MOST_ROUNDS_PER_PAIR = 20  # a collapsed model gives only duplicates: do not wait for ever


@dataclass(frozen=True)
class PairBatch:
    """N pairs; margins and targets as :func:`core.losses.reward_loss` takes them."""

    chosen: Completions
    rejected: Completions
    strength: Tensor  # [N], 0 … 1
    target: Tensor  # [N], probability that chosen is better

    def __len__(self) -> int:
        return len(self.chosen)

    def rows(self, index: Tensor) -> "PairBatch":
        """Some of the pairs, in that order."""
        return PairBatch(self.chosen.rows(index), self.rejected.rows(index), self.strength[index], self.target[index])

    def both(self) -> Completions:
        """Chosen, then rejected, as one batch of 2N rows."""
        return together(self.chosen, self.rejected)


def together(first: Completions, second: Completions) -> Completions:
    """The rows of both, padded to the longer of them."""
    widths = [max(a.shape[1], b.shape[1]) for a, b in ((first.prompts, second.prompts), (first.tokens, second.tokens))]

    def widen(x: Tensor, width: int) -> Tensor:
        return torch.nn.functional.pad(x, (0, width - x.shape[1]))

    def stack(name: str, width: int) -> Tensor:
        return torch.cat([widen(getattr(first, name), width), widen(getattr(second, name), width)])

    return Completions(
        stack("prompts", widths[0]),
        stack("prompt_mask", widths[0]),
        stack("tokens", widths[1]),
        stack("mask", widths[1]),
    )


def encode_pairs(task: Task, pairs: Sequence[PreferencePair], device: torch.device) -> PairBatch:
    """Pairs of texts as tensors. Raises TaskError for a completion with letters outside the alphabet."""
    prompts = [task.encode_prompt(pair.prompt) for pair in pairs]
    return PairBatch(
        chosen=completions_of(prompts, [task.encode_completion(pair.chosen) for pair in pairs], device),
        rejected=completions_of(prompts, [task.encode_completion(pair.rejected) for pair in pairs], device),
        strength=torch.tensor([pair.strength for pair in pairs], device=device),
        target=torch.tensor([pair.target for pair in pairs], device=device),
    )


class TextReward:
    """Any score of texts as a reward source, float32 [B]."""

    def __init__(self, task: Task, score: Score) -> None:
        self.task = task
        self.score = score

    def __call__(self, batch: Completions) -> Tensor:
        tokenizer = self.task.tokenizer
        prompts = [tokenizer.decode(row) for row in batch.prompts.tolist()]
        texts = batch.texts(tokenizer)
        scores = [self.score(prompt, text) for prompt, text in zip(prompts, texts, strict=True)]
        return torch.tensor(scores, dtype=torch.float32, device=batch.tokens.device)


def automatic_judge(task: Task, taste: str) -> RewardSource:
    """Who judges automatic pairs: the gold rule or another taste. Raises ValueError for a task without a gold rule."""
    if taste == "gold":
        return GoldReward(task)
    try:
        return TextReward(task, find_taste(taste, task.gold).score)
    except TasteError as error:
        raise ValueError(str(error)) from error


def automatic_pairs(
    reference: LanguageModel, task: Task, judge: RewardSource, count: int, noise: float, seed: int
) -> Generator[Phase, None, list[PreferencePair]]:
    """Pairs of the reference's own completions, the better one chosen by ``judge``, a share ``noise`` turned round.

    Yields between rounds. Texts of a pair differ, as do their scores. Fewer than ``count`` pairs come back when the
    model hardly ever writes two different answers.
    """
    pairs: list[PreferencePair] = []
    for number in range(MOST_ROUNDS_PER_PAIR * (1 + count // ROUND)):
        dice = generator_for(seed, "automatic pairs", number)
        asked = torch.randint(len(task.prompts), (ROUND,), generator=dice).tolist()
        prompts = [task.encode_prompt(task.prompts[index]) for index in asked]
        left, right = (generate(reference, prompts, task.max_new_tokens, generator=dice) for _ in range(2))
        difference = (judge(left) - judge(right)).tolist()
        flips = (torch.rand(ROUND, generator=dice) < noise).tolist()
        texts = zip(left.texts(task.tokenizer), right.texts(task.tokenizer), strict=True)
        for index, (first, second), gap, flip in zip(asked, texts, difference, flips, strict=True):
            if gap != 0 and first != second:
                chosen, rejected = (first, second) if (gap > 0) != flip else (second, first)
                pairs.append(PreferencePair(task.prompts[index], chosen, rejected))
        yield "labelling"
        if len(pairs) >= count:
            break
    return pairs[:count]


def has_own_pairs(task: Task, taste: str) -> bool:
    """Does ``automatic`` mean the task's own pairs? So it is where there are any; a gold rule beside them audits."""
    return taste == "gold" and bool(task.pairs)


def pairs_of_task(
    reference: LanguageModel, task: Task, taste: str, count: int, noise: float, seed: int
) -> Generator[Phase, None, list[PreferencePair]]:
    """The pairs that need no person: :func:`automatic_pairs` judged by a taste, or the task's own."""
    if has_own_pairs(task, taste):
        return list(task.pairs)
    return (yield from automatic_pairs(reference, task, automatic_judge(task, taste), count, noise, seed))
