"""Best of n: no training at all."""

from dataclasses import dataclass

from core.config import knob
from core.methods.alignment import GOLD_AND_LEARNED, POLICY_ENTROPY, GroupConfig
from core.methods.base import Chart, Method


@dataclass(frozen=True, kw_only=True)
class BestOfNConfig(GroupConfig):
    """Knobs of best of n."""

    steps: int = knob(20, "batches of completions", minimum=1, maximum=1_000_000)
    group_size: int = knob(8, "n: completions of a prompt of which the best is kept", minimum=1, maximum=1024)
    evaluate_every: int = knob(10, "steps between two validations", minimum=1, maximum=1_000_000, unit="steps")


BEST_OF_N = Method(
    name="best-of-n",
    title="Best of n",
    config=BestOfNConfig,
    trainer="core.trainers.best_of_n:BestOfNTrainer",
    trains="policy",
    starts_from="sft",
    summary="Draws n completions and keeps the one with the highest reward: a policy to compare with; "
    "nothing is trained.",
    when="First of all: it says what the reward prefers, and what a trained policy has to beat.",
    pitfalls="Each answer costs n completions for ever. Its KL is at most log n − (n−1)/n. A run that starts from it "
    "starts from what it draws from: there are no weights that pick.",
    charts=(
        GOLD_AND_LEARNED,
        Chart(
            "KL", ("objective/kl", "objective/kl_bound"),
            "KL from best of n to the policy it draws from, estimated on the probe prompts, and its bound "
            "log n − (n−1)/n, in nats.",
            "The KL is below the bound where the model repeats itself or rewards tie: n equal texts are no choice.",
        ),
        POLICY_ENTROPY,
    ),
    headline="gold_reward",
)  # fmt: skip
