"""The app's state from the session's database: what happened before this engine, and what a slow reader missed."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from core.engine.protocol import Samples, SampleText
from core.methods.table import known_method
from core.store import StoreError
from rlhf_tui.series import Array, RunSeries
from rlhf_tui.state import ABOUT_STORAGE, ACTIVE, AppState, Happening, LogEntry, Run

if TYPE_CHECKING:
    from core.store import Session

_LOG_LINES = 500
_ONLY_LOGGED = ("info", "note", "resume", "device", *ABOUT_STORAGE)  # kinds of events that charts do not mark
_SAMPLE_FIELDS = {field.name for field in dataclasses.fields(SampleText)}


def load_history(session: "Session", state: AppState) -> None:
    """Fill an empty state with the session's runs and its log; metrics wait for :func:`load_run`."""
    for record in session.runs.all():
        # Nothing trains before an engine runs: what says so was cut short.
        interrupted = record.state in ACTIVE
        state.runs[record.id] = Run(
            record.id, record.method, record.title, "interrupted" if interrupted else record.state,
            record.step, record.steps, record.completions, record.seconds,
            parent=record.parent, parent_step=record.parent_step, message=record.message,
            seed=record.seed, inputs=dict(record.inputs), config=dict(record.config), pinned=record.pinned,
            notes=record.notes, loaded=False,
        )  # fmt: skip
    for event in session.events.read(last=_LOG_LINES):
        kind = "knob" if event.kind == "knob" else "info" if event.kind in _ONLY_LOGGED else "alert"
        state.log.append(LogEntry(event.time, kind, event.message, event.run))
        state.logged += 1


def load_run(session: "Session", run: Run) -> None:
    """Read a run's marks and newest samples, once, and let its metrics be read when they are asked for."""
    if run.loaded:
        return
    run.loaded = True
    run.series = _resting_series(session, run)
    run.happenings = [
        Happening(event.data.get("first_step", event.step), "knob" if event.kind == "knob" else "alert", event.message)
        for event in session.events.read(run.run)
        if event.step is not None and event.kind not in _ONLY_LOGGED
    ]
    newest = session.samples.read(run.run, last=1)
    run.samples = as_samples(run.run, newest[0].step, newest[0].data) if newest else None


def _resting_series(session: "Session", run: Run) -> RunSeries:
    """The steps of a run and its headline; each other metric only once something draws it: a hundred runs have many."""
    method = known_method(run.method)
    newest = session.metrics.newest(run.run)
    table = session.metrics.read(run.run, [method.headline] if method else [], newest=newest)
    series = RunSeries()
    series.extend(table.steps.astype(np.float64), table.completions.astype(np.float64), table.seconds, table.values)

    def read(names: Sequence[str]) -> Mapping[str, Array]:
        try:
            return session.metrics.read(run.run, names, newest=newest).values
        except StoreError as error:
            # Asked while a chart is drawn: the chart then says it, at the run's last step.
            run.happenings.append(Happening(run.step, "alert", str(error)))
            return {}

    series.leave([name for name in session.metrics.names(run.run) if name not in table.values], read)
    return series


def read_series(session: "Session", run: int) -> RunSeries:
    """All metrics of a run."""
    table = session.metrics.read(run)
    series = RunSeries()
    series.extend(
        table.steps.astype(np.float64), table.completions.astype(np.float64), table.seconds, table.values
    )  # fmt: skip
    return series


def adopt(session: "Session", run: Run) -> None:
    """Take over from the run's record what events do not tell: seed, inputs, the full configuration."""
    try:
        record = session.runs.get(run.run)
    except StoreError:
        return  # the engine has not committed it yet; the next event asks again
    run.seed, run.inputs, run.config = record.seed, dict(record.inputs), {**record.config, **run.config}


def as_samples(run: int, step: int, data: Any) -> Samples | None:
    """Stored samples as the event that brought them; None where they are not such."""
    if not isinstance(data, dict):
        return None
    return Samples(run=run, step=step, samples=_texts(data.get("samples")), reference=_texts(data.get("reference")))


def _texts(data: Any) -> list[SampleText]:
    return [
        SampleText(**{name: value for name, value in each.items() if name in _SAMPLE_FIELDS})
        for each in (data if isinstance(data, list) else [])
        if isinstance(each, dict) and {"prompt", "text", "ended"} <= each.keys()
    ]
