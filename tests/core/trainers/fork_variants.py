"""Every method of the table as a run that is forked; run as a script it goes on with the forks in its own process."""

import dataclasses
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from trainer_toys import CPU, TINY, inputs, judged_pairs, micro_task, one_step

from core.config import knobs
from core.engine import origin
from core.engine.launching import Place, build_trainer, fork_saved, revive
from core.engine.origin import Origin
from core.engine.saving import Environment, Saver
from core.methods.base import TrainingConfig
from core.methods.table import METHODS, find_method
from core.store import Session
from core.store.runs import RunRecord
from core.store.tensors import from_bytes, to_bytes
from core.trainers.base import Trainer, TrainerState, Weights

FORKED_AT, TURNED_AT, SAVED_AT, TURNED_AGAIN_AT, END = 1, 2, 3, 4, 5
KNOBS: dict[str, Any] = {
    "steps": END, "batch_size": 6, "minibatch_size": 4, "evaluate_every": 2, "learning_rate": 1e-2, "reward": "gold",
    "judge": "gold", "probe_completions": 16, "pair_count": 20, "group_size": 2, "epochs": 1, "critic_epochs": 1,
    "fisher_completions": 4,
}  # fmt: skip
CHANGED = {"learning_rate": 2e-2}  # by the fork
HERE = Environment(torch.__version__, "cpu", 1)


def first_config(name: str) -> TrainingConfig:
    """A few small steps of a method: the knobs above as far as it has them."""
    method = METHODS[name]
    return method.config(**{each.name: KNOBS[each.name] for each in knobs(method.config) if each.name in KNOBS})


def live_turns(config: TrainingConfig, factor: float) -> Iterator[tuple[str, float]]:
    """Every live number of a configuration, turned by ``factor`` as far as its range allows."""
    for knob in knobs(type(config)):
        value = getattr(config, knob.name)
        if not knob.live or knob.type is not float or not value:
            continue
        low = -math.inf if knob.minimum is None else knob.minimum
        high = math.inf if knob.maximum is None else knob.maximum
        yield knob.name, min(max(value * factor, low), high)


def go_on(trainer: Trainer[Any], until: int) -> list[dict[str, float]]:
    """Train to step ``until``; every live knob is turned on the way, before the save and behind it."""
    found = []
    while trainer.step_number < until:
        factor = {TURNED_AT: 0.5, TURNED_AGAIN_AT: 1.5}.get(trainer.step_number)
        for name, value in live_turns(trainer.config, factor) if factor else ():
            trainer.set_knob(name, value)
        found.append(one_step(trainer))
    return found


def place_of(session: Session) -> Place:
    return Place(session, micro_task(), TINY, CPU)


def saver(session: Session, run: int) -> Saver:
    def refused(kind: str, message: str) -> None:
        raise AssertionError(f"{kind}: {message}")

    return Saver(session, run, HERE, lambda event: None, refused)


def start(name: str, place: Place, policy: Weights, reward: Weights) -> tuple[RunRecord, Trainer[Any]]:
    """A new run, as the engine begins one."""
    method = find_method(name)
    given = Origin(policy, policy, reward, judged_pairs(), inputs().unpaired)
    if method.starts_from is None:
        given = dataclasses.replace(given, policy=None, reference=None)
    trainer = build_trainer(method, first_config(name), given, place, seed=7)
    return _kept(place, name, trainer, given.to_bytes(), None), trainer


def fork(parent: RunRecord, place: Place) -> tuple[RunRecord, Trainer[Any]]:
    """A fork from the step where the parent was saved, as the engine makes one, with another learning rate."""
    trainer, lost = fork_saved(parent, FORKED_AT, CHANGED, place)
    assert not lost, lost
    given = place.session.checkpoints.latest_good(parent.id, origin.KIND).data
    return _kept(place, parent.method, trainer, given, parent.id), trainer


def _kept(place: Place, name: str, trainer: Trainer[Any], given: bytes, parent: int | None) -> RunRecord:
    record = place.session.runs.add(
        name, config=trainer.config.to_dict(), seed=7, parent=parent, parent_step=None if parent is None else FORKED_AT
    )
    place.session.checkpoints.save(record.id, 0, origin.KIND, given)
    return record


def write(folder: Path, name: str, trainer: Trainer[Any], metrics: list[dict[str, float]]) -> None:
    state = trainer.state()
    (folder / f"{name}.end").write_bytes(to_bytes(state.tensors, {"trainer": state.values, "metrics": metrics}))


def read(folder: Path, name: str) -> tuple[TrainerState, list[dict[str, float]]]:
    tensors, values = from_bytes((folder / f"{name}.end").read_bytes())
    return TrainerState(tensors, values["trainer"]), values["metrics"]


def main(folder: Path, runs: dict[str, list[int]]) -> None:
    """Of each method, resume its fork, fork its parent again, and train both to the end."""
    torch.set_num_threads(1)
    torch.manual_seed(54321)  # nothing may depend on torch's global generator
    with Session.open(folder / "session") as session:
        place = place_of(session)
        for name, (parent, forked) in runs.items():
            revived = revive(session.runs.get(forked), place)
            assert not revived.notes
            write(folder, f"{name} resumed", revived.trainer, go_on(revived.trainer, END))
            _, again = fork(session.runs.get(parent), place)
            write(folder, f"{name} forked again", again, go_on(again, END))


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
