"""Where the completions to be judged come from: named as a person types them, found among the session's runs."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from core.config import ConfigError, nearest
from core.methods.table import trains_policy
from core.preferences.formats.files import FileRefusedError, ImportedFile, read_file
from core.preferences.labels import Side
from core.preferences.selection import Candidate
from core.tasks.base import Task
from rlhf_tui.state import AppState, Run

REFERENCE, POLICY = "reference", "policy"
_RUN = re.compile(r"(\d{1,9})(?:@(\d{1,9}))?")
_KINDS = (REFERENCE, POLICY, "file:PATH")


@dataclass(frozen=True)
class SourceName:
    """As typed. ``kind``: reference, policy, run or file."""

    kind: str
    run: int = 0
    step: int | None = None
    file: str = ""


@dataclass(frozen=True)
class Writer:
    """A policy that writes completions; ``name`` is what a label says of it."""

    name: str
    run: int
    step: int | None  # None: as it is now


def parse_sources(text: str) -> tuple[SourceName, ...]:
    """``reference policy 3 3@120 file:pairs.jsonl``. Raises ConfigError that names the word."""
    try:
        words = shlex.split(text)
    except ValueError:
        raise ConfigError(f"sources: a quotation mark stands alone in {text!r}") from None
    if not words:
        raise ConfigError("sources must name at least one: reference, policy, a run's number or file:PATH")
    return tuple(dict.fromkeys(_parse(word) for word in words))


def _parse(word: str) -> SourceName:
    if word in (REFERENCE, POLICY):
        return SourceName(word)
    if found := _RUN.fullmatch(word):
        return SourceName("run", int(found[1]), int(found[2]) if found[2] else None)
    if word.startswith("file:") and len(word) > len("file:"):
        return SourceName("file", file=word.removeprefix("file:"))
    raise ConfigError(f"sources: no source is called {word!r}{nearest(word, _KINDS)}"[:300])


def writers(names: tuple[SourceName, ...], state: AppState) -> tuple[list[Writer], list[str]]:
    """The policies among the sources that are there now, and a line for each one that is not."""
    found: dict[tuple[int, int | None], Writer] = {}
    missing: list[str] = []
    for name in names:
        if name.kind == "file":
            continue
        run = _run(name, state)
        if run is None:
            missing.append(_why(name, state))
            continue
        own = "reference" if name.kind == REFERENCE else run.name
        writer = Writer(own if name.step is None else f"{own}@{name.step}", run.run, name.step)
        found.setdefault((run.run, name.step), writer)
    return list(found.values()), missing


def _run(name: SourceName, state: AppState) -> Run | None:
    if name.kind == REFERENCE:
        return state.newest_usable("sft")
    if name.kind == POLICY:
        aligned = [run for run in state.runs.values() if _writes(run) and run.method != "sft" and run.step]
        return max((run for run in aligned if run.state != "failed"), key=lambda run: run.run, default=None)
    run = state.runs.get(name.run)
    return run if run is not None and _writes(run) and run.step else None


def _writes(run: Run) -> bool:
    return trains_policy(run.method)


def _why(name: SourceName, state: AppState) -> str:
    if name.kind == REFERENCE:
        newest = state.newest("sft")
        training = newest is not None and newest.active
        return "SFT is still training" if training else "there is no reference yet: train SFT first"
    if name.kind == POLICY:
        return "no policy has been aligned yet"
    if name.run not in state.runs:
        return f"there is no run {name.run}"
    run = state.runs[name.run]
    return f"run {name.run} has learned nothing yet" if _writes(run) else f"run {name.run} writes no texts"


def file_candidates(file: str, task: Task) -> list[Candidate]:
    """The completions in a file of pairs, judgements or completions. Raises ConfigError in one line."""
    path = Path(file).expanduser()
    try:
        imported = read_file(path, unknown_letters=task.unknown_letters)
    except FileRefusedError as error:
        raise ConfigError(str(error)) from None
    texts = dict.fromkeys(_texts(imported))
    if not texts:
        raise ConfigError(f"{path} holds {imported.kind} rows: nothing that answers a prompt")
    return [Candidate(prompt, Side(text, path.name)) for prompt, text in texts]


def _texts(imported: ImportedFile) -> list[tuple[str, str]]:
    pairs = [(each.prompt, text) for each in imported.pairs for text in (each.chosen, each.rejected)]
    judged = [(each.prompt, text) for each in imported.judged for text in (each.left, each.right)]
    single = [(each.prompt, each.completion) for each in imported.unpaired]
    answers = [(each.prompt, each.completion) for each in imported.completions]
    return judged + pairs + single + answers
