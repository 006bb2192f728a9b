"""DPO on fixed pairs with a small β makes samples alike; a large β or some SFT beside it keeps them different."""

import pytest
import torch

from core.evaluation.diversity import unique_fraction
from core.evaluation.probe import probe_rollout
from core.methods.sft import SFTConfig
from core.models.config import BackboneConfig
from core.pipeline import stage
from core.tasks.table import load_task
from core.trainers.base import TrainerInputs
from core.trainers.dpo import DPOTrainer
from core.trainers.sft import SFTTrainer


def finish(trainer):
    while not trainer.finished:
        for _ in trainer.step():
            pass
    return trainer


def unique(policy, task) -> float:
    return unique_fraction(probe_rollout(policy, task, task.probe_prompts, 256, 0).texts(task.tokenizer))


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_dpos_loss_of_diversity_and_what_keeps_it(seed):
    task = load_task("words", seed)
    given = TrainerInputs(task=task, seed=seed, device=torch.device("cpu"), backbone=BackboneConfig())
    sft = finish(SFTTrainer(SFTConfig(evaluate_every=1000), given))
    given = TrainerInputs(
        task=task, seed=seed, device=torch.device("cpu"), backbone=BackboneConfig(), policy=dict(sft.weights())
    )
    start = unique(sft.policy, task)
    reached = {}
    for name, preset, knobs in (
        ("small", "collapse", {}), ("large", "collapse", {"beta": 0.5}), ("mixed", "diverse", {})
    ):  # fmt: skip
        config = stage("dpo", preset, {**knobs, "evaluate_every": 1000}).full_config
        reached[name] = unique(finish(DPOTrainer(config, given)).policy, task)
    assert reached["small"] < start - 0.08
    assert reached["large"] > start - 0.05
    assert reached["mixed"] > reached["small"] + 0.08
