"""What SFT, PPO and PPO without SFT learn of one-digit sums: accuracy at temperature 1 and processor time.

    python tests/benchmarks/arithmetic.py [--seed 42] [--backbone lstm] [--without-sft] [--set beta=0.05 ...]

PPO samples at temperature 1.5 without a price for leaving the reference: a sum that was never demonstrated has to be
answered rightly once before it can be learned, and at temperature 1 one or two of the twenty never are.
"""

import argparse
import time
from typing import Any

from core.config import find_knob, make
from core.device import choose_device
from core.methods.ppo import PPOConfig
from core.methods.sft import SFTConfig
from core.methods.table import METHODS
from core.models.build import BackboneConfig, build_language_model
from core.models.language_model import LanguageModel
from core.pipeline import fitting
from core.randomness import generator_for
from core.rewards.arithmetic import is_right, numbers, working
from core.sampling import generate
from core.tasks.base import Task
from core.tasks.table import load_task
from core.trainers.base import Trainer, TrainerInputs, Weights
from core.trainers.ppo import PPOTrainer
from core.trainers.sft import SFTTrainer

PER_SUM = 50
KNOBS = {"batch_size": 1024, "minibatch_size": 256, "temperature": 1.5, "beta": 0.0, "value_clip": 10.0}


def train(trainer: Trainer[Any]) -> float:
    """All steps; returns the processor seconds."""
    begin = time.process_time()
    while not trainer.finished:
        for _ in trainer.step():
            pass
    return time.process_time() - begin


def accuracy(policy: LanguageModel, task: Task, seed: int) -> tuple[float, float, float]:
    """Share of right answers over all sums and over those never demonstrated, and of right working over all."""
    prompts = [prompt for prompt in task.prompts for _ in range(PER_SUM)]
    encoded = [task.encode_prompt(prompt) for prompt in prompts]
    rollout = generate(policy, encoded, task.max_new_tokens, generator=generator_for(seed, "accuracy"))
    texts = rollout.texts(task.tokenizer)
    right = [is_right(prompt, text) for prompt, text in zip(prompts, texts, strict=True)]
    secret = [each for each, prompt in zip(right, prompts, strict=True) if prompt in task.held_out_prompts]
    worked = [
        text.startswith(f"<{working(*found)}>")
        for prompt, text in zip(prompts, texts, strict=True)
        if (found := numbers(prompt)) is not None
    ]
    return sum(right) / len(right), sum(secret) / len(secret), sum(worked) / len(worked)


def main() -> None:
    """Train and print one line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--backbone", default="lstm")
    parser.add_argument("--sft-steps", type=int, default=300)
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--working-reward", type=float, default=2.0)
    parser.add_argument("--set", nargs="*", default=[], metavar="KNOB=VALUE", help="knobs of PPO")
    parser.add_argument("--without-sft", action="store_true", help="only the run that starts from an untrained model")
    given = parser.parse_args()
    task = load_task("arithmetic", given.seed, {"working_reward": given.working_reward})
    backbone = BackboneConfig(kind=given.backbone)
    cpu = choose_device("cpu", threads=1).device
    knobs = {name: find_knob(PPOConfig, name).parse(value) for name, _, value in (s.partition("=") for s in given.set)}

    def fitted(method: str, values: dict[str, Any]) -> dict[str, Any]:
        return fitting(METHODS[method], values, gold=True, backbone=backbone.kind)

    own = {"steps": given.steps, "evaluate_every": given.steps, "kl_alarm": 0.0, **KNOBS, **knobs}
    config = make(PPOConfig, fitted("ppo", own))

    def report(name: str, policy: LanguageModel, seconds: float) -> None:
        everything, secret, worked = accuracy(policy, task, given.seed)
        print(
            f"{name:12} all {everything:.3f}  never demonstrated {secret:.3f}  right working {worked:.3f}  "
            f"{seconds:.0f} CPU s", flush=True,
        )  # fmt: skip

    def practise(name: str, weights: Weights) -> None:
        trainer = PPOTrainer(config, TrainerInputs(task, given.seed, cpu, backbone, policy=weights))
        seconds = train(trainer)
        report(name, trainer.final_policy(), seconds)

    if not given.without_sft:
        sft = SFTTrainer(
            make(SFTConfig, fitted("sft", {"steps": given.sft_steps, "evaluate_every": given.sft_steps})),
            TrainerInputs(task, given.seed, cpu, backbone),
        )
        seconds = train(sft)
        report("SFT", sft.policy, seconds)
        practise("PPO", {name: value.clone() for name, value in sft.weights().items()})
    else:
        practise("PPO alone", build_language_model(backbone, len(task.tokenizer), given.seed).state_dict())


if __name__ == "__main__":
    main()
