"""Direct preference optimisation, offline and online."""

from dataclasses import dataclass

from core.config import knob
from core.methods.alignment import GOLD_AND_LEARNED, POLICY_ENTROPY, SEQUENCE_KL
from core.methods.base import Chart, Method
from core.methods.preference_losses import PreferenceLossConfig
from core.methods.reward import PAIR_SOURCES, check_taste
from core.preferences.tastes import MAX_NOISE, taste_names


@dataclass(frozen=True, kw_only=True)
class DPOConfig(PreferenceLossConfig):
    """Knobs of DPO."""

    steps: int = knob(150, "updates in all; the learning-rate schedule spans them", minimum=1, maximum=1_000_000)
    batch_size: int = knob(64, "pairs a step", minimum=1, maximum=16_384)
    learning_rate: float = knob(5e-4, "peak learning rate of AdamW", minimum=0, maximum=1, live=True)
    pairs: str = knob(
        "online", "online: candidates of the current policy, judged as they come; else where fixed pairs come from",
        choices=("online", *PAIR_SOURCES),
    )  # fmt: skip
    judge: str = knob("learned", "who judges online candidates", choices=("gold", "learned"))
    candidates: int = knob(4, "completions per prompt of which best and worst make a pair", minimum=2, maximum=64)
    pair_count: int = knob(2000, "pairs that the automatic labeller judges (offline)", minimum=2, maximum=1_000_000)
    label_noise: float = knob(0.0, "share of automatic judgements that are turned round", minimum=0, maximum=MAX_NOISE)
    taste: str = knob("gold", f"what the automatic labeller likes: {', '.join(taste_names())}")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_taste(self.taste)


DPO = Method(
    name="dpo",
    title="DPO",
    config=DPOConfig,
    trainer="core.trainers.dpo:DPOTrainer",
    trains="policy",
    starts_from="sft",
    summary="Raises the chosen completion's log-probability against the rejected one's, both relative to the "
    "reference; no reward model, no critic.",
    when="When you have pairs and want the simplest thing that works; online, with a judge, it keeps improving.",
    pitfalls="Offline with small β the chosen texts' own probability falls too and samples grow alike.",
    charts=(
        GOLD_AND_LEARNED,
        SEQUENCE_KL,
        Chart(
            "implicit reward", ("rewards/chosen", "rewards/rejected"),
            "β times the log-ratio to the reference, of chosen and rejected completions.",
            "Both falling is common: only the gap is trained.",
        ),
        Chart(
            "loss", ("loss",),
            "DPO loss; ln 2 ≈ 0.693 when policy and reference agree.",
            "Online it stays near ln 2: each batch is fresh and hard. Read the gold reward instead.",
        ),
        Chart(
            "accuracy", ("rewards/accuracies",),
            "Share of pairs whose chosen completion has the larger implicit reward.",
            "It says that pairs are fitted, not that samples improve.",
        ),
        POLICY_ENTROPY,
    ),
    headline="gold_reward",
)  # fmt: skip
