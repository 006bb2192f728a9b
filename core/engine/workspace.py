"""An open session in the engine: its active runs and what can be asked of them."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from core import config as knobs
from core.engine import launching, origin
from core.engine.driver import RunDriver
from core.engine.launching import Place, RefusedError
from core.engine.looking import ModelCache, Source
from core.engine.origin import Origin
from core.engine.protocol import (
    Acknowledged,
    Alert,
    CheckpointSaved,
    Delete,
    Error,
    Event,
    Fork,
    KnobChanged,
    Opened,
    Pause,
    Rename,
    Resume,
    RunState,
    Save,
    SetKnob,
    Start,
    Step,
    Stop,
)
from core.engine.recorder import Recorder
from core.engine.recovery import recover
from core.engine.saving import Environment
from core.methods.base import Method, TrainingConfig
from core.methods.table import find_method
from core.models.build import BackboneConfig, parameter_count
from core.pipeline import needs_reward_model, newest_done
from core.rewards.sources import LearnedReward
from core.store import Session, StoreError
from core.store.runs import RunRecord
from core.tasks.table import CONTENT, load_task
from core.trainers.base import Trainer, Weights

Answer = Event | None
"""What a command is answered with; None when the answer comes at the end of a step."""


class Workspace:
    """The session's runs. What a command calls refuses by RefusedError, ConfigError, TaskError or StoreError."""

    def __init__(
        self, session: Session, device: torch.device, environment: Environment, emit: Callable[[Event], None]
    ) -> None:
        self.session = session
        self.task = load_task(session.task, session.seed, session.get_setting(CONTENT))
        backbone = knobs.make(BackboneConfig, session.backbone)
        self.place = Place(session, self.task, backbone, device)
        self.models = ModelCache(self.task, backbone, device, session.seed)
        self.drivers: dict[int, RunDriver] = {}
        self.recorder = Recorder(session, emit, lambda: recover(session, self.drivers.values(), emit))
        self._environment = environment
        self._emit = emit

    @classmethod
    def open(
        cls, folder: Path, task: str | None, seed: int, backbone: Mapping[str, Any], device: torch.device,
        environment: Environment, emit: Callable[[Event], None], read_only: bool = False,
    ) -> "Workspace":  # fmt: skip
        """Open the session in ``folder``; with ``task``, make it first where there is none."""
        if read_only:
            session = Session.open(folder, read_only=True)
        elif task is not None and not (folder / "session.db").exists():
            load_task(task, seed)
            knobs.make(BackboneConfig, backbone)
            session = Session.create(folder, task=task, seed=seed, backbone=backbone)
        else:
            session = Session.open(folder)
        try:
            return cls(session, device, environment, emit)
        except BaseException:
            session.close()
            raise

    def opened(self, id: int) -> Opened:
        """The answer to ``Open``. Runs that were active when their engine ended are interrupted from here on."""
        notes = [*self.session.notes, *self.task.notes]
        for record in self.session.runs.all():
            if record.state in ("running", "pausing", "waiting") and not self.session.read_only:
                saved = max((each.step for each in self.session.checkpoints.list(record.id, "resume")), default=0)
                step = max(record.step, saved)
                what = f"interrupted at step {step}"
                self.session.runs.update(record.id, state="interrupted", step=step, message=what)
                notes.append(f"run {record.id} was {what}; it can go on from step {saved}")
        return Opened(
            id=id, folder=str(self.session.folder), title=self.session.title, task=self.session.task,
            seed=self.session.seed, parameters=parameter_count(self.models.untrained()), notes=notes,
            gold=self.task.gold is not None, backbone=self.place.backbone.kind,
        )  # fmt: skip

    def run_states(self) -> list[RunState]:
        """Every run as it stands."""
        return [
            self.drivers[record.id].run_state() if record.id in self.drivers else launching.recorded_state(record)
            for record in self.session.runs.all()
        ]

    def close(self) -> None:
        self.recorder.flush()
        self.session.close()

    # --- starting and going on ---

    def start(self, command: Start) -> Answer:
        method = find_method(command.method)
        config: TrainingConfig = knobs.make(method.config, command.config)
        parent, parent_step, policy = self._parent(method, command)
        reward_run, reward_weights = self._reward(config, command.reward_run)
        pairs, unpaired = launching.preferences(method, config, command.pairs_file, command.pairs_of, self.place)
        given = Origin(policy, policy, reward_weights, pairs, unpaired)
        seed = self.session.seed if command.seed is None else command.seed
        trainer = launching.build_trainer(method, config, given, self.place, seed)
        inputs: dict[str, Any] = {
            "reference": None if parent is None else {"run": parent, "step": parent_step}, "reward_run": reward_run,
            "pairs_file": command.pairs_file, "pairs": len(pairs),
            "pair_counts": launching.pair_counts(config, pairs, self.task),
        }  # fmt: skip
        record = self._add(method, command.title, trainer, seed, inputs, parent, parent_step, given.to_bytes())
        state = self._launch(record, method, trainer, command.id, command.paused)
        learns_from = launching.counts_line(inputs["pair_counts"])
        if learns_from:
            self.drivers[record.id].tell("note", learns_from)
        return state

    def resume(self, command: Resume) -> Answer:
        driver = self._driver(command.run)
        if command.steps is not None:
            if not driver.between_steps:
                raise RefusedError("pause the run before you change its number of steps")
            launching.replace_steps(driver.trainer, command.steps)
            self.recorder.change(driver.id, config=driver.trainer.config.to_dict())
        driver.trainer.stop_reason = ""
        if driver.trainer.finished:
            raise RefusedError(f"run {command.run} is done at step {driver.trainer.step_number}; go on with more steps")
        self._join(driver)
        driver.go_on()
        return driver.run_state(command.id)

    def pause(self, command: Pause) -> Answer:
        driver = self._active(command.run)
        driver.pause()
        return driver.run_state(command.id)

    def step(self, command: Step) -> Answer:
        driver = self._driver(command.run)
        if driver.trainer.finished:
            raise RefusedError(f"run {command.run} is done at step {driver.trainer.step_number}")
        self._join(driver)
        driver.single_step()
        return driver.run_state(command.id)

    def stop(self, command: Stop) -> Answer:
        driver = self._driver(command.run)
        driver.stop()
        return driver.run_state(command.id)

    def set_knob(self, command: SetKnob) -> KnobChanged:
        changed = self._driver(command.run).set_knob(command.name, command.value)
        return dataclasses.replace(changed, id=command.id)

    def fork(self, command: Fork) -> Answer:
        driver = self.drivers.get(command.run)
        if driver is None or (command.step is not None and command.step != driver.trainer.step_number):
            return self._fork_saved(command)
        driver.at_boundary(lambda gone: self._later(command.id, gone, lambda: self._fork_driven(command, driver)))
        return None

    def save(self, command: Save) -> Answer:
        driver = self.drivers.get(command.run)
        if driver is None:
            self.session.runs.get(command.run)
            loaded = self.session.checkpoints.latest_good(command.run, "resume")
            record = self.session.checkpoints.save(
                command.run, loaded.record.step, "resume", loaded.data, name=command.name, score=loaded.record.score
            )
            return CheckpointSaved(id=command.id, run=command.run, step=record.step, kind="resume", name=command.name)

        def act() -> Event:
            saved = driver.save_resume_point(command.name)
            if saved is None:
                raise RefusedError(f"run {command.run} could not be saved")
            return saved

        driver.at_boundary(lambda gone: self._later(command.id, gone, act))
        return None

    def delete(self, command: Delete) -> Answer:
        driver = self.drivers.get(command.run)
        if driver is not None and driver.active:
            raise RefusedError(f"run {command.run} is training; stop it first")
        self.recorder.flush()
        self.session.delete_run(command.run)
        self.drivers.pop(command.run, None)
        self.recorder.forget(command.run)
        self.models.forget(command.run)
        return Acknowledged(id=command.id)

    def rename(self, command: Rename) -> Answer:
        record = self.session.runs.update(command.run, title=command.title)
        driver = self.drivers.get(command.run)
        if driver is None:
            return dataclasses.replace(launching.recorded_state(record), id=command.id)
        driver.record = record
        return driver.run_state(command.id)

    # --- work ---

    def settle(self, driver: RunDriver) -> None:
        """Let go of a run that has ended; its weights are on disk."""
        if driver.state in ("done", "stopped", "failed"):
            self.drivers.pop(driver.id, None)

    def save_all(self, deadline: float, why: str) -> None:
        """Bring every active run to a step's end and save it, as far as there is time until ``deadline``."""
        for driver in [each for each in self.drivers.values() if each.active]:
            if driver.finish_step(deadline) and driver.active:
                driver.suspend(why)

    # --- weights ---

    def weights(self, run: int, step: int | None) -> tuple[int, Weights]:
        """What a run had made at a step (None: its latest), or at the nearest one that was kept."""
        driver = self.drivers.get(run)
        if driver is not None and step in (None, driver.latest[0]):
            return driver.latest
        record = self.session.runs.get(run)
        loaded = self.session.checkpoints.nearest_good(
            run, record.step if step is None else step, "snapshot", launching.read_snapshot
        )
        for note in loaded.notes:
            self._emit(Alert(run=run, step=loaded.record.step, kind="storage", message=note))
        return loaded.record.step, loaded.content[0]

    def reference_weights(self, run: int) -> Weights | None:
        """The frozen reference of a run; None for one that began from nothing."""
        given = launching.stored_origin(run, self.place)
        return given.reference if given.reference is not None else given.policy

    def reward_model(self, run: int | None) -> tuple[Source, LearnedReward] | None:
        """The reward model of a run, with its run and step; of the newest finished one for None, where there is one."""
        if run is None:
            newest = newest_done(self.session.runs.all(), "rm")
            if newest is None:
                return None
            run = newest.id
        if find_method(self.session.runs.get(run).method).trains != "reward_model":
            raise RefusedError(f"run {run} trained no reward model")
        step, weights = self.weights(run, None)
        return (run, step), self.models.reward((run, step), weights)

    # --- inside ---

    def _parent(self, method: Method, command: Start) -> tuple[int | None, int | None, Weights | None]:
        parent = command.parent
        if parent is None and method.starts_from is not None:
            newest = newest_done(self.session.runs.all(), method.starts_from)
            if newest is None:
                raise RefusedError(f"{method.title} starts from a finished {method.starts_from} run; train that first")
            parent = newest.id
        if parent is None:
            return None, None, None
        record = self.session.runs.get(parent)
        if find_method(record.method).trains != "policy":
            raise RefusedError(f"run {parent} trained a reward model; a run starts from a policy")
        step, weights = self.weights(parent, command.parent_step)
        return parent, step, weights

    def _reward(self, config: TrainingConfig, run: int | None) -> tuple[int | None, Weights | None]:
        if run is None:
            newest = newest_done(self.session.runs.all(), "rm")
            run = None if newest is None else newest.id
        if run is None:
            if needs_reward_model(config):
                raise RefusedError("this needs a reward model; train one first (rm), or choose the gold reward")
            return None, None
        if find_method(self.session.runs.get(run).method).trains != "reward_model":
            raise RefusedError(f"run {run} trained no reward model")
        return run, self.weights(run, None)[1]

    def _add(
        self, method: Method, title: str, trainer: Trainer[Any], seed: int, inputs: dict[str, Any],
        parent: int | None, parent_step: int | None, given: bytes,
    ) -> RunRecord:  # fmt: skip
        """A record with what the run was given, or none at all."""
        record = self.session.runs.add(
            method.name, title=title or method.title, config=trainer.config.to_dict(), seed=seed, inputs=inputs,
            parent=parent, parent_step=parent_step,
        )  # fmt: skip
        try:
            self.session.checkpoints.save(record.id, 0, origin.KIND, given)
        except StoreError:
            self.session.delete_run(record.id)
            raise
        return record

    def _launch(self, record: RunRecord, method: Method, trainer: Trainer[Any], id: int, paused: bool) -> RunState:
        driver = self._adopt(record, method, trainer)
        driver.begin()
        if paused:
            driver.rest()
        else:
            self._join(driver)
            driver.go_on()
        return driver.run_state(id)

    def _adopt(self, record: RunRecord, method: Method, trainer: Trainer[Any]) -> RunDriver:
        driver = RunDriver(record, method, trainer, self.session, self.recorder, self._environment, self._emit)
        self.drivers[record.id] = driver
        return driver

    def _join(self, driver: RunDriver) -> None:
        """A run that joins the active ones owes and is owed nothing."""
        others = [each.used for each in self.drivers.values() if each.active and each is not driver]
        if not driver.active:
            driver.used = min(others, default=0.0)

    def _active(self, run: int) -> RunDriver:
        if run not in self.drivers or not self.drivers[run].active:
            self.session.runs.get(run)
            raise RefusedError(f"run {run} is not running")
        return self.drivers[run]

    def _driver(self, run: int) -> RunDriver:
        """The driver of a run, which is read back from its newest resume point when it is not in memory."""
        if run in self.drivers:
            return self.drivers[run]
        record = self.session.runs.get(run)
        revived = launching.revive(record, self.place)
        step = revived.trainer.step_number
        self.recorder.flush()
        self.session.rewind(run, step)
        self.models.forget(run)
        record = self.session.runs.update(
            run, step=step, completions=revived.trainer.completions, seconds=revived.saved.seconds
        )
        driver = self._adopt(record, find_method(record.method), revived.trainer)
        for note in revived.notes:
            driver.tell("resume", note)
        differences = self._environment.differences(revived.saved.environment)
        if differences:
            driver.tell("resume", f"approximate resume: {differences}; the numbers may differ in their last digits")
        return driver

    def _forked(self, command: Fork) -> RunRecord:
        """The run that is forked, with the seed that the fork is to have."""
        record = self.session.runs.get(command.run)
        return record if command.seed is None else dataclasses.replace(record, seed=command.seed)

    def _fork_driven(self, command: Fork, driver: RunDriver) -> Event:
        record = self._forked(command)
        trainer = launching.fork_state(record, driver.trainer.state(), command.config, self.place)
        driver.save_resume_point(launching.FORKED)
        return self._add_fork(command, record, trainer, "")

    def _fork_saved(self, command: Fork) -> Event:
        record = self._forked(command)
        trainer, message = launching.fork_saved(record, command.step, command.config, self.place)
        return self._add_fork(command, record, trainer, message)

    def _add_fork(self, command: Fork, parent: RunRecord, trainer: Trainer[Any], message: str) -> Event:
        given = self.session.checkpoints.latest_good(parent.id, origin.KIND).data
        step = trainer.step_number
        method = find_method(parent.method)
        inputs = {**parent.inputs, "fork": True, "fresh_optimizer": bool(message)}
        title = command.title or f"{parent.title} from {step}"
        record = self._add(method, title, trainer, parent.seed, inputs, parent.id, step, given)
        record = self.session.runs.update(record.id, step=step, completions=trainer.completions)
        state = self._launch(record, method, trainer, command.id, command.paused)
        if message:
            self.drivers[record.id].tell("resume", message)
            state = dataclasses.replace(state, message=message)
        return state

    def _later(self, id: int, gone: str | None, act: Callable[[], Event]) -> None:
        """Answer a command that waited for a step's end."""
        try:
            if gone is not None:
                raise RefusedError(gone)
            self._emit(dataclasses.replace(act(), id=id))
        except (RefusedError, StoreError, knobs.ConfigError) as error:
            self._emit(Error(id=id, message=str(error)))
