"""Proximal policy optimisation."""

from dataclasses import dataclass

from core.config import knob
from core.methods.alignment import CLIP_FRACTION, GOLD_AND_LEARNED, POLICY_ENTROPY, SEQUENCE_KL, CriticConfig
from core.methods.base import Chart, Method


@dataclass(frozen=True, kw_only=True)
class PPOConfig(CriticConfig):
    """Knobs of PPO as used for RLHF."""

    steps: int = knob(240, "batches of completions in all; the schedule spans them", minimum=1, maximum=1_000_000)
    batch_size: int = knob(512, "completions a step", minimum=1, maximum=16_384)
    minibatch_size: int = knob(256, "completions an update of the weights", minimum=1, maximum=16_384)
    epochs: int = knob(
        1,
        "passes over each batch; fresh completions are cheap here, and one pass keeps ratios near 1",
        minimum=1,
        maximum=64,
    )
    learning_rate: float = knob(3e-3, "peak learning rate of AdamW", minimum=0, maximum=1, live=True)
    clip: float = knob(0.2, "ε: the ratio to the old policy counts only within 1 ± ε", above=0, maximum=10, live=True)
    value_clip: float = knob(0.2, "how far a value may move from its old one in a step", above=0, live=True)


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
        CLIP_FRACTION,
    ),
    headline="gold_reward",
)  # fmt: skip
