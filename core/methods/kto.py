"""Kahneman–Tversky optimisation: from single judgements."""

from dataclasses import dataclass

from core.config import knob
from core.methods.alignment import GOLD_AND_LEARNED, POLICY_ENTROPY, SEQUENCE_KL
from core.methods.base import Chart, Method
from core.methods.preference_losses import DemonstrationMixConfig
from core.methods.reward import PAIR_SOURCES, check_taste
from core.preferences.tastes import MAX_NOISE, taste_names


@dataclass(frozen=True, kw_only=True)
class KTOConfig(DemonstrationMixConfig):
    """Knobs of KTO."""

    steps: int = knob(200, "updates in all; the learning-rate schedule spans them", minimum=1, maximum=1_000_000)
    batch_size: int = knob(128, "judged completions a step", minimum=1, maximum=16_384)
    learning_rate: float = knob(5e-4, "peak learning rate of AdamW", minimum=0, maximum=1, live=True)
    desirable_weight: float = knob(1.0, "λ_D: weight of good completions", minimum=0, live=True)
    undesirable_weight: float = knob(
        1.0, "λ_U: weight of bad ones; lower it where they are the many", minimum=0, live=True
    )
    pairs: str = knob(
        "automatic", "where judgements come from: both sides of each pair by themselves, and single ones (both bad)",
        choices=PAIR_SOURCES,
    )  # fmt: skip
    pair_count: int = knob(2000, "pairs that the automatic labeller judges", minimum=2, maximum=1_000_000)
    label_noise: float = knob(0.0, "share of automatic judgements that are turned round", minimum=0, maximum=MAX_NOISE)
    taste: str = knob("gold", f"what the automatic labeller likes: {', '.join(taste_names())}")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_taste(self.taste)


KTO = Method(
    name="kto",
    title="KTO",
    config=KTOConfig,
    trainer="core.trainers.kto:KTOTrainer",
    trains="policy",
    starts_from="sft",
    summary="Raises completions that were judged good and lowers those judged bad, each by itself, against the "
    "policy's average drift from the reference.",
    when="When you have thumbs up and down instead of pairs; pairs are split in two.",
    pitfalls="Batches of one class only move everything in one direction: mix, or weight the classes.",
    charts=(
        GOLD_AND_LEARNED,
        SEQUENCE_KL,
        Chart(
            "implicit reward", ("rewards/chosen", "rewards/rejected"),
            "β times the log-ratio to the reference, of good and of bad completions.",
            "Both falling is common: only the gap to the average drift is trained.",
        ),
        Chart(
            "baseline", ("kl",),
            "z₀: the drift from the reference, estimated on completions that belong to other prompts, in nats.",
            "It stays at 0 for long: the mismatched completions are unlikely under policy and reference alike.",
        ),
        Chart("loss", ("loss",), "KTO loss; ½ when policy and reference agree.", "Its size depends on the weights λ."),
        POLICY_ENTROPY,
    ),
    headline="gold_reward",
    unpaired=True,
)  # fmt: skip
