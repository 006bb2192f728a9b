"""The messages between the engine and whoever watches: one JSON object a line, each with a ``type``.

The messages themselves are in :mod:`core.engine.commands` and :mod:`core.engine.events`, and can be imported from
here. Torch-free. Commands go to the engine's stdin and carry an ``id``; each is answered by exactly one event with that
``id`` (its answer, or ``error``). Events without an ``id`` report what happens meanwhile. JSON has no NaN and no
infinity: a float is written as the string ``"NaN"``, ``"Infinity"`` or ``"-Infinity"`` where it is one.
"""

import dataclasses
import functools
import json
import math
import types
import typing
from typing import Any

from core.config import nearest
from core.engine.commands import (
    PROTOCOL_VERSION,
    Bench,
    Close,
    Command,
    Delete,
    Evaluate,
    Fork,
    Frontier,
    Hello,
    Open,
    Pause,
    Quit,
    Rename,
    Resume,
    Sample,
    Save,
    Score,
    SetKnob,
    Start,
    Step,
    Stop,
)
from core.engine.events import (
    Acknowledged,
    Alert,
    BenchLine,
    BestOfNPlace,
    CheckpointSaved,
    Error,
    Evaluation,
    Event,
    Goodbye,
    KnobChanged,
    Metrics,
    Opened,
    OptimalPlace,
    Plane,
    Ready,
    RunState,
    Samples,
    SampleText,
    Scores,
)

__all__ = [
    "COMMANDS",
    "EVENTS",
    "MAX_MESSAGE_BYTES",
    "PROTOCOL_VERSION",
    "Acknowledged",
    "Alert",
    "Bench",
    "BenchLine",
    "BestOfNPlace",
    "CheckpointSaved",
    "Close",
    "Command",
    "Delete",
    "Error",
    "Evaluate",
    "Evaluation",
    "Event",
    "Fork",
    "Frontier",
    "Goodbye",
    "Hello",
    "KnobChanged",
    "Metrics",
    "Open",
    "Opened",
    "OptimalPlace",
    "Pause",
    "Plane",
    "ProtocolError",
    "Quit",
    "Ready",
    "Rename",
    "Resume",
    "RunState",
    "Sample",
    "SampleText",
    "Samples",
    "Save",
    "Score",
    "Scores",
    "SetKnob",
    "Start",
    "Step",
    "Stop",
    "command_id",
    "decode_command",
    "decode_event",
    "encode",
]

MAX_MESSAGE_BYTES = 4 * 1024 * 1024


class ProtocolError(ValueError):
    """A line that is no message: unknown type, missing or unknown field, wrong kind of value, not JSON, too long."""


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
