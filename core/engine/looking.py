"""Completions to look at: of any run at any step, the same texts for the same seed, with what is known of each."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from core.engine.protocol import SampleText
from core.engine.references import ReferenceSamples
from core.logprobs import exact_kl, masked_sum, token_logprobs
from core.models.build import BackboneConfig, build_language_model
from core.models.language_model import LanguageModel
from core.randomness import derived_seed
from core.rewards.sources import GoldReward, LearnedReward
from core.sampling import Rollout, completion_logits, generate
from core.tasks.base import Task
from core.trainers.base import TrainerInputs, Weights
from core.trainers.models import frozen, load_reward_model

CACHED = 12  # models; one is about a megabyte

Source = tuple[int, int]  # run and step


@dataclass(frozen=True)
class Wanted:
    """How to write. ``prompts`` has one entry per completion; a prompt named again gets its next completion."""

    prompts: tuple[str, ...]
    seed: int
    temperature: float = 0.8
    top_k: int = 0
    top_p: float = 1.0
    max_new_tokens: int | None = None


class ModelCache:
    """Frozen models by run and step, the least used ones given up."""

    def __init__(self, task: Task, backbone: BackboneConfig, device: torch.device, seed: int) -> None:
        self.task = task
        self.device = device
        self._backbone = backbone
        self._seed = seed
        self._policies: OrderedDict[Source, LanguageModel] = OrderedDict()
        self._rewards: OrderedDict[Source, LearnedReward] = OrderedDict()
        self.gold = GoldReward(task) if task.gold is not None else None
        self.reference_samples = ReferenceSamples(task)

    def untrained(self) -> LanguageModel:
        """The model before any run, as the session's seed draws it."""
        model = build_language_model(self._backbone, len(self.task.tokenizer), self._seed)
        return frozen(model.to(self.device))

    def policy(self, source: Source, weights: Weights) -> LanguageModel:
        """The language model with ``weights``, which ``source`` names."""
        if source not in self._policies:
            model = self.untrained()
            model.load_state_dict(weights)
            self._policies[source] = model
        return _used(self._policies, source)

    def reward(self, source: Source, weights: Weights) -> LearnedReward:
        """The reward model with ``weights``, which ``source`` names."""
        if source not in self._rewards:
            inputs = TrainerInputs(self.task, self._seed, self.device, self._backbone)
            self._rewards[source] = LearnedReward(frozen(load_reward_model(inputs, weights)))
        return _used(self._rewards, source)

    def forget(self, run: int) -> None:
        """Drop the models of a run whose steps are about to be done again."""
        for cache in (self._policies, self._rewards):
            for source in [each for each in cache if each[0] == run]:
                del cache[source]


T = TypeVar("T")


def _used(cache: OrderedDict[Source, T], source: Source) -> T:
    cache.move_to_end(source)
    while len(cache) > CACHED:
        cache.popitem(last=False)
    return cache[source]


def write(model: LanguageModel, task: Task, wanted: Wanted) -> Rollout:
    """The completions that ``wanted`` asks for. A text depends on its prompt, its turn and the seed alone."""
    turns: dict[str, int] = {}
    seeds = []
    for prompt in wanted.prompts:
        turns[prompt] = turns.get(prompt, -1) + 1
        seeds.append(derived_seed(wanted.seed, f"look/{prompt}", turns[prompt]))
    return generate(
        model, [task.encode_prompt(each) for each in wanted.prompts], wanted.max_new_tokens or task.max_new_tokens,
        wanted.temperature, wanted.top_k, wanted.top_p, row_seeds=torch.tensor(seeds), keep=True,
    )  # fmt: skip


@torch.no_grad()
def describe(
    rollout: Rollout, prompts: Sequence[str], cache: ModelCache, temperature: float,
    policy: LanguageModel, reference: LanguageModel | None, reward: LearnedReward | None,
) -> list[SampleText]:  # fmt: skip
    """Each completion with its scores, its log-prob under both models and KL(policy ‖ reference) along it.

    The same meaning whoever wrote the rollout, so that both columns of a comparison can be compared.
    """
    logits = completion_logits(policy, rollout, temperature)
    logprobs = masked_sum(token_logprobs(logits, rollout.tokens), rollout.mask, 1).tolist()
    reference_logprobs: Sequence[float | None] = [None] * len(rollout)
    kls: Sequence[float | None] = [None] * len(rollout)
    if reference is not None:
        reference_logits = completion_logits(reference, rollout, temperature)
        reference_logprobs = masked_sum(token_logprobs(reference_logits, rollout.tokens), rollout.mask, 1).tolist()
        kls = masked_sum(exact_kl(logits, reference_logits), rollout.mask, 1).tolist()
    gold: Sequence[float | None] = [None] * len(rollout)
    if cache.gold is not None:
        gold = cache.gold(rollout).tolist()
    learned: Sequence[float | None] = [None] * len(rollout)
    members: Sequence[list[float]] = [[] for _ in range(len(rollout))]
    if reward is not None:
        each: Tensor = reward.model.each(rollout)
        learned, members = each.mean(0).tolist(), each.T.tolist()
    return [
        SampleText(
            prompt=prompt, text=text, ended=ended, gold_reward=gold_reward, learned_reward=learned_reward,
            member_rewards=member_rewards, logprob=logprob, reference_logprob=reference_logprob, kl=kl,
        )
        for prompt, text, ended, gold_reward, learned_reward, member_rewards, logprob, reference_logprob, kl in zip(
            prompts, rollout.texts(cache.task.tokenizer), rollout.ended.tolist(), gold, learned, members, logprobs,
            reference_logprobs, kls, strict=True,
        )
    ]  # fmt: skip
