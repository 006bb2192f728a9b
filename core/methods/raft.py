"""Rejection-sampling fine-tuning."""

from dataclasses import dataclass

from core.config import knob
from core.methods.alignment import GOLD_AND_LEARNED, GROUP_REWARD, POLICY_ENTROPY, SEQUENCE_KL, GroupConfig
from core.methods.base import Chart, Method


@dataclass(frozen=True, kw_only=True)
class RAFTConfig(GroupConfig):
    """Knobs of RAFT."""

    learning_rate: float = knob(5e-4, "peak learning rate of AdamW", minimum=0, maximum=1, live=True)


RAFT = Method(
    name="raft",
    title="RAFT",
    config=RAFTConfig,
    trainer="core.trainers.raft:RAFTTrainer",
    trains="policy",
    starts_from="sft",
    summary="Samples several completions a prompt, keeps the best (reward less β times its log-ratio to the "
    "reference), and imitates it by SFT.",
    when="The simplest use of a reward: stable, hardly a knob, a strong baseline.",
    pitfalls="It learns from winners only, so samples grow alike, and the larger the group the sooner.",
    charts=(
        GOLD_AND_LEARNED,
        SEQUENCE_KL,
        POLICY_ENTROPY,
        GROUP_REWARD,
        Chart(
            "loss", ("loss/policy_avg",),
            "Cross-entropy per letter on the best completions, in nats.",
            "It falls as samples grow alike, not only as they grow better.",
        ),
    ),
    headline="gold_reward",
)  # fmt: skip
