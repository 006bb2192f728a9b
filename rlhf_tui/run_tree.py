"""The runs of a session as a tree: each under the one that it started from. Draws nothing."""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from core.config import ConfigError, make
from core.methods.table import METHODS


class TreeRun(Protocol):
    @property
    def parent(self) -> int | None: ...


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
        return make(METHODS[method].config, config).short()
    except (KeyError, ConfigError):
        return ""


def replay_command(method: str, config: dict[str, Any], seed: int, task: str, parent: int | None, session: str) -> str:
    """The command line that trains the same again: in the same session where the run started from another one."""
    words = ["rlhf-tui", "train", method, "--seed", str(seed)]
    short = short_config(method, config)
    if short:
        words += ["--config", short]
    words += ["--task", task] if parent is None else ["--session", session]
    return shlex.join(words)
