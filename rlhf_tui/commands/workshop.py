"""An engine with a session open, as the commands use it: requests, events to the right place, Ctrl-C."""

import asyncio
import contextlib
import signal
import sys
from pathlib import Path
from types import TracebackType
from typing import Self, cast

from core.engine.protocol import (
    Alert,
    Command,
    Error,
    Event,
    Metrics,
    Open,
    Opened,
    Pause,
    RunState,
    encode,
)
from core.methods.table import trains_policy
from core.store import Session
from core.store.locations import find_session, last_session, saves_folder
from core.store.runs import RunRecord
from rlhf_tui.commands.arguments import CommandError
from rlhf_tui.commands.progress import Progress
from rlhf_tui.engine_client import EngineClient, EngineDied, EngineError

WITH_WEIGHTS = ("done", "stopped", "paused", "interrupted")
RESTING = ("paused", "done", "stopped", "failed")
GO_ON = "--resume goes on from the last resume point"


def choose_session(saves: str | None, name: str | None) -> Path:
    """The folder of the session called ``name``, else of the last one. Raises CommandError or StoreError."""
    folder = saves_folder(saves)
    found = find_session(folder, name) if name else last_session(folder)
    if found is None:
        raise CommandError(f"there is no session in {folder}; train one first: rlhf-tui train sft")
    return found


def trained_policies(folder: Path, wanted: list[int]) -> list[RunRecord]:
    """The runs ``wanted``, else every trained policy of a session. Raises CommandError or StoreError."""
    with Session.open(folder, read_only=True) as session:
        if wanted:
            return [session.runs.get(number) for number in wanted]
        found = [each for each in session.runs.all() if trains_policy(each.method) and each.state in WITH_WEIGHTS]
    if not found:
        raise CommandError(
            f"session {folder.name} has no trained policy yet; train one: rlhf-tui train sft --session {folder.name}"
        )
    return found


class Interrupted(Exception):  # noqa: N818 - not an error
    """A signal asked the command to stop; what was learned is saved."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(number.name)
        self.number = number


class Workshop:
    """``async with Workshop(...)``: the engine is up and the session is open.

    The first signal (Ctrl-C, SIGTERM, SIGHUP) pauses what trains and lets :meth:`finish` raise; the second ends all.
    """

    def __init__(self, folder: Path, *, device: str, threads: int | None, jsonl: bool, quiet: bool = False) -> None:
        self.folder = folder
        self.jsonl = jsonl
        self.progress = Progress(quiet=quiet or jsonl)
        self.client = EngineClient(self._on_event, device=device, threads=threads)
        self.runs: dict[int, RunState] = {}
        self.gold = True  # has the session's task a rule that scores?
        self.backbone = "lstm"
        self.interrupted: signal.Signals | None = None
        self._resting: dict[int, asyncio.Future[RunState]] = {}
        self._broken_pipe = False

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._interrupt, number)
        try:
            ready = await self.client.start()
            self._print(ready)
            self.say(f"device: {ready.device_line}")
            opened = cast(Opened, await self.request(Open, folder=str(self.folder)))
        except EngineError as error:
            raise CommandError(str(error)) from error
        except CommandError:
            await self._close()
            raise
        self.gold, self.backbone = opened.gold, opened.backbone
        for note in opened.notes:
            self.say(note)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._close()

    async def request(self, command: type[Command], **fields: object) -> Event:
        """The answer to a command. Raises CommandError in one line when it is refused or the engine ends."""
        try:
            answer = await self.client.request(command, **fields)
        except EngineDied as error:
            raise CommandError(f"{error}; {GO_ON}") from error
        except EngineError as error:
            raise CommandError(str(error)) from error
        self._print(answer)
        if isinstance(answer, RunState):
            self._take_state(answer)
        return answer

    async def finish(self, state: RunState) -> RunState:
        """Wait until a run has come to a rest. Raises Interrupted when a signal made it rest."""
        future = asyncio.get_running_loop().create_future()
        self._resting[state.run] = future
        current = self.runs[state.run]
        if current.state in RESTING:
            future.set_result(current)
        self.progress.watch(state)
        if self.interrupted is not None:
            self._pause(state.run)
        done, _ = await asyncio.wait([future, self.client.exited], return_when=asyncio.FIRST_COMPLETED)
        if future not in done:
            raise CommandError(f"{self.client.exited.result()}; {GO_ON}")
        rested: RunState = future.result()
        del self._resting[state.run]
        self.progress.done(rested)
        if self._broken_pipe:
            raise CommandError("nobody reads the output any more; the run is saved")
        if self.interrupted is not None and rested.state == "paused":
            raise Interrupted(self.interrupted)
        if rested.state == "failed":
            raise CommandError(rested.message)
        return rested

    def say(self, text: str) -> None:
        """Something for a person to read while it works; not in the way of ``--jsonl``."""
        if not self.jsonl:
            from rlhf_tui.safe_text import visible

            self.progress.message(visible(text))

    def _interrupt(self, number: signal.Signals) -> None:
        if self.interrupted is not None:
            self._ending = asyncio.ensure_future(self.client.close(timeout=0.0))
            return
        self.interrupted = number
        self.say("stopping at the end of this step (again: at once) …")
        for run in self._resting:
            self._pause(run)

    def _pause(self, run: int) -> None:
        async def pause() -> None:
            # A run that has come to a rest meanwhile needs no pause.
            with contextlib.suppress(EngineError):
                await self.client.request(Pause, run=run)

        self._pausing = asyncio.ensure_future(pause())

    def _on_event(self, event: Event) -> None:
        self._print(event)
        match event:
            case Metrics():
                self.progress.metrics(event)
            case RunState():
                self._take_state(event)
            case Alert():
                self.say(event.message if event.kind == "note" else f"{event.kind}: {event.message}")
            case Error():
                self.say(event.message)

    def _take_state(self, state: RunState) -> None:
        self.runs[state.run] = state
        waiting = self._resting.get(state.run)
        if waiting is not None and not waiting.done() and state.state in RESTING:
            waiting.set_result(state)

    def _print(self, event: Event) -> None:
        if not self.jsonl or self._broken_pipe:
            return
        try:
            sys.stdout.buffer.write(encode(event))
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            self._broken_pipe = True
            for run in self._resting:
                self._pause(run)

    async def _close(self) -> None:
        await self.client.close()
