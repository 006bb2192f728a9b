"""Every kind of run, small; run as a script it goes on with saved runs in a process of its own."""

import importlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from trainer_toys import inputs, judged_pairs, one_step

from core.config import knobs as all_knobs
from core.methods.dpo import DPOConfig
from core.methods.ppo import PPOConfig
from core.methods.reward import RewardConfig
from core.methods.sft import SFTConfig
from core.methods.table import METHODS
from core.store.tensors import from_bytes, to_bytes
from core.trainers.base import Trainer, TrainerState, Weights
from core.trainers.dpo import DPOTrainer
from core.trainers.ppo import PPOTrainer
from core.trainers.reward import RewardTrainer
from core.trainers.sft import SFTTrainer

BEFORE, AFTER = 3, 3  # steps until the save, and behind it
COMMON: dict[str, Any] = {"steps": BEFORE + AFTER, "batch_size": 12, "evaluate_every": 2, "learning_rate": 1e-2}
POLICY = COMMON | {"probe_completions": 16}
PPO = POLICY | {"minibatch_size": 5, "reward": "gold", "beta": 0.1}
DPO = POLICY | {"pair_count": 30, "judge": "gold"}


@dataclass(frozen=True)
class Variant:
    """A run, and the knobs that are turned in it: before which step, which one, to what."""

    make: Callable[[Weights, Weights], Trainer[Any]]
    turned: tuple[tuple[int, str, float], ...] = ()


def sft(**knobs: Any) -> Callable[[Weights, Weights], Trainer[Any]]:
    return lambda policy, reward: SFTTrainer(SFTConfig(**COMMON | knobs), inputs())


def rm(**knobs: Any) -> Callable[[Weights, Weights], Trainer[Any]]:
    given = COMMON | {"pair_count": 30, "weight_decay": 0.05} | knobs
    return lambda policy, reward: RewardTrainer(RewardConfig(**given), inputs(policy=policy, pairs=judged_pairs()))


def ppo(**knobs: Any) -> Callable[[Weights, Weights], Trainer[Any]]:
    return lambda policy, reward: PPOTrainer(PPOConfig(**PPO | knobs), inputs(policy=policy, reward_model=reward))


def dpo(**knobs: Any) -> Callable[[Weights, Weights], Trainer[Any]]:
    return lambda policy, reward: DPOTrainer(
        DPOConfig(**DPO | knobs), inputs(policy=policy, reward_model=reward, pairs=judged_pairs())
    )


def of_the_table(name: str, **knobs: Any) -> Callable[[Weights, Weights], Trainer[Any]]:
    """Any method of the table: those of the knobs here that it has."""
    method = METHODS[name]
    module, _, trainer = method.trainer.partition(":")
    given = PPO | {"pair_count": 30, "group_size": 3, "critic_epochs": 2, "epochs": 2, "judge": "gold"} | knobs
    has = {each.name for each in all_knobs(method.config)}
    config = method.config(**{knob: value for knob, value in given.items() if knob in has})
    return lambda policy, reward: getattr(importlib.import_module(module), trainer)(
        config, inputs(policy=policy, reward_model=reward, pairs=judged_pairs())
    )


VARIANTS = {
    "sft": Variant(sft()),
    "sft, best kept, rate turned": Variant(
        sft(keep_best=True, patience=9, schedule="linear"), ((1, "learning_rate", 3e-2), (4, "max_grad_norm", 0.1))
    ),
    "rm": Variant(rm(pairs="automatic", label_noise=0.2)),
    "rm, ensemble of labels": Variant(rm(pairs="mixed", ensemble=2, keep_best=True, margin=0.5, center=0.01)),
    "ppo": Variant(ppo()),
    "ppo, learned reward, own critic": Variant(ppo(reward="learned", critic="own", average=0.9)),
    "ppo, adaptive β, k1": Variant(ppo(kl_target=0.02, kl_horizon=100, kl_penalty="k1", temperature=0.8)),
    "ppo, mixed reward, no average, alarm": Variant(ppo(reward="mixed", average=0.0, kl_alarm=1e-4, keep_best=True)),
    "ppo, knobs turned": Variant(
        ppo(missing_eos_penalty=0.5, entropy_coefficient=0.01),
        ((1, "learning_rate", 2e-2), (2, "beta", 0.5), (2, "temperature", 0.9), (4, "clip", 0.05)),
    ),
    "dpo, online": Variant(dpo(pairs="online")),
    "dpo, online, learned judge, two candidates": Variant(dpo(pairs="online", judge="learned", candidates=2)),
    "dpo, labels, rate and temperature turned": Variant(
        dpo(pairs="labels", label_smoothing=0.1),
        ((1, "temperature", 0.8), (2, "learning_rate", 2e-2), (4, "temperature", 1.3)),
    ),
    "dpo, automatic": Variant(dpo(pairs="automatic", label_noise=0.1, keep_best=True, patience=5)),
    "dpo, reference refreshed, β on its way": Variant(
        dpo(pairs="mixed", reference_refresh=2, beta_start=0.3, sft_weight=0.1, loss="ipo")
    ),
    "ppo, reference refreshed, β on its way": Variant(ppo(reference_refresh=2, beta_start=0.3)),
}
VARIANTS |= {name: Variant(of_the_table(name)) for name in METHODS if name not in VARIANTS and name != "dpo"}


def go_on(variant: Variant, trainer: Trainer[Any], until: int) -> list[dict[str, float]]:
    """Train to step ``until``, turning the variant's knobs on the way."""
    found = []
    while trainer.step_number < until:
        for step, name, value in variant.turned:
            if step == trainer.step_number:
                trainer.set_knob(name, value)
        found.append(one_step(trainer))
    return found


def save(path: Path, trainer: Trainer[Any]) -> None:
    state = trainer.state()
    path.write_bytes(to_bytes(state.tensors, state.values))


def main(folder: Path) -> None:
    """Go on with each run whose number comes on stdin, and say so when it has ended."""
    torch.set_num_threads(1)
    torch.manual_seed(12345)  # nothing may depend on torch's global generator
    policy, reward = (from_bytes((folder / name).read_bytes())[0] for name in ("policy", "reward"))
    variants = list(VARIANTS.values())
    for line in sys.stdin:
        number = int(line)
        trainer = variants[number].make(policy, reward)
        trainer.load_state(TrainerState(*from_bytes((folder / f"{number}.saved").read_bytes())))
        metrics = go_on(variants[number], trainer, BEFORE + AFTER)
        save(folder / f"{number}.ended", trainer)
        (folder / f"{number}.json").write_text(json.dumps(metrics))
        print(number, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
