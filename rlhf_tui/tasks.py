"""The task of a session, as the app needs it: prompts, alphabet, guideline."""

from typing import TYPE_CHECKING

from core.config import knobs
from core.tasks.base import Task
from core.tasks.custom import gold_problem
from core.tasks.table import CONTENT, TASKS, load_task
from core.trust import is_trusted

if TYPE_CHECKING:
    from core.store import Session


def task_of(session: "Session") -> Task:
    """Raises TaskError or ConfigError for a task that this program does not know."""
    return load_task(session.task, session.seed, session.get_setting(CONTENT))


def code_to_allow(session: "Session") -> str:
    """The function that the task of a session would use if it were allowed (see core.trust); "" where there is none."""
    content = session.get_setting(CONTENT)
    kind = TASKS.get(session.task)
    if kind is None or not isinstance(content, dict):
        return ""
    named = (content.get(each.name) for each in knobs(kind.options) if each.code)
    return next((name for name in named if name and not gold_problem(str(name)) and not is_trusted(str(name))), "")
