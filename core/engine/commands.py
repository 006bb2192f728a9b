"""The commands that a client gives the engine. See :mod:`core.engine.protocol`, which writes and reads them."""

from dataclasses import dataclass, field
from typing import Any

PROTOCOL_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Command:
    id: int


@dataclass(frozen=True, kw_only=True)
class Hello(Command):
    """First message of a connection. Answered by ``Ready``."""

    protocol: int = PROTOCOL_VERSION
    device: str = "auto"  # auto | cpu | cuda | cuda:N | mps
    threads: int | None = None  # torch threads; None: as measured


@dataclass(frozen=True, kw_only=True)
class Open(Command):
    """Open the session in ``folder``; with ``task``, create it there first if there is none.

    Answered by ``Opened``; a ``RunState`` for each of its runs follows. A session that was open is closed first.
    """

    folder: str
    read_only: bool = False  # only to look and to sample, beside whoever has it open for writing
    task: str | None = None
    seed: int = 42
    backbone: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Start(Command):
    """Start a run. Answered by ``RunState``. A parent is needed by every method but SFT."""

    method: str
    config: dict[str, Any] = field(default_factory=dict)  # only the knobs that differ from their defaults
    seed: int | None = None  # None: the session's
    title: str = ""
    parent: int | None = None  # run whose weights are the start (and, unless it is a fork, the reference)
    parent_step: int | None = None  # None: its latest
    reward_run: int | None = None  # run whose reward model scores; None: the newest finished one, where needed
    pairs_file: str | None = None  # for pairs=file and pairs=mixed
    pairs_of: int | None = None  # run whose labels and pairs of a file are given again, as they were then
    paused: bool = False


@dataclass(frozen=True, kw_only=True)
class Pause(Command):
    """Answered by ``RunState`` "pausing" at once; ``RunState`` "paused" follows at the step's end."""

    run: int


@dataclass(frozen=True, kw_only=True)
class Resume(Command):
    """Go on: with a paused run at once, with an interrupted one from its newest good resume point."""

    run: int
    steps: int | None = None  # new total number of steps; changes the schedule's horizon


@dataclass(frozen=True, kw_only=True)
class Step(Command):
    """Do one step of a paused run, then pause again."""

    run: int


@dataclass(frozen=True, kw_only=True)
class Stop(Command):
    """End a run at the step's end and keep what it learned."""

    run: int


@dataclass(frozen=True, kw_only=True)
class SetKnob(Command):
    """Turn a live knob at the next step boundary. Answered by ``KnobChanged``."""

    run: int
    name: str
    value: Any


@dataclass(frozen=True, kw_only=True)
class Fork(Command):
    """A new run that starts where ``run`` stood at ``step``, with ``config`` changes. Answered by ``RunState``."""

    run: int
    step: int | None = None  # None: its latest
    config: dict[str, Any] = field(default_factory=dict)
    title: str = ""
    seed: int | None = None  # None: that of ``run``, so that nothing but ``config`` differs
    paused: bool = False


@dataclass(frozen=True, kw_only=True)
class Sample(Command):
    """Completions of a run's policy. Answered by ``Samples``. The same seeds give the same texts."""

    run: int | None = None  # None: the untrained model
    step: int | None = None  # a snapshot; None: as it is now
    prompts: list[str] = field(default_factory=list)  # empty: the task's probe prompts
    count: int = 1  # completions per prompt
    seed: int = 0
    temperature: float = 0.8
    top_k: int = 0  # 0: no limit
    top_p: float = 1.0
    max_new_tokens: int | None = None
    reference: int | None = None  # also give log-probs and KL under this run's policy; 0: the untrained model's
    reference_step: int | None = None  # a snapshot of the reference; None: its latest
    reward_run: int | None = None


@dataclass(frozen=True, kw_only=True)
class Score(Command):
    """What a reward model says of given texts. Answered by ``Scores``."""

    prompts: list[str]
    texts: list[str]  # as many
    reward_run: int | None = None  # None: the newest finished one


@dataclass(frozen=True, kw_only=True)
class Evaluate(Command):
    """Measure a run's policy. Answered by ``Evaluation``."""

    run: int
    step: int | None = None
    completions: int = 2048
    optimality: bool = False  # slow: see per_prompt and reference_per_prompt
    beta: float | None = None  # price of a nat in the optimality; None: the run's own β, else 0.2
    reward_run: int | None = (
        None  # None: optimality by the gold rule, or by the newest reward model where there is none
    )
    per_prompt: int = 1024  # completions of each probe prompt by the policy, for the optimality
    reference_per_prompt: int = 4096  # and by its reference; drawn once and kept for other runs


@dataclass(frozen=True, kw_only=True)
class Frontier(Command):
    """The plane of reward against KL on which a run is seen. Answered by ``Plane``.

    It is that of the run's reference; of the run itself where it began from nothing.
    """

    run: int
    reward_run: int | None = None  # None: by the gold rule, or by the newest reward model where there is none
    reference_per_prompt: int = 4096  # completions of each probe prompt by the reference


@dataclass(frozen=True, kw_only=True)
class Bench(Command):
    """Measure how fast this machine is, without a session or beside one in which nothing trains.

    A ``BenchLine`` as soon as each figure is known; answered by ``Acknowledged`` at the end.
    """

    backbone: dict[str, Any] = field(default_factory=dict)  # knobs that differ from their defaults
    growth: bool = False  # also how cost grows with size; minutes


@dataclass(frozen=True, kw_only=True)
class Save(Command):
    """Write a named resume point now. Answered by ``CheckpointSaved``."""

    run: int
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class Delete(Command):
    """Delete a run that does not train, with its checkpoints. Answered by ``Acknowledged``."""

    run: int


@dataclass(frozen=True, kw_only=True)
class Rename(Command):
    """Give a run another title. Answered by ``RunState``."""

    run: int
    title: str


@dataclass(frozen=True, kw_only=True)
class Close(Command):
    """Save every run at its step's end and let the session go; another may be opened. Answered by ``Acknowledged``."""


@dataclass(frozen=True, kw_only=True)
class Quit(Command):
    """Save every run at its step's end, then end the process. Answered by ``Goodbye``."""
