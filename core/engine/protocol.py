"""The messages between the engine and whoever watches: one JSON object a line, each with a ``type``.

Torch-free. Commands go to the engine's stdin and carry an ``id``; each is answered by exactly one event with that
``id`` (its answer, or ``error``). Events without an ``id`` report what happens meanwhile. JSON has no NaN and no
infinity: a float is written as the string ``"NaN"``, ``"Infinity"`` or ``"-Infinity"`` where it is one.
"""

import dataclasses
import functools
import json
import math
import types
import typing
from dataclasses import dataclass, field
from typing import Any

from core.config import nearest

PROTOCOL_VERSION = 1
MAX_MESSAGE_BYTES = 4 * 1024 * 1024


class ProtocolError(ValueError):
    """A line that is no message: unknown type, missing or unknown field, wrong kind of value, not JSON, too long."""


# --- commands: from the client to the engine ---------------------------------------------------------------


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


# --- events: from the engine to the client -----------------------------------------------------------------


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


COMMANDS: dict[str, type[Command]] = {
    "hello": Hello, "open": Open, "start": Start, "pause": Pause, "resume": Resume, "step": Step, "stop": Stop,
    "set_knob": SetKnob, "fork": Fork, "sample": Sample, "evaluate": Evaluate, "frontier": Frontier, "score": Score,
    "bench": Bench, "save": Save, "delete": Delete, "rename": Rename, "close": Close, "quit": Quit,
}  # fmt: skip
EVENTS: dict[str, type[Event]] = {
    "ready": Ready, "opened": Opened, "run_state": RunState, "metrics": Metrics, "knob_changed": KnobChanged,
    "samples": Samples, "scores": Scores, "evaluation": Evaluation, "plane": Plane, "bench_line": BenchLine,
    "checkpoint": CheckpointSaved, "alert": Alert, "acknowledged": Acknowledged, "error": Error, "goodbye": Goodbye,
}  # fmt: skip
_NAMES: dict[type, str] = {cls: name for table in (COMMANDS, EVENTS) for name, cls in table.items()}


def encode(message: Command | Event) -> bytes:
    """The message as one line of JSON, newline included."""
    body = {"type": _NAMES[type(message)], **_plain(dataclasses.asdict(message))}
    line = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return line.encode(errors="surrogatepass") + b"\n"  # half a character, pasted, must not end the engine


def decode_command(line: bytes) -> Command:
    """The command in a line. Raises ProtocolError with one line that says what is wrong."""
    return typing.cast(Command, _decode(line, typing.cast(dict[str, type], COMMANDS)))


def decode_event(line: bytes) -> Event:
    """The event in a line. Raises ProtocolError with one line that says what is wrong."""
    return typing.cast(Event, _decode(line, typing.cast(dict[str, type], EVENTS)))


def command_id(line: bytes) -> int | None:
    """The id of a line that may be a broken command, so that its error can name it."""
    try:
        found = json.loads(line).get("id")
    except (ValueError, AttributeError, RecursionError):
        return None
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


def _decode(line: bytes, known: dict[str, type]) -> Any:
    if len(line) > MAX_MESSAGE_BYTES:
        raise ProtocolError(f"message of {len(line)} bytes; {MAX_MESSAGE_BYTES} at most")
    try:
        body = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not a line of JSON: {str(error)[:200]}") from None
    if not isinstance(body, dict):
        raise ProtocolError("a message is a JSON object")
    name = body.pop("type", None)
    if not isinstance(name, str) or name not in known:
        raise ProtocolError(f"unknown message type {name!r}{nearest(str(name), known)}"[:300])
    return _build(known[name], body, name)


def _build(cls: type, body: dict[str, Any], where: str) -> Any:
    fields = _fields(cls)
    for key in body:
        if key not in fields:
            raise ProtocolError(f"{where} has no field {key!r}{nearest(key, fields)}"[:300])
    values = {}
    for key, (hint, required) in fields.items():
        if key in body:
            values[key] = _check(body[key], hint, f"{where}.{key}")
        elif required:
            raise ProtocolError(f"{where} lacks '{key}'")
    return cls(**values)


@functools.cache
def _fields(cls: type) -> dict[str, tuple[Any, bool]]:
    """Type and "is it required?" of each field of a message; looked up once, since metrics come by the thousand."""
    hints = typing.get_type_hints(cls)
    missing = dataclasses.MISSING
    return {
        each.name: (hints[each.name], each.default is missing and each.default_factory is missing)
        for each in dataclasses.fields(cls)
    }


def _check(value: Any, hint: Any, where: str) -> Any:
    """``value`` as ``hint`` wants it, or ProtocolError."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin is types.UnionType:
        if value is None and type(None) in arguments:
            return None
        return _check(value, next(each for each in arguments if each is not type(None)), where)
    if origin is list and isinstance(value, list):
        return [_check(each, arguments[0], where) for each in value]
    if origin is dict and isinstance(value, dict):
        return {key: _check(each, arguments[1], f"{where}[{key!r}]") for key, each in value.items()}
    if hint is float and isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**300:
        return float(value)
    if hint is float and isinstance(value, float):
        return value
    if hint is float and value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    if dataclasses.is_dataclass(hint) and isinstance(value, dict):
        return _build(typing.cast(type, hint), value, where)
    if (
        isinstance(hint, type)
        and origin is None
        and isinstance(value, hint)
        and (hint is bool or not isinstance(value, bool))
    ):
        return value
    raise ProtocolError(f"{where} must be {getattr(hint, '__name__', hint)}, not {str(value)[:80]!r}")
