"""Samples of references, drawn once and shared by all that is measured against them."""

import hashlib
from collections import OrderedDict
from collections.abc import Generator
from dataclasses import replace

import torch

from core.evaluation.optimal import ReferenceSample, reference_sample
from core.models.language_model import LanguageModel
from core.rewards.sources import RewardSource
from core.tasks.base import Task
from core.trainers.base import Weights

KEPT = 2  # references; 20 × 4,096 completions of 20 letters take about 18 MB
SCORED = 4  # reward sources of each


class ReferenceSamples:
    """Completions of a reference by its weights, and their scores by reward source; the least used are given up.

    They stay in memory: to read them back from a disk would save little over drawing them again.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self._kept: OrderedDict[tuple[str, int], OrderedDict[str, ReferenceSample]] = OrderedDict()

    def sample(
        self, reference: LanguageModel, source: str, reward: RewardSource, per_prompt: int
    ) -> Generator[None, None, ReferenceSample]:
        """``per_prompt`` completions of each probe prompt with their rewards; yields while it draws or scores.

        ``source`` names the reward: the same name must mean the same scores.
        """
        key = (digest(reference.state_dict()), per_prompt)
        scored = self._kept.get(key)
        if scored is None:
            drawn = yield from reference_sample(reference, self._task, reward, per_prompt)
            scored = self._kept[key] = OrderedDict({source: drawn})
        elif source not in scored:
            drawn = next(iter(scored.values()))
            rewards = []
            for batch in drawn.completions:
                rewards.append(reward(batch))
                yield
            scored[source] = replace(drawn, rewards=torch.stack(rewards))
        self._kept.move_to_end(key)
        scored.move_to_end(source)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        while len(scored) > SCORED:
            scored.popitem(last=False)
        return scored[source]


def digest(weights: Weights) -> str:
    """A name for weights that no others share."""
    found = hashlib.sha256()
    for name in sorted(weights):
        found.update(name.encode())
        found.update(weights[name].detach().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()
