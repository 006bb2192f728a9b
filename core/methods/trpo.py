"""Trust region policy optimisation."""

from dataclasses import dataclass

from core.config import knob
from core.methods.alignment import GOLD_AND_LEARNED, POLICY_ENTROPY, SEQUENCE_KL, CriticConfig
from core.methods.base import Chart, Method


@dataclass(frozen=True, kw_only=True)
class TRPOConfig(CriticConfig):
    """Knobs of TRPO. The learning rate is the critic's; the policy's step follows from the KL bound."""

    steps: int = knob(150, "batches of completions in all; the schedule spans them", minimum=1, maximum=1_000_000)
    batch_size: int = knob(512, "completions a step", minimum=1, maximum=16_384)
    max_kl: float = knob(
        0.005, "δ: bound on the mean KL per letter from the old policy to the new one; falls with the schedule",
        above=0, unit="nats", live=True,
    )  # fmt: skip
    cg_iterations: int = knob(4, "iterations of conjugate gradient", minimum=1, maximum=1000)
    damping: float = knob(0.1, "added to the Fisher matrix's diagonal", minimum=0)
    fisher_completions: int = knob(32, "completions of the batch that the Fisher matrix is taken over", minimum=1)
    backtracks: int = knob(10, "how often a step that breaks the bound or does not help is halved", minimum=0)
    critic_epochs: int = knob(4, "updates of the critic a step", minimum=1, maximum=1000)


TRPO = Method(
    name="trpo",
    title="TRPO",
    config=TRPOConfig,
    trainer="core.trainers.trpo:TRPOTrainer",
    trains="policy",
    starts_from="sft",
    summary="Follows the natural gradient as far as a bound on the KL to the old policy allows: the idea that PPO's "
    "clip imitates.",
    when="To see what a trust region is. Steps have a length in nats instead of a learning rate.",
    pitfalls="Second derivatives make a step dear. A bound too large for the quadratic model ends in many halvings.",
    charts=(
        GOLD_AND_LEARNED,
        SEQUENCE_KL,
        POLICY_ENTROPY,
        Chart(
            "trust region", ("policy/kl", "policy/kl_bound"),
            "Mean KL per letter from the policy before the step to the one after it, and its bound.",
            "It does not say how far the policy is from the reference: that is the sequence KL.",
        ),
        Chart(
            "line search", ("policy/backtracks",),
            "How often the step was halved; all of them, and the step was given up.",
            "0 is not always best: it can mean that the bound is smaller than it need be.",
        ),
        Chart(
            "loss", ("loss/policy_avg", "loss/value_avg"),
            "Surrogate loss after the step, and value loss.",
            "Advantages are whitened, so the surrogate begins at 0 in each step and ends a little below.",
        ),
    ),
    headline="gold_reward",
)  # fmt: skip
