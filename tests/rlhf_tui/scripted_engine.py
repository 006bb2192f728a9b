"""An engine without torch that speaks the protocol as a real child process: what it says follows from the step alone.

    python scripted_engine.py [--rate 40] [--hold 120] [--hostile] [--slow-pause 0.0]

``--rate`` steps a second; ``--hold N`` does the first N steps of each run at once and then none until told to (for
pictures that must be the same each time); ``--hostile`` answers with texts that attack the terminal.
"""

import argparse
import math
import os
import select
import sys
import time
from dataclasses import dataclass, field

from core.config import make
from core.engine.protocol import (
    Acknowledged,
    Alert,
    CheckpointSaved,
    Command,
    Error,
    Evaluate,
    Evaluation,
    Event,
    Fork,
    Goodbye,
    Hello,
    KnobChanged,
    Metrics,
    Open,
    Opened,
    Pause,
    Quit,
    Ready,
    Rename,
    Resume,
    RunState,
    Sample,
    Samples,
    SampleText,
    Save,
    SetKnob,
    Start,
    Step,
    Stop,
    decode_command,
    encode,
)
from core.methods.table import METHODS

PROMPTS = ("b", "ca", "d", "fo", "gr", "h", "in", "ma")
WORDS = ("bale", "cabin", "dune", "fory", "grate", "house", "indigo", "maple", "brok", "caxt", "drsk", "fooo")
HOSTILE = (
    "a [/ b", "[red]hi[/red]", "\x1b]0;owned\x07", "\x1b[5;5H\x1b[2J", "\x9b31m", "\u202egnp.exe", "ze\u200bro",
    "日本語テキスト", "👩‍👩‍👧", "e\u0301\u0301\u0301\u0301", "\x00\x08\x7f", "x" * 10_000,
)  # fmt: skip


@dataclass
class ScriptedRun:
    run: int
    method: str
    title: str
    steps: int
    config: dict
    seed: int
    parent: int | None = None
    parent_step: int | None = None
    state: str = "running"
    step: int = 0
    message: str = ""
    knobs: list = field(default_factory=list)


class ScriptedEngine:
    def __init__(self, rate: float, hold: int, hostile: bool) -> None:
        self.rate, self.hold, self.hostile = rate, hold, hostile
        self.runs: dict[int, ScriptedRun] = {}
        self.session_runs = 0
        self.done = False
        self.last_sample = 0.0

    def say(self, event: Event) -> None:
        sys.stdout.buffer.write(encode(event))
        sys.stdout.buffer.flush()

    def state_of(self, run: ScriptedRun, id: int | None = None) -> RunState:
        return RunState(
            id=id, run=run.run, method=run.method, title=run.title, state=run.state, step=run.step, steps=run.steps,
            completions=run.step * 512, seconds=run.step * 0.5, rate=2.0 if run.state == "running" else 0.0,
            parent=run.parent, parent_step=run.parent_step, message=run.message,
        )  # fmt: skip

    def metrics_of(self, run: ScriptedRun) -> Metrics:
        at = run.step / max(run.steps, 1)
        noise = 0.06 * math.sin(12.9898 * run.step + run.seed) * math.cos(78.233 * run.step)
        rise = 1 - math.exp(-4 * at)
        values: dict[str, float] = {}
        for chart in METHODS[run.method].charts:
            for index, name in enumerate(chart.metrics):
                if (name.startswith("validation") and run.step % 10) or name == "objective/kl_from_start":
                    continue
                if "kl" in name:
                    values[name] = 2.4 * rise + 4 * abs(noise)
                elif "loss" in name or "entropy" in name:
                    values[name] = 2.9 - 1.6 * rise + (1 + index) * noise
                else:
                    values[name] = 0.31 + (0.58 - 0.12 * index) * rise + noise
        return Metrics(
            run=run.run, step=run.step, completions=run.step * 512, seconds=run.step * 0.5, values=values
        )  # fmt: skip

    def samples_of(self, run: int | None, step: int, id: int | None = None, count: int = 8) -> Samples:
        def text(index: int, moved: int) -> SampleText:
            word = HOSTILE[index % 12] if self.hostile else WORDS[(index + moved) % len(WORDS)]
            prompt = HOSTILE[(index + 5) % 12] if self.hostile else PROMPTS[index % 8]
            return SampleText(prompt=prompt, text=word, ended=index != 6, gold_reward=0.25 * ((index + moved) % 5))

        return Samples(
            id=id, run=run, step=step,
            samples=[text(index, step // 20) for index in range(count)],
            reference=[text(index, 0) for index in range(count)],
        )  # fmt: skip

    def advance(self, run: ScriptedRun) -> None:
        for knob in run.knobs:
            self.say(KnobChanged(run=run.run, step=run.step + 1, name=knob[0], value=knob[1], old=knob[2]))
        run.knobs.clear()
        run.step += 1
        self.say(self.metrics_of(run))
        if run.step % 20 == 0 and METHODS[run.method].trains == "policy":
            self.say(self.samples_of(run.run, run.step))
        if run.step == 60 and run.method == "ppo":
            self.say(
                Alert(run=run.run, step=60, kind="kl_alarm", message="sequence KL 5.1 nats is above the alarm (5)")
            )
        if run.step >= run.steps:
            run.state = "done"
        if run.state != "running" or run.step % 5 == 0:
            self.say(self.state_of(run))

    def begin(self, run: ScriptedRun, command: Command, paused: bool) -> None:
        run.state = "paused" if paused else "running"
        self.runs[run.run] = run
        self.say(self.state_of(run, command.id))
        while run.state == "running" and run.step < min(self.hold, run.steps):
            self.advance(run)

    def next_run(self) -> int:
        return max([self.session_runs, *self.runs], default=0) + 1

    def take(self, command: Command) -> None:
        known = getattr(command, "run", None)
        if known is not None and known not in self.runs and not isinstance(command, Resume):
            self.say(Error(id=command.id, message=f"there is no run {known}"))
            return
        match command:
            case Hello():
                self.say(
                    Ready(id=command.id, protocol=1, device="cpu", device_line="cpu, 1 thread", threads=1, torch="0")
                )
            case Open():
                self.say(
                    Opened(id=command.id, folder=command.folder, title="t", task="words", seed=42, parameters=237_000)
                )  # fmt: skip
            case Start():
                title = HOSTILE[2] + HOSTILE[0] if self.hostile else command.title
                config = make(METHODS[command.method].config, command.config).to_dict()
                run = ScriptedRun(
                    self.next_run(), command.method, title, config["steps"], config,
                    42 if command.seed is None else command.seed, command.parent, command.parent_step,
                )  # fmt: skip
                self.begin(run, command, command.paused)
            case Fork():
                old = self.runs[command.run]
                step = old.step if command.step is None else command.step
                config = {**old.config, **command.config}
                run = ScriptedRun(
                    self.next_run(), old.method, command.title, config["steps"], config,
                    old.seed if command.seed is None else command.seed, old.run, step,
                )  # fmt: skip
                self.begin(run, command, command.paused)
            case Pause():
                run = self.runs[command.run]
                run.state = "pausing"
                self.say(self.state_of(run, command.id))
                run.state = "paused"
                self.say(CheckpointSaved(run=run.run, step=run.step, kind="resume"))
                self.say(self.state_of(run))
            case Resume():
                if command.run not in self.runs:  # an engine that was started again: from the last resume point
                    self.runs[command.run] = ScriptedRun(command.run, "sft", "", 500, {}, 42, step=40)
                run = self.runs[command.run]
                run.state = "running"
                run.steps = command.steps or run.steps
                self.say(self.state_of(run, command.id))
            case Step():
                run = self.runs[command.run]
                run.state = "running"
                self.say(self.state_of(run, command.id))
                self.advance(run)
                if run.state == "running":
                    run.state = "paused"
                    self.say(self.state_of(run))
            case Stop():
                run = self.runs[command.run]
                run.state = "stopped"
                self.say(self.state_of(run, command.id))
            case SetKnob():
                run = self.runs[command.run]
                old = run.config.get(command.name)
                run.config[command.name] = command.value
                self.say(KnobChanged(
                    id=command.id, run=run.run, step=run.step + 1, name=command.name, value=command.value, old=old,
                ))  # fmt: skip
            case Sample():
                self.say(self.samples_of(command.run, 0, command.id, max(1, command.count)))
            case Rename():
                self.runs[command.run].title = command.title
                self.say(self.state_of(self.runs[command.run], command.id))
            case Evaluate():
                self.say(Evaluation(id=command.id, run=command.run, step=0, values={"gold_reward": 0.5}))
            case Save():
                self.say(CheckpointSaved(
                    id=command.id, run=command.run, step=self.runs[command.run].step, kind="resume", name=command.name
                ))  # fmt: skip
            case Quit():
                self.say(Goodbye(id=command.id, message="saved"))
                self.done = True
            case _:
                self.say(Acknowledged(id=command.id))

    def serve(self) -> None:
        buffer = b""
        due = time.monotonic()
        while not self.done:
            active = [run for run in self.runs.values() if run.state == "running" and run.step >= self.hold > -1]
            wait = max(0.0, due - time.monotonic()) if active and self.rate else 0.5
            if select.select([0], [], [], wait)[0]:
                chunk = os.read(0, 65_536)
                if not chunk:
                    return
                *lines, buffer = (buffer + chunk).split(b"\n")
                for line in lines:
                    self.take(decode_command(line))
                continue
            if active and self.rate and time.monotonic() >= due:
                due = time.monotonic() + 1 / self.rate
                for run in active:
                    self.advance(run)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=float, default=40.0)
    parser.add_argument("--hold", type=int, default=0)
    parser.add_argument("--hostile", action="store_true")
    options = parser.parse_args()
    ScriptedEngine(options.rate, options.hold, options.hostile).serve()
