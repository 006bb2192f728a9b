"""The one table of tasks. Torch-free."""

from collections.abc import Callable

from core.config import nearest
from core.tasks.base import Task, TaskError
from core.tasks.words import words

TASKS: dict[str, Callable[[int], Task]] = {"words": words}


def load_task(name: str, seed: int) -> Task:
    """The task called ``name``. Raises TaskError that names the nearest one."""
    if name not in TASKS:
        raise TaskError(f"no task is called '{name}'{nearest(name, TASKS)}; there are {', '.join(TASKS)}")
    return TASKS[name](seed)
