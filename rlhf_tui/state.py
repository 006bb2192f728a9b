"""What the app knows: runs, their numbers and samples, the log – reduced from the engine's events. Torch-free.

Nothing here draws. Screens read it and mark what to draw again; :meth:`AppState.apply` is the only writer while an
engine runs, :mod:`rlhf_tui.history` fills it from the session's database before. What is slow to import waits for the
first run or event, which come after the first frame.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from core.engine.protocol import Alert, Event, KnobChanged, Metrics, RunState, Samples
    from core.methods.base import Method
    from rlhf_tui.series import Axis, RunSeries

ACTIVE = ("waiting", "running", "pausing")
RESUMABLE = ("paused", "interrupted")
FINISHED = ("done", "stopped", "failed")
TOLD = ("info", "note", "resume", "device")  # kinds of alerts that are no reason to worry
ABOUT_STORAGE = ("storage", "not_saved", "saved_again")  # kinds of alerts that no chart marks

_RATE_STEPS = 10

EngineState = Literal["starting", "ready", "closing", "dead", "none"]  # none: the session is only looked at


@dataclass(frozen=True)
class Happening:
    """Something at one step of a run that charts mark and the log tells: ``kind`` is knob or alert."""

    step: int
    kind: str
    text: str


def _no_numbers() -> "RunSeries":
    from rlhf_tui.series import RunSeries

    return RunSeries()


@dataclass
class Run:
    """One run as the app sees it. ``config`` is full where known."""

    run: int
    method: str
    title: str
    state: str = "waiting"
    step: int = 0
    steps: int = 0
    completions: int = 0
    seconds: float = 0.0
    rate: float = 0.0  # steps a second, lately
    parent: int | None = None
    parent_step: int | None = None
    message: str = ""
    seed: int | None = None
    inputs: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    pinned: bool = False
    notes: str = ""  # what a person wrote about it
    loaded: bool = True  # its numbers are here; False: still only in the database
    series: "RunSeries" = field(default_factory=_no_numbers)
    happenings: list[Happening] = field(default_factory=list)
    samples: "Samples | None" = None

    @property
    def active(self) -> bool:
        return self.state in ACTIVE

    @property
    def resumable(self) -> bool:
        return self.state in RESUMABLE

    @property
    def finished(self) -> bool:
        return self.state in FINISHED

    @property
    def forked(self) -> bool:
        """Did it begin where its parent stood, rather than afresh from the parent's weights?"""
        return self.parent is not None and bool(self.inputs.get("fork"))

    @property
    def usable(self) -> bool:
        """Can another run start from it?"""
        return self.step > 0 and not self.active and self.state != "failed"

    @property
    def eta(self) -> float | None:
        """Seconds until the last step at the latest rate."""
        return (self.steps - self.step) / self.rate if self.active and self.rate > 0 else None

    @property
    def name(self) -> str:
        """What to call it: its title, else method and number."""
        from core.methods.table import method_title

        title = method_title(self.method)
        return self.title if self.title not in ("", title) else f"{title} #{self.run}"

    def step_at(self, x: float, axis: "Axis") -> int:
        """The step measured nearest to ``x`` on an x axis; the newest one where nothing is measured."""
        step = self.series.step_at(x, axis)
        return self.step if step is None else step


@dataclass(frozen=True)
class LogEntry:
    """One line of the run log. ``kind``: info, knob, alert, error."""

    time: float  # seconds since the epoch
    kind: str
    text: str
    run: int | None = None


@dataclass
class AppState:
    """Everything that screens show of the session and the engine. ``clock`` gives seconds since the epoch."""

    runs: dict[int, Run] = field(default_factory=dict)
    log: deque[LogEntry] = field(default_factory=lambda: deque(maxlen=2000))
    logged: int = 0  # entries ever written, so that a view knows what is new
    engine: EngineState = "starting"
    engine_line: str = "the engine is starting"  # how it ended, or what it runs on
    parameters: int = 0
    gold: bool = True  # has the session's task a rule that scores?
    backbone: str = "lstm"  # the session's architecture
    storage_trouble: str = ""  # the engine's newest save failed, and why
    own_trouble: str = ""  # the app's newest one
    clock: Callable[[], float] = time.time

    def apply(self, event: "Event") -> None:
        """Take one event into account."""
        from core.engine import protocol

        match event:
            case protocol.Ready():
                self.engine = "ready"
                self.engine_line = event.device_line
            case protocol.Opened():
                self.parameters, self.gold, self.backbone = event.parameters, event.gold, event.backbone
                for note in event.notes:
                    self.say("info", note)
            case protocol.RunState():
                self._run_state(event)
            case protocol.Metrics():
                self._metrics(event)
            case protocol.KnobChanged():
                self._knob(event)
            case protocol.Samples(run=int() as number, id=None) if number in self.runs:
                self.runs[number].samples = event
            case protocol.CheckpointSaved():
                self.storage_trouble = ""
                if event.kind == "resume" and event.name:
                    self.say("info", f"saved step {event.step} as '{event.name}'", event.run)
            case protocol.Alert():
                self._alert(event)
            case protocol.Error():
                self.say("error", event.message)
            case protocol.Goodbye():
                self.engine = "closing"
            case _:
                pass

    def say(self, kind: str, text: str, run: int | None = None) -> None:
        """Write a line into the log."""
        self.log.append(LogEntry(self.clock(), kind, text, run))
        self.logged += 1

    def engine_died(self, how: str) -> list[int]:
        """The process has ended: what was training is interrupted. Returns those runs."""
        self.engine = "dead"
        self.engine_line = how
        self.say("error", how)
        interrupted = [run.run for run in self.runs.values() if run.active]
        for number in interrupted:
            self.runs[number].state = "interrupted"
            self.runs[number].rate = 0.0
        return interrupted

    # --- finding runs ------------------------------------------------------------------------------------------

    def newest(self, method: str) -> Run | None:
        """The newest run of a method."""
        return max((run for run in self.runs.values() if run.method == method), key=lambda run: run.run, default=None)

    def parent_for(self, method: "Method") -> Run | None:
        """The newest run that ``method`` can start from."""
        candidates = (run for run in self.runs.values() if run.method == method.starts_from and run.usable)
        return max(candidates, key=lambda run: run.run, default=None)

    def newest_usable(self, method: str) -> Run | None:
        """The newest run of a method that has learned something and stands still."""
        candidates = (run for run in self.runs.values() if run.method == method and run.usable)
        return max(candidates, key=lambda run: run.run, default=None)

    # --- events ------------------------------------------------------------------------------------------------

    def _run_state(self, event: "RunState") -> None:
        run = self.runs.get(event.run)
        if run is None:
            run = self.runs[event.run] = Run(event.run, event.method, event.title)
        before = run.state if run.step or run.state != "waiting" else ""
        for name in ("title", "state", "step", "steps", "completions", "seconds", "parent", "parent_step"):
            setattr(run, name, getattr(event, name))
        run.rate = event.rate or (run.rate if run.active else 0.0)
        run.message = event.message
        if len(run.series) and run.series.steps.values[-1] > event.step:
            run.series.truncate(after_step=event.step)  # gone back to a resume point
        if before != event.state and event.state in ("running", "paused", "interrupted", *FINISHED):
            tail = f": {event.message}" if event.message else ""
            kind = "error" if event.state == "failed" else "info"
            self.say(kind, f"{run.name} {event.state} at step {event.step}{tail}", event.run)

    def _metrics(self, event: "Metrics") -> None:
        run = self.runs.get(event.run)
        if run is None:
            return
        run.series.append(event.step, event.completions, event.seconds, event.values)
        run.step, run.completions, run.seconds = event.step, event.completions, event.seconds
        run.rate = self._rate(run)

    def _rate(self, run: Run) -> float:
        """Steps a second over the last few; runs that train at once share the time."""
        steps, seconds = run.series.steps.values[-_RATE_STEPS:], run.series.seconds.values[-_RATE_STEPS:]
        if len(steps) < 2 or seconds[-1] <= seconds[0]:
            return run.rate
        active = max(1, sum(each.active for each in self.runs.values()))
        return float((steps[-1] - steps[0]) / (seconds[-1] - seconds[0])) / active

    def _knob(self, event: "KnobChanged") -> None:
        text = f"{event.name} {_value(event.old)} → {_value(event.value)}"
        if (run := self.runs.get(event.run)) is not None:
            run.config[event.name] = event.value
            run.happenings.append(Happening(event.step, "knob", text))
        self.say("knob", f"{text} from step {event.step}", event.run)

    def _alert(self, event: "Alert") -> None:
        if event.kind in ("not_saved", "saved_again"):
            self.storage_trouble = event.message if event.kind == "not_saved" else ""
        run = self.runs.get(event.run) if event.run is not None else None
        told = event.kind in TOLD
        if run is not None and event.step is not None and not told:
            run.happenings.append(Happening(event.step, "alert", event.message))
        self.say("info" if told else "alert", event.message, event.run)


def _value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
