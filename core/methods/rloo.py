"""REINFORCE leave-one-out."""

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
    PricedConfig,
)
from core.methods.base import Method


@dataclass(frozen=True, kw_only=True)
class RLOOConfig(GroupConfig, PricedConfig):
    """Knobs of RLOO."""

    clip: float = knob(0.2, "ε: the ratio to the old policy counts only within 1 ± ε", above=0, maximum=10, live=True)


RLOO = Method(
    name="rloo",
    title="RLOO",
    config=RLOOConfig,
    trainer="core.trainers.rloo:RLOOTrainer",
    trains="policy",
    starts_from="sft",
    summary="REINFORCE whose baseline is the mean reward of the other completions of the same prompt.",
    when="When prompts differ in how much reward can be had, and you want neither a critic nor a bias.",
    pitfalls="A group of one teaches nothing. With few prompts a batch, what is learnt depends on which they were.",
    charts=(GOLD_AND_LEARNED, SEQUENCE_KL, POLICY_ENTROPY, GROUP_REWARD, CLIP_FRACTION, POLICY_LOSS),
    headline="gold_reward",
)  # fmt: skip
