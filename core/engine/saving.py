"""When a run is saved and as what: resume points that hold everything, snapshots that hold the weights."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from core.engine.protocol import CheckpointSaved, Event
from core.store import Session
from core.store import tensors as encoding
from core.store.errors import CheckpointBrokenError, StoreError
from core.trainers.base import Trainer, TrainerState, Weights

RESUME_EVERY = 30.0  # seconds of training
RETRY_EVERY = 5.0  # seconds of training, after a save that failed
SNAPSHOTS = 30  # about so many in a run of any length


@dataclass(frozen=True)
class Environment:
    """What must be equal for a resume to be exact, beside the program."""

    torch: str
    device: str
    threads: int

    def differences(self, saved: dict[str, Any]) -> str:
        """How this environment differs from the ``saved`` one, in words; empty when it does not."""
        here = dataclasses.asdict(self)
        return ", ".join(
            f"{name} {saved.get(name)} → {value}" for name, value in here.items() if saved.get(name) != value
        )


@dataclass(frozen=True)
class SavedState:
    """A resume point as read back."""

    state: TrainerState
    seconds: float
    environment: dict[str, Any]


def read_state(data: bytes) -> SavedState:
    """The content of a resume point. Raises CheckpointBrokenError when it is none."""
    found, values = encoding.from_bytes(data)
    trainer, seconds, environment = (values.get(name) for name in ("trainer", "seconds", "environment"))
    if not isinstance(trainer, dict) or not isinstance(environment, dict) or not isinstance(seconds, float):
        raise CheckpointBrokenError("it is no resume point")
    step, config = trainer.get("step"), trainer.get("config")
    if not isinstance(config, dict) or not isinstance(step, int) or not 0 <= step < 2**53:
        raise CheckpointBrokenError("it is no resume point")
    return SavedState(TrainerState(found, trainer), seconds, environment)


class Saver:
    """Saves one run and keeps its schedule. A store that refuses costs an alert, never the training."""

    def __init__(
        self, session: Session, run: int, environment: Environment, emit: Callable[[Event], None],
        alert: Callable[[str, str], None],
    ) -> None:  # fmt: skip
        self._session = session
        self._run = run
        self._environment = environment
        self._emit = emit
        self._alert = alert
        self._next_resume = RESUME_EVERY
        self._failing = False

    def start_clock(self, seconds: float) -> None:
        """The run has trained ``seconds`` so far and is safe up to here."""
        self._next_resume = seconds + RESUME_EVERY

    def resume_due(self, seconds: float) -> bool:
        return seconds >= self._next_resume

    def snapshot_due(self, trainer: Trainer[Any]) -> bool:
        return trainer.step_number % max(1, round(trainer.config.steps / SNAPSHOTS)) == 0

    def save_resume_point(self, trainer: Trainer[Any], seconds: float, name: str = "") -> CheckpointSaved | None:
        """Save everything at a step boundary. None when the store refused, which an alert has said."""
        state = trainer.state()
        values = {
            "trainer": state.values,
            "seconds": seconds,
            "environment": dataclasses.asdict(self._environment),
        }
        saved = self._save(
            trainer.step_number, "resume", encoding.to_bytes(state.tensors, values), name, _score(trainer)
        )
        self._next_resume = seconds + (RESUME_EVERY if saved else RETRY_EVERY)
        return saved

    def save_snapshot(self, trainer: Trainer[Any], weights: Weights) -> CheckpointSaved | None:
        """Save the weights at the trainer's step."""
        values = {"completions": trainer.completions}
        content = {name: value.detach().cpu().contiguous() for name, value in weights.items()}
        return self._save(trainer.step_number, "snapshot", encoding.to_bytes(content, values), "", _score(trainer))

    def _save(self, step: int, kind: str, data: bytes, name: str, score: float | None) -> CheckpointSaved | None:
        try:
            self._session.checkpoints.save(self._run, step, kind, data, name=name, score=score)
        except StoreError as error:
            if not self._failing:
                self._failing = True
                self._alert("not_saved", f"not saved, training goes on: {error}")
            return None
        if self._failing:
            self._failing = False
            self._alert("saved_again", "saving works again")
        saved = CheckpointSaved(run=self._run, step=step, kind=kind, name=name)
        self._emit(saved)
        return saved


def _score(trainer: Trainer[Any]) -> float | None:
    """The validation at this very step where there was one; larger is better."""
    if trainer.best is None or trainer.best.step != trainer.step_number:
        return None
    return trainer.best.value if trainer.higher_is_better else -trainer.best.value
