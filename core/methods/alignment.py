"""Knobs that methods share: the options of all that align a policy, and what all that learn from a reward need."""

from dataclasses import dataclass

from core.config import knob
from core.methods.base import Chart, PolicyConfig

GOLD_AND_LEARNED = Chart(
    "reward", ("gold_reward", "learned_reward"),
    "Mean score of fresh completions: the gold rule (the auditor) and the reward model.",
    "Learned reward up while gold falls is reward hacking, not progress.",
)  # fmt: skip
SEQUENCE_KL = Chart(
    "KL", ("objective/kl", "objective/kl_from_start"),
    "Exact KL from policy to reference, summed over a completion, mean over completions, in nats. Where the reference "
    "is refreshed, a second line counts from the one that the run began with.",
    "Growing KL is the price paid for reward, not an error in itself; 5 nats is far for this model.",
)  # fmt: skip
POLICY_ENTROPY = Chart(
    "entropy", ("objective/entropy",),
    "Exact entropy of the next-letter distribution, mean over letters, in nats.",
    "Falling entropy with flat reward is collapse: the samples become alike.",
)  # fmt: skip
POLICY_LOSS = Chart(
    "loss", ("loss/policy_avg",),
    "Policy loss of the step's updates.",
    "It hovers near 0 by design, since advantages have mean 0. It does not measure progress.",
)  # fmt: skip
CLIP_FRACTION = Chart(
    "clip fraction", ("policy/clipfrac_avg", "policy/approxkl_avg"),
    "Share of letters (or completions) whose ratio left the clip range, and how far the policy moved within a step.",
    "0 at the first update of each step is right: the policy has not moved yet.",
)  # fmt: skip
GROUP_REWARD = Chart(
    "spread in a group", ("reward_std", "frac_reward_zero_std"),
    "Mean deviation of the rewards within a group, and the share of groups whose rewards are all equal.",
    "A group of equal rewards teaches nothing; a rising share says that samples have become alike.",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class AlignmentConfig(PolicyConfig):
    """Options of every method that pays for KL from a reference."""

    beta_start: float = knob(
        0.0, "β of the first step, from which it goes in a straight line to β at the last; 0: β all along", minimum=0
    )
    reference_refresh: int = knob(
        0, "steps after which the reference becomes the policy of the moment; 0 never. From then on KL is counted from "
        "there: the drift from the first reference is no longer paid for",
        minimum=0, maximum=1_000_000, unit="steps",
    )  # fmt: skip
    ensemble: str = knob(
        "mean", "how the scores of several reward models become one; minimum is harder to hack",
        choices=("mean", "minimum"),
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RewardSeekingConfig(AlignmentConfig):
    """Knobs of methods that sample completions and learn from their rewards."""

    beta: float = knob(0.2, "β: price of a nat of KL from the reference, in units of reward", minimum=0, live=True)
    kl_target: float = knob(0.0, "sequence KL that β adapts to; 0 keeps β fixed", minimum=0, unit="nats", live=True)
    kl_horizon: int = knob(10_000, "completions over which β adapts", minimum=1)
    entropy_coefficient: float = knob(0.0, "weight of the entropy bonus", minimum=0, live=True)
    missing_eos_penalty: float = knob(
        0.0, "taken from the reward of a completion cut off at the limit", minimum=0, live=True
    )
    reward: str = knob("gold", "what is maximised", choices=("gold", "learned", "mixed"))
    learned_weight: float = knob(0.5, "share of the learned reward in mixed", minimum=0, maximum=1)
    average: float = knob(
        0.95, "decay of the averaged weights that are sampled and kept; 0 keeps the last", minimum=0, maximum=0.9999
    )


@dataclass(frozen=True, kw_only=True)
class PricedConfig(RewardSeekingConfig):
    """Methods that take the price of KL out of the reward."""

    kl_penalty: str = knob(
        "exact", "exact: each position's KL with its direct gradient; k1: log-ratio of the drawn letter in the reward",
        choices=("exact", "k1"),
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class CriticConfig(PricedConfig):
    """Methods with a critic: PPO, A2C, TRPO."""

    gamma: float = knob(1.0, "γ: discount of later rewards", minimum=0, maximum=1)
    lam: float = knob(
        1.0,
        "λ of generalised advantage estimation: 0 one step ahead, 1 to the end (best for one reward at the end)",
        minimum=0,
        maximum=1,
    )
    value_coefficient: float = knob(0.5, "weight of the value loss", minimum=0, live=True)
    critic_learning_rate: float = knob(
        0.0, "peak learning rate of the critic; 0: that of the policy", minimum=0, maximum=1, live=True
    )
    critic: str = knob(
        "policy", "what the critic reads: the policy's hidden state, detached, or a model of its own",
        choices=("policy", "own"),
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class GroupConfig(RewardSeekingConfig):
    """Methods that compare several completions of one prompt."""

    steps: int = knob(150, "batches of completions in all; the schedule spans them", minimum=1, maximum=1_000_000)
    batch_size: int = knob(512, "completions a step, a multiple of the group's size", minimum=1, maximum=16_384)
    group_size: int = knob(8, "completions of one prompt that are compared with one another", minimum=1, maximum=1024)
    minibatch_size: int = knob(512, "completions an update of the weights", minimum=1, maximum=16_384)
    epochs: int = knob(1, "passes over each batch", minimum=1, maximum=64)
