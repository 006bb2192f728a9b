"""N steps, save, a new process, M steps: bit for bit what N + M steps give."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import resume_variants
from resume_variants import AFTER, BEFORE, VARIANTS, go_on, save
from trainer_toys import one_step, same, steps

import core
from core.store.tensors import from_bytes, to_bytes
from core.trainers.base import TrainerState, Weights


@pytest.fixture(scope="module")
def resumed(tmp_path_factory, sft_weights: Weights, reward_weights: Weights) -> dict[str, dict]:
    """Each variant's end without interruption and its end in another process."""
    folder: Path = tmp_path_factory.mktemp("resume")
    for name, weights in (("policy", sft_weights), ("reward", reward_weights)):
        (folder / name).write_bytes(to_bytes(weights))
    found = {}
    for number, (name, variant) in enumerate(VARIANTS.items()):
        trainer = variant.make(sft_weights, reward_weights)
        go_on(variant, trainer, BEFORE)
        save(folder / f"{number}.saved", trainer)
        metrics = go_on(variant, trainer, BEFORE + AFTER)
        found[name] = {"whole": trainer.state(), "whole metrics": metrics}
    paths = [str(Path(core.__file__).parents[1]), str(Path(resume_variants.__file__).parent)]
    child = subprocess.run(
        [sys.executable, resume_variants.__file__, str(folder)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert child.returncode == 0, child.stderr
    for number, name in enumerate(VARIANTS):
        ended = json.loads((folder / f"{number}.json").read_text())
        assert ended["name"] == name
        tensors, values = from_bytes((folder / f"{number}.ended").read_bytes())
        found[name] |= {"resumed": TrainerState(tensors, values), "resumed metrics": ended["metrics"]}
    return found


@pytest.mark.parametrize("name", VARIANTS)
def test_resuming_in_a_new_process_is_exact(resumed, name):
    found = resumed[name]
    assert found["resumed metrics"] == found["whole metrics"]
    whole, resumed_state = found["whole"], found["resumed"]
    assert resumed_state.values == json.loads(json.dumps(whole.values))
    assert same(resumed_state.tensors, whole.tensors)


def test_a_state_holds_optimizers_best_weights_averages_and_critic(resumed):
    names = set(resumed["ppo, mixed reward, no average, alarm"]["whole"].tensors)
    for prefix in ("policy.", "critic.head.", "best.", "optimizer.policy.0.exp_avg", "optimizer.critic.0.step"):
        assert any(name.startswith(prefix) for name in names), prefix
    values = resumed["ppo, adaptive β, k1"]["whole"].values
    assert values["kl_coef"] != 0.1, "β has adapted"
    assert {"step", "completions", "config", "stop_reason", "baseline"} <= set(values)


def test_taking_a_state_changes_nothing_and_the_copy_does_not_follow(sft_weights, reward_weights):
    make = VARIANTS["ppo"].make
    left, right = make(sft_weights, reward_weights), make(sft_weights, reward_weights)
    steps(left, 2)
    one_step(right)
    state = right.state()
    copy = to_bytes(state.tensors, state.values)
    one_step(right)
    assert to_bytes(state.tensors, state.values) == copy
    assert same(left.state().tensors, right.state().tensors)


def test_going_back_forgets_what_came_after(sft_weights, reward_weights):
    """A state from before the first validation knows of no best weights; the same steps come again."""
    trainer = VARIANTS["dpo, online"].make(sft_weights, reward_weights)
    one_step(trainer)
    state = trainer.state()
    first = steps(trainer, 3)
    assert trainer.best is not None
    trainer.load_state(state)
    assert trainer.best is None
    assert steps(trainer, 3) == first


def test_going_back_over_a_turn_of_the_temperature_goes_back_to_the_reference_log_probabilities_there(
    sft_weights, reward_weights
):
    trainer = VARIANTS["dpo, labels, rate and temperature turned"].make(sft_weights, reward_weights)
    one_step(trainer)
    state = trainer.state()
    first = one_step(trainer)
    trainer.set_knob("temperature", 0.5)
    one_step(trainer)
    trainer.load_state(state)
    assert one_step(trainer) == first


def test_a_state_of_another_kind_of_run_is_refused(sft_weights, reward_weights):
    state = VARIANTS["ppo"].make(sft_weights, reward_weights).state()
    with pytest.raises((KeyError, RuntimeError, ValueError)):
        VARIANTS["rm"].make(sft_weights, reward_weights).load_state(state)
