"""The events by which the engine answers and reports. See :mod:`core.engine.protocol`, which writes and reads them."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Event:
    id: int | None = None  # of the command that this answers


@dataclass(frozen=True, kw_only=True)
class Ready(Event):
    protocol: int
    device: str  # "cpu"
    device_line: str  # what was chosen and why, one line
    threads: int
    torch: str


@dataclass(frozen=True, kw_only=True)
class Opened(Event):
    folder: str
    title: str
    task: str
    seed: int
    parameters: int  # of the policy
    notes: list[str] = field(default_factory=list)  # recovered, approximate resume, migrated …
    gold: bool = True  # has the task a rule that scores?
    backbone: str = "lstm"  # its architecture


@dataclass(frozen=True, kw_only=True)
class RunState(Event):
    """Where a run stands. ``state``: waiting, running, pausing, paused, interrupted, done, stopped, failed."""

    run: int
    method: str
    title: str
    state: str
    step: int
    steps: int
    completions: int = 0  # sampled so far (examples seen, for SFT and the reward model)
    seconds: float = 0.0  # of training so far
    rate: float = 0.0  # steps per second, lately
    parent: int | None = None
    parent_step: int | None = None
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class Metrics(Event):
    """The metrics of one step under TRL's names; ``values`` may lack what is measured more rarely."""

    run: int
    step: int
    completions: int
    seconds: float
    values: dict[str, float]
    skipped: int = 0  # rows before this one that a slow reader did not get; the session's database has them


@dataclass(frozen=True, kw_only=True)
class KnobChanged(Event):
    run: int
    step: int  # first step that feels it
    name: str
    value: Any
    old: Any


@dataclass(frozen=True, kw_only=True)
class SampleText:
    """One completion with what is known about it. Log-probs and KL are sums over its letters, in nats."""

    prompt: str
    text: str
    ended: bool  # with EOS, not cut off
    gold_reward: float | None = None
    learned_reward: float | None = None
    member_rewards: list[float] = field(default_factory=list)  # of each reward model of the ensemble; their mean above
    logprob: float | None = None
    reference_logprob: float | None = None
    kl: float | None = None


@dataclass(frozen=True, kw_only=True)
class Samples(Event):
    """With an ``id``, the answer to ``Sample``; without, the strip of a running run (same seeds each time)."""

    run: int | None
    step: int
    samples: list[SampleText]
    reference: list[SampleText] = field(default_factory=list)  # same prompts and seeds from the reference
    notes: list[str] = field(default_factory=list)
    reward_run: int | None = None  # whose reward model gave the learned rewards, and at which step
    reward_step: int | None = None
    reference_step: int | None = None  # where the reference stood


@dataclass(frozen=True, kw_only=True)
class Scores(Event):
    """One list per text, with a score of each reward model of the ensemble; None for a text that cannot be read."""

    reward_run: int
    reward_step: int
    scores: list[list[float] | None]


@dataclass(frozen=True, kw_only=True)
class Evaluation(Event):
    run: int
    step: int
    values: dict[str, float]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class OptimalPlace:
    """Where the best policy at price ``beta`` stands, as far as the reference's completions tell."""

    beta: float
    reward: float
    kl: float  # nats a sequence
    effective_sample_size: float  # the smallest of any prompt


@dataclass(frozen=True, kw_only=True)
class BestOfNPlace:
    """Where best of ``n`` completions of the reference stands."""

    n: int
    reward: float
    kl: float  # nats a sequence
    kl_bound: float  # log n − (n−1)/n


@dataclass(frozen=True, kw_only=True)
class Plane(Event):
    """Reward against KL from one reference: what is possible. A run's own path is in its metrics."""

    run: int
    reward: str  # gold | learned
    reward_run: int | None  # whose reward model, and at which step
    reward_step: int | None
    reference_reward: float  # at KL 0
    least_effective: float  # optimal points of a smaller effective sample size lie too low
    completions: int  # of the reference, all prompts together
    optimal: list[OptimalPlace]  # by rising KL
    best_of_n: list[BestOfNPlace]  # by rising n


@dataclass(frozen=True, kw_only=True)
class BenchLine(Event):
    """One figure of the bench."""

    name: str
    rate: float
    unit: str
    share: float | None = None  # of the matrix product's peak


@dataclass(frozen=True, kw_only=True)
class CheckpointSaved(Event):
    run: int
    step: int
    kind: str  # resume | snapshot
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class Alert(Event):
    """Something a person should see.

    ``kind``: kl_alarm, early_stop, diverged, resume, device. Of the session on disk: not_saved, saved_again, storage (a
    note on what was found or put back).
    """

    run: int | None
    step: int | None
    kind: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Acknowledged(Event):
    """A command was done that has no richer answer."""


@dataclass(frozen=True, kw_only=True)
class Error(Event):
    """A command was refused, or a line was no message (then ``id`` is None)."""

    message: str


@dataclass(frozen=True, kw_only=True)
class Goodbye(Event):
    message: str = ""
