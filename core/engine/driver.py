"""One active run: its trainer, driven a slice at a time, and everything that happens at a step's end."""

import time
import traceback
from collections import deque
from collections.abc import Callable, Generator
from typing import Any

from core import config as knobs
from core.engine.protocol import Alert, CheckpointSaved, Event, KnobChanged, Metrics, RunState, SampleText
from core.engine.recorder import Recorder
from core.engine.saving import Environment, Saver
from core.methods.base import Method
from core.store import Session
from core.store.errors import one_line
from core.store.runs import RunRecord
from core.trainers.base import Phase, Trainer, TrainingDivergedError, Weights

STRIP_EVERY = 2.0  # seconds between two strips of samples
RATE_STEPS = 10  # steps over which the rate is measured

Boundary = Callable[[str | None], None]
"""Called at the end of the step in progress with None, or with the reason why that end will not come."""


class RunDriver:
    """Drives one run. ``state`` is running, pausing, paused, done, stopped or failed."""

    def __init__(
        self, record: RunRecord, method: Method, trainer: Trainer[Any], session: Session, recorder: Recorder,
        environment: Environment, emit: Callable[[Event], None],
    ) -> None:  # fmt: skip
        self.record = record
        self.method = method
        self.trainer = trainer
        self.state = "paused"
        self.message = ""
        self.seconds = record.seconds
        self.used = 0.0  # seconds, counted from where the least served run stood: whose turn it is
        self.saver = Saver(session, record.id, environment, emit, self.tell)
        self.saver.start_clock(self.seconds)
        self.latest: tuple[int, Weights] = (0, {})  # weights after the last whole step, and that step
        self._remember_weights()
        self.reference_strip: tuple[int, list[SampleText]] | None = None  # by where the reference stands
        self._session = session
        self._recorder = recorder
        self._emit = emit
        self._turn: Generator[Phase, None, dict[str, float]] | None = None
        self._at_boundary: list[Boundary] = []
        self._wish = "run"  # what to do at the next boundary: run, pause, stop, or step (and then pause)
        self._ends: deque[float] = deque(maxlen=RATE_STEPS + 1)  # times of the last steps' ends
        self._strip_due = 0.0

    # --- commands ---

    @property
    def id(self) -> int:
        return self.record.id

    @property
    def active(self) -> bool:
        """Does it want its turns?"""
        return self.state in ("running", "pausing")

    @property
    def between_steps(self) -> bool:
        return self._turn is None

    def go_on(self) -> None:
        self._wish = "run"
        self._ends.clear()
        self.message = ""
        self._enter("running")

    def pause(self) -> None:
        """Pause at the end of the step in progress."""
        if self.active:
            self._wish = "pause"
            self._enter("pausing")

    def single_step(self) -> None:
        """Do one step, then pause (of a run that pauses already: the step in progress and no more)."""
        self.message = ""
        self._wish = "step" if self.between_steps else "pause"
        self._enter("running")

    def stop(self) -> None:
        """End the run for good at the end of the step in progress."""
        self._wish = "stop"
        if not self.active:
            self._settle()

    def set_knob(self, name: str, value: Any) -> KnobChanged:
        """Turn a live knob at the next boundary. Raises ConfigError when it is none or the value is out of range."""
        knob = knobs.find_knob(type(self.trainer.config), name)
        if not knob.live:
            raise knobs.ConfigError(f"{name} is fixed once a run has started; fork the run to change it")
        new = getattr(knobs.change(self.trainer.config, name, value), name)
        old = getattr(self.trainer.config, name)
        first_step = self.trainer.step_number + (1 if self.between_steps else 2)
        self.at_boundary(lambda gone: None if gone else self._turn_knob(name, new, old, first_step))
        return KnobChanged(run=self.id, step=first_step, name=name, value=new, old=old)

    def at_boundary(self, act: Boundary) -> None:
        """Call ``act`` between two steps: now, or at the end of the step in progress."""
        if self.between_steps:
            act(None)
        else:
            self._at_boundary.append(act)

    # --- work ---

    def slice(self) -> None:
        """Let the trainer work until it hands back control; or take up another state, if that is wished for."""
        if self.between_steps and self._wish in ("pause", "stop"):
            self._settle()
            return
        began = time.perf_counter()
        metrics: dict[str, float] | None = None
        try:
            if self._turn is None:
                self._turn = self.trainer.step()
            next(self._turn)
        except StopIteration as end:
            metrics = end.value
        except TrainingDivergedError as error:
            self._fail("diverged", f"stopped at step {self.trainer.step_number + 1}: {one_line(error)}")
            return
        except Exception as error:
            traceback.print_exc()
            what = f"{type(error).__name__}: {one_line(error)}"
            self._fail("failed", f"step {self.trainer.step_number + 1} failed: {what}")
            return
        finally:
            self.seconds += time.perf_counter() - began
        if metrics is not None:
            self._turn = None
            self._end_step(metrics)

    def finish_step(self, deadline: float) -> bool:
        """Work up to the end of the step in progress. False when ``deadline`` (monotonic) comes first."""
        while not self.between_steps and self.active:
            if time.monotonic() > deadline:
                return False
            self.slice()
        return True

    def strip_due(self) -> bool:
        """Is it time to show fresh samples? Asked between steps; the answer yes starts the next wait."""
        now = time.monotonic()
        if not self.between_steps or now < self._strip_due:
            return False
        self._strip_due = now + STRIP_EVERY
        return True

    def rest(self) -> None:
        """A new run that is not to train yet."""
        self._enter("paused")

    def suspend(self, message: str) -> None:
        """Save between two steps and stay as a paused run: the engine is about to end."""
        self.save_resume_point()
        self.message = message
        self._enter("paused")

    def save_resume_point(self, name: str = "") -> CheckpointSaved | None:
        """Save everything, between two steps. None when the store refused, which an alert has said.

        What was reported up to here goes first: a run that resumes from this point must lack none of it.
        """
        self._recorder.flush()
        return self.saver.save_resume_point(self.trainer, self.seconds, name)

    def begin(self) -> None:
        """Save the very first weights of a new run."""
        self.saver.save_snapshot(self.trainer, self.latest[1])
        self.save_resume_point()

    def save_now(self) -> None:
        """Save weights and everything else between two steps, as after a loss of what was saved before."""
        self.saver.save_snapshot(self.trainer, self.latest[1])
        self.saver.save_resume_point(self.trainer, self.seconds)

    def run_state(self, id: int | None = None) -> RunState:
        return RunState(
            id=id, run=self.id, method=self.method.name, title=self.record.title, state=self.state,
            step=self.trainer.step_number, steps=self.trainer.config.steps, completions=self.trainer.completions,
            seconds=self.seconds, rate=self._rate(), parent=self.record.parent, parent_step=self.record.parent_step,
            message=self.message,
        )  # fmt: skip

    def _end_step(self, metrics: dict[str, float]) -> None:
        trainer = self.trainer
        self._ends.append(time.monotonic())
        self._recorder.row(self.id, (trainer.step_number, trainer.completions, self.seconds, metrics))
        self._recorder.change(
            self.id, step=trainer.step_number, completions=trainer.completions, seconds=self.seconds
        )  # fmt: skip
        self._emit(
            Metrics(
                run=self.id, step=trainer.step_number, completions=trainer.completions, seconds=self.seconds,
                values=metrics,
            )
        )  # fmt: skip
        for alert in trainer.alerts:
            self.tell(alert.kind, alert.message)
        trainer.alerts.clear()
        self._remember_weights()
        waiting, self._at_boundary = self._at_boundary, []
        for act in waiting:
            act(None)
        if trainer.finished or self._wish != "run":
            self._wish = "pause" if self._wish == "step" else self._wish
            self._settle()
            return
        if self.saver.snapshot_due(trainer):
            self.saver.save_snapshot(trainer, self.latest[1])
        if self.saver.resume_due(self.seconds):
            self.save_resume_point()

    def _settle(self) -> None:
        """Between two steps: take up the state that the run is to be in."""
        trainer = self.trainer
        ends = trainer.finished or self._wish == "stop"
        if ends or self.saver.snapshot_due(trainer):
            self.saver.save_snapshot(trainer, self.latest[1])
        self.save_resume_point()
        if trainer.finished:
            self.message = trainer.stop_reason
            self._enter("done")
        else:
            self._enter("stopped" if ends else "paused")
        self._wish = "run"

    def _turn_knob(self, name: str, value: Any, old: Any, first_step: int) -> None:
        self.trainer.set_knob(name, value)
        # A resume point at the change makes it part of every later resume, whatever happens to the process.
        self.save_resume_point()
        config = self.trainer.config.to_dict()
        self._recorder.change(self.id, config=config)
        self._recorder.later(
            lambda: self._session.events.add(
                self.id, first_step - 1, "knob", message=f"{name} {old} → {value}",
                data={"name": name, "value": value, "old": old, "first_step": first_step},
            )
        )  # fmt: skip
        self._recorder.flush()

    def _fail(self, kind: str, message: str) -> None:
        self._turn = None
        waiting, self._at_boundary = self._at_boundary, []
        for act in waiting:
            act(message)
        # The weights after the last whole step are good; the trainer's own may be from the middle of a step.
        if self.latest[0] == self.trainer.step_number:
            self.saver.save_snapshot(self.trainer, self.latest[1])
        self.message = message
        self._enter("failed")
        self.tell(kind, message)

    def _enter(self, state: str) -> None:
        self.state = state
        self._recorder.change(
            self.id, state=state, step=self.trainer.step_number, steps=self.trainer.config.steps,
            completions=self.trainer.completions, seconds=self.seconds, message=self.message,
        )  # fmt: skip
        if state in ("done", "stopped", "failed"):
            self._recorder.later(lambda: self._session.metrics.pack(self.id))
        self._recorder.flush()
        self._emit(self.run_state())

    def _remember_weights(self) -> None:
        weights = {name: value.detach().clone() for name, value in self.trainer.weights().items()}
        self.latest = (self.trainer.step_number, weights)

    def tell(self, kind: str, message: str) -> None:
        step = self.trainer.step_number
        self._emit(Alert(run=self.id, step=step, kind=kind, message=message))
        self._recorder.later(lambda: self._session.events.add(self.id, step, kind, message=message, data={}))

    def _rate(self) -> float:
        if len(self._ends) < 2 or not self.active:
            return 0.0
        return (len(self._ends) - 1) / max(self._ends[-1] - self._ends[0], 1e-9)
