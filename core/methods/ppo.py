"""Proximal policy optimisation."""

from dataclasses import dataclass

from core.config import knob
from core.methods.base import Chart, Method, PolicyConfig

GOLD_AND_LEARNED = Chart(
    "reward", ("gold_reward", "learned_reward"),
    "Mean score of fresh completions: the gold rule (the auditor) and the reward model.",
    "Learned reward up while gold falls is reward hacking, not progress.",
)  # fmt: skip
SEQUENCE_KL = Chart(
    "KL", ("objective/kl",),
    "Exact KL from policy to reference, summed over a completion, mean over completions, in nats.",
    "Growing KL is the price paid for reward, not an error in itself; 5 nats is far for this model.",
)  # fmt: skip
POLICY_ENTROPY = Chart(
    "entropy", ("objective/entropy",),
    "Exact entropy of the next-letter distribution, mean over letters, in nats.",
    "Falling entropy with flat reward is collapse: the samples become alike.",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PPOConfig(PolicyConfig):
    """Knobs of PPO as used for RLHF."""

    steps: int = knob(150, "batches of completions in all; the schedule spans them", minimum=1, maximum=1_000_000)
    batch_size: int = knob(512, "completions a step", minimum=1, maximum=16_384)
    minibatch_size: int = knob(256, "completions an update of the weights", minimum=1, maximum=16_384)
    epochs: int = knob(2, "passes over each batch", minimum=1, maximum=64)
    clip: float = knob(0.2, "ε: the ratio to the old policy counts only within 1 ± ε", above=0, maximum=10, live=True)
    value_clip: float = knob(0.2, "how far a value may move from its old one in a step", above=0, live=True)
    beta: float = knob(0.2, "β: price of a nat of KL from the reference, in units of reward", minimum=0, live=True)
    kl_penalty: str = knob(
        "exact", "exact: each position's KL with its direct gradient; k1: log-ratio of the drawn letter in the reward",
        choices=("exact", "k1"),
    )  # fmt: skip
    kl_target: float = knob(0.0, "sequence KL that β adapts to; 0 keeps β fixed", minimum=0, unit="nats", live=True)
    kl_horizon: int = knob(10_000, "completions over which β adapts", minimum=1)
    gamma: float = knob(1.0, "γ: discount of later rewards", minimum=0, maximum=1)
    lam: float = knob(
        0.95, "λ of generalised advantage estimation: 0 one step ahead, 1 to the end", minimum=0, maximum=1
    )
    value_coefficient: float = knob(0.5, "weight of the value loss", minimum=0, live=True)
    entropy_coefficient: float = knob(0.0, "weight of the entropy bonus", minimum=0, live=True)
    missing_eos_penalty: float = knob(
        0.0, "taken from the reward of a completion cut off at the limit", minimum=0, live=True
    )
    reward: str = knob("gold", "what is maximised", choices=("gold", "learned", "mixed"))
    learned_weight: float = knob(0.5, "share of the learned reward in mixed", minimum=0, maximum=1)
    critic: str = knob(
        "policy", "what the critic reads: the policy's hidden state, detached, or an LSTM of its own",
        choices=("policy", "own"),
    )  # fmt: skip
    average: float = knob(
        0.95, "decay of the averaged weights that are sampled and kept; 0 keeps the last", minimum=0, maximum=0.9999
    )


PPO = Method(
    name="ppo",
    title="PPO",
    config=PPOConfig,
    trainer="core.trainers.ppo:PPOTrainer",
    trains="policy",
    starts_from="sft",
    summary="Samples completions, scores them, and makes letters that did better than the critic expected likelier, "
    "by small clipped steps and at a price for leaving the reference.",
    when="When you have a reward and can sample: the classic of RLHF.",
    pitfalls="β too small: the model hacks the reward. Learning rate too high: KL jumps and clip fraction with it.",
    charts=(
        GOLD_AND_LEARNED,
        SEQUENCE_KL,
        POLICY_ENTROPY,
        Chart(
            "loss", ("loss/policy_avg", "loss/value_avg"),
            "Clipped policy loss and value loss of the step's updates.",
            "The policy loss hovers near 0 by design: advantages are whitened. It does not measure progress.",
        ),
        Chart(
            "clip fraction", ("policy/clipfrac_avg", "policy/approxkl_avg"),
            "Share of letters whose ratio left 1 ± ε, and how far the policy moved within a step.",
            "0 at the first update of each step is right: the policy has not moved yet.",
        ),
    ),
    headline="gold_reward",
)  # fmt: skip
