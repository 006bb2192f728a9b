"""What the README shows works as it stands there."""

import re
from pathlib import Path

import pytest

from core.config import make
from core.methods.sft import SFTConfig
from core.tasks import table
from core.tasks.base import TaskKind
from core.tasks.table import load_task

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")


def block(name: str) -> str:
    """The code between the marks of that name."""
    found = re.search(rf"<!-- {name} -->\n```\w*\n(.*?)```\n<!-- /{name} -->", README, re.DOTALL)
    assert found, f"the README has no block {name}"
    return found[1]


@pytest.fixture
def backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """The README's task, entered into the table as it says."""
    names: dict = {}
    exec(compile(block("task"), "README.md", "exec"), names)
    entry = re.search(r"# in core/tasks/table.py\n(.*),\n", README)
    assert entry
    kind: TaskKind = eval(entry[1], {"TaskKind": TaskKind, **names})
    monkeypatch.setitem(table.TASKS, kind.name, kind)


def test_the_readmes_task_has_what_it_says(backwards: None) -> None:
    task = load_task("backwards", 3)
    assert len(task.prompts) == 580 and len(task.held_out_prompts) == 20
    assert not set(task.prompts) & set(task.held_out_prompts)
    assert task.gold is not None
    assert task.gold("abcd", "dcba") == 1 and task.gold("abcd", "dcbaa") == 0.8 and task.gold("abcd", "") == 0
    assert len(block("task").splitlines()) < 80


def test_the_readmes_task_can_be_learned(backwards: None) -> None:
    import torch

    from core.models.build import BackboneConfig
    from core.trainers.base import TrainerInputs
    from core.trainers.sft import SFTTrainer

    config = make(SFTConfig, {"steps": 40, "batch_size": 32, "learning_rate": 1e-2, "evaluate_every": 100})
    trainer = SFTTrainer(
        config,
        TrainerInputs(
            load_task("backwards", 3), 3, torch.device("cpu"), BackboneConfig(embedding=16, hidden=32, layers=1)
        ),
    )
    losses = []
    while not trainer.finished:
        step = trainer.step()
        try:
            while True:
                next(step)
        except StopIteration as end:
            losses.append(end.value["loss"])
    assert losses[-1] < 0.8 * losses[0]
