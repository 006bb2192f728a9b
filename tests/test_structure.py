"""The rules that hold the package together, as tests: style, types, who may import whom."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TORCH_FREE = [
    "core", "core.config", "core.tokenizer", "core.engine", "core.engine.protocol", "core.evaluation", "core.methods",
    "core.methods.table", "core.models", "core.models.config", "core.preferences", "core.preferences.pair",
    "core.rewards", "core.store", "core.tasks", "core.tasks.table", "core.trainers", "rlhf_tui",
]  # fmt: skip


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "command",
    [
        ("-m", "ruff", "check", "."),
        ("-m", "ruff", "format", "--check", "core", "rlhf_tui", "tests"),
        ("-m", "mypy"),
        ("-c", "from importlinter.cli import lint_imports_command; lint_imports_command()", "--no-cache"),
    ],
    ids=["ruff-check", "ruff-format", "mypy", "import-contracts"],
)
def test_the_tools_find_nothing(command):
    done = run(*command)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_app_and_its_side_of_the_core_load_without_torch():
    done = run("-c", f"import sys, importlib; [importlib.import_module(name) for name in {TORCH_FREE!r}]\n"
               "print(sorted({'torch', 'textual', 'safetensors'} & set(sys.modules)))")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_a_session_is_torch_free_too():
    """The app opens sessions and writes labels itself."""
    done = run("-c", "import sys; from core.store import Session\nprint('torch' in sys.modules)")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "False"


def test_no_core_module_knows_a_terminal_library_at_run_time():
    """What the contracts say of the source, said of a process that has loaded the mathematics."""
    done = run("-c", "import sys, core.losses, core.advantages, core.sampling, core.models.build\n"
               "print(sorted({'textual', 'rich', 'plotext', 'rlhf_tui'} & set(sys.modules)))")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
