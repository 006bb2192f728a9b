"""The codec under anything that a pipe may carry; what the messages do is tested with the engine."""

import dataclasses
import json
import math
import types
import typing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.engine import protocol
from core.engine.protocol import COMMANDS, EVENTS, ProtocolError, decode_command, decode_event, encode

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Anything that a field may hold, lone surrogates and infinities among it."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return json_values
    if origin is types.UnionType:
        return st.one_of(*(values_of(each) for each in arguments))
    if origin is list:
        return st.lists(values_of(arguments[0]), max_size=3)
    if origin is dict:
        return st.dictionaries(st.text(max_size=5), values_of(arguments[1]), max_size=3)
    if dataclasses.is_dataclass(hint):
        return messages_of(hint)
    return {
        int: st.integers(), float: st.floats(), bool: st.booleans(), type(None): st.none(),
        str: st.text(st.characters() | st.sampled_from("\ud800\udfff\u2028\x1b\n")),
    }[hint]  # fmt: skip


def messages_of(cls: type) -> st.SearchStrategy[Any]:
    return st.builds(cls, **{name: values_of(hint) for name, hint in typing.get_type_hints(cls).items()})


def same(left: Any, right: Any) -> bool:
    """Equality under which NaN equals NaN."""
    return repr(left) == repr(right)


def no_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


@pytest.mark.parametrize(
    ("cls", "decode"),
    [*((each, decode_command) for each in COMMANDS.values()), *((each, decode_event) for each in EVENTS.values())],
    ids=[*COMMANDS, *EVENTS],
)
def test_every_message_comes_back_from_one_line_of_strict_json(cls, decode):
    @given(messages_of(cls))
    def check(message: Any) -> None:
        line = encode(message)
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        json.loads(line, parse_constant=no_constant)
        assert same(decode(line), message)

    check()


def test_nan_and_infinity_are_written_as_strings():
    metrics = protocol.Metrics(run=1, step=2, completions=3, seconds=math.inf, values={"a": math.nan, "b": -math.inf})
    body = json.loads(encode(metrics))
    assert (body["seconds"], body["values"]) == ("Infinity", {"a": "NaN", "b": "-Infinity"})


@given(st.binary())
def test_bytes_that_are_no_message_are_refused_with_one_line(line):
    for decode in (decode_command, decode_event):
        with pytest.raises(ProtocolError) as refused:
            decode(line)
        assert len(str(refused.value).splitlines()) == 1


@given(st.sampled_from(sorted(COMMANDS)), st.dictionaries(st.text(max_size=8), json_values, max_size=4))
def test_json_that_is_no_command_is_refused_with_one_line(name, body):
    try:
        command = decode_command(json.dumps({**body, "type": name}).encode())
    except ProtocolError as refused:
        assert len(str(refused).splitlines()) == 1
        assert len(str(refused)) <= 400
    else:
        assert isinstance(command, COMMANDS[name])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"type":"pause","id":1}', "lacks 'run'"),
        (b'{"type":"pause","id":1,"run":1,"rnu":2}', "no field 'rnu'"),
        (b'{"type":"pause","id":true,"run":1}', "pause.id"),
        (b'{"type":"pause","id":1,"run":"1"}', "pause.run"),
        (b'{"type":"pause","id":1,"run":1.0}', "pause.run"),
        (b'{"type":"pausee","id":1,"run":1}', "did you mean 'pause'"),
        (b'{"type":3,"id":1}', "unknown message type"),
        (b'[1]', "object"),
        (b'{"type":"sample","id":1,"prompts":["a",3]}', "sample.prompts"),
        (b'{"type":"sample","id":1,"temperature":"hot"}', "sample.temperature"),
        (b'{"type":"sample","id":1,"temperature":1' + b"0" * 400 + b"}", "sample.temperature"),
        (b"[" * 100_000, "not a line of JSON"),
        (b'{"type":"pause","id":1,"run":' + b"1" * 5000 + b"}", "not a line of JSON"),
        (b" " * (protocol.MAX_MESSAGE_BYTES + 1), "at most"),
    ],
)  # fmt: skip
def test_a_wrong_message_says_what_is_wrong(line, said):
    with pytest.raises(ProtocolError, match=said):
        decode_command(line)
