"""Every method side by side on ``words``: gold reward, KL, diversity, time and how near to the best that is possible.

    python tests/benchmarks/methods_table.py --seeds 0 1 2            all of it; goes on where it was interrupted
    python tests/benchmarks/methods_table.py --only PPO GRPO --seeds 0
    python tests/benchmarks/methods_table.py --show                    the table of what has been measured, as Markdown

Each run begins from the SFT weights of its seed and gets the same number of completions (51,200) or pairs (12,800,
twice as many completions for KTO), with the gold rule as reward and judge. The figures come from 20,480 fresh
completions of the probe prompts, temperature 1. Results are lines of JSON; two processes may share the file, one
seed each.
"""

import argparse
import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch

from core.config import make
from core.device import choose_device
from core.evaluation.best_of_n import best_of_n
from core.evaluation.diversity import distinct_2, unique_fraction
from core.evaluation.optimal import LEAST_EFFECTIVE, ReferenceSample, optimality, reference_sample
from core.evaluation.probe import probe_rollout
from core.methods.table import find_method
from core.models.config import BackboneConfig
from core.randomness import generator_for
from core.rewards.sources import GoldReward
from core.store.tensors import from_bytes, to_bytes
from core.tasks.table import load_task
from core.trainers.base import Trainer, TrainerInputs, Weights
from core.trainers.best_of_n import BestOfNTrainer

FOLDER = Path(tempfile.gettempdir()) / "rlhf-tui-methods"
COMPLETIONS, PAIRS, BETA = 51_200, 12_800, 0.2
REFERENCE_PER_PROMPT = 1024
T = TypeVar("T")


@dataclass(frozen=True)
class Row:
    """A line of the table: a method with the knobs that make the variant."""

    label: str
    method: str
    knobs: dict[str, Any] = field(default_factory=dict)
    pairs: int = 0  # pairs a step; 0: the method samples


OFFLINE = {"pairs": "automatic", "pair_count": 4000}
NOISY = {"label_noise": 0.1}  # a tenth of the labels turned round, as those two losses believe
ROWS = (
    Row("Best of 8", "best-of-n", {"steps": 100, "batch_size": 512}),
    Row("REINFORCE", "reinforce"),
    Row("A2C", "a2c"),
    Row("PPO", "ppo"),
    Row("TRPO", "trpo"),
    Row("RLOO", "rloo"),
    Row("GRPO", "grpo"),
    Row("GRPO, exact KL", "grpo", {"kl": "exact"}),
    Row("GRPO, k2", "grpo", {"kl": "k2"}),
    # Rewards deviate by about 0.45 within a group, so this β is the same price as 0.2 elsewhere.
    Row("GRPO ÷ std, β 0.45", "grpo", {"scale": "std", "beta": 0.45}),
    Row("Dr.GRPO", "grpo", {"loss_type": "dr_grpo"}),
    Row("DAPO clip", "grpo", {"clip_high": 0.28, "epochs": 2, "minibatch_size": 256}),
    Row("GSPO", "gspo"),
    Row("RAFT", "raft"),
    Row("DPO online", "dpo", {"pairs": "online", "judge": "gold", "candidates": 4}),
    Row("DPO", "dpo", OFFLINE, 64),
    Row("DPO, noisy", "dpo", {**OFFLINE, **NOISY}, 64),
    Row("cDPO, noisy", "dpo", {**OFFLINE, **NOISY, "label_smoothing": 0.1}, 64),
    Row("Robust DPO, noisy", "dpo", {**OFFLINE, **NOISY, "loss": "robust", "label_smoothing": 0.1}, 64),
    Row("Hinge", "dpo", {**OFFLINE, "loss": "hinge"}, 64),
    Row("IPO", "dpo", {**OFFLINE, "loss": "ipo"}, 64),
    # No reference holds it: at DPO's learning rate it ends at KL 6.
    Row("SimPO", "dpo", {**OFFLINE, "loss": "simpo", "learning_rate": 5e-5}, 64),
    Row("DPO + SFT", "dpo", {**OFFLINE, "sft_weight": 0.1}, 64),
    Row("KTO", "kto", OFFLINE, 64),
)


def finish(work: Generator[Any, None, T]) -> T:
    """Run ``work`` to its end."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result


def build(row: Row, seed: int, weights: Weights | None, steps: int | None = None) -> Trainer[Any]:
    """The trainer of a row, with as many steps as give every row the same number of completions or pairs."""
    method = find_method(row.method)
    module, _, name = method.trainer.partition(":")
    config = make(method.config, {**row.knobs, "kl_alarm": 0.0} if row.method != "sft" else row.knobs)
    if row.pairs:
        size = config.batch_size  # of KTO: completions, two of each pair
        steps = steps or PAIRS * (2 if row.method == "kto" else 1) // size
    elif row.method != "sft":
        steps = steps or COMPLETIONS // (config.batch_size * (config.candidates if row.method == "dpo" else 1))
    config = make(method.config, {**config.to_dict(), "steps": steps or config.steps})
    inputs = TrainerInputs(
        task=load_task("words", seed), seed=seed, device=torch.device("cpu"), backbone=BackboneConfig(), policy=weights
    )
    trainer: Trainer[Any] = getattr(importlib.import_module(module), name)(config, inputs)
    return trainer


def train(trainer: Trainer[Any]) -> float:
    """Train to the end; the CPU seconds it took, which say the same beside other work."""
    began = time.process_time()
    while not trainer.finished:
        finish(trainer.step())
    return time.process_time() - began


def sft_weights(seed: int, folder: Path) -> Weights:
    """SFT of this seed, trained once."""
    path = folder / f"sft-{seed}.safetensors"
    if not path.exists():
        trainer = build(Row("SFT", "sft"), seed, None)
        train(trainer)
        path.write_bytes(to_bytes(trainer.weights(), {}))
    return from_bytes(path.read_bytes())[0]


def measure(row: Row, trainer: Trainer[Any], seconds: float, sample: ReferenceSample) -> dict[str, Any]:
    """The line of the table."""
    task = trainer.inputs.task
    gold, policy, reference = GoldReward(task), trainer.sampler(), trainer.reference_sampler()
    assert policy is not None and reference is not None
    found = finish(optimality(policy, reference, task, gold, BETA, sample))
    figures = {
        "gold": found.reward, "objective": found.objective, "error": found.objective_error, "kl": found.kl,
        "reference": found.reference_reward, "best": found.best.objective,
        "effective": found.best.effective_sample_size,
    }  # fmt: skip
    if isinstance(trainer, BestOfNTrainer):
        assert trainer.point is not None
        prompts = [task.encode_prompt(p) for p in task.probe_prompts] * 13
        dice = generator_for(0, "table")
        texts = best_of_n(policy, prompts, trainer.group_size, gold, task.max_new_tokens, generator=dice)
        figures |= {"gold": trainer.point.reward, "kl": trainer.point.kl}
        figures["objective"] = trainer.point.reward - BETA * trainer.point.kl
        written = texts.texts(task.tokenizer)[:256]
    else:
        written = probe_rollout(policy, task, task.probe_prompts, 256, 0).texts(task.tokenizer)
    return figures | {
        "label": row.label, "seed": trainer.inputs.seed, "seconds": seconds, "completions": trainer.completions,
        "distinct_2": distinct_2(written), "unique": unique_fraction(written),
    }  # fmt: skip


def table(results: list[dict[str, Any]]) -> str:
    """Means over seeds; the error is that of the mean over the seeds, or of one seed's sampling."""
    lines = [
        f"| method | seeds | gold reward | sequence KL | distinct-2 | unique | seconds | optimality at β {BETA:g} |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    reference = [each["reference"] for each in results]
    if reference:
        lines.append(f"| Reference (SFT) | | {sum(reference) / len(reference):.2f} | 0 | | | | 0 |")
    for row in ROWS:
        runs = [each for each in results if each["label"] == row.label]
        if not runs:
            continue
        mean = {
            name: sum(each[name] for each in runs) / len(runs)
            for name in ("gold", "kl", "distinct_2", "unique", "seconds", "error")
        }
        spread = (sum((each["gold"] - mean["gold"]) ** 2 for each in runs) / max(1, len(runs) - 1) / len(runs)) ** 0.5
        reached = [share_of_the_way(each, results) for each in runs]
        best = "–" if None in reached else f"{sum(filter(None, reached)) / len(reached):.2f}"
        error = spread if len(runs) > 1 else mean["error"]
        lines.append(
            f"| {row.label} | {len(runs)} | {mean['gold']:.2f} ± {error:.2f} | {mean['kl']:.2f} | "
            f"{mean['distinct_2']:.2f} | {mean['unique']:.2f} | {mean['seconds']:.0f} | {best} |"
        )
    return "\n".join(lines)


def share_of_the_way(run: dict[str, Any], results: list[dict[str, Any]]) -> float | None:
    """The optimality of a run, with J* as the run of its seed whose completions tell most of it has estimated it."""
    best = max((each for each in results if each["seed"] == run["seed"]), key=lambda each: each["effective"])
    if best["effective"] < LEAST_EFFECTIVE:
        return None
    reference = run["reference"]
    return float((run["objective"] - reference) / (best["best"] - reference))


def main() -> int:
    known = [row.label for row in ROWS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", nargs="+", choices=known, default=known, metavar="LABEL", help=", ".join(known))
    parser.add_argument("--folder", type=Path, default=FOLDER, help=f"SFT weights and results: {FOLDER}")
    parser.add_argument("--steps", type=int, default=None, help="this many steps instead, for a quick look")
    parser.add_argument("--set", nargs="+", default=[], metavar="KNOB=VALUE", help="knobs to change in every row")
    parser.add_argument("--show", action="store_true", help="print the table and end")
    wanted = parser.parse_args()
    wanted.folder.mkdir(parents=True, exist_ok=True)
    path = wanted.folder / "results.jsonl"
    results = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    if wanted.show:
        print(table(results))
        return 0
    choose_device("cpu", threads=int(os.environ.get("OMP_NUM_THREADS", "1")))
    changes = dict(each.split("=", 1) for each in wanted.set)
    for seed in wanted.seeds:
        rows = [r for r in ROWS if r.label in wanted.only and not done(results, r, seed)]
        if not rows:
            continue
        weights = sft_weights(seed, wanted.folder)
        first = build(rows[0], seed, weights)
        reference, task = first.reference_sampler(), first.inputs.task
        assert reference is not None
        sample = finish(reference_sample(reference, task, GoldReward(task), REFERENCE_PER_PROMPT))
        for row in rows:
            typed = {
                name: json.loads(value) if value[0] in "-.0123456789tf" else value for name, value in changes.items()
            }
            trainer = build(Row(row.label, row.method, {**row.knobs, **typed}, row.pairs), seed, weights, wanted.steps)
            found = measure(row, trainer, train(trainer), sample)
            results.append(found)
            if wanted.steps is None and not changes:
                with path.open("a") as file:
                    file.write(json.dumps(found) + "\n")
            print(json.dumps({n: round(v, 3) if isinstance(v, float) else v for n, v in found.items()}), flush=True)
    print(table(results))
    return 0


def done(results: list[dict[str, Any]], row: Row, seed: int) -> bool:
    """Has this row been measured for this seed?"""
    return any(each["label"] == row.label and each["seed"] == seed for each in results)


if __name__ == "__main__":
    sys.exit(main())
