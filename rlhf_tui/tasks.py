"""The task of a session, as the app needs it: prompts, alphabet, guideline."""

from typing import TYPE_CHECKING

from core.tasks.base import Task
from core.tasks.table import CONTENT, load_task

if TYPE_CHECKING:
    from core.store import Session


def task_of(session: "Session") -> Task:
    """Raises TaskError or ConfigError for a task that this program does not know."""
    return load_task(session.task, session.seed, session.get_setting(CONTENT))
