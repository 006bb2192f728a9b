"""Group relative policy optimisation, and its sequence-level kin."""

from dataclasses import dataclass

from core.config import knob
from core.methods.alignment import (
    CLIP_FRACTION,
    GOLD_AND_LEARNED,
    GROUP_REWARD,
    POLICY_ENTROPY,
    POLICY_LOSS,
    SEQUENCE_KL,
    GroupConfig,
)
from core.methods.base import Chart, Method

TOKEN_KL = Chart(
    "KL per letter", ("kl",),
    "Mean over letters of the exact KL to the reference, in nats.",
    "It is not the price that the sequence pays: that is the sum over letters, objective/kl.",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class GroupRelativeConfig(GroupConfig):
    """What GRPO and GSPO have in common."""

    scale: str = knob(
        "none", "divide a group's advantages by its deviation (std, as first published), or not (none, Dr.GRPO): "
        "rewards then keep their unit, and β means what it means in PPO",
        choices=("std", "none"),
    )  # fmt: skip
    kl: str = knob(
        "k3", "the KL in the loss. k3 is the usual one and pulls along the gradient of KL(reference‖policy); k2 and "
        "exact pull along that of KL(policy‖reference)",
        choices=("k3", "k2", "exact"),
    )  # fmt: skip
    clip_low: float = knob(0.2, "ratios below 1 − this count no further", above=0, maximum=1, live=True)
    clip_high: float = knob(
        0.2, "ratios above 1 + this count no further; DAPO clips higher (0.28) so that rare letters can rise",
        above=0, maximum=10, live=True,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class GRPOConfig(GroupRelativeConfig):
    """Knobs of GRPO."""

    loss_type: str = knob(
        "dapo", "dapo: mean over all tokens of the batch; grpo: mean of each completion's mean, so that letters of "
        "long ones count less; dr_grpo: sum over a constant, completions times the longest there can be",
        choices=("dapo", "grpo", "dr_grpo"),
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class GSPOConfig(GroupRelativeConfig):
    """Knobs of GSPO."""

    epochs: int = knob(2, "passes over each batch", minimum=1, maximum=64)
    minibatch_size: int = knob(256, "completions an update of the weights", minimum=1, maximum=16_384)
    clip_low: float = knob(
        0.05, "sequence ratios below 1 − this count no further; they are means, so they move less than a letter's",
        above=0, maximum=1, live=True,
    )  # fmt: skip
    clip_high: float = knob(0.05, "sequence ratios above 1 + this count no further", above=0, maximum=10, live=True)


GRPO = Method(
    name="grpo",
    title="GRPO",
    config=GRPOConfig,
    trainer="core.trainers.grpo:GRPOTrainer",
    trains="policy",
    starts_from="sft",
    summary="Samples a group of completions per prompt and makes those above the group's mean likelier, by PPO's "
    "clipped step and with the KL in the loss; no critic.",
    when="The usual choice where rewards come from a rule. Needs several completions a prompt.",
    pitfalls="Divided by the deviation (scale=std), rewards lose their unit: one β then means more KL, here about "
    "three times as much. Groups of equal rewards teach nothing.",
    charts=(GOLD_AND_LEARNED, SEQUENCE_KL, POLICY_ENTROPY, GROUP_REWARD, TOKEN_KL, CLIP_FRACTION, POLICY_LOSS),
    headline="gold_reward",
)  # fmt: skip

GSPO = Method(
    name="gspo",
    title="GSPO",
    config=GSPOConfig,
    trainer="core.trainers.grpo:GSPOTrainer",
    trains="policy",
    starts_from="sft",
    summary="GRPO with one ratio a completion, the geometric mean of its letters', clipped as a whole.",
    when="When the reward judges the whole completion and each batch serves several updates.",
    pitfalls="Its ratio moves less than a letter's: with PPO's clip range nothing is ever clipped.",
    charts=(GOLD_AND_LEARNED, SEQUENCE_KL, POLICY_ENTROPY, GROUP_REWARD, TOKEN_KL, CLIP_FRACTION, POLICY_LOSS),
    headline="gold_reward",
)  # fmt: skip
