"""The engine's two pipes: commands come in and events go out on threads of their own, so that training never waits."""

import os
import queue
import threading
import time
from collections import OrderedDict, deque
from dataclasses import dataclass, replace

from core.engine.protocol import (
    MAX_MESSAGE_BYTES,
    Command,
    Error,
    Event,
    Metrics,
    ProtocolError,
    RunState,
    Samples,
    command_id,
    decode_command,
    encode,
)


@dataclass(frozen=True)
class Malformed:
    """A line that was no command."""

    id: int | None
    message: str


@dataclass(frozen=True)
class ClientGone:
    """No command will come any more."""

    reason: str


Incoming = Command | Malformed | ClientGone


class Inbox:
    """Commands as they come from the file descriptor ``source``, read by a thread."""

    def __init__(self, source: int) -> None:
        self._source = source
        # A SimpleQueue, because a signal handler may put into it while the main thread is taking from it.
        self._queue: queue.SimpleQueue[Incoming] = queue.SimpleQueue()

    def start(self) -> None:
        threading.Thread(target=self._read, name="commands", daemon=True).start()

    def put(self, item: Incoming) -> None:
        self._queue.put(item)

    def take(self, timeout: float) -> Incoming | None:
        """The next item; None when none comes in ``timeout`` seconds (0: at once)."""
        try:
            return self._queue.get(block=timeout > 0, timeout=timeout or None)
        except queue.Empty:
            return None

    def _read(self) -> None:
        buffer = bytearray()
        skipping = False  # inside a line longer than any message
        while True:
            try:
                chunk = os.read(self._source, 1 << 16)
            except OSError as error:
                self.put(ClientGone(f"the command pipe broke: {error}"))
                return
            if not chunk:
                self.put(ClientGone("the client closed the command pipe"))
                return
            *lines, rest = chunk.split(b"\n")
            for line in lines:
                if not skipping and (buffer or line).strip():
                    self.put(_decode(bytes(buffer + line)))
                buffer.clear()
                skipping = False
            if not skipping:
                buffer += rest
            if len(buffer) > MAX_MESSAGE_BYTES:
                self.put(Malformed(None, f"a line of more than {MAX_MESSAGE_BYTES} bytes"))
                buffer.clear()
                skipping = True


def _decode(line: bytes) -> Command | Malformed:
    try:
        return decode_command(line)
    except ProtocolError as error:
        return Malformed(command_id(line), str(error))


class Outbox:
    """Events on their way to the file descriptor ``target``, written by a thread.

    :meth:`put` never blocks. When the reader is slow and ``limit`` events wait, a newer report of the same thing
    takes the place of the one that waits (a metrics row says how many rows it stands for, see ``Metrics.skipped``);
    answers, alerts and errors are never dropped.
    """

    def __init__(self, target: int, limit: int = 2000) -> None:
        self._target = target
        self._limit = limit
        self._waiting: OrderedDict[int, Event] = OrderedDict()
        self._newest: dict[tuple[type, int | None], int] = {}  # subject -> number of its newest waiting event
        self._next = 0
        self._busy = False
        self._changed = threading.Condition()
        self.broken = False  # nobody reads any more

    def start(self) -> None:
        threading.Thread(target=self._write, name="events", daemon=True).start()

    def put(self, event: Event) -> None:
        with self._changed:
            if self.broken:
                return
            subject = _subject(event)
            if subject is not None:
                if len(self._waiting) >= self._limit and self._newest.get(subject) in self._waiting:
                    old = self._waiting.pop(self._newest[subject])
                    if isinstance(event, Metrics) and isinstance(old, Metrics):
                        event = replace(event, skipped=event.skipped + old.skipped + 1)
                self._newest[subject] = self._next
            self._waiting[self._next] = event
            self._next += 1
            self._changed.notify_all()

    def flush(self, timeout: float) -> bool:
        """Wait until everything is written; False when ``timeout`` seconds do not suffice."""
        end = time.monotonic() + timeout
        with self._changed:
            while (self._waiting or self._busy) and not self.broken:
                left = end - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
        return not self.broken

    def _write(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    self._changed.wait()
                batch: deque[Event] = deque()
                while self._waiting and len(batch) < 64:
                    batch.append(self._waiting.popitem(last=False)[1])
                self._busy = True
            try:
                _write_all(self._target, b"".join(map(_encode, batch)))
            except OSError:
                self._end()
                return
            with self._changed:
                self._busy = False
                self._changed.notify_all()

    def _end(self) -> None:
        with self._changed:
            self.broken = True
            self._waiting.clear()
            self._changed.notify_all()


def _subject(event: Event) -> tuple[type, int | None] | None:
    """What a later event of the same kind would bring up to date; None for what must arrive."""
    if event.id is None and isinstance(event, Metrics | Samples | RunState):
        return type(event), event.run
    return None


def _encode(event: Event) -> bytes:
    try:
        line = encode(event)
    except (TypeError, ValueError) as error:
        return encode(Error(id=event.id, message=f"an answer could not be written as JSON: {error}"))
    if len(line) > MAX_MESSAGE_BYTES:
        return encode(Error(id=event.id, message=f"the answer has {len(line)} bytes; ask for less at once"))
    return line


def _write_all(target: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]
