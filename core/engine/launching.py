"""From records and weights to a trainer that stands at some step: new, read back, or forked."""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from core import config as knobs
from core.engine import origin
from core.engine.origin import Origin
from core.engine.protocol import RunState
from core.engine.saving import SavedState, read_state
from core.extension import load_attribute
from core.methods.base import Method, TrainingConfig
from core.methods.table import find_method
from core.models.build import BackboneConfig
from core.preferences.conversion import decided_pairs, for_training, pairs_with_ties, unpaired_examples
from core.preferences.formats.files import FileRefusedError, read_file
from core.preferences.pair import PreferencePair, UnpairedExample
from core.store import Session
from core.store import tensors as encoding
from core.store.errors import CheckpointBrokenError, one_line
from core.store.runs import RunRecord
from core.tasks.base import Task
from core.trainers.base import Trainer, TrainerState, Weights
from core.trainers.pairs import has_own_pairs

FORKED = "forked"  # name of a checkpoint that a fork started from


class RefusedError(Exception):
    """A command that cannot be done; one line that says why and what would help."""


@dataclass(frozen=True)
class Place:
    """Where runs live: the session and what all its runs share."""

    session: Session
    task: Task
    backbone: BackboneConfig
    device: torch.device


@dataclass(frozen=True)
class Revived:
    """A trainer that stands where a resume point was taken."""

    trainer: Trainer[Any]
    saved: SavedState
    notes: tuple[str, ...]


def build_trainer(method: Method, config: TrainingConfig, given: Origin, place: Place, seed: int) -> Trainer[Any]:
    """A trainer at step 0. Raises RefusedError when the method cannot start from what it was given."""
    trainer_class: type[Trainer[Any]] = load_attribute(method.trainer)
    inputs = given.complete(task=place.task, seed=seed, device=place.device, backbone=place.backbone)
    try:
        return trainer_class(config, inputs)
    except (ValueError, KeyError, RuntimeError) as error:  # the last two: weights of another model
        raise RefusedError(f"{method.title} cannot start: {one_line(error)}") from error


def revive(record: RunRecord, place: Place) -> Revived:
    """The run as its newest whole resume point has it. Raises RefusedError or StoreError when it has none."""
    method = find_method(record.method)
    loaded = place.session.checkpoints.latest_good(record.id, "resume", read_state)
    saved: SavedState = loaded.content
    config = knobs.make(method.config, saved.state.values["config"])
    trainer = build_trainer(method, config, stored_origin(record.id, place), place, record.seed)
    load_state(trainer, saved.state)
    return Revived(trainer, saved, loaded.notes)


def fork_state(record: RunRecord, state: TrainerState, changes: Mapping[str, Any], place: Place) -> Trainer[Any]:
    """A trainer that stands where ``state`` was taken, optimizer and all, with some knobs changed."""
    method = find_method(record.method)
    config = forked_config(method, state.values["config"], changes, state.values["step"])
    values = {**state.values, "config": config.to_dict(), "stop_reason": "", "stale_validations": 0}
    trainer = build_trainer(method, config, stored_origin(record.id, place), place, record.seed)
    load_state(trainer, TrainerState(state.tensors, values))
    return trainer


def fork_saved(
    record: RunRecord, step: int | None, changes: Mapping[str, Any], place: Place
) -> tuple[Trainer[Any], str]:
    """A trainer at a step that was kept (None: the run's last; else the nearest), and what was lost in that: "" or not.

    What it starts from is kept for as long as its run, so that the fork can be made again.
    """
    checkpoints = place.session.checkpoints
    wanted = record.step if step is None else step
    trainer = None
    if any(each.step == wanted for each in checkpoints.list(record.id, "resume")):
        loaded = checkpoints.nearest_good(record.id, wanted, "resume", read_state)
        if loaded.record.step == wanted:
            trainer, message = fork_state(record, loaded.content.state, changes, place), ""
    if trainer is None:
        loaded = checkpoints.nearest_good(record.id, wanted, "snapshot", read_snapshot)
        found, completions = loaded.content
        at = loaded.record.step
        trainer = fork_snapshot(record, found, at, completions, changes, place)
        message = f"forked from the snapshot of step {at}: fresh optimizer"
        if getattr(trainer.config, "reference_refresh", 0):
            message += ", and the reference that the run began with"
    kept = loaded.record
    if not kept.name:
        checkpoints.save(
            kept.run, kept.step, kept.kind, loaded.data, name=FORKED, score=kept.score, values=kept.values
        )  # fmt: skip
    return trainer, message


def fork_snapshot(
    record: RunRecord, weights: Weights, step: int, completions: int, changes: Mapping[str, Any], place: Place
) -> Trainer[Any]:
    """A trainer with the weights of a snapshot at its step and a fresh optimizer."""
    method = find_method(record.method)
    config = forked_config(method, record.config, changes, step)
    given = stored_origin(record.id, place)
    if method.trains == "policy":
        # As the weights to start from they reach the policy itself, not only the average that is kept of it.
        reference = given.reference if given.reference is not None else given.policy
        trainer = build_trainer(
            method, config, dataclasses.replace(given, policy=weights, reference=reference), place, record.seed
        )
    else:
        trainer = build_trainer(method, config, given, place, record.seed)
        trainer.use_weights(weights)
    trainer.step_number = step
    trainer.completions = completions
    return trainer


def forked_config(method: Method, base: Mapping[str, Any], changes: Mapping[str, Any], step: int) -> TrainingConfig:
    """The parent's knobs with changes. Raises ConfigError, or RefusedError when nothing would be left to train."""
    config: TrainingConfig = knobs.make(method.config, {**base, **changes})
    if config.steps <= step:
        raise RefusedError(
            f"a fork at step {step} needs more steps than {config.steps}; set steps above {step}, or fork earlier"
        )
    return config


def load_state(trainer: Trainer[Any], state: TrainerState) -> None:
    """Let ``trainer`` stand at ``state``. Raises RefusedError when the state is of another kind of run."""
    try:
        trainer.load_state(state)
    except (KeyError, ValueError, RuntimeError, TypeError, AttributeError, IndexError, OverflowError) as error:
        raise RefusedError(f"the resume point does not fit this run: {one_line(error)}") from error
    for optimizer in trainer.optimizers().values():
        for weight, moments in optimizer.state.items():
            # The optimizer itself would notice in its next step only.
            if any(torch.is_tensor(each) and each.dim() and each.shape != weight.shape for each in moments.values()):
                raise RefusedError("the resume point does not fit this run: its optimizer is another model's")


def stored_origin(run: int, place: Place) -> Origin:
    """What a run was given at its start."""
    given: Origin = place.session.checkpoints.latest_good(run, origin.KIND, Origin.from_bytes).content
    return given


def origin_of(trainer: Trainer[Any]) -> Origin:
    """What a trainer in memory was given at its start."""
    given = trainer.inputs
    return Origin(given.policy, given.reference, given.reward_model, given.pairs, given.unpaired)


def recorded_state(record: RunRecord) -> RunState:
    """A run that is not in memory as its record has it."""
    return RunState(
        run=record.id, method=record.method, title=record.title, state=record.state, step=record.step,
        steps=record.steps, completions=record.completions, seconds=record.seconds, parent=record.parent,
        parent_step=record.parent_step, message=record.message,
    )  # fmt: skip


def read_snapshot(data: bytes) -> tuple[Weights, int]:
    """The weights in a snapshot, and the completions up to it. Raises CheckpointBrokenError when it is none."""
    found, values = encoding.from_bytes(data)
    completions = values.get("completions")
    if not isinstance(completions, int):
        raise CheckpointBrokenError("it is no snapshot")
    return found, completions


def preferences(
    method: Method, config: TrainingConfig, pairs_file: str | None, pairs_of: int | None, place: Place
) -> tuple[tuple[PreferencePair, ...], tuple[UnpairedExample, ...]]:
    """The pairs and single judgements that a run's ``pairs`` knob asks for, from labels and files.

    Those of the run ``pairs_of`` are as they were when it started. Raises RefusedError when there are none.
    """
    if pairs_of is not None:
        place.session.runs.get(pairs_of)
        same = stored_origin(pairs_of, place)
        return same.pairs, same.unpaired
    source = getattr(config, "pairs", "")
    pairs: list[PreferencePair] = []
    unpaired: list[UnpairedExample] = []
    if source in ("labels", "mixed"):
        labels = for_training(place.session.labels.current())
        pairs += (pairs_with_ties if method.trains == "reward_model" else decided_pairs)(labels)
        unpaired += unpaired_examples(labels)
        if source == "labels" and not pairs and not (method.unpaired and unpaired):
            raise RefusedError("there are no labels to learn from yet; label some pairs, or choose other pairs")
    if source == "file" and not pairs_file:
        raise RefusedError("pairs=file needs a file of pairs; name it")
    if pairs_file and source in ("file", "mixed"):
        try:
            imported = read_file(pairs_file, unknown_letters=place.task.unknown_letters)
        except (FileRefusedError, OSError) as error:
            raise RefusedError(one_line(error)) from error
        if not imported.pairs:
            raise RefusedError(f"{pairs_file} holds no pairs (prompt, chosen, rejected) but {imported.kind} rows")
        pairs += imported.pairs
    return tuple(pairs), tuple(unpaired)


def pair_counts(config: TrainingConfig, given: Sequence[PreferencePair], task: Task) -> dict[str, int]:
    """How many pairs of each source a run learns from; empty for a method without a ``pairs`` knob."""
    if not hasattr(config, "pairs"):
        return {}
    counts: dict[str, int] = dict(Counter(each.source for each in given))
    if config.pairs in ("automatic", "mixed"):
        own = has_own_pairs(task, getattr(config, "taste", ""))
        counts |= {"task": len(task.pairs)} if own else {"automatic": getattr(config, "pair_count", 0)}
    return counts


def counts_line(counts: Mapping[str, int]) -> str:
    """``learns from 7 labels, 4 pairs of a file and 6 automatic pairs``; empty where there are no fixed pairs."""
    names = {
        "labels": ("label", "labels"),
        "file": ("pair of a file", "pairs of a file"),
        "task": ("pair of the task", "pairs of the task"),
        "automatic": ("automatic pair", "automatic pairs"),
    }
    found = {source: counts.get(source, 0) for source in names}
    parts = [f"{count:,} {names[source][count != 1]}" for source, count in found.items() if count]
    if not parts:
        return ""
    return "learns from " + (f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0])


def replace_steps(trainer: Trainer[Any], steps: int) -> None:
    """Give a run another horizon. Raises RefusedError when it stands beyond it, ConfigError when it is out of range."""
    if steps < trainer.step_number or (steps == trainer.step_number and not trainer.stop_reason):
        raise RefusedError(f"the run stands at step {trainer.step_number} already; give it more than {steps} steps")
    trainer.config = dataclasses.replace(trainer.config, steps=steps)
