"""Regression pins: the metrics of each trainer's first three steps, as they were when written down.

They say nothing about what is right – the other tests here do – but that a change which should only make things
faster has left the numbers alone. Write them anew (``python tests/core/trainers/test_regression_pins.py``, with the
project's root and this folder on PYTHONPATH) only for a change that is meant to change them, and say so.
"""

import json
import math
from pathlib import Path

import pytest
import torch
from resume_variants import VARIANTS, go_on

from core.trainers.base import Weights

PINS = Path(__file__).parent / "regression_pins.json"
STEPS = 3


def first_steps(name: str, policy: Weights, reward: Weights) -> list[dict[str, float]]:
    """Metrics of the first steps; what is not finite is left out, since JSON knows no such number."""
    variant = VARIANTS[name]
    found = go_on(variant, variant.make(policy, reward), STEPS)
    return [{key: value for key, value in step.items() if math.isfinite(value)} for step in found]


@pytest.mark.parametrize("name", VARIANTS)
def test_numbers_stay_what_they_were(name: str, sft_weights: Weights, reward_weights: Weights) -> None:
    pinned = json.loads(PINS.read_text())[name]
    found = first_steps(name, sft_weights, reward_weights)
    assert len(found) == len(pinned) == STEPS
    for step, expected in zip(found, pinned, strict=True):
        assert step == pytest.approx(expected, rel=1e-3, abs=1e-5)


def write() -> None:
    """Pin what is."""
    from conftest import reward_weights, sft_weights

    torch.set_num_threads(1)
    policy = sft_weights.__wrapped__()
    reward = reward_weights.__wrapped__(policy)
    PINS.write_text(json.dumps({name: first_steps(name, policy, reward) for name in VARIANTS}, indent=1) + "\n")


if __name__ == "__main__":
    write()
