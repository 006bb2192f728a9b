"""The engine's loop: take what commands have come, give an active run a slice of work, report, and again."""

import signal
import sys
import time
import traceback
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch

from core import config as knobs
from core import device as devices
from core.engine.asking import evaluate, sample, score, strip
from core.engine.benching import bench
from core.engine.channel import ClientGone, Inbox, Incoming, Malformed, Outbox
from core.engine.driver import RunDriver
from core.engine.launching import RefusedError
from core.engine.log import log_back, log_to
from core.engine.measuring import plane
from core.engine.protocol import (
    PROTOCOL_VERSION,
    Acknowledged,
    Bench,
    Close,
    Command,
    Delete,
    Error,
    Evaluate,
    Event,
    Fork,
    Frontier,
    Goodbye,
    Hello,
    Open,
    Pause,
    Quit,
    Ready,
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
from core.engine.saving import Environment
from core.engine.workspace import Workspace
from core.store.errors import StoreError, one_line
from core.tasks.base import TaskError

IDLE = 0.25  # seconds between two looks around when no run is active
SAVE_ALL_WITHIN = 5.0  # seconds in which every run must reach a step's end when the engine ends

Job = Generator[None, None, Event]
"""Work for an answer that takes longer than a slice; yields where a run may have its turn."""


@dataclass
class Asked:
    """A job under way and the time it has had."""

    id: int
    job: Job
    used: float
    what: str


class Server:
    """One client, one device, at most one session."""

    def __init__(self, inbox: Inbox, outbox: Outbox) -> None:
        self.inbox = inbox
        self.outbox = outbox
        self.workspace: Workspace | None = None
        self.jobs: list[Asked] = []
        self.ending = False
        self._log_before: int | None = None  # where the log went before a session was open
        self._device: torch.device | None = None
        self._environment: Environment | None = None
        self._handlers: dict[type[Command], Callable[[Any], Event | None]] = {
            Hello: self._hello, Open: self._open, Close: self._close, Quit: self._quit,
            Sample: lambda command: self._answer_soon(command, sample(self._session(), command), "sample"),
            Score: lambda command: score(self._session(), command),
            Evaluate: lambda command: self._take_on(command, evaluate(self._session(), command), "evaluation"),
            Frontier: lambda command: self._take_on(command, plane(self._session(), command), "frontier"),
            Bench: self._bench,
            Start: lambda command: self._session().start(command),
            Resume: lambda command: self._session().resume(command),
            Pause: lambda command: self._session().pause(command),
            Step: lambda command: self._session().step(command),
            Stop: lambda command: self._session().stop(command),
            SetKnob: lambda command: self._session().set_knob(command),
            Fork: lambda command: self._session().fork(command),
            Save: lambda command: self._session().save(command),
            Delete: lambda command: self._session().delete(command),
            Rename: lambda command: self._session().rename(command),
        }  # fmt: skip

    def run(self) -> None:
        """Until the client says quit, or goes away."""
        while not self.ending:
            item = self.inbox.take(0.0 if self._busy else IDLE)
            while item is not None and not self.ending:
                self.handle(item)
                item = self.inbox.take(0.0)
            if not self.ending:
                self._work()
            if self.outbox.broken:
                self.handle(ClientGone("nobody reads the events"))

    def handle(self, item: Incoming) -> None:
        """One command; whatever is wrong with it becomes an answer."""
        if isinstance(item, ClientGone):
            print(f"ending: {item.reason}", file=sys.stderr, flush=True)
            self._let_go(item.reason)
            self.ending = True
            return
        if isinstance(item, Malformed):
            self.outbox.put(Error(id=item.id, message=item.message))
            return
        try:
            if self._device is None and not isinstance(item, Hello | Quit):
                raise RefusedError("the first command must be hello")
            answer = self._handlers[type(item)](item)
        except (RefusedError, knobs.ConfigError, TaskError, StoreError, devices.DeviceError) as error:
            answer = Error(id=item.id, message=str(error))
        except Exception as error:
            traceback.print_exc()
            what = f"{type(error).__name__}: {one_line(error)}"
            answer = Error(id=item.id, message=f"{type(item).__name__.lower()} failed: {what}")
        if answer is not None:
            self.outbox.put(answer)
        if isinstance(item, Open) and self.workspace is not None and not isinstance(answer, Error):
            for state in self.workspace.run_states():
                self.outbox.put(state)

    @property
    def _busy(self) -> bool:
        return bool(self.jobs or self._active())

    def _active(self) -> list[RunDriver]:
        return [each for each in self.workspace.drivers.values() if each.active] if self.workspace else []

    def _work(self) -> None:
        """A slice for whoever has had the least time."""
        workspace = self.workspace
        if workspace is not None:
            workspace.recorder.flush_if_due()
        turns: list[RunDriver | Asked] = [*self._active(), *self.jobs]
        if not turns:
            return
        turn = min(turns, key=lambda each: each.used)
        began = time.perf_counter()
        if isinstance(turn, Asked):
            self._go_on_with(turn)
        else:
            assert workspace is not None
            turn.slice()
            if turn.strip_due():
                self._show_strip(workspace, turn)
            workspace.settle(turn)
        turn.used += time.perf_counter() - began

    def _go_on_with(self, asked: Asked) -> None:
        try:
            next(asked.job)
            return
        except StopIteration as end:
            answer = cast(Event, end.value)
        except (RefusedError, knobs.ConfigError, TaskError, StoreError) as error:
            answer = Error(id=asked.id, message=str(error))
        except Exception as error:
            traceback.print_exc()
            answer = Error(id=asked.id, message=f"the {asked.what} failed: {type(error).__name__}: {one_line(error)}")
        self.jobs.remove(asked)
        self.outbox.put(answer)

    def _show_strip(self, workspace: Workspace, driver: RunDriver) -> None:
        try:
            shown = strip(workspace, driver)
        except (RefusedError, knobs.ConfigError, TaskError, StoreError) as error:
            driver.tell("samples", f"no samples: {error}")
            return
        except Exception as error:
            # Samples are for looking: their failure must be seen and must not end the run.
            traceback.print_exc()
            driver.tell("samples", f"no samples: {type(error).__name__}: {one_line(error)}")
            return
        if shown is not None:
            self.outbox.put(shown)

    # --- commands of the connection ---

    def _hello(self, command: Hello) -> Event:
        if command.protocol != PROTOCOL_VERSION:
            raise RefusedError(f"this engine speaks protocol {PROTOCOL_VERSION}, the client {command.protocol}")
        if self.workspace is not None:
            raise RefusedError("hello comes before a session is opened")
        choice = devices.choose_device(command.device, command.threads)
        self._device = choice.device
        self._environment = Environment(torch.__version__, str(choice.device), choice.threads)
        return Ready(
            id=command.id, protocol=PROTOCOL_VERSION, device=str(choice.device), device_line=choice.line,
            threads=choice.threads, torch=torch.__version__,
        )  # fmt: skip

    def _open(self, command: Open) -> Event:
        assert self._device is not None and self._environment is not None
        self._let_go("another session was opened")
        workspace = Workspace.open(
            Path(command.folder), command.task, command.seed, command.backbone, self._device, self._environment,
            self.outbox.put, command.read_only,
        )  # fmt: skip
        self.workspace = workspace
        if not command.read_only:
            self._log_before = log_to(workspace.session.folder / "engine.log")
        return workspace.opened(command.id)

    def _close(self, command: Close) -> Event:
        self._session()
        self._let_go("the session was closed")
        return Acknowledged(id=command.id)

    def _quit(self, command: Quit) -> Event:
        self._let_go("saved on quit")
        self.ending = True
        return Goodbye(id=command.id)

    def _bench(self, command: Bench) -> None:
        if self._busy:
            raise RefusedError("the bench wants the machine for itself: pause what trains, wait for what is measured")
        assert self._device is not None
        self._take_on(command, bench(command, self._device, self.outbox.put), "bench")

    def _take_on(self, command: Command, job: Job, what: str) -> None:
        """Work on an answer from now on, fairly beside what trains."""
        least = min((each.used for each in self._active()), default=0.0)
        self.jobs.append(Asked(command.id, job, least, what))

    def _answer_soon(self, command: Command, job: Job, what: str) -> Event | None:
        """Answer at once where there is nothing to wait for, else work on it from now on."""
        try:
            next(job)
        except StopIteration as end:
            return cast(Event, end.value)
        self._take_on(command, job, what)
        return None

    def _session(self) -> Workspace:
        if self.workspace is None:
            raise RefusedError("no session is open")
        return self.workspace

    def _let_go(self, why: str) -> None:
        """Save every run and close the session, if one is open."""
        workspace, self.workspace = self.workspace, None
        for asked in self.jobs:
            self.outbox.put(Error(id=asked.id, message=f"the {asked.what} was given up: {why}"))
        self.jobs.clear()
        if workspace is None:
            return
        workspace.save_all(time.monotonic() + SAVE_ALL_WITHIN, why)
        try:
            workspace.close()
        except StoreError as error:
            print(f"closing: {error}", file=sys.stderr, flush=True)
        if self._log_before is not None:
            log_back(self._log_before)
            self._log_before = None


def serve(commands: int, events: int) -> None:
    """Serve the client behind two file descriptors until it quits or goes away."""
    inbox, outbox = Inbox(commands), Outbox(events)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda which, _: inbox.put(ClientGone(f"signal {signal.Signals(which).name}")))
    inbox.start()
    outbox.start()
    Server(inbox, outbox).run()
    outbox.flush(2.0)
