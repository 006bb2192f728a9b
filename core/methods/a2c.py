"""Advantage actor-critic."""

from dataclasses import dataclass

from core.config import knob
from core.methods.alignment import GOLD_AND_LEARNED, POLICY_ENTROPY, SEQUENCE_KL, CriticConfig
from core.methods.base import Chart, Method


@dataclass(frozen=True, kw_only=True)
class A2CConfig(CriticConfig):
    """Knobs of A2C."""

    steps: int = knob(300, "batches of completions in all; the schedule spans them", minimum=1, maximum=1_000_000)
    batch_size: int = knob(256, "completions a step, and one update of the weights", minimum=1, maximum=16_384)


A2C = Method(
    name="a2c",
    title="A2C",
    config=A2CConfig,
    trainer="core.trainers.a2c:A2CTrainer",
    trains="policy",
    starts_from="sft",
    summary="REINFORCE with a critic: each letter is judged by generalised advantage estimation, one update a batch.",
    when="To see what the critic adds to REINFORCE, and what clipping and several epochs add in PPO.",
    pitfalls="The critic begins by knowing nothing: with λ below 1 its errors bias the first updates.",
    charts=(
        GOLD_AND_LEARNED,
        SEQUENCE_KL,
        POLICY_ENTROPY,
        Chart(
            "loss", ("loss/policy_avg", "loss/value_avg"),
            "Policy loss and value loss of the update.",
            "The policy loss hovers near 0 by design: advantages are whitened. It does not measure progress.",
        ),
        Chart(
            "critic", ("explained_variance",),
            "Share of the variance of returns that the critic foresees; 1 is all, 0 no better than a constant.",
            "Far from 1 is normal: what a policy draws next cannot be foreseen.",
        ),
    ),
    headline="gold_reward",
)  # fmt: skip
