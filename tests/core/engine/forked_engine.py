"""Engines in a tenth of a second, not in seconds: forked from a process that has loaded torch and done nothing else.

Each is a whole engine in a process of its own, behind pipes; what it does to files, and what a signal does to it, is
the same. It becomes the child of the test's process, as an engine is its app's: only so do both get the lock of one
session. (For that, Linux must be told whose the orphans are.)

``python forked_engine.py SOCKET`` is the process that forks.
"""

import ctypes
import json
import os
import queue
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from engine_process import Engine, Message

SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="orphans have no foster parent here")


class Nursery:
    """The process that forks, from the test's side."""

    def __init__(self) -> None:
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.process = subprocess.Popen(
            [sys.executable, "-P", __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()]
        )  # fmt: skip
        theirs.close()

    def engine(self, stderr: Path | None = None, **prepared: Any) -> "ForkedEngine":
        """A new engine, with the fake trainer.

        ``stderr``: a file for what it says there; ``real``: with the real trainers; ``resume_every``: seconds between
        resume points; ``die_at``: command and number of a write.
        """
        prepared["stderr"] = str(stderr or os.devnull)
        commands, our_commands = os.pipe()
        our_events, events = os.pipe()
        foster_orphans(True)
        try:
            socket.send_fds(self.socket, [json.dumps(prepared).encode()], [commands, events])
            pid = int(self.socket.recv(64))
        finally:
            # Only now: an orphan of another test must find init, which sees it out.
            foster_orphans(False)
            os.close(commands)
            os.close(events)
        return ForkedEngine(pid, our_commands, our_events)

    def close(self) -> None:
        self.socket.close()
        self.process.wait(10)


def foster_orphans(yes: bool) -> None:
    """Do orphans below this process become its children?"""
    ctypes.CDLL(None).prctl(SUBREAPER, int(yes), 0, 0, 0)


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    made = Nursery()
    yield made
    made.close()


class ForkedProcess:
    """The part of ``subprocess.Popen`` that :class:`Engine` and its tests use."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._reap(os.WNOHANG)

    def wait(self, timeout: float | None = None) -> int:
        if timeout is None:
            self._reap(0)
        end = time.monotonic() + (timeout or 0.0)
        while self.poll() is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("a forked engine", timeout or 0.0)
            time.sleep(0.002)
        assert self.returncode is not None
        return self.returncode

    def _reap(self, options: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


class ForkedEngine(Engine):
    def __init__(self, pid: int, commands: int, events: int) -> None:
        self.process = ForkedProcess(pid)  # type: ignore[assignment]
        self.stdin, self.stdout = os.fdopen(commands, "wb"), os.fdopen(events, "rb")
        self.seen: list[Message] = []
        self._arrived: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._id = 0
        self.reading = threading.Event()
        self.reading.set()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def kill(self) -> None:
        super().kill()
        self._reader.join(10)
        for pipe in (self.stdin, self.stdout):
            with suppress(BrokenPipeError):
                pipe.close()


def fork_on_demand(requests: socket.socket) -> None:
    """Fork an engine for each request, until the other side is gone."""
    parent = os.getppid()
    while True:
        wanted, descriptors, _, _ = socket.recv_fds(requests, 4096, 2)
        if not wanted:
            return
        answer, told = os.pipe()
        between = os.fork()
        if not between:
            # The one in between ends at once, and what it forked goes to the test's process.
            engine = os.fork()
            if not engine:
                become_an_engine(parent, json.loads(wanted), *descriptors)
            os.write(told, str(engine).encode())
            os._exit(0)
        os.waitpid(between, 0)
        requests.send(os.read(answer, 64))
        os.close(answer)
        os.close(told)
        for each in descriptors:
            os.close(each)


def become_an_engine(parent: int, prepared: dict[str, Any], commands: int, events: int) -> None:
    import fake_trainer

    from core.engine.__main__ import main as real_engine

    try:
        os.setsid()
        log = os.open(prepared["stderr"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        for descriptor, number in ((commands, 0), (events, 1), (log, 2)):
            os.dup2(descriptor, number)
        os.closerange(3, 1024)
        while os.getppid() != parent:
            time.sleep(0.001)
        if "resume_every" in prepared:
            from core.engine import saving

            saving.RESUME_EVERY = prepared["resume_every"]
        if "die_at" in prepared:
            from dying_engine import die_at

            die_at(*prepared["die_at"])
        if prepared.get("real"):
            real_engine()
        fake_trainer.main()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


if __name__ == "__main__":
    import fake_trainer  # noqa: F401
    import torch

    import core.engine.server  # noqa: F401 - now, and not in each engine

    torch.optim.AdamW([torch.zeros(1, requires_grad=True)])  # which loads a second's worth of modules
    fork_on_demand(socket.socket(fileno=int(sys.argv[1])))
