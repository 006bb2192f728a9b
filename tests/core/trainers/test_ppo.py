"""PPO: what its updates see, and what must stay as it was."""

import math

import pytest
import torch
from trainer_toys import copied, inputs, micro_task, one_step, same, spy, steps, texts, with_bias

import core.trainers.experience as experience_module
import core.trainers.policy as policy_module
import core.trainers.ppo as ppo_module
import core.trainers.rollouts as rollouts_module
from core.logprobs import token_logprobs
from core.methods.ppo import PPOConfig
from core.sampling import completion_logits
from core.trainers.ppo import PPOTrainer


def config(**knobs) -> PPOConfig:
    settings = {
        "steps": 20, "batch_size": 48, "minibatch_size": 16, "epochs": 2, "learning_rate": 1e-2, "warmup": 0.0,
        "evaluate_every": 100, "probe_completions": 32,
    }  # fmt: skip
    return PPOConfig(**settings | knobs)


def policy_updates(monkeypatch):
    """For each minibatch: the largest |log ratio| and the statistics of the loss."""
    calls = spy(monkeypatch, experience_module, "ppo_policy_loss")

    def read():
        found = []
        for (logprobs, old, _, mask, *_), _, (_, stats) in calls:
            shift = torch.where(mask, logprobs.detach() - old, 0.0).abs().max().item()
            found.append((shift, stats.clip_fraction.item(), stats.approx_kl.item(), stats.ratio.item()))
        calls.clear()
        return found

    return read


VARIANTS = [
    {},
    {"temperature": 0.6},
    {"temperature": 1.7, "kl_penalty": "k1"},
    {"critic": "own", "epochs": 3},
    {"minibatch_size": 48, "clip": 1e-5},
]


@pytest.mark.parametrize("knobs", VARIANTS, ids=str)
def test_first_minibatch_of_every_step_has_ratio_one(monkeypatch, sft_weights, knobs):
    """The ratio is taken against the policy that sampled – not the reference, not without the prompt, and at the
    temperature of sampling. Prompts have different lengths and the policy leaves the reference behind."""
    trainer = PPOTrainer(config(**knobs), inputs(policy=sft_weights))
    read = policy_updates(monkeypatch)
    for _ in range(4):
        metrics = one_step(trainer)
        first, *later = read()
        assert first[0] < 5e-6
        assert first[1:3] == (0.0, pytest.approx(0.0, abs=1e-6))
        assert first[3] == pytest.approx(1.0, abs=1e-6)
        assert max(shift for shift, *_ in later) > 1e-3, "the policy moves from minibatch to minibatch"
    assert metrics["objective/kl"] > 1e-3, "and the reference is not the old policy"


@pytest.mark.parametrize("minibatch_size", [1, 7, 20, 1000])
@pytest.mark.parametrize("knobs", [{}, {"temperature": 0.7, "critic": "own", "kl_penalty": "k1"}], ids=str)
def test_without_a_learning_rate_no_minibatch_of_any_size_moves(monkeypatch, sft_weights, minibatch_size, knobs):
    trainer = PPOTrainer(
        config(learning_rate=0.0, batch_size=20, minibatch_size=minibatch_size, weight_decay=0.1, **knobs),
        inputs(policy=sft_weights),
    )
    before = copied(trainer.state().tensors)
    read = policy_updates(monkeypatch)
    metrics = steps(trainer, 2)
    seen = read()
    assert len(seen) == 2 * 2 * math.ceil(20 / minibatch_size)
    for shift, clipped, kl, ratio in seen:
        assert shift < 5e-6
        assert (clipped, kl) == (0.0, pytest.approx(0.0, abs=1e-6))
        assert ratio == pytest.approx(1.0, abs=1e-6)
    after = trainer.state().tensors
    assert same(before, {name: after[name] for name in before})
    assert metrics[0]["policy/clipfrac_avg"] == 0
    assert metrics[0]["objective/kl"] == pytest.approx(0, abs=1e-5), "policy and reference are one model"


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_sampled_logprobs_are_those_of_reading_the_text_again(monkeypatch, sft_weights, temperature):
    trainer = PPOTrainer(config(temperature=temperature), inputs(policy=sft_weights))
    rollout = trainer.rollout()
    again = token_logprobs(completion_logits(trainer.policy, rollout) / temperature, rollout.tokens)
    torch.testing.assert_close(torch.where(rollout.mask, again, 0.0), rollout.logprobs, atol=5e-6, rtol=0)


def test_reward_comes_once_on_the_last_real_token(monkeypatch, sft_weights):
    """Not on padding. β = 0: nothing else is in the rewards, but for the constant baseline."""
    task = micro_task()
    trainer = PPOTrainer(
        config(beta=0.0, batch_size=200, missing_eos_penalty=1.5), inputs(task=task, policy=sft_weights)
    )
    rollouts, calls = spy(monkeypatch, rollouts_module, "generate"), spy(monkeypatch, ppo_module, "gae")
    one_step(trainer)
    rollout, rewards = rollouts[0][2], calls[0][0][0]
    assert 0 < rollout.ended.sum() < 200
    lengths = rollout.mask.sum(1)
    assert len(lengths.unique()) > 2
    expected = torch.tensor([task.gold(*each) for each in texts(rollout, task)]) - 1.5 * (~rollout.ended).float()
    at_last = rewards[torch.arange(200), lengths - 1]
    torch.testing.assert_close(at_last - at_last.mean(), expected - expected.mean())
    assert rewards.count_nonzero(1).max() <= 1
    torch.testing.assert_close(rewards.sum(1), at_last)


def test_k1_penalty_is_the_log_ratio_of_each_drawn_letter(monkeypatch, sft_weights):
    reference = with_bias(sft_weights, a=0.7, eos=-0.4)
    trainer = PPOTrainer(
        config(beta=0.3, kl_penalty="k1", temperature=0.8, batch_size=100),
        inputs(policy=sft_weights, reference=reference),
    )
    trainer.reward = lambda batch: torch.zeros(len(batch))
    rollouts, calls = spy(monkeypatch, rollouts_module, "generate"), spy(monkeypatch, ppo_module, "gae")
    one_step(trainer)
    rollout, rewards = rollouts[0][2], calls[0][0][0]
    at_reference = token_logprobs(completion_logits(trainer.reference, rollout) / 0.8, rollout.tokens)
    expected = torch.where(rollout.mask, -0.3 * (rollout.logprobs - at_reference), 0.0)
    torch.testing.assert_close(rewards, expected, atol=5e-6, rtol=1e-5)


def test_reference_reward_model_and_what_was_given_stay_as_they_were(sft_weights, reward_weights):
    given = copied(sft_weights), copied(reward_weights)
    trainer = PPOTrainer(config(reward="mixed", critic="own"), inputs(policy=sft_weights, reward_model=reward_weights))
    assert trainer.reference is not trainer.policy
    assert trainer.average is not trainer.policy
    addresses = [
        {w.data_ptr() for w in module.parameters()}
        for module in (trainer.reference, trainer.policy, trainer.average, trainer.critic, trainer.reward_model)
    ]
    assert sum(map(len, addresses)) == len(set().union(*addresses)), "no two of them share a weight"
    steps(trainer, 5)
    assert same(copied(trainer.reference.state_dict()), given[0])
    assert same(copied(trainer.reward_model.state_dict()), given[1])
    assert same(sft_weights, given[0])
    assert same(reward_weights, given[1])
    assert not same(copied(trainer.policy.state_dict()), given[0])
    for module in (trainer.reference, trainer.reward_model):
        assert not module.training
        assert all(not w.requires_grad and w.grad is None for w in module.parameters())


def test_a_reference_of_its_own_is_what_kl_is_measured_to(sft_weights):
    other = with_bias(sft_weights, a=1.0)
    trainer = PPOTrainer(config(learning_rate=0.0), inputs(policy=sft_weights, reference=other))
    assert one_step(trainer)["objective/kl"] > 0.05
    assert same(copied(trainer.reference_sampler().state_dict()), other)


@pytest.mark.parametrize("critic", ["policy", "own"])
def test_value_loss_does_not_move_the_policy(sft_weights, critic):
    """Ten times the weight on the value loss: another critic, the very same policy."""
    trainers = [
        PPOTrainer(config(value_coefficient=weight, critic=critic, max_grad_norm=0.1), inputs(policy=sft_weights))
        for weight in (0.0, 0.5, 5.0)
    ]
    for trainer in trainers:
        one_step(trainer)
    first, *others = (copied(trainer.policy.state_dict()) for trainer in trainers)
    assert all(same(first, other) for other in others)
    none, *learned = (copied(trainer.critic.state_dict()) for trainer in trainers)
    assert not any(same(none, each) for each in learned)


def test_values_begin_at_zero_and_come_to_explain_the_returns(sft_weights):
    """What is to come depends on the prompt alone here; a value after every letter can know it."""
    task = micro_task(lambda prompt, _text: 2.0 * (prompt[-1] == "a"))
    trainer = PPOTrainer(config(value_clip=10.0, critic="own", clip=1e-4), inputs(task=task, policy=sft_weights))
    first, *_, last = steps(trainer, 15)
    assert last["explained_variance"] > 0.5 > first["explained_variance"]


def test_the_critic_learns_at_its_own_rate_or_at_the_policys(sft_weights):
    """With a warm-up of 4 steps, the first has a quarter of each peak."""
    for own, of_critic in ((0.0, 1e-3), (8e-3, 2e-3)):
        trainer = PPOTrainer(
            config(warmup=0.2, learning_rate=4e-3, critic_learning_rate=own), inputs(policy=sft_weights)
        )
        assert one_step(trainer)["lr"] == pytest.approx(1e-3)
        rates = {name: each.param_groups[0]["lr"] for name, each in trainer.optimizers().items()}
        assert rates == pytest.approx({"policy": 1e-3, "critic": of_critic})


def test_averaged_weights_are_what_is_sampled_and_kept(monkeypatch, sft_weights):
    trainer = PPOTrainer(config(average=0.7, evaluate_every=2), inputs(policy=sft_weights))
    one_step(trainer)
    policy, average = copied(trainer.policy.state_dict()), copied(trainer.sampler().state_dict())
    assert trainer.sampler() is not trainer.policy
    for name, start in sft_weights.items():
        torch.testing.assert_close(average[name], 0.7 * start + 0.3 * policy[name])
    assert same(copied(trainer.weights()), average)
    probes = spy(monkeypatch, policy_module, "probe_rollout")
    one_step(trainer)
    assert probes[0][0][0] is trainer.sampler()


def test_without_averaging_the_policy_itself_is_sampled(sft_weights):
    trainer = PPOTrainer(config(average=0.0), inputs(policy=sft_weights))
    one_step(trainer)
    assert trainer.sampler() is trainer.policy
    assert not same(copied(trainer.weights()), sft_weights)


def test_entropy_bonus_raises_entropy(sft_weights):
    """With nothing to gain and no price on KL; without the bonus the entropy stays."""
    entropies = {}
    for coefficient in (0.0, 0.5):
        trainer = PPOTrainer(
            config(beta=0.0, entropy_coefficient=coefficient, average=0.0),
            inputs(task=micro_task(lambda _prompt, _text: 1.0), policy=sft_weights),
        )
        entropies[coefficient] = [each["objective/entropy"] for each in steps(trainer, 6)]
    assert entropies[0.5][-1] > entropies[0.5][0] + 0.1
    assert abs(entropies[0.0][-1] - entropies[0.0][0]) < 0.1


def test_kl_price_pulls_back_to_the_reference(sft_weights):
    """From a policy that has drifted, with nothing to gain, for both penalties."""
    for penalty in ("exact", "k1"):
        trainer = PPOTrainer(
            config(beta=1.0, kl_penalty=penalty, average=0.0),
            inputs(
                task=micro_task(lambda _prompt, _text: 1.0), policy=with_bias(sft_weights, a=1.5), reference=sft_weights
            ),
        )
        kl = [each["objective/kl"] for each in steps(trainer, 10)]
        assert kl[-1] < kl[0] / 2, penalty


def test_a_reward_that_pays_for_a_letter_gets_it(sft_weights):
    """And follows its sign."""
    shares = {}
    for sign in (1, -1):
        task = micro_task(lambda _prompt, text, sign=sign: sign * text.count("c") / max(1, len(text)))
        trainer = PPOTrainer(config(beta=0.02, batch_size=96, minibatch_size=48), inputs(task=task, policy=sft_weights))
        rewards = [sign * each["objective/scores"] for each in steps(trainer, 15)]
        shares[sign] = rewards[-1]
    assert shares[1] > 0.6
    assert shares[-1] < 0.1


@pytest.mark.parametrize(
    ("reward", "missing"), [("gold", "gold"), ("learned", "learned"), ("mixed", "learned"), ("mixed", "gold")]
)
def test_a_reward_that_is_not_there_is_named(sft_weights, reward_weights, reward, missing):
    task = micro_task(None) if missing == "gold" else micro_task()
    model = None if missing == "learned" else reward_weights
    with pytest.raises(ValueError, match=f"^reward={reward} needs a {missing} reward, and there is none$"):
        PPOTrainer(config(reward=reward), inputs(task=task, policy=sft_weights, reward_model=model))


def test_mixed_reward_is_the_weighted_sum(sft_weights, reward_weights):
    scores = {}
    for reward in ("gold", "learned", "mixed"):
        trainer = PPOTrainer(
            config(reward=reward, learned_weight=0.25), inputs(policy=sft_weights, reward_model=reward_weights)
        )
        metrics = one_step(trainer)
        scores[reward] = metrics["objective/scores"]
    assert scores["gold"] == pytest.approx(metrics["gold_reward"])
    assert scores["learned"] == pytest.approx(metrics["learned_reward"])
    assert scores["mixed"] == pytest.approx(0.25 * scores["learned"] + 0.75 * scores["gold"], abs=1e-5)


def test_a_policy_is_needed_to_start_from():
    with pytest.raises(ValueError, match="run sft first"):
        PPOTrainer(config(), inputs())


# --- β that adapts (arXiv 1909.08593 §2.2) ---


@pytest.mark.parametrize(
    ("kl", "factor"),
    [
        (6.0, 1 + 0.2 * 48 / 1000),
        (3.3, 1 + 0.1 * 48 / 1000),
        (3.0, 1.0),
        (2.7, 1 - 0.1 * 48 / 1000),
        (0.0, 1 - 0.2 * 48 / 1000),
    ],
)
def test_beta_moves_towards_the_target_kl_and_no_further_than_the_clamp(sft_weights, kl, factor):
    trainer = PPOTrainer(config(beta=0.4, kl_target=3.0, kl_horizon=1000), inputs(policy=sft_weights))
    trainer.adapt_kl_coef(kl)
    assert trainer.kl_coef == pytest.approx(0.4 * factor)


def test_beta_adapts_by_each_steps_kl_and_is_used_in_the_next(sft_weights):
    trainer = PPOTrainer(
        config(beta=0.4, kl_target=0.05, kl_horizon=100, learning_rate=0.0),
        inputs(policy=sft_weights, reference=with_bias(sft_weights, a=1.0)),
    )
    found = steps(trainer, 3)
    assert found[0]["objective/kl"] > 0.06
    assert [each["kl_coef"] for each in found] == pytest.approx([0.4, 0.4 * 1.096, 0.4 * 1.096**2])


def test_beta_stays_positive_however_short_the_horizon(sft_weights):
    """A batch as long as the horizon or longer: no more than the clamp in one step, and never below 0."""
    trainer = PPOTrainer(config(beta=0.4, kl_target=3.0, kl_horizon=1), inputs(policy=sft_weights))
    trainer.adapt_kl_coef(0.0)
    assert trainer.kl_coef == pytest.approx(0.32)


def test_without_a_target_beta_is_the_knob(sft_weights):
    trainer = PPOTrainer(config(beta=0.4), inputs(policy=sft_weights, reference=with_bias(sft_weights, a=1.0)))
    assert one_step(trainer)["kl_coef"] == 0.4
    trainer.set_knob("beta", 0.9)
    assert one_step(trainer)["kl_coef"] == 0.9
