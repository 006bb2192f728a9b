"""REINFORCE with a baseline."""

from dataclasses import dataclass

from core.config import knob
from core.methods.alignment import GOLD_AND_LEARNED, POLICY_ENTROPY, POLICY_LOSS, SEQUENCE_KL, PricedConfig
from core.methods.base import Chart, Method


@dataclass(frozen=True, kw_only=True)
class ReinforceConfig(PricedConfig):
    """Knobs of REINFORCE."""

    steps: int = knob(300, "batches of completions in all; the schedule spans them", minimum=1, maximum=1_000_000)
    batch_size: int = knob(256, "completions a step, and one update of the weights", minimum=1, maximum=16_384)
    baseline: str = knob(
        "batch", "what a reward is compared with. batch: the mean of the batch's other completions; running: the mean "
        "of earlier batches; none: 0",
        choices=("batch", "running", "none"),
    )  # fmt: skip


REINFORCE = Method(
    name="reinforce",
    title="REINFORCE",
    config=ReinforceConfig,
    trainer="core.trainers.reinforce:ReinforceTrainer",
    trains="policy",
    starts_from="sft",
    summary="Makes every letter of a completion likelier in proportion to how far its reward is above a baseline.",
    when="First rung of the ladder: everything later is this with less noise. On a task as small as this it does well.",
    pitfalls="Without a baseline all completions of positive reward are pushed up and learning is mostly noise; each "
    "batch serves one update only.",
    charts=(
        GOLD_AND_LEARNED,
        SEQUENCE_KL,
        POLICY_ENTROPY,
        POLICY_LOSS,
        Chart(
            "advantage", ("advantage_std",),
            "Deviation of reward minus baseline over the batch: the noise that the gradient has to average out.",
            "A small one is no goal in itself: samples that have become alike have it too.",
        ),
    ),
    headline="gold_reward",
)  # fmt: skip
