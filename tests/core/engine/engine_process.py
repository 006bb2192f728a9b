"""A real engine process as a test drives it: send a line, wait for the event that is asked for."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

Message = dict[str, Any]
TINY = {"embedding": 4, "hidden": 4, "layers": 1}
FAKE_ENGINE = [sys.executable, "-P", str(Path(__file__).with_name("fake_trainer.py"))]
REAL_ENGINE = [sys.executable, "-P", "-m", "core.engine"]


class Engine:
    """Speaks the protocol by hand, in JSON, so that a mistake in the codec shows."""

    def __init__(self, command: list[str] | None = None, stderr: Path | None = None) -> None:
        self._stderr = stderr.open("ab") if stderr else subprocess.DEVNULL
        self.process = subprocess.Popen(
            command or FAKE_ENGINE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr,
            start_new_session=True,
        )  # fmt: skip
        assert self.process.stdin and self.process.stdout
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.seen: list[Message] = []
        self._arrived: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._id = 0
        self.reading = threading.Event()
        self.reading.set()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        # Reads by itself, without Python's buffer, so that a test may close the pipe meanwhile.
        buffer = b""
        descriptor = self.stdout.fileno()
        while chunk := self._chunk(descriptor):
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                self._arrived.put(json.loads(line))
        self._arrived.put(None)

    def _chunk(self, descriptor: int) -> bytes:
        self.reading.wait()
        try:
            return os.read(descriptor, 1 << 16)
        except OSError:
            return b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def broken(self) -> bool:
        """Did a test close one of its pipes?"""
        return self.stdin.closed or self.stdout.closed

    def kill(self) -> None:
        self.reading.set()
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def send_line(self, line: bytes) -> None:
        self.stdin.write(line + b"\n")
        self.stdin.flush()

    def send(self, type: str, **fields: Any) -> int:
        self._id += 1
        self.send_line(json.dumps({"type": type, "id": self._id, **fields}).encode())
        return self._id

    def wait_for(self, wanted: Callable[[Message], bool], timeout: float = 20.0) -> Message:
        """The next event that ``wanted`` says yes to; those before it are kept in ``seen``."""
        end = time.monotonic() + timeout
        while True:
            try:
                message = self._arrived.get(timeout=max(0.01, end - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"not within {timeout} s; last events: {self.seen[-5:]}") from None
            if message is None:
                raise AssertionError(f"the engine ended with {self.process.wait()}; last events: {self.seen[-5:]}")
            self.seen.append(message)
            if wanted(message):
                return message

    def ask(self, type: str, timeout: float = 20.0, **fields: Any) -> Message:
        """Send a command and return its answer, whatever it is."""
        id = self.send(type, **fields)
        return self.wait_for(lambda message: message.get("id") == id, timeout)

    def do(self, type: str, **fields: Any) -> Message:
        """Send a command that must not be refused."""
        answer = self.ask(type, **fields)
        assert answer["type"] != "error", answer
        return answer

    def state(self, run: int, *states: str, timeout: float = 20.0) -> Message:
        """Wait until a run reports one of ``states``."""
        return self.wait_for(
            lambda message: message["type"] == "run_state" and message["run"] == run and message["state"] in states,
            timeout,
        )

    def all_in(self, state: str, *runs: int) -> dict[int, Message]:
        """Wait until each of ``runs`` has reported a state, in whatever order."""
        while True:
            reached = {
                each["run"]: each for each in self.seen if each["type"] == "run_state" and each["state"] == state
            }
            if set(runs) <= set(reached):
                return reached
            self.wait_for(lambda message: message["type"] == "run_state" and message["state"] == state)

    def step(self, run: int, step: int) -> Message:
        """Wait for the metrics of a step."""
        return self.wait_for(
            lambda message: message["type"] == "metrics" and message["run"] == run and message["step"] >= step
        )

    def hello(self) -> Message:
        return self.do("hello", protocol=1, device="cpu", threads=1)

    def open(self, folder: Path) -> Message:
        """Open a session with a tiny model, made if need be; forget what was seen before."""
        self.seen.clear()
        return self.do("open", folder=str(folder), task="words", seed=7, backbone=TINY)

    def quit(self) -> None:
        assert self.ask("quit")["type"] == "goodbye"
        assert self.process.wait(10) == 0


Maker = Callable[..., Engine]
"""Gives an engine that has heard nothing yet; takes a file for what that says on stderr, if it is wanted."""


def start(engine: Engine, method: str = "sft", milliseconds: int = 4, **fields: Any) -> int:
    """Start a fake run whose steps take so long; returns its number."""
    config = {"batch_size": milliseconds, **fields.pop("config", {})}
    return int(engine.do("start", method=method, config=config, **fields)["run"])
