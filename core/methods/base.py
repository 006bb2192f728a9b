"""What a method is to everyone but its trainer: knobs, charts and explanations. Torch-free."""

from dataclasses import dataclass

from core.config import Config, knob


@dataclass(frozen=True)
class Chart:
    """One plot of a method: which metrics it draws and how to read them."""

    title: str
    metrics: tuple[str, ...]
    meaning: str
    misreading: str


@dataclass(frozen=True)
class Method:
    """An entry of the table of methods; form, command line, help and documentation follow from it."""

    name: str  # as typed: ``rlhf-tui train NAME``
    title: str
    config: type["TrainingConfig"]
    trainer: str  # "module:class", loaded in the engine only
    trains: str  # "policy" or "reward_model"
    starts_from: str | None  # the method a run usually starts from
    summary: str  # what it does
    when: str  # when to use it
    pitfalls: str  # what goes wrong
    charts: tuple[Chart, ...]
    headline: str  # the metric that tells how well it goes, for tables and scoreboards
    unpaired: bool = False  # does it also learn from completions judged by themselves?


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(Config):
    """Knobs that every method has."""

    steps: int = knob(300, "updates in all; the learning-rate schedule spans them", minimum=1, maximum=1_000_000)
    batch_size: int = knob(64, "examples a step", minimum=1, maximum=16_384)
    learning_rate: float = knob(1e-3, "peak learning rate of AdamW", minimum=0, maximum=1, live=True)
    warmup: float = knob(0.05, "share of the steps in which the learning rate rises to its peak", minimum=0, maximum=1)
    schedule: str = knob(
        "linear", "how the learning rate falls after the warm-up", choices=("linear", "cosine", "constant")
    )
    weight_decay: float = knob(0.0, "decoupled weight decay", minimum=0, maximum=10)
    max_grad_norm: float = knob(1.0, "gradients longer than this are shortened to it", above=0, live=True)
    evaluate_every: int = knob(25, "steps between two validations", minimum=1, maximum=1_000_000, unit="steps")
    patience: int = knob(
        0, "validations without a better one after which the run stops early; 0 never", minimum=0, maximum=10_000
    )
    keep_best: bool = knob(False, "end with the weights of the best validation instead of the last")


@dataclass(frozen=True, kw_only=True)
class PolicyConfig(TrainingConfig):
    """Knobs of methods that move a policy away from a reference."""

    temperature: float = knob(
        1.0, "divides the logits of policy and reference alike, in sampling and training", minimum=0.05, maximum=10,
        live=True,
    )  # fmt: skip
    kl_alarm: float = knob(5.0, "sequence KL that raises an alarm; 0 never", minimum=0, unit="nats", live=True)
    kl_limit: float = knob(
        0.0, "sequence KL that stops the run at its best checkpoint; 0 never", minimum=0, unit="nats", live=True
    )
    probe_completions: int = knob(
        256, "completions sampled to measure gold reward and KL at a validation", minimum=16, maximum=65_536
    )
