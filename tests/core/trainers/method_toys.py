"""A small run of every method beside PPO, DPO, SFT and the reward model."""

import importlib
from typing import Any

from trainer_toys import inputs, judged_pairs

from core.methods.table import find_method
from core.preferences.pair import UnpairedExample
from core.trainers.base import Trainer, TrainerInputs, Weights

SMALL: dict[str, Any] = {
    "steps": 6, "batch_size": 12, "evaluate_every": 2, "learning_rate": 1e-2, "probe_completions": 16, "warmup": 0.0,
}  # fmt: skip
GROUPS = {"group_size": 4, "minibatch_size": 8}
PAIRS = {"pairs": "labels"}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "ppo options": ("ppo", {"beta_start": 1.0, "reference_refresh": 2, "minibatch_size": 6}),
    "ppo minimum": ("ppo", {"reward": "learned", "ensemble": "minimum", "minibatch_size": 6}),
    "reinforce": ("reinforce", {}),
    "reinforce running": ("reinforce", {"baseline": "running", "kl_penalty": "k1"}),
    "reinforce none": ("reinforce", {"baseline": "none"}),
    "a2c": ("a2c", {}),
    "a2c own critic": ("a2c", {"critic": "own", "kl_penalty": "k1"}),
    "trpo": ("trpo", {"fisher_completions": 6}),
    "rloo": ("rloo", GROUPS),
    "rloo k1": ("rloo", GROUPS | {"kl_penalty": "k1", "epochs": 2}),
    "grpo": ("grpo", GROUPS),
    "grpo k2": ("grpo", GROUPS | {"kl": "k2", "loss_type": "grpo", "epochs": 2, "scale": "std"}),
    "dr grpo exact": ("grpo", GROUPS | {"kl": "exact", "loss_type": "dr_grpo", "scale": "none"}),
    "gspo": ("gspo", GROUPS),
    "raft": ("raft", GROUPS),
    "best-of-n": ("best-of-n", GROUPS),
    "custom": ("custom", GROUPS | {"function": "core.advantages:rloo_advantages"}),
    "kto": ("kto", PAIRS),
    "kto automatic": ("kto", {"pairs": "automatic", "pair_count": 20, "sft_weight": 0.1, "reference_refresh": 2}),
    "dpo robust": ("dpo", PAIRS | {"loss": "robust", "label_smoothing": 0.2}),
    "dpo hinge": ("dpo", PAIRS | {"loss": "hinge", "beta_start": 1.0}),
    "dpo ipo": ("dpo", PAIRS | {"loss": "ipo"}),
    "dpo ipo sum": ("dpo", PAIRS | {"loss": "ipo", "ipo_logprobs": "sum"}),
    "dpo simpo": ("dpo", PAIRS | {"loss": "simpo"}),
    "dpo custom": ("dpo", PAIRS | {"custom_loss": "core.losses:hinge_loss"}),
    "dpo sft": ("dpo", PAIRS | {"sft_weight": 0.1}),
    "dpo sft chosen": ("dpo", PAIRS | {"sft_weight": 0.1, "sft_from": "chosen"}),
    "dpo refreshed": ("dpo", {"pairs": "automatic", "pair_count": 20, "reference_refresh": 2}),
    "dpo online simpo": ("dpo", {"pairs": "online", "judge": "gold", "loss": "simpo", "reference_refresh": 2}),
}


def make(variant: str, weights: Weights, given: TrainerInputs | None = None, **knobs: Any) -> Trainer[Any]:
    """A trainer of a variant on the micro task, started from ``weights``."""
    name, own = VARIANTS[variant]
    method = find_method(name)
    module, _, trainer = method.trainer.partition(":")
    if given is None:
        given = inputs(policy=weights, pairs=judged_pairs(), unpaired=(UnpairedExample("a", "ccc", False),))
    made: Trainer[Any] = getattr(importlib.import_module(module), trainer)(method.config(**SMALL | own | knobs), given)
    return made
