"""The reward model: turns preferences into a score."""

from dataclasses import dataclass

from core.config import ConfigError, knob
from core.methods.base import Chart, Method, TrainingConfig
from core.preferences.tastes import MAX_NOISE, TasteError, find_taste, taste_names

PAIR_SOURCES = ("automatic", "labels", "file", "mixed")


def check_taste(name: str) -> None:
    """Raises ConfigError for a taste that does not exist. Whether a task has a gold rule shows when a run starts."""
    try:
        find_taste(name, gold=lambda _prompt, _completion: 0.0)
    except TasteError as error:
        raise ConfigError(str(error)) from None


@dataclass(frozen=True, kw_only=True)
class RewardConfig(TrainingConfig):
    """Knobs of the Bradley–Terry reward model."""

    steps: int = knob(300, "updates in all; the learning-rate schedule spans them", minimum=1, maximum=1_000_000)
    batch_size: int = knob(64, "pairs a step", minimum=1, maximum=16_384)
    learning_rate: float = knob(3e-3, "peak learning rate of AdamW", minimum=0, maximum=1, live=True)
    weight_decay: float = knob(0.05, "decoupled weight decay", minimum=0, maximum=10)
    keep_best: bool = knob(True, "end with the weights of the best validation instead of the last")
    pairs: str = knob("automatic", "where preference pairs come from", choices=PAIR_SOURCES)
    pair_count: int = knob(2000, "pairs that the automatic labeller judges", minimum=2, maximum=1_000_000)
    label_noise: float = knob(0.0, "share of automatic judgements that are turned round", minimum=0, maximum=MAX_NOISE)
    taste: str = knob("gold", f"what the automatic labeller likes: {', '.join(taste_names())}")
    validation_share: float = knob(0.1, "share of the pairs held out to measure accuracy", minimum=0.01, maximum=0.9)
    margin: float = knob(0.0, "margin demanded at full preference strength (half of it at middle)", minimum=0)
    center: float = knob(0.0, "pull of each pair's summed scores to 0", minimum=0)
    ensemble: int = knob(
        1, "reward models trained from different seeds; their mean is the score", minimum=1, maximum=16
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_taste(self.taste)


REWARD = Method(
    name="rm",
    title="Reward model",
    config=RewardConfig,
    trainer="core.trainers.reward:RewardTrainer",
    trains="reward_model",
    starts_from="sft",
    summary="Learns a score such that the preferred completion of each pair scores higher (Bradley–Terry).",
    when="When preferences are given as pairs and a method needs a number for any completion (PPO, GRPO, best of n).",
    pitfalls="It is right only near the completions it saw: a policy pushed far finds texts it overrates. "
    "Watch the gold reward while the learned one rises.",
    charts=(
        Chart(
            "accuracy", ("accuracy", "validation_accuracy"),
            "Share of pairs whose chosen completion scores higher, on the training batch and on held-out pairs.",
            "Training accuracy near 1 with flat held-out accuracy is memory, not knowledge.",
        ),
        Chart(
            "loss", ("loss", "validation_loss"),
            "Bradley–Terry loss; ln 2 ≈ 0.693 is a coin.",
            "A rising held-out loss at steady accuracy means over-confidence, not worse ranking.",
        ),
        Chart(
            "margin", ("margin",),
            "Mean score of chosen minus rejected completions.",
            "Its size means nothing by itself: scores have no unit before they are normalised.",
        ),
        Chart(
            "reward", ("min_reward", "mean_reward", "max_reward"),
            "Lowest, mean and highest score in the batch.",
            "A drifting mean is harmless: only differences count.",
        ),
    ),
    headline="validation_accuracy",
)  # fmt: skip
