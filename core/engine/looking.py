"""Completions to look at: of any run at any step, the same texts for the same seed, with what is known of each."""

from collections import OrderedDict
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from core.engine.protocol import SampleText
from core.engine.references import ReferenceSamples
from core.evaluation.best_of_n import BestOf
from core.evaluation.probe import joined
from core.logprobs import exact_kl, masked_sum, token_logprobs
from core.models.build import BackboneConfig, build_language_model
from core.models.language_model import LanguageModel
from core.randomness import derived_seed
from core.rewards.sources import GoldReward, LearnedReward
from core.sampling import Rollout, completion_logits, generate
from core.store.errors import CheckpointBrokenError
from core.tasks.base import Task
from core.trainers.base import TrainerInputs, Weights
from core.trainers.models import frozen, load_reward_model

CACHED = 12  # models; one is about a megabyte
DRAWN = 512  # completions of a best of n between two turns of a run

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
            with _fitting(source):
                model.load_state_dict(weights)
            self._policies[source] = model
        return _used(self._policies, source)

    def reward(self, source: Source, weights: Weights) -> LearnedReward:
        """The reward model with ``weights``, which ``source`` names."""
        if source not in self._rewards:
            inputs = TrainerInputs(self.task, self._seed, self.device, self._backbone)
            with _fitting(source):
                self._rewards[source] = LearnedReward(frozen(load_reward_model(inputs, weights)))
        return _used(self._rewards, source)

    def forget(self, run: int) -> None:
        """Drop the models of a run whose steps are about to be done again."""
        for cache in (self._policies, self._rewards):
            for source in [each for each in cache if each[0] == run]:
                del cache[source]


@contextmanager
def _fitting(source: Source) -> Iterator[None]:
    """Raise CheckpointBrokenError for weights of a model of another kind or size."""
    try:
        yield
    except (RuntimeError, KeyError, ValueError) as error:
        run, step = source
        raise CheckpointBrokenError(f"the weights of run {run} at step {step} fit no model of this session") from error


T = TypeVar("T")


def _used(cache: OrderedDict[Source, T], source: Source) -> T:
    cache.move_to_end(source)
    while len(cache) > CACHED:
        cache.popitem(last=False)
    return cache[source]


def write(model: LanguageModel, task: Task, wanted: Wanted) -> Rollout:
    """The completions that ``wanted`` asks for. A text depends on its prompt, its turn and the seed alone."""
    return _draw(model, task, wanted, wanted.prompts, _row_seeds(wanted, 1), keep=True)


def write_best(
    model: LanguageModel, task: Task, wanted: Wanted, best_of: BestOf
) -> Generator[None, None, Rollout]:  # fmt: skip
    """The best of ``n`` draws for each, the first of which is what :func:`write` gives; yields between pieces."""
    pieces, seeds = [], _row_seeds(wanted, best_of.n)
    for rows in torch.arange(len(wanted.prompts)).split(max(1, DRAWN // best_of.n)):
        prompts = [wanted.prompts[row] for row in rows.tolist() for _ in range(best_of.n)]
        at = best_of.n * int(rows[0])
        pieces.append(best_of.pick(_draw(model, task, wanted, prompts, seeds[at : at + len(prompts)], keep=False)))
        yield
    return joined(pieces)


def _row_seeds(wanted: Wanted, draws: int) -> list[int]:
    """A seed for each of ``draws`` draws of each completion, those of one completion next to one another."""
    turns: dict[str, int] = {}
    seeds = []
    for prompt in wanted.prompts:
        turns[prompt] = turns.get(prompt, -1) + 1
        purposes = [f"look/{prompt}", *(f"look/{prompt}/draw {draw}" for draw in range(1, draws))]
        seeds += [derived_seed(wanted.seed, purpose, turns[prompt]) for purpose in purposes]
    return seeds


def _draw(
    model: LanguageModel, task: Task, wanted: Wanted, prompts: Sequence[str], seeds: list[int], keep: bool
) -> Rollout:
    return generate(
        model, [task.encode_prompt(each) for each in prompts], wanted.max_new_tokens or task.max_new_tokens,
        wanted.temperature, wanted.top_k, wanted.top_p, row_seeds=torch.tensor(seeds), keep=keep,
    )  # fmt: skip


@torch.no_grad()
def describe(
    rollout: Rollout, prompts: Sequence[str], cache: ModelCache, temperature: float,
    policy: LanguageModel | None, reference: LanguageModel | None, reward: LearnedReward | None,
) -> list[SampleText]:  # fmt: skip
    """Each completion with its scores, its log-prob under both models and KL(policy ‖ reference) along it.

    None for ``policy`` or ``reference``: no model says how likely its texts are. The same meaning whoever wrote the
    rollout, so that both columns of a comparison can be compared.
    """
    unknown: Sequence[float | None] = [None] * len(rollout)
    both = [None if each is None else completion_logits(each, rollout, temperature) for each in (policy, reference)]
    logprobs, reference_logprobs = (
        unknown if each is None else masked_sum(token_logprobs(each, rollout.tokens), rollout.mask, 1).tolist()
        for each in both
    )
    kls = unknown
    if both[0] is not None and both[1] is not None:
        kls = masked_sum(exact_kl(both[0], both[1]), rollout.mask, 1).tolist()
    gold = unknown
    if cache.gold is not None:
        gold = cache.gold(rollout).tolist()
    learned = unknown
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
