"""The runs of a session as a tree: each under the one that it started from. Draws nothing."""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from core.config import ConfigError, make
from core.methods.table import find_method

if TYPE_CHECKING:
    from core.store import Session


class TreeRun(Protocol):
    @property
    def parent(self) -> int | None: ...


class ReplayedRun(Protocol):
    """What the store's records and the app's runs both know."""

    @property
    def method(self) -> str: ...
    @property
    def config(self) -> dict[str, Any]: ...
    @property
    def inputs(self) -> dict[str, Any]: ...
    @property
    def parent(self) -> int | None: ...
    @property
    def parent_step(self) -> int | None: ...


R = TypeVar("R", bound=TreeRun)


@dataclass(frozen=True)
class Branch:
    """A run's number and the lines that lead to it."""

    run: int
    lead: str


def branches(runs: dict[int, R]) -> list[Branch]:
    """Every run once, a parent before its children, oldest first. A parent that is gone makes a root."""
    children: dict[int | None, list[int]] = {}
    for number in sorted(runs):
        parent = runs[number].parent
        # A damaged row could name a later run or itself; a parent is always older.
        root = parent is None or parent not in runs or parent >= number
        children.setdefault(None if root else parent, []).append(number)
    found: list[Branch] = []

    def add(numbers: Iterable[int], lead: str, depth: int) -> None:
        listed = list(numbers)
        for at, number in enumerate(listed):
            last = at == len(listed) - 1
            found.append(Branch(number, lead + ("" if not depth else "└ " if last else "├ ")))
            below = lead + ("" if not depth else "  " if last else "│ ")
            add(children.get(number, ()), below if depth < 12 else lead, depth + 1)

    add(children.get(None, ()), "", 0)
    return found


def short_config(method: str, config: dict[str, Any]) -> str:
    """The knobs of a run that differ from their defaults, as ``--config`` takes them; "" for a method unknown here."""
    try:
        return make(find_method(method).config, config).short()
    except ConfigError:
        return ""


def replay_command(run: ReplayedRun, number: int, seed: int, session: str, saves: str | None = None) -> str:
    """The command line that trains run ``number`` of a session again, from the same start, to the same numbers.

    It names the runs that it started from and asks the session for their weights. ``saves``: the folder of the
    session, where it is not the one that the command would look in anyway.
    """
    words = ["rlhf-tui", "train", run.method, "--session", session]
    if run.parent is not None:
        words += ["--parent", str(run.parent)]
        words += [] if run.parent_step is None else ["--parent-step", str(run.parent_step)]
    words += ["--fork"] if run.inputs.get("fork") else []  # which has its parent's reward model and pairs
    words += ["--seed", str(seed)]
    if not run.inputs.get("fork"):
        reward_run = run.inputs.get("reward_run")
        words += [] if reward_run is None else ["--reward-run", str(reward_run)]
        if run.config.get("pairs") in ("labels", "file", "mixed"):
            words += ["--pairs-of", str(number)]
    short = short_config(run.method, run.config)
    words += ["--config", short] if short else []
    words += ["--saves", saves] if saves else []
    return shlex.join(words)


def turned_knobs(session: "Session", run: int) -> list[str]:
    """The knobs that were changed while a run trained, which :func:`replay_command` sets from the first step on."""
    return sorted({str(event.data.get("name", "a knob")) for event in session.events.read(run, kind="knob")})
