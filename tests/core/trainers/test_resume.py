"""N steps, save, a new process, M steps: bit for bit what N + M steps give."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import resume_variants
from resume_variants import AFTER, BEFORE, VARIANTS, go_on, save
from trainer_toys import one_step, same, steps

import core
from core.store.tensors import from_bytes, to_bytes
from core.trainers.base import TrainerState, Weights


@dataclass(frozen=True)
class Ended:
    """One variant's end without interruption and its end in another process."""

    whole: TrainerState
    whole_metrics: list[dict[str, float]]
    resumed: TrainerState
    resumed_metrics: list[dict[str, float]]


@dataclass
class Runs:
    """Takes each variant to its end without interruption, and in another process, once it is asked for: of two test
    processes neither does what the other needs."""

    folder: Path
    weights: tuple[Weights, Weights]
    elsewhere: subprocess.Popen[str]
    _ended: dict[str, Ended] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Ended:
        if name not in self._ended:
            self._ended[name] = self._run(name)
        return self._ended[name]

    def _run(self, name: str) -> Ended:
        number, variant = list(VARIANTS).index(name), VARIANTS[name]
        trainer = variant.make(*self.weights)
        go_on(variant, trainer, BEFORE)
        save(self.folder / f"{number}.saved", trainer)
        assert self.elsewhere.stdin is not None and self.elsewhere.stdout is not None
        print(number, file=self.elsewhere.stdin, flush=True)
        metrics = go_on(variant, trainer, BEFORE + AFTER)
        assert self.elsewhere.stdout.readline() == f"{number}\n"
        resumed = TrainerState(*from_bytes((self.folder / f"{number}.ended").read_bytes()))
        return Ended(trainer.state(), metrics, resumed, json.loads((self.folder / f"{number}.json").read_text()))


@pytest.fixture(scope="module")
def runs(tmp_path_factory, sft_weights: Weights, reward_weights: Weights) -> Iterator[Runs]:
    folder: Path = tmp_path_factory.mktemp("resume")
    for name, weights in (("policy", sft_weights), ("reward", reward_weights)):
        (folder / name).write_bytes(to_bytes(weights))
    paths = [str(Path(core.__file__).parents[1]), str(Path(resume_variants.__file__).parent)]
    with subprocess.Popen(
        [sys.executable, resume_variants.__file__, str(folder)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        yield Runs(folder, (sft_weights, reward_weights), child)


@pytest.mark.parametrize("name", VARIANTS)
def test_resuming_in_a_new_process_is_exact(runs, name):
    ended = runs[name]
    assert ended.resumed_metrics == ended.whole_metrics
    assert ended.resumed.values == json.loads(json.dumps(ended.whole.values))
    assert same(ended.resumed.tensors, ended.whole.tensors)


def test_a_state_holds_optimizers_best_weights_averages_and_critic(runs):
    names = set(runs["ppo, mixed reward, no average, alarm"].whole.tensors)
    for prefix in ("policy.", "critic.head.", "best.", "optimizer.policy.0.exp_avg", "optimizer.critic.0.step"):
        assert any(name.startswith(prefix) for name in names), prefix
    values = runs["ppo, adaptive β, k1"].whole.values
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
