"""The engine seen from the app and the command line: a child process that answers commands and reports events.

The process may be slow, hang, crash, be killed or write nonsense; none of that blocks or breaks its client.
"""

import asyncio
import contextlib
import itertools
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, cast

from core.engine.protocol import (
    MAX_MESSAGE_BYTES,
    PROTOCOL_VERSION,
    Command,
    Error,
    Event,
    Hello,
    Opened,
    ProtocolError,
    Quit,
    Ready,
    decode_event,
    encode,
)

ENGINE_COMMAND = [sys.executable, "-P", "-m", "core.engine"]
_NONSENSE_SHOWN = 10


class EngineError(RuntimeError):
    """The engine refused a command, or could not be started; one line that says why."""


class EngineDied(EngineError):  # noqa: N818 - an event in the life of a process, named as the interface has it
    """The engine's process ended before it answered; one line that says how."""


class EngineClient:
    """One engine process, from :meth:`start` to its end. Make a new client to start another.

    ``on_event`` gets every event that answers no command, in order, in the event loop's thread. ``log`` takes what
    the engine writes to stderr before it opens a session, whose ``engine.log`` takes it from then on. ``exited``
    exists from :meth:`start` on and resolves, when the process has ended, with one line that says how.
    """

    exited: asyncio.Future[str]

    def __init__(
        self,
        on_event: Callable[[Event], None],
        *,
        device: str = "auto",
        threads: int | None = None,
        log: Path | None = None,
        command: list[str] | None = None,
    ) -> None:
        self.on_event = on_event
        self.device = device
        self.threads = threads
        self.log = log
        self.command = command or ENGINE_COMMAND
        self.ready: Ready | None = None
        self._transport: asyncio.SubprocessTransport | None = None
        self._stderr: IO[bytes] | None = None
        self._session_log: Path | None = None
        self._ids = itertools.count(1)
        self._pending: dict[int, asyncio.Future[Event]] = {}
        self._nonsense = 0
        self._closing = False
        self._burial: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        """Is the process there to take commands?"""
        return self._transport is not None and not self.exited.done()

    @property
    def pid(self) -> int | None:
        return self._transport.get_pid() if self._transport else None

    async def start(self, timeout: float = 120.0) -> Ready:
        """Start the process and greet it. Raises EngineError when it cannot run or is not ready in ``timeout`` s."""
        if self._transport is not None:
            raise EngineError("this client has already started its engine")
        loop = asyncio.get_running_loop()
        self.exited = loop.create_future()
        try:
            self._stderr = self.log.open("ab") if self.log else tempfile.TemporaryFile()  # noqa: SIM115 - closed at its end
            # A session of its own: Ctrl-C, Ctrl-Z and a closing terminal reach the app alone.
            self._transport, _ = await loop.subprocess_exec(
                lambda: _Connection(self), *self.command, stderr=self._stderr, start_new_session=True
            )
        except OSError as error:
            self.exited.set_result(f"the engine did not start: {error}")
            raise EngineError(self.exited.result()) from None
        try:
            async with asyncio.timeout(timeout):
                ready = await self._send(Hello(id=next(self._ids), device=self.device, threads=self.threads))
        except TimeoutError:
            await self._kill()
            raise EngineError(f"the engine was not ready within {timeout:g} s and was ended") from None
        except EngineDied:
            raise
        except EngineError:
            await self._kill()
            raise
        if not isinstance(ready, Ready) or ready.protocol != PROTOCOL_VERSION:
            await self._kill()
            raise EngineError(
                f"the engine speaks another protocol than {PROTOCOL_VERSION}; install one version of both"
            )
        self.ready = ready
        return ready

    async def request(self, command_type: type[Command], **fields: Any) -> Event:
        """Send a command and wait for its answer, for as long as it takes (wrap in ``asyncio.timeout`` for less).

        Raises EngineError when the engine refuses, EngineDied when the process ends first.
        """
        return await self._send(command_type(id=next(self._ids), **fields))

    async def close(self, timeout: float = 10.0) -> str:
        """Let the engine save and end; after ``timeout`` s terminate it, 3 s later kill it. Returns how it ended."""
        if self._transport is None:
            return "the engine was never started"
        if self.exited.done():
            return self.exited.result()
        self._closing = True
        # Quit may stay unanswered when the engine hangs, so only its end counts.
        self._write(Quit(id=next(self._ids)))
        if await self._ended_within(timeout):
            return self.exited.result()
        self._signal(signal.SIGTERM)
        if not await self._ended_within(3.0):
            await self._kill()
        return self.exited.result()

    async def _send(self, command: Command) -> Event:
        if not self.alive:
            raise EngineDied(self.exited.result() if self._transport else "the engine is not running")
        answer: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        self._pending[command.id] = answer
        try:
            self._write(command)
            event = await answer
        finally:
            self._pending.pop(command.id, None)
        if isinstance(event, Error):
            raise EngineError(event.message)
        return event

    def _write(self, command: Command) -> None:
        assert self._transport is not None
        stdin = cast(asyncio.WriteTransport, self._transport.get_pipe_transport(0))
        if not stdin.is_closing():
            stdin.write(encode(command))

    def process_exited(self, stdout_closed: asyncio.Event) -> None:
        self._burial = asyncio.create_task(self._bury(stdout_closed), name="engine-end")

    async def _bury(self, stdout_closed: asyncio.Event) -> None:
        assert self._transport is not None and self._stderr is not None
        # What it wrote last is still in the pipe; a grandchild could hold that open for ever.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await stdout_closed.wait()
        how = self._epitaph(self._transport.get_returncode() or 0)
        self._transport.close()
        self._stderr.close()
        self.exited.set_result(how)
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(EngineDied(how))

    def take_line(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            event = decode_event(line)
        except ProtocolError as error:
            self.report_nonsense(str(error))
            return
        if isinstance(event, Opened):
            self._session_log = Path(event.folder) / "engine.log"
        if event.id is None:
            self._deliver(event)
            return
        answer = self._pending.get(event.id)
        if answer is not None and not answer.done():
            answer.set_result(event)

    def _deliver(self, event: Event) -> None:
        try:
            self.on_event(event)
        except Exception as error:
            # A listener's mistake must be seen, and must not end the reading.
            asyncio.get_running_loop().call_exception_handler(
                {"message": f"the listener failed on {type(event).__name__}", "exception": error}
            )

    def report_nonsense(self, what: str) -> None:
        self._nonsense += 1
        if self._nonsense <= _NONSENSE_SHOWN:
            self._deliver(Error(message=f"the engine wrote what is no message: {what}"))

    async def _ended_within(self, seconds: float) -> bool:
        await asyncio.wait([self.exited], timeout=seconds)
        return self.exited.done()

    def _signal(self, number: signal.Signals) -> None:
        assert self._transport is not None
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._transport.get_pid(), number)

    async def _kill(self) -> None:
        self._closing = True
        self._signal(signal.SIGKILL)
        await asyncio.wait([self.exited])

    def _epitaph(self, status: int) -> str:
        if status == 0:
            return "the engine ended"
        if status < 0:
            name = signal.Signals(-status).name
            hint = ""
            if status == -signal.SIGKILL and not self._closing:
                hint = " (by hand, or because memory ran out)"
            return f"the engine was ended by {name}{hint}"
        last = self._last_words()
        return f"the engine failed with exit status {status}" + (f": {last}" if last else "")

    def _last_words(self) -> str:
        """The last line of the log that holds one, at most 300 characters."""
        if self._session_log is not None and self._session_log.is_file():
            with self._session_log.open("rb") as log:
                tail = _tail(log)
        elif self.log is not None:
            with self.log.open("rb") as log:
                tail = _tail(log)
        else:
            assert self._stderr is not None
            tail = _tail(self._stderr)
        lines = [line.strip() for line in tail.decode(errors="replace").splitlines() if line.strip()]
        return lines[-1][:300] if lines else ""


class _Connection(asyncio.SubprocessProtocol):
    """Cuts the engine's stdout into lines. Not a StreamReader: that fails on long lines, and its process counts as
    ended only when every holder of the pipe is."""

    def __init__(self, client: EngineClient) -> None:
        self.client = client
        self.buffer = bytearray()
        self.skipping = False  # inside a line longer than any message
        self.stdout_closed = asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        *lines, rest = data.split(b"\n")
        for line in lines:
            if not self.skipping:
                self.buffer += line
                self.client.take_line(bytes(self.buffer))
            self.buffer.clear()
            self.skipping = False
        if not self.skipping:
            self.buffer += rest
        if len(self.buffer) > MAX_MESSAGE_BYTES:
            self.client.report_nonsense(f"a line of more than {MAX_MESSAGE_BYTES} bytes")
            self.buffer.clear()
            self.skipping = True

    def pipe_connection_lost(self, fd: int, error: Exception | None) -> None:
        if fd == 1:
            self.stdout_closed.set()

    def process_exited(self) -> None:
        self.client.process_exited(self.stdout_closed)


def _tail(file: IO[bytes], size: int = 4096) -> bytes:
    end = file.seek(0, os.SEEK_END)
    file.seek(max(0, end - size))
    return file.read()
