"""What is learned from 40 pairs of Chinese sentences: the reward model over five folds, then PPO and DPO.

python tests/benchmarks/sentences.py [--seeds 0 1 2] [--backbone lstm] [--policies]
"""

import argparse
import dataclasses
import random
from collections.abc import Sequence
from typing import Any

import torch

from core.config import make
from core.device import choose_device
from core.evaluation.probe import measure, probe_rollout
from core.methods.table import METHODS
from core.models.build import BackboneConfig
from core.pipeline import fitting
from core.preferences.pair import PreferencePair
from core.rewards.sources import LearnedReward
from core.tasks.base import Task
from core.tasks.table import load_task
from core.trainers.base import Trainer, TrainerInputs, Weights
from core.trainers.dpo import DPOTrainer
from core.trainers.models import frozen_policy
from core.trainers.pairs import encode_pairs
from core.trainers.ppo import PPOTrainer
from core.trainers.reward import RewardTrainer, agreement
from core.trainers.sft import SFTTrainer

FOLDS = 5
SHOWN = 5


def trained(trainer: Trainer[Any]) -> Trainer[Any]:
    """The same, all steps done."""
    while not trainer.finished:
        for _ in trainer.step():
            pass
    return trainer


def copied(weights: Weights) -> Weights:
    return {name: value.clone() for name, value in weights.items()}


def fitted(method: str, given: argparse.Namespace, **knobs: Any) -> Any:
    """A method's configuration, as it fits the backbone."""
    return make(METHODS[method].config, fitting(METHODS[method], knobs, gold=False, backbone=given.backbone))


def reward_model(
    task: Task, pairs: Sequence[PreferencePair], policy: Weights, given: argparse.Namespace, seed: int
) -> RewardTrainer:
    """A reward model of some pairs; its last weights, since four held-out pairs choose no step."""
    config = fitted("rm", given, steps=given.rm_steps, batch_size=32, evaluate_every=given.rm_steps, keep_best=False)
    inputs = TrainerInputs(
        dataclasses.replace(task, pairs=tuple(pairs)), seed, torch.device("cpu"), BackboneConfig(kind=given.backbone),
        policy=policy,
    )  # fmt: skip
    trainer = RewardTrainer(config, inputs)
    trained(trainer)
    return trainer


def main() -> None:
    """Print one line for each fold and each policy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--backbone", default="lstm")
    parser.add_argument("--sft-steps", type=int, default=600)
    parser.add_argument("--rm-steps", type=int, default=60)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--policies", action="store_true", help="also train PPO and DPO on all pairs' reward model")
    given = parser.parse_args()
    choose_device("cpu", threads=1)
    cpu, backbone = torch.device("cpu"), BackboneConfig(kind=given.backbone)
    found: list[float] = []
    for seed in given.seeds:
        task = load_task("sentences", seed)
        sft_config = fitted("sft", given, steps=given.sft_steps, batch_size=64, evaluate_every=given.sft_steps)
        policy = copied(trained(SFTTrainer(sft_config, TrainerInputs(task, seed, cpu, backbone))).weights())
        order = random.Random(seed).sample(task.pairs, len(task.pairs))
        for fold in range(FOLDS):
            held_out = order[fold::FOLDS]
            model = reward_model(task, [each for each in order if each not in held_out], policy, given, seed).model
            with torch.no_grad():
                chosen, rejected = model(encode_pairs(task, held_out, cpu).both()).chunk(2)
            found.append(agreement(chosen, rejected).item())
            print(f"seed {seed} fold {fold}: {found[-1]:.3f}  mean so far {sum(found) / len(found):.3f}", flush=True)
        if not given.policies:
            continue
        weights = copied(reward_model(task, task.pairs, policy, given, seed).weights())
        inputs = TrainerInputs(task, seed, cpu, backbone, policy=policy, reward_model=weights)
        reference = frozen_policy(inputs, policy)
        rate = {"learning_rate": 1e-3} if given.backbone == "lstm" else {}
        ppo = PPOTrainer(
            fitted("ppo", given, steps=given.steps, batch_size=256, evaluate_every=given.steps, **rate), inputs
        )
        dpo = DPOTrainer(fitted("dpo", given, steps=given.steps, evaluate_every=given.steps), inputs)
        assert ppo.learned is not None
        learned: LearnedReward = ppo.learned
        for name, model_of in (("SFT", None), ("PPO", ppo), ("DPO", dpo)):
            model_now = reference if model_of is None else trained(model_of).sampler()
            rollout = probe_rollout(model_now, task, task.probe_prompts, 1024, 0)
            result = measure(rollout, task, None, learned, reference)
            assert result.learned_reward is not None and result.kl is not None
            written = rollout.texts(task.tokenizer)[:SHOWN]
            texts = " ".join(prompt + text for prompt, text in zip(task.probe_prompts, written, strict=False))
            print(
                f"seed {seed} {name}: learned reward {result.learned_reward.mean:.3f} ± "
                f"{result.learned_reward.standard_error:.3f}  KL {result.kl.mean:.2f}  distinct-2 "
                f"{result.distinct_2:.3f}  {texts}", flush=True,
            )  # fmt: skip


if __name__ == "__main__":
    main()
