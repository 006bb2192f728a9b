"""The one table of tasks. Torch-free."""

from collections.abc import Mapping
from typing import Any

from core.config import knobs, make, nearest
from core.tasks.arithmetic import ArithmeticOptions, arithmetic
from core.tasks.base import Progress, Task, TaskError, TaskKind
from core.tasks.custom import custom
from core.tasks.custom_files import CustomOptions, read_custom
from core.tasks.sentences import sentences
from core.tasks.words import words

TASKS: dict[str, TaskKind] = {
    each.name: each
    for each in (
        TaskKind(
            "words", "Word chain",
            "the answer begins with the prompt's last letter; longer, varied, speakable words score higher",
            build=lambda seed, _: words(seed),
        ),
        TaskKind(
            "arithmetic", "Sums with working",
            "SFT teaches the form of an answer from partly wrong demonstrations, RL that it be true",
            build=arithmetic, options=ArithmeticOptions,
        ),
        TaskKind(
            "sentences", "Chinese sentences",
            "warm sentences rather than gloomy ones, learned from 40 pairs alone",
            build=lambda seed, _: sentences(seed),
        ),
        TaskKind(
            "custom", "Your own data",
            "demonstrations, prompts and pairs from your files, and your own function as gold reward",
            build=custom, options=CustomOptions, read=read_custom,
        ),
    )
}  # fmt: skip

CONTENT = "task_content"
"""The setting under which a session keeps what :func:`task_content` gave."""


def find_task(name: str) -> TaskKind:
    """The entry called ``name``. Raises TaskError that names the nearest one."""
    if name not in TASKS:
        raise TaskError(f"no task is called '{name}'{nearest(name, TASKS)}; there are {', '.join(TASKS)}")
    return TASKS[name]


def task_content(
    name: str, options: Mapping[str, Any], progress: Progress = lambda _: None, context: int | None = None
) -> dict[str, Any]:
    """What a session keeps of its task, as JSON: every option, or what the named files hold.

    A line that exceeds the model's ``context`` (tokens; None: there is no limit) is refused like any other bad line.
    Raises TaskError, ConfigError for an option, or FileRefusedError that tells the file, the line and the reason.
    """
    kind = find_task(name)
    chosen = make(kind.options, options)
    return chosen.to_dict() if kind.read is None else kind.read(chosen, progress, context)


def load_task(name: str, seed: int, content: Mapping[str, Any] | None = None) -> Task:
    """The task called ``name`` from what a session keeps of it; without, its default options.

    Raises TaskError that names the nearest one, or ConfigError for an option.
    """
    kind = find_task(name)
    if kind.read is None:
        return kind.build(seed, make(kind.options, content or {}))
    if not content:
        raise TaskError(f"the task {name} needs data: name files of demonstrations, prompts or pairs")
    return kind.build(seed, content)


def listing() -> list[str]:
    """The tasks with their options, line by line, for ``rlhf-tui tasks``."""
    lines = []
    for kind in TASKS.values():
        lines.append(f"{kind.name:<12}{kind.title}: {kind.summary}")
        lines += [
            f"    {each.name:<17} {each.default!s:<6} {each.help}" + ("" if each.type is str else f" ({each.range})")
            for each in knobs(kind.options)
        ]
    return lines
