"""The gradient that PPO follows, against the gradient of E[r] − β·KL by enumeration.

The policy is a table over three letters whose probabilities are eighths, so that a batch can hold every completion
exactly as often as its probability says: what PPO computes on it is an expectation, without chance.
"""

import math

import pytest
import torch
from torch import Tensor
from trainer_toys import (
    COMPLETIONS,
    PROMPTS,
    all_rewards,
    completion_logprobs,
    enumerable_task,
    every_completion_in_proportion,
    one_step,
    table_of_eighths,
    tabular_inputs,
    text_of,
)

import core.trainers.ppo as ppo_module
import core.trainers.rollouts as rollouts_module
from core.methods.ppo import PPOConfig
from core.trainers.ppo import PPOTrainer

BETA = 0.3


def objective(table: Tensor, reference: Tensor, rewards: Tensor, temperature: float) -> Tensor:
    """E[r] − β·KL(π‖π_ref), averaged over the prompts, from every completion's probability."""
    policy, frozen = completion_logprobs(table, temperature), completion_logprobs(reference, temperature)
    return (policy.exp() * (rewards - BETA * (policy - frozen))).sum(1).mean()


def true_gradient(table: Tensor, reference: Tensor, rewards: Tensor, temperature: float = 1.0) -> Tensor:
    table = table.double().requires_grad_()
    return torch.autograd.grad(objective(table, reference.double(), rewards, temperature), table)[0]


def ppo_gradient(monkeypatch, policy, reference, task, **knobs) -> Tensor:
    """What a whole step of PPO on the batch of all completions leaves as the gradient of the policy's table."""
    settings = {
        "batch_size": 1024, "minibatch_size": 1024, "epochs": 1, "learning_rate": 0.0, "lam": 1.0, "gamma": 1.0,
        "beta": BETA, "max_grad_norm": 1e9, "steps": 10, "probe_completions": 16, "evaluate_every": 100,
    }  # fmt: skip
    config = PPOConfig(**settings | knobs)
    trainer = PPOTrainer(config, tabular_inputs(monkeypatch, policy, reference, task=task))
    with torch.no_grad():  # values that differ from state to state: a baseline must not turn the gradient
        generator = torch.Generator().manual_seed(5)
        trainer.critic.head.outer.weight.copy_(torch.randn(1, trainer.policy.width, generator=generator) / 3)
    batch = every_completion_in_proportion(trainer.policy, config.temperature)
    monkeypatch.setattr(rollouts_module, "generate", lambda *args, **named: batch)
    one_step(trainer)
    return trainer.policy.table.grad.double()


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("penalty", ["exact", "k1"])
def test_expected_gradient_is_that_of_reward_minus_the_price_of_kl(monkeypatch, penalty, temperature):
    """Equal but for one positive factor, that of the whitening."""
    policy, reference = table_of_eighths(1, temperature), table_of_eighths(2, temperature)
    found = -ppo_gradient(
        monkeypatch, policy, reference, enumerable_task(), kl_penalty=penalty, temperature=temperature
    )
    expected = true_gradient(policy["table"], reference["table"], all_rewards(), temperature)
    factor = (found * expected).sum() / expected.square().sum()
    assert factor > 0
    assert (found - factor * expected).norm() < 1e-5 * found.norm()


def test_without_whitening_the_gradients_are_equal(monkeypatch):
    """The factor is (completions / tokens) · (what whitening multiplies by); with whitening off the first remains."""
    policy, reference = table_of_eighths(1), table_of_eighths(2)
    monkeypatch.setattr(ppo_module, "masked_whiten", lambda x, mask: torch.where(mask, x, 0.0))
    monkeypatch.setattr(ppo_module, "whitening_scale", lambda x, mask: torch.ones(()))
    found = -ppo_gradient(monkeypatch, policy, reference, enumerable_task())
    logprobs = completion_logprobs(policy["table"].double())
    lengths = torch.tensor([float(len(y)) for y in COMPLETIONS], dtype=torch.float64)
    mean_length = (logprobs.exp() * lengths).sum(1).mean()
    expected = true_gradient(policy["table"], reference["table"], all_rewards()) / mean_length
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("penalty", ["exact", "k1"])
def test_at_the_best_policy_there_is_the_gradient_vanishes(monkeypatch, penalty):
    """With r = β·log(π/π_ref) the policy is its own optimum π* ∝ π_ref·exp(r/β)."""
    policy, reference = table_of_eighths(3), table_of_eighths(4)
    ratios = completion_logprobs(policy["table"].double()) - completion_logprobs(reference["table"].double())
    rule = {
        (prompt, text_of(y)): BETA * ratios[row, column].item()
        for row, prompt in enumerate(PROMPTS)
        for column, y in enumerate(COMPLETIONS)
    }
    assert len(rule) == ratios.numel(), "no two completions read alike"
    task = enumerable_task(lambda prompt, text: rule[prompt, text])
    here = ppo_gradient(monkeypatch, policy, reference, task, kl_penalty=penalty)
    elsewhere = ppo_gradient(monkeypatch, policy, reference, enumerable_task(), kl_penalty=penalty)
    assert here.norm() < 1e-5 * elsewhere.norm()


def test_the_metric_of_kl_is_the_sequence_kl(monkeypatch):
    """Exact on the batch of all completions: Σ π log(π/π_ref), nats a completion."""
    policy, reference = table_of_eighths(1), table_of_eighths(2)
    config = PPOConfig(batch_size=1024, minibatch_size=1024, steps=10, learning_rate=0.0, evaluate_every=100, beta=BETA)
    trainer = PPOTrainer(config, tabular_inputs(monkeypatch, policy, reference))
    batch = every_completion_in_proportion(trainer.policy)
    monkeypatch.setattr(rollouts_module, "generate", lambda *args, **named: batch)
    metrics = one_step(trainer)
    p, q = (completion_logprobs(w["table"].double()) for w in (policy, reference))
    kl = (p.exp() * (p - q)).sum(1).mean().item()
    reward = (p.exp() * all_rewards()).sum(1).mean().item()
    assert math.isclose(metrics["objective/kl"], kl, rel_tol=1e-5)
    assert math.isclose(metrics["objective/scores"], reward, rel_tol=1e-5)
    assert math.isclose(metrics["objective/rlhf_reward"], reward - BETA * kl, rel_tol=1e-5)
    # by the chain rule Σ p log p of completions is the sum of the entropies along the way
    tokens = batch.mask.sum().item()
    assert math.isclose(metrics["objective/entropy"], -(p.exp() * p).sum(1).mean().item() * 1024 / tokens, rel_tol=1e-5)
