"""What labels teach: a simulated person of some taste labels the reference's pairs, and the model follows their taste.

    python tests/benchmarks/tastes.py [vowel-50 vowel-ppo vowel-dpo gold-300 …] [--seeds 0 1 2] [--out FILE]

Everything is as in the app: pairs are chosen by :mod:`core.preferences.selection` (at random, by disagreement of the
reward models, some again), labels become training pairs by :mod:`core.preferences.conversion`, the reward models are
trained anew after every 25 decided labels. Accuracy is measured on fresh decided pairs, judged without noise.
"""

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))
from learning import Bench, finish
from over_seeds import Figures, run

from core.evaluation.diversity import unique_fraction
from core.evaluation.probe import DIVERSITY_COMPLETIONS
from core.models.language_model import LanguageModel
from core.models.reward_model import RewardEnsemble
from core.preferences.conversion import decided_pairs, for_training, pairs_with_ties
from core.preferences.labels import LabelRecord, Side
from core.preferences.selection import Candidate, SelectionConfig, choose_pair
from core.preferences.tastes import AutomaticLabeller, Taste, find_taste
from core.randomness import generator_for
from core.sampling import Completions, generate
from core.trainers.base import Weights
from core.trainers.dpo import DPOTrainer
from core.trainers.models import load_reward_model, reference_policy
from core.trainers.pairs import automatic_judge, automatic_pairs, encode_pairs
from core.trainers.ppo import PPOTrainer
from core.trainers.reward import RewardTrainer, agreement

PROMPTS, COMPLETIONS, EVERY = 24, 6, 12  # as the app asks for them
RETRAIN_EVERY = 25  # decided labels
ENSEMBLE = 3
FRESH_PAIRS = 2000
MEASURED = 2048  # completions


class Person:
    """Judges what the selection shows until there are enough decided labels."""

    def __init__(
        self, bench: Bench, taste: Taste, noise: float, selection: SelectionConfig, **reward_knobs: Any
    ) -> None:
        self.bench = bench
        self.labeller = AutomaticLabeller(taste, noise, bench.seed)
        self.selection = selection
        self.reward_knobs = {"pairs": "labels", "ensemble": ENSEMBLE, **reward_knobs}
        self.labels: list[LabelRecord] = []
        self.reward: RewardEnsemble | None = None
        self.weights: Weights | None = None
        self.trained_on = 0  # decided labels
        self.pool: list[Candidate] = []
        self.reference = reference_policy(bench.inputs(policy=bench.sft()))

    @property
    def decided(self) -> int:
        return sum(each.answer.decided for each in self.labels)

    def label(self, decided: int) -> None:
        """Go on until so many labels are decided; the reward models are trained on the way and at the end."""
        while self.decided < decided:
            if len(self.labels) % EVERY == 0:
                self.draw()
            turn = len(self.labels)
            pair = choose_pair(self.pool, self.labels, self.selection, self.bench.seed, turn)
            answer = self.labeller.judge(pair.prompt, pair.left.text, pair.right.text, turn)
            self.labels.append(pair.label(answer, time=float(turn), annotator="simulated"))
            if self.decided - self.trained_on >= RETRAIN_EVERY and self.decided < decided:
                self.retrain()
        self.retrain()

    def draw(self) -> None:
        """New completions, scored; those there are dropped from the far end."""
        turn = len(self.labels) // EVERY
        dice = random.Random(f"{self.bench.seed}/{turn}")
        prompts = [each for each in dice.sample(self.bench.task.prompts, PROMPTS) for _ in range(COMPLETIONS)]
        found = sampled(self.reference, self.bench, prompts, turn)
        scores = self.scores(found)
        texts = found.texts(self.bench.task.tokenizer)
        self.pool += [
            Candidate(prompt, Side(text, "reference", score=sum(members) / len(members) if members else None), members)
            for prompt, text, members in zip(prompts, texts, scores, strict=True)
        ]
        self.pool = self.pool[-2_048:]

    @torch.no_grad()
    def scores(self, batch: Completions) -> list[tuple[float, ...]]:
        if self.reward is None:
            return [()] * len(batch)
        return [tuple(each) for each in self.reward.each(batch).T.tolist()]

    def retrain(self) -> None:
        """Reward models on the labels so far; the pool is scored anew."""
        bench = self.bench
        pairs = tuple(pairs_with_ties(for_training(self.labels)))
        inputs = bench.inputs(policy=bench.sft(), pairs=pairs)
        self.weights = bench.train(RewardTrainer, "rm", inputs, **self.reward_knobs).weights()
        self.reward = load_reward_model(inputs, self.weights)
        self.trained_on = self.decided
        self.pool = []
        self.draw()

    def accuracy(self) -> float:
        """On fresh decided pairs of the reference, judged without noise."""
        task = self.bench.task
        judge = automatic_judge(task, self.labeller.taste.name)
        fresh = finish(automatic_pairs(self.reference, task, judge, FRESH_PAIRS, 0.0, self.bench.seed + 10_000))
        assert self.reward is not None
        with torch.no_grad():
            chosen, rejected = self.reward(encode_pairs(task, fresh, torch.device("cpu")).both()).chunk(2)
        return agreement(chosen, rejected).item()


def sampled(model: LanguageModel, bench: Bench, prompts: list[str], turn: int) -> Completions:
    task = bench.task
    dice = generator_for(bench.seed, "labelling", turn)
    return generate(model, [task.encode_prompt(each) for each in prompts], task.max_new_tokens, generator=dice)


def share(model: LanguageModel, bench: Bench, taste: Taste) -> tuple[float, float]:
    """Share of completions of trained prompts that the taste likes (score above 0), and the share of unique ones."""
    prompts = [bench.task.prompts[index % len(bench.task.prompts)] for index in range(MEASURED)]
    texts = sampled(model, bench, prompts, 777_777).texts(bench.task.tokenizer)
    liked = sum(taste.score(prompt, text) > 0 for prompt, text in zip(prompts, texts, strict=True))
    return liked / len(texts), unique_fraction(texts[:DIVERSITY_COMPLETIONS])


def person(
    bench: Bench, taste: str, noise: float, decided: int, selection: SelectionConfig, **reward_knobs: Any
) -> Person:
    """A person who has given so many decided labels; the same one for all experiments of a seed."""

    def make() -> Person:
        made = Person(bench, find_taste(taste, bench.task.gold), noise, selection, **reward_knobs)
        made.label(decided)
        return made

    return bench.kept(f"person {taste} {noise} {decided}", make)


def learned(taste: str, noise: float, decided: int, **reward_knobs: Any) -> Callable[[Bench], Figures]:
    """The reward model's accuracy after so many decided labels."""

    def experiment(bench: Bench) -> Figures:
        who = person(bench, taste, noise, decided, SelectionConfig(), **reward_knobs)
        return {
            "accuracy": who.accuracy(), "labels": float(len(who.labels)), "decided": float(who.decided),
            "trained on": float(len(decided_pairs(for_training(who.labels)))),
        }  # fmt: skip

    return experiment


def followed(taste: str, noise: float, decided: int, **knobs: Any) -> Callable[[Bench], Figures]:
    """PPO on the reward model of so many decided labels: does the policy write what the person likes?"""

    def experiment(bench: Bench) -> Figures:
        who = person(bench, taste, noise, decided, SelectionConfig())
        inputs = bench.inputs(policy=bench.sft(), reward_model=who.weights)
        trainer = bench.train(PPOTrainer, "ppo", inputs, reward="learned", **knobs)
        return moved(bench, who, trainer.sampler())

    return experiment


def straight(taste: str, noise: float, labels: int, **knobs: Any) -> Callable[[Bench], Figures]:
    """DPO on so many decided labels, without a reward model."""

    def experiment(bench: Bench) -> Figures:
        who = person(bench, taste, noise, labels, SelectionConfig())
        pairs = tuple(decided_pairs(for_training(who.labels)))
        trainer = bench.train(
            DPOTrainer, "dpo", bench.inputs(policy=bench.sft(), pairs=pairs), pairs="labels", **knobs
        )  # fmt: skip
        return {"pairs": float(len(pairs)), **moved(bench, who, trainer.sampler())}

    return experiment


def moved(bench: Bench, who: Person, policy: LanguageModel | None) -> Figures:
    assert policy is not None
    before, _ = share(who.reference, bench, who.labeller.taste)
    after, unique = share(policy, bench, who.labeller.taste)
    return {"before": before, "after": after, "gain": after - before, "unique": unique}


VOWEL = "ends-with-vowel"
EXPERIMENTS: dict[str, Callable[[Bench], Figures]] = {
    "vowel-50": learned(VOWEL, 0.1, 50),  # at least 0.95
    "vowel-ppo": followed(VOWEL, 0.1, 50, beta=0.3, steps=60),  # after ≥ 0.9 at unique ≥ 0.5
    "vowel-dpo": straight(VOWEL, 0.1, 300),  # gain ≥ 0.25
    "gold-300": learned("gold", 0.0, 300),  # at least 0.68, mean of three seeds
}


if __name__ == "__main__":
    run(__doc__, EXPERIMENTS, Bench)
