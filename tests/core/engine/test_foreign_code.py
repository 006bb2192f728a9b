"""A session from a stranger that names code: it opens and trains, and none of that code runs."""

import json
from pathlib import Path
from typing import Any

import pytest
from engine_process import REAL_ENGINE, TINY, Engine

from core.store import Session
from core.tasks.table import CONTENT, task_content
from core.trust import trust

DEMONSTRATIONS = [{"prompt": letter, "completion": f"{letter}o{letter}e"} for letter in "abcdef"]
QUICK = {"steps": 1, "batch_size": 8, "evaluate_every": 1, "probe_completions": 16}


@pytest.fixture
def sprung(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the module leaves a file when it is imported."""
    sprung = tmp_path / "sprung"
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "trap_module.py").write_text(
        f"open({str(sprung)!r}, 'w').close()\n\n"
        "def gold(prompt, completion):\n    return float(len(completion))\n\n"
        "def advantages(rewards):\n    return rewards - rewards.mean(1, keepdim=True)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(modules))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return sprung


@pytest.fixture
def foreign(tmp_path: Path, sprung: Path) -> Path:
    """A session whose task, method and knobs name that module."""
    file = tmp_path / "demonstrations.jsonl"
    file.write_text("".join(f"{json.dumps(each)}\n" for each in DEMONSTRATIONS))
    content = task_content("custom", {"demonstrations": str(file)})
    folder = tmp_path / "foreign"
    with Session.create(folder, task="custom", seed=1, backbone=TINY) as session:
        session.set_setting(CONTENT, {**content, "gold": "trap_module:gold"})
        session.runs.add("trap_module:METHOD", title="theirs", config={"steps": 9}, state="interrupted")
    return folder


def opened(engine: Engine, folder: Path) -> dict[str, Any]:
    return engine.do("open", folder=str(folder), read_only=False)


def test_nothing_of_it_runs_until_it_is_allowed(foreign: Path, sprung: Path) -> None:
    allow = "is code that you have not allowed; if you know it: rlhf-tui sessions trust trap_module"
    with Engine(REAL_ENGINE) as engine:
        engine.hello()
        notes = opened(engine, foreign)["notes"]
        assert notes[-1] == f"no gold reward: trap_module:gold {allow}:gold"
        engine.do("start", method="sft", config={"steps": 2, "batch_size": 8})
        engine.all_in("done", 2)
        assert len(engine.do("sample", run=2)["samples"]) > 0
        for command, fields in (
            ("resume", {"run": 1}),
            ("fork", {"run": 1}),
            ("start", {"method": "trap_module:METHOD"}),
            ("start", {"method": "custom", "config": {**QUICK, "function": "trap_module:advantages"}}),
            ("start", {"method": "dpo", "config": {"custom_loss": "trap_module:advantages", "pairs": "automatic"}}),
        ):
            answer = engine.ask(command, **fields)
            assert answer["type"] == "error", answer
        gold = engine.ask("start", method="ppo", config={**QUICK, "reward": "gold"})
        assert gold["type"] == "error" and "gold" in gold["message"]
        assert not sprung.exists()

        trust("trap_module:gold")
        assert not any("trap_module" in note for note in opened(engine, foreign)["notes"])
        started = engine.do("start", method="ppo", config={**QUICK, "reward": "gold"})
        engine.all_in("done", started["run"])
        assert sprung.exists()
        refused = engine.ask("start", method="custom", config={**QUICK, "function": "trap_module:advantages"})
        assert refused["type"] == "error" and f"trap_module:advantages {allow}:advantages" in refused["message"]
        engine.quit()
