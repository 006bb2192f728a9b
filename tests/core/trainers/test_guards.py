"""When a run stops by itself, which weights it ends with, and what it says."""

import math
from collections.abc import Generator, Mapping

import pytest
import torch
from torch import nn
from trainer_toys import copied, inputs, judged_pairs, micro_task, one_step, same, steps, with_bias

import core.trainers.dpo as dpo_module
import core.trainers.experience as experience_module
import core.trainers.ppo as ppo_module
import core.trainers.reward as reward_module
import core.trainers.sft as sft_module
from core.config import ConfigError
from core.methods.base import TrainingConfig
from core.methods.dpo import DPOConfig
from core.methods.ppo import PPOConfig
from core.methods.reward import RewardConfig
from core.methods.sft import SFTConfig
from core.trainers.base import Phase, Trainer, TrainingDivergedError, Weights
from core.trainers.dpo import DPOTrainer
from core.trainers.ppo import PPOTrainer
from core.trainers.reward import RewardTrainer
from core.trainers.sft import SFTTrainer


class Scripted(Trainer[TrainingConfig]):
    """Its weight is the number of steps done; its validations are given."""

    config_class = TrainingConfig

    def __init__(self, validations: list[float], higher_is_better: bool = True, **knobs) -> None:
        super().__init__(TrainingConfig(steps=len(validations), evaluate_every=1, **knobs), inputs())
        self.validations = validations
        self.higher_is_better = higher_is_better  # type: ignore[misc]
        self.model = nn.Linear(1, 1)
        nn.init.zeros_(self.model.weight)

    def step(self) -> Generator[Phase, None, dict[str, float]]:
        with torch.no_grad():
            self.model.weight += 1
        yield "update"
        return self.end_step({}, self.validations[self.step_number])

    def modules(self) -> Mapping[str, nn.Module]:
        return {"model": self.model}

    def optimizers(self) -> Mapping[str, torch.optim.Optimizer]:
        return {}

    def weights(self) -> Weights:
        return self.model.state_dict()

    def use_weights(self, weights: Weights) -> None:
        self.model.load_state_dict(weights)

    def run(self) -> int:
        """Steps until it ends; the step whose weights it ends with."""
        while not self.finished:
            one_step(self)
        return int(self.model.weight.item())


def falling(values: list[float]) -> list[float]:
    return [-each for each in values]


@pytest.mark.parametrize("higher", [True, False])
def test_best_validation_is_kept_and_its_weights_come_back(higher):
    script = [1.0, 3.0, 2.0, 3.0, 0.0]
    trainer = Scripted(script if higher else falling(script), higher, keep_best=True)
    assert trainer.run() == 2, "the first of two equal ones"
    assert (trainer.best.step, abs(trainer.best.value)) == (2, 3.0)
    assert (trainer.step_number, trainer.stop_reason, trainer.alerts) == (5, "", [])


def test_without_keep_best_the_last_weights_stay():
    trainer = Scripted([1.0, 3.0, 2.0, 0.0])
    assert trainer.run() == 4
    assert trainer.best.step == 2


@pytest.mark.parametrize("higher", [True, False])
def test_patience_counts_validations_without_a_better_one(higher):
    script = [1.0, 2.0, 1.5, 2.5, 2.4, 2.5, 9.0]
    trainer = Scripted(script if higher else falling(script), higher, patience=2)
    assert trainer.run() == 4
    assert trainer.step_number == 6
    assert trainer.finished
    assert trainer.stop_reason == "no better validation in 2; back to the weights of step 4"
    assert [(alert.kind, alert.message) for alert in trainer.alerts] == [("early_stop", trainer.stop_reason)]


def test_no_patience_means_no_early_stop():
    trainer = Scripted([5.0, *range(4, -4, -1)])
    trainer.run()
    assert (trainer.step_number, trainer.stop_reason) == (9, "")


@pytest.mark.parametrize("higher", [True, False])
def test_a_validation_that_is_not_a_number_is_never_the_best(higher):
    script = [math.nan, 1.0, math.nan, 2.0, math.nan]
    trainer = Scripted(script if higher else falling(script), higher, keep_best=True)
    assert trainer.run() == 4


def test_a_knob_that_is_fixed_or_unknown_or_out_of_range_is_refused():
    trainer = Scripted([0.0])
    before = trainer.config
    for name, value, message in [
        ("steps", 5, "steps is fixed once a run has started; fork the run to change it"),
        ("learning_rat", 1, "did you mean 'learning_rate'"),
        ("learning_rate", -1.0, "learning_rate must be"),
    ]:
        with pytest.raises(ConfigError, match=message):
            trainer.set_knob(name, value)
    assert trainer.config == before


# --- KL ---


def ppo(sft_weights, drift: float, **knobs) -> PPOTrainer:
    """A policy that stands away from its reference and does not move."""
    settings = {
        "steps": 9, "batch_size": 64, "minibatch_size": 64, "epochs": 1, "learning_rate": 0.0, "evaluate_every": 100,
        "probe_completions": 16,
    }  # fmt: skip
    return PPOTrainer(
        PPOConfig(**settings | knobs), inputs(policy=with_bias(sft_weights, a=drift), reference=sft_weights)
    )


def test_kl_alarm_sounds_once(sft_weights):
    trainer = ppo(sft_weights, drift=2.0, kl_alarm=0.1)
    steps(trainer, 3)
    (alert,) = trainer.alerts
    assert alert.kind == "kl_alarm"
    assert alert.message.endswith("passed 0.1 nats: read the samples")
    assert not trainer.finished


def test_kl_alarm_sounds_again_after_kl_has_come_back(sft_weights):
    trainer = ppo(sft_weights, drift=0.0, kl_alarm=5.0)
    for kl in (4.0, 6.0, 7.0, 4.0, 6.0):
        trainer.watch_kl(kl)
    assert [alert.message[:6] for alert in trainer.alerts] == ["KL 6.0", "KL 6.0"]


def test_kl_alarm_at_zero_is_off(sft_weights):
    trainer = ppo(sft_weights, drift=2.0, kl_alarm=0.0)
    steps(trainer, 2)
    assert trainer.alerts == []


def test_kl_limit_stops_the_run_and_returns_to_the_best_weights(sft_weights):
    """Step 2 validates; from then on the policy is pushed away."""
    trainer = ppo(sft_weights, drift=0.0, kl_limit=0.3, evaluate_every=2, average=0.5)
    steps(trainer, 2)
    good = copied(trainer.weights())
    trainer.policy.load_state_dict(with_bias(sft_weights, c=3.0))
    one_step(trainer)
    assert trainer.finished
    assert trainer.stop_reason.endswith("passed the limit of 0.3 nats; back to the weights of step 2")
    assert [alert.kind for alert in trainer.alerts] == ["early_stop"]
    assert same(copied(trainer.weights()), good)
    assert same(copied(trainer.policy.state_dict()), good)


def test_kl_limit_before_any_validation_returns_to_the_start(sft_weights):
    trainer = ppo(sft_weights, drift=0.0, kl_limit=0.3, average=0.5)
    trainer.policy.load_state_dict(with_bias(sft_weights, c=3.0))
    one_step(trainer)
    assert trainer.stop_reason.endswith("passed the limit of 0.3 nats; back to the weights it began with")
    assert same(copied(trainer.weights()), sft_weights)


def test_weights_past_the_limit_are_not_the_best_even_when_validated_in_that_step(sft_weights):
    trainer = ppo(sft_weights, drift=0.0, kl_limit=0.3, evaluate_every=1, beta=0.0, average=0.0)
    one_step(trainer)
    trainer.best.value = -100.0
    trainer.policy.load_state_dict(with_bias(sft_weights, c=3.0))
    one_step(trainer)
    assert trainer.finished
    assert same(copied(trainer.weights()), sft_weights)


@pytest.mark.parametrize("pairs", ["labels", "online"])
def test_kl_limit_stops_dpo_too(sft_weights, pairs):
    config = DPOConfig(
        steps=9, batch_size=16, pairs=pairs, judge="gold", learning_rate=0.0, evaluate_every=1, probe_completions=64,
        kl_limit=0.3,
    )  # fmt: skip
    trainer = DPOTrainer(config, inputs(policy=sft_weights, pairs=judged_pairs()))
    one_step(trainer)
    assert not trainer.finished
    trainer.policy.load_state_dict(with_bias(sft_weights, c=3.0))
    one_step(trainer)
    assert trainer.finished
    assert same(copied(trainer.weights()), sft_weights)


def test_validation_of_a_policy_is_reward_minus_the_price_of_kl(sft_weights):
    """Reward alone hardly falls while a policy drifts into nonsense."""
    trainer = ppo(sft_weights, drift=1.0, evaluate_every=1, beta=0.7, probe_completions=64)
    metrics = one_step(trainer)
    expected = metrics["probe/gold_reward"] - 0.7 * metrics["probe/objective/kl"]
    assert metrics["probe/objective/kl"] > 0.1
    assert trainer.best.value == metrics["probe/objective"] == pytest.approx(expected)


# --- divergence ---

TRAINERS = {
    "sft": (sft_module, "sft_loss", SFTTrainer, SFTConfig, {}),
    "rm": (reward_module, "reward_loss", RewardTrainer, RewardConfig, {"pairs": "labels"}),
    "ppo policy": (experience_module, "ppo_policy_loss", PPOTrainer, PPOConfig, {}),
    "ppo value": (ppo_module, "ppo_value_loss", PPOTrainer, PPOConfig, {"critic": "own"}),
    "dpo": (dpo_module, "dpo_loss", DPOTrainer, DPOConfig, {"pairs": "labels"}),
    "dpo online": (dpo_module, "dpo_loss", DPOTrainer, DPOConfig, {"judge": "gold"}),
}


@pytest.mark.parametrize("poison", [math.nan, math.inf])
@pytest.mark.parametrize("name", TRAINERS)
def test_a_loss_that_is_not_finite_stops_before_the_weights(monkeypatch, sft_weights, name, poison):
    module, loss, kind, config, knobs = TRAINERS[name]
    trainer = kind(
        config(steps=5, batch_size=16, evaluate_every=100, **knobs), inputs(policy=sft_weights, pairs=judged_pairs())
    )
    one_step(trainer)
    before = trainer.state()
    real = getattr(module, loss)

    def poisoned(*args, **named):
        result = real(*args, **named)
        return (result[0] * poison, *result[1:]) if isinstance(result, tuple) else result * poison

    monkeypatch.setattr(module, loss, poisoned)
    with pytest.raises(TrainingDivergedError):
        one_step(trainer)
    after = trainer.state()
    assert same(after.tensors, before.tensors)
    assert after.values["step"] == before.values["step"] == 1


def test_a_reward_that_is_not_a_number_stops_before_the_weights(sft_weights):
    task = micro_task(lambda _prompt, text: math.nan if text.startswith("b") else 1.0)
    config = PPOConfig(steps=5, batch_size=64, minibatch_size=16, evaluate_every=100)
    trainer = PPOTrainer(config, inputs(task=task, policy=sft_weights))
    with pytest.raises(TrainingDivergedError):
        one_step(trainer)
    assert same(copied(trainer.policy.state_dict()), sft_weights)


@pytest.mark.parametrize("name", ["ppo policy", "dpo online"])
def test_weights_that_are_not_numbers_are_called_divergence(sft_weights, name):
    _, _, kind, config, knobs = TRAINERS[name]
    trainer = kind(config(steps=5, batch_size=16, **knobs), inputs(policy=sft_weights))
    with torch.no_grad():
        trainer.policy.head.weight.fill_(math.nan)
    with pytest.raises(TrainingDivergedError):
        one_step(trainer)
