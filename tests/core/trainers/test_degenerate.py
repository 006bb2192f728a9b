"""Policies and data at the edge: every figure stays finite and no weight is lost."""

import math
from dataclasses import replace

import pytest
import torch
from trainer_toys import copied, inputs, judged_pairs, micro_task, one_step, steps, with_bias

from core.methods.dpo import DPOConfig
from core.methods.ppo import PPOConfig
from core.methods.reward import RewardConfig
from core.methods.sft import SFTConfig
from core.preferences.pair import PreferencePair
from core.tasks.base import Demonstration
from core.trainers.dpo import DPOTrainer
from core.trainers.ppo import PPOTrainer
from core.trainers.reward import RewardTrainer
from core.trainers.sft import SFTTrainer

POLICIES = {
    "all cut off": {"eos": -40.0},
    "empty completions": {"eos": 40.0},
    "collapsed to one letter": {"a": 40.0},
    "collapsed to one word": {"a": 8.0, "eos": 9.0},
    "ordinary": {},
}
METHODS = {
    "ppo": (PPOTrainer, PPOConfig(reward="gold", minibatch_size=7, missing_eos_penalty=1.0)),
    "ppo k1 adaptive": (PPOTrainer, PPOConfig(kl_penalty="k1", kl_target=0.1, critic="own", reward="mixed")),
    "dpo online": (DPOTrainer, DPOConfig(pairs="online", judge="gold")),
    "dpo labels": (DPOTrainer, DPOConfig(pairs="labels")),
    "rm labels": (RewardTrainer, RewardConfig(pairs="labels", ensemble=2)),
}


def all_finite(trainer, count: int) -> list[dict[str, float]]:
    found = steps(trainer, count)
    for metrics in found:
        wrong = {name: value for name, value in metrics.items() if not math.isfinite(value) or abs(value) > 1e9}
        assert not wrong
    state = trainer.state()
    assert all(value.isfinite().all() for value in state.tensors.values())
    return found


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("method", "rule"),
    [(method, "gold") for method in METHODS]
    + [(method, "all rewards equal") for method in METHODS if "labels" not in method],
)
def test_everything_stays_finite(sft_weights, reward_weights, method, policy, rule):
    kind, config = METHODS[method]
    changes = {"steps": 2, "batch_size": 16, "evaluate_every": 1, "learning_rate": 1e-2, "warmup": 0.0}
    if kind is not RewardTrainer:
        changes["probe_completions"] = 16
    task = micro_task() if rule == "gold" else micro_task(lambda _prompt, _text: 0.3)
    trainer = kind(
        replace(config, **changes),
        inputs(
            task=task, policy=with_bias(sft_weights, **POLICIES[policy]), reward_model=reward_weights,
            pairs=judged_pairs(20),
        ),
    )  # fmt: skip
    all_finite(trainer, 2)


def test_what_the_policies_write_is_what_their_names_say(sft_weights):
    for policy, ended, length in (
        ("all cut off", 0, 5),
        ("empty completions", 1, 0),
        ("collapsed to one letter", 0, 5),
    ):
        config = PPOConfig(batch_size=16, evaluate_every=100, reward="gold")
        trainer = PPOTrainer(config, inputs(policy=with_bias(sft_weights, **POLICIES[policy])))
        metrics = one_step(trainer)
        assert metrics["val/num_eos_tokens"] == 16 * ended
        assert metrics["completions/mean_length"] == length


def test_equal_rewards_do_not_drive_the_policy_away(sft_weights):
    """There is nothing to learn: advantages have no spread to be scaled up, and KL stays where it is."""
    task = micro_task(lambda _prompt, _text: 0.3)
    config = PPOConfig(
        steps=100, batch_size=32, minibatch_size=16, evaluate_every=1000, learning_rate=5e-3, warmup=0.0, average=0.0,
        schedule="constant", beta=0.2,
    )  # fmt: skip
    trainer = PPOTrainer(config, inputs(task=task, policy=sft_weights))
    found = all_finite(trainer, 25)
    assert max(metrics["objective/kl"] for metrics in found) < 0.1


def test_one_completion_a_batch(sft_weights):
    """No variance to whiten with, no deviation to report."""
    config = PPOConfig(steps=4, batch_size=1, minibatch_size=1, evaluate_every=2, probe_completions=16, reward="gold")
    all_finite(PPOTrainer(config, inputs(policy=sft_weights)), 4)
    config = PPOConfig(steps=4, batch_size=1, minibatch_size=1, evaluate_every=2, probe_completions=16, reward="gold")
    all_finite(PPOTrainer(config, inputs(policy=with_bias(sft_weights, eos=40.0))), 4)


def test_a_reward_model_of_a_collapsed_reference_does_not_blow_scores_up(sft_weights):
    """All its completions are alike, so their scores have no deviation to divide by."""
    config = RewardConfig(steps=4, batch_size=8, evaluate_every=2, pairs="labels")
    task = micro_task(prompts=("a",), demonstrations=())
    trainer = RewardTrainer(config, inputs(task=task, policy=with_bias(sft_weights, eos=40.0), pairs=judged_pairs()))
    steps(trainer, 4)
    with torch.no_grad():
        scores = trainer.model(trainer.held_out.both())
    assert scores.isfinite().all()
    assert scores.abs().max() < 100


def test_a_labeller_of_a_collapsed_reference_gives_up_and_says_so(sft_weights):
    config = RewardConfig(steps=4, batch_size=8, pairs="automatic", pair_count=10)
    trainer = RewardTrainer(config, inputs(policy=with_bias(sft_weights, eos=40.0)))
    with pytest.raises(ValueError, match=r"^0 preference pairs are too few to train on; give at least 4$"):
        one_step(trainer)


def test_demonstrations_that_are_empty(sft_weights):
    """Only EOS is to be learned of them."""
    task = micro_task(demonstrations=(Demonstration("a", ""), Demonstration("bc", "")))
    trainer = SFTTrainer(SFTConfig(steps=30, batch_size=2, evaluate_every=30, learning_rate=3e-2), inputs(task=task))
    last = all_finite(trainer, 30)[-1]
    assert last["completions/mean_length"] < 0.1


def test_only_ties_teach_the_reward_model_that_scores_are_equal(sft_weights):
    pairs = tuple(PreferencePair("a", x, y, target=0.5) for x, y in (("a", "b"), ("ab", "c"), ("", "cc"), ("b", "ca")))
    config = RewardConfig(steps=10, batch_size=4, pairs="labels", evaluate_every=5)
    found = all_finite(RewardTrainer(config, inputs(policy=sft_weights, pairs=pairs)), 10)
    assert found[-1]["validation_accuracy"] == 0.5, "of no decided pairs"
    assert found[-1]["loss"] == pytest.approx(math.log(2), abs=0.01)


def test_a_batch_larger_than_the_data(sft_weights):
    given = copied(sft_weights)
    pairs = (PreferencePair("a", "ab", "b"), PreferencePair("b", "b", ""))
    config = DPOConfig(steps=2, batch_size=50, pairs="labels", evaluate_every=2, probe_completions=16)
    all_finite(DPOTrainer(config, inputs(policy=given, pairs=pairs)), 2)
    task = micro_task(demonstrations=(Demonstration("a", "ab"),))
    all_finite(SFTTrainer(SFTConfig(steps=2, batch_size=50, evaluate_every=2), inputs(task=task)), 2)
