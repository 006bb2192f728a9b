"""What the pipeline learns, over seeds: the figures of the README.

    python tests/benchmarks/learning.py                       every experiment, seeds 0 1 2 (about an hour on one core)
    python tests/benchmarks/learning.py sft ppo-0.2 --seeds 0  some of them
    python tests/benchmarks/learning.py --backbone transformer ppo-0.2 dpo-gold

One line of JSON an experiment and seed goes to ``--out`` as it is done; a table of means follows at the end. Every
trainer runs with its default knobs but for those in the experiment's name.
"""

import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, TypeVar

import torch

sys.path.insert(0, str(Path(__file__).parent))
from over_seeds import Figures, run

from core.evaluation.optimal import ReferenceSample, optimality, reference_sample
from core.evaluation.probe import measure, probe_rollout
from core.methods.table import METHODS
from core.models.build import BackboneConfig
from core.pipeline import fitting
from core.rewards.sources import GoldReward
from core.tasks.base import Task
from core.tasks.table import load_task
from core.trainers.base import Trainer, TrainerInputs, Weights
from core.trainers.dpo import DPOTrainer
from core.trainers.models import load_reward_model, reference_policy
from core.trainers.pairs import automatic_pairs, encode_pairs
from core.trainers.ppo import PPOTrainer
from core.trainers.reward import RewardTrainer, agreement
from core.trainers.sft import SFTTrainer

FRESH_PAIRS = 3000
FINAL_COMPLETIONS = 4096
T = TypeVar("T")


def finish(generator: Generator[Any, None, T]) -> T:
    """Run a generator to its end and return what it returns."""
    while True:
        try:
            next(generator)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


class Bench:
    """One seed's task and whatever experiments share: SFT weights, reward model, reference sample."""

    def __init__(self, seed: int, backbone: BackboneConfig | None = None) -> None:
        self.seed = seed
        self.backbone = backbone or BackboneConfig()
        self.task: Task = load_task("words", seed)
        self.seconds = 0.0
        self._kept: dict[str, Any] = {}

    def kept(self, name: str, make: Callable[[], T]) -> T:
        if name not in self._kept:
            self._kept[name] = make()
        result: T = self._kept[name]
        return result

    def inputs(self, **weights: Weights) -> TrainerInputs:
        return TrainerInputs(self.task, self.seed, torch.device("cpu"), self.backbone, **weights)

    def train(self, kind: type[Trainer[Any]], method: str, inputs: TrainerInputs, **knobs: Any) -> Any:
        """A trained trainer; :attr:`seconds` tells how long it took (of this process' CPU time)."""
        start = time.process_time()
        fitted = fitting(METHODS[method], knobs, gold=True, backbone=self.backbone.kind)
        trainer = kind(METHODS[method].config(**fitted), inputs)
        while not trainer.finished:
            finish(trainer.step())
        self.seconds = time.process_time() - start
        return trainer

    def sft(self) -> Weights:
        return self.kept("sft", lambda: self.train(SFTTrainer, "sft", self.inputs()).weights())

    def reward_model(self) -> Weights:
        inputs = self.inputs(policy=self.sft())
        return self.kept("rm", lambda: self.train(RewardTrainer, "rm", inputs).weights())

    def sample(self) -> ReferenceSample:
        reference = reference_policy(self.inputs(policy=self.sft()))
        return self.kept("sample", lambda: finish(reference_sample(reference, self.task, GoldReward(self.task))))


def sft(bench: Bench) -> Figures:
    policy = bench.train(SFTTrainer, "sft", bench.inputs()).policy
    figures: Figures = {"seconds": bench.seconds}
    for name, prompts in (("trained", bench.task.prompts), ("held out", bench.task.held_out_prompts)):
        rollout = probe_rollout(policy, bench.task, prompts, FINAL_COMPLETIONS, seed=1)
        result = measure(rollout, bench.task, GoldReward(bench.task), None, None)
        assert result.follows_prompt is not None and result.gold_reward is not None
        figures |= {f"follows, {name}": result.follows_prompt, f"gold, {name}": result.gold_reward.mean}
        figures |= {f"ended, {name}": result.ended, f"distinct-2, {name}": result.distinct_2}
    return figures


def ppo(beta: float, **knobs: Any) -> Callable[[Bench], Figures]:
    def experiment(bench: Bench) -> Figures:
        trainer = bench.train(PPOTrainer, "ppo", bench.inputs(policy=bench.sft()), beta=beta, **knobs)
        gold, reference = GoldReward(bench.task), trainer.reference
        result = finish(optimality(trainer.sampler(), reference, bench.task, gold, beta, bench.sample()))
        figures: Figures = {
            "seconds": bench.seconds, "gold": result.reward, "gain": result.reward - result.reference_reward,
            "kl": result.kl, "effective": result.best.effective_sample_size, "J": result.objective,
            "J*": result.best.objective,
        }  # fmt: skip
        if result.value is not None:
            figures |= {"optimality": result.value, "optimality error": result.standard_error}
        return figures

    return experiment


def gain(method: str, kind: type[Trainer[Any]], **knobs: Any) -> Callable[[Bench], Figures]:
    """Gold reward gained by a method, and learned reward, whichever it goes by."""

    def experiment(bench: Bench) -> Figures:
        inputs = bench.inputs(policy=bench.sft(), reward_model=bench.reward_model())
        trainer = bench.train(kind, method, inputs, **knobs)
        gold = GoldReward(bench.task)
        before, after = (
            measure(
                probe_rollout(model, bench.task, bench.task.probe_prompts, FINAL_COMPLETIONS, seed=1),
                bench.task, gold, trainer.learned, trainer.reference,
            )
            for model in (trainer.reference, trainer.sampler())
        )  # fmt: skip
        assert before.gold_reward and after.gold_reward and after.kl and before.learned_reward and after.learned_reward
        return {
            "seconds": bench.seconds, "gold": after.gold_reward.mean,
            "gain": after.gold_reward.mean - before.gold_reward.mean, "kl": after.kl.mean,
            "learned gain": after.learned_reward.mean - before.learned_reward.mean,
            "unique": after.unique_fraction, "distinct-2": after.distinct_2,
        }  # fmt: skip

    return experiment


def reward_model(pairs: int, **knobs: Any) -> Callable[[Bench], Figures]:
    def experiment(bench: Bench) -> Figures:
        inputs = bench.inputs(policy=bench.sft())
        trainer = bench.train(RewardTrainer, "rm", inputs, pair_count=pairs, **knobs)
        model = load_reward_model(inputs, trainer.weights())
        judge = GoldReward(bench.task)
        fresh = finish(automatic_pairs(trainer.reference, bench.task, judge, FRESH_PAIRS, 0.0, bench.seed + 10_000))
        with torch.no_grad():
            chosen, rejected = model(encode_pairs(bench.task, fresh, inputs.device).both()).chunk(2)
        return {"seconds": bench.seconds, "accuracy on fresh pairs": agreement(chosen, rejected).item()}

    return experiment


EXPERIMENTS: dict[str, Callable[[Bench], Figures]] = {
    "sft": sft,
    "rm-200": reward_model(200),
    "rm-200-ensemble": reward_model(200, ensemble=5),
    "rm-2000": reward_model(2000),
    "rm-2000-ensemble": reward_model(2000, ensemble=5),
    "ppo-0.2": ppo(0.2),
    "ppo-0.5": ppo(0.5),
    "ppo-0.02": ppo(0.02),
    "ppo-learned": gain("ppo", PPOTrainer, reward="learned"),
    "dpo-online": gain("dpo", DPOTrainer),
    "dpo-gold": gain("dpo", DPOTrainer, judge="gold"),
}


if __name__ == "__main__":
    run(__doc__, EXPERIMENTS, Bench)
