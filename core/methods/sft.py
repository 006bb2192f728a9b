"""Supervised fine-tuning: imitate the demonstrations."""

from dataclasses import dataclass

from core.config import knob
from core.methods.base import Chart, Method, TrainingConfig


@dataclass(frozen=True, kw_only=True)
class SFTConfig(TrainingConfig):
    """Knobs of supervised fine-tuning."""

    steps: int = knob(500, "updates in all; the learning-rate schedule spans them", minimum=1, maximum=1_000_000)
    batch_size: int = knob(256, "demonstrations a step", minimum=1, maximum=16_384)
    learning_rate: float = knob(3e-3, "peak learning rate of AdamW", minimum=0, maximum=1, live=True)
    schedule: str = knob(
        "cosine", "how the learning rate falls after the warm-up", choices=("linear", "cosine", "constant")
    )
    weight_decay: float = knob(0.01, "decoupled weight decay", minimum=0, maximum=10)
    evaluate_every: int = knob(50, "steps between two validations", minimum=1, maximum=1_000_000, unit="steps")


SFT = Method(
    name="sft",
    title="SFT",
    config=SFTConfig,
    trainer="core.trainers.sft:SFTTrainer",
    trains="policy",
    starts_from=None,
    summary="Supervised fine-tuning: raises the probability of each letter of the demonstrations.",
    when="First: it teaches the form of an answer, and its result is the reference of every later method.",
    pitfalls="Too few steps and it babbles; too many on few demonstrations and it recites: watch the validation loss.",
    charts=(
        Chart(
            "loss", ("loss", "validation_loss"),
            "Cross-entropy per completion letter in nats, EOS included, on training and held-out demonstrations.",
            "It does not fall to 0: several answers are right after each prompt, and their entropy stays.",
        ),
        Chart(
            "accuracy", ("mean_token_accuracy",),
            "Share of letters for which the likeliest letter is the demonstrated one.",
            "A low value is no failure: the next letter of a random word cannot be known.",
        ),
        Chart(
            "entropy", ("entropy",),
            "Exact entropy of the next-letter distribution, mean over completion letters, in nats.",
            "Not the loss: a sure and wrong model has low entropy and high loss.",
        ),
    ),
    headline="validation_loss",
)  # fmt: skip
