"""A new session: its task read, checked and looked at before anything is written. Torch-free.

App and command line share it, so that both refuse the same things in the same words.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.models.config import BackboneConfig
from core.models.context import check_context
from core.store.locations import create_session
from core.tasks.base import Progress, Task
from core.tasks.table import CONTENT, find_task, load_task, task_content
from core.trust import trust_named


@dataclass(frozen=True)
class Plan:
    """A session that could be made now: the task, what would be kept of it, and the model."""

    task: Task
    content: dict[str, Any]
    seed: int
    backbone: BackboneConfig


def plan_session(
    task: str, options: Mapping[str, Any], seed: int, backbone: BackboneConfig, progress: Progress = lambda _: None
) -> Plan:
    """Read the task of a new session. ``options`` are what a person has just typed: code that they name is allowed.

    Raises TaskError, ConfigError, FileRefusedError with file, line and reason, or ContextError – all ValueErrors.
    """
    context = backbone.context if backbone.kind == "transformer" else None
    content = task_content(task, options, progress, context)
    trust_named(find_task(task).options, options)
    made = load_task(task, seed, content)
    check_context(made, backbone)
    return Plan(made, content, seed, backbone)


def make_session(saves: Path, title: str, plan: Plan) -> Path:
    """Write it; the folder. Raises StoreError."""
    backbone = plan.backbone.to_dict()
    with create_session(saves, title, task=plan.task.name, seed=plan.seed, backbone=backbone) as session:
        if plan.content:
            session.set_setting(CONTENT, plan.content)
        return session.folder
