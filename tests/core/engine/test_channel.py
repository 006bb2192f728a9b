"""The two pipes by themselves."""

import json
import os
import threading
import time

from core.engine.channel import ClientGone, Inbox, Malformed, Outbox
from core.engine.protocol import Alert, Error, Event, Metrics, Pause, RunState, Samples


def row(step: int, run: int = 1) -> Metrics:
    return Metrics(run=run, step=step, completions=0, seconds=0.0, values={"loss": float(step)})


def read_all(descriptor: int) -> list[dict[str, object]]:
    data = b""
    while chunk := os.read(descriptor, 1 << 16):
        data += chunk
    return [json.loads(line) for line in data.splitlines()]


def sent_to_a_stuck_reader(events: list[Event], limit: int) -> list[dict[str, object]]:
    """What arrives when nobody reads until all ``events`` were put."""
    reading, writing = os.pipe()
    outbox = Outbox(writing, limit)
    for event in events:
        outbox.put(event)
    outbox.start()
    arrived: list[dict[str, object]] = []
    reader = threading.Thread(target=lambda: arrived.extend(read_all(reading)))
    reader.start()
    assert outbox.flush(5)
    os.close(writing)
    reader.join()
    os.close(reading)
    return arrived


def test_up_to_the_limit_every_event_arrives_in_order() -> None:
    arrived = sent_to_a_stuck_reader([row(step) for step in range(1, 51)], limit=50)
    assert [(each["step"], each["skipped"]) for each in arrived] == [(step, 0) for step in range(1, 51)]


def test_beyond_the_limit_the_newest_row_of_each_run_stands_for_those_it_replaced() -> None:
    events = [row(step, run) for step in range(1, 11) for run in (1, 2)]
    arrived = sent_to_a_stuck_reader(events, limit=4)
    # Rows 1 and 2 of both runs wait; each later row takes the place of its run's newest waiting one.
    assert [(each["run"], each["step"], each["skipped"]) for each in arrived] == [
        (1, 1, 0), (2, 1, 0), (1, 10, 8), (2, 10, 8),
    ]  # fmt: skip


def test_answers_alerts_and_errors_are_never_dropped() -> None:
    state = RunState(run=1, method="sft", title="", state="running", step=0, steps=9)
    events: list[Event] = []
    for number in range(20):
        events += [
            RunState(**{**vars(state), "id": number}), Alert(run=1, step=1, kind="storage", message=str(number)),
            Error(message=str(number)), state, Samples(run=1, step=number, samples=[]),
        ]  # fmt: skip
    arrived = sent_to_a_stuck_reader(events, limit=5)
    assert [each["id"] for each in arrived if each["type"] == "run_state" and each["id"] is not None] == list(range(20))
    assert [each["message"] for each in arrived if each["type"] == "alert"] == [str(each) for each in range(20)]
    assert [each["message"] for each in arrived if each["type"] == "error"] == [str(each) for each in range(20)]
    # The two that report a state of things wait once in the first five, and once more, brought up to date.
    assert sum(each["type"] == "samples" for each in arrived) <= 2
    assert [each["step"] for each in arrived if each["type"] == "samples"][-1] == 19


def test_putting_never_waits_for_the_reader() -> None:
    reading, writing = os.pipe()
    outbox = Outbox(writing, 100)
    outbox.start()
    began = time.monotonic()
    for step in range(20_000):
        outbox.put(row(step))
    assert time.monotonic() - began < 2
    assert not outbox.flush(0.05)
    os.close(reading)
    assert not outbox.flush(5) and outbox.broken
    os.close(writing)


def test_what_cannot_be_encoded_or_is_too_long_becomes_an_error_with_its_id() -> None:
    long = Samples(id=7, run=1, step=1, samples=[], notes=["x" * 5_000_000])
    odd = Metrics(id=8, run=1, step=1, completions=0, seconds=0.0, values={"loss": object()})  # type: ignore[dict-item]
    arrived = sent_to_a_stuck_reader([long, odd, row(3)], limit=9)
    assert [(each["type"], each["id"]) for each in arrived] == [("error", 7), ("error", 8), ("metrics", None)]


def test_lines_become_commands_however_they_are_cut() -> None:
    reading, writing = os.pipe()
    inbox = Inbox(reading)
    inbox.start()
    for byte in b'{"type":"pause","id":1,"run":2}\n\n  \nnonsense\n':
        os.write(writing, bytes([byte]))
    assert inbox.take(5) == Pause(id=1, run=2)
    broken = inbox.take(5)
    assert isinstance(broken, Malformed) and broken.id is None
    assert inbox.take(0) is None
    os.close(writing)
    assert isinstance(inbox.take(5), ClientGone)
    os.close(reading)


def test_the_rest_of_an_overlong_line_is_no_command() -> None:
    reading, writing = os.pipe()
    inbox = Inbox(reading)
    inbox.start()
    sender = threading.Thread(
        target=lambda: os.write(
            writing, b"x" * 5_000_000 + b'{"type":"pause","id":1,"run":2}\n{"type":"quit","id":3}\n'
        )
    )
    sender.start()
    long = inbox.take(5)
    assert isinstance(long, Malformed) and "bytes" in long.message
    following = inbox.take(5)
    assert not isinstance(following, Malformed | ClientGone) and following is not None and following.id == 3
    sender.join()
    os.close(writing)
