"""Code that a session names runs only where the person has named it too."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.config import ConfigError, knobs
from core.extension import load_allowed, load_function
from core.methods.custom import CustomConfig
from core.methods.dpo import DPOConfig
from core.methods.table import METHODS, find_method, known_method, method_title
from core.tasks.table import TASKS
from core.trust import UntrustedError, distrust, is_trusted, trust, trust_file, trust_named, trusted


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "rlhf-tui" / "trusted.txt"


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that leaves a file behind when it is imported."""
    sprung = tmp_path / "sprung"
    (tmp_path / "trap_module.py").write_text(
        f"open({str(sprung)!r}, 'w').close()\n\ndef gold(prompt, completion):\n    return 1.0\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "trap_module", raising=False)
    return sprung


def test_what_is_allowed_is_kept_in_the_users_own_folder(state: Path) -> None:
    assert trust_file() == state and trusted() == ()
    trust("my_rules:politeness")
    trust("a.b:c")
    trust("my_rules:politeness")
    assert state.read_text() == "a.b:c\nmy_rules:politeness\n"
    assert is_trusted("my_rules:politeness") and not is_trusted("my_rules:other") and not is_trusted("my_rules")
    assert distrust("a.b:c") and not distrust("a.b:c")
    assert trusted() == ("my_rules:politeness",)


def test_another_process_sees_it_at_once(state: Path) -> None:
    """The app allows it, the engine asks."""
    assert not is_trusted("mine:f")
    command = [sys.executable, "-c", "from core.trust import trust; trust('mine:f')"]
    subprocess.run(command, check=True, cwd=Path(__file__).parents[2])
    assert is_trusted("mine:f")


@pytest.mark.parametrize(
    "name", ["", "mine", "mine:", ":f", "mine:f\nother:g", "mine:f ", "../mine:f", "mine:f:g", "1:f"]
)
def test_what_is_no_name_is_never_kept(name: str, state: Path) -> None:
    with pytest.raises(ConfigError, match="expected module:name"):
        trust(name)
    assert not state.exists()


@given(st.text())
def test_no_text_is_trusted_unless_it_was_named(text: str) -> None:
    assert not is_trusted(text)
    assert "\n" not in str(UntrustedError(text))


def test_a_damaged_file_allows_what_can_be_read_of_it(state: Path) -> None:
    trust("mine:f")
    state.write_text("mine:f\n\x00\nnot a name\nother:g")
    assert trusted() == ("mine:f", "other:g")
    state.write_bytes(b"\xff\xfe")
    assert trusted() == ()
    state.unlink()
    state.mkdir()
    assert trusted() == ()
    with pytest.raises(ConfigError, match="cannot be written"):
        trust("mine:f")


def test_a_module_runs_only_when_it_is_allowed(trap: Path) -> None:
    said = (
        "trap_module:gold is code that you have not allowed; if you know it: rlhf-tui sessions trust trap_module:gold"
    )
    for load in (load_function, load_allowed, find_method):
        with pytest.raises(UntrustedError) as caught:
            load("trap_module:gold")
        assert str(caught.value) == said
    assert known_method("trap_module:gold") is None and method_title("trap_module:gold") == "trap_module:gold"
    assert not trap.exists() and "trap_module" not in sys.modules
    trust("trap_module:gold")
    assert load_function("trap_module:gold")("a", "b") == 1.0
    assert trap.exists()


def test_what_is_revoked_is_refused_though_it_was_imported(trap: Path) -> None:
    trust("trap_module:gold")
    load_function("trap_module:gold")
    distrust("trap_module:gold")
    with pytest.raises(UntrustedError):
        load_function("trap_module:gold")


def test_of_the_programs_own_modules_only_those_that_compute_need_no_word() -> None:
    assert load_function("core.losses:hinge_loss") and load_function("core.advantages:group_advantages")
    for name in ("core.store.locations:rename_session", "core.store.archive:export_session", "rlhf_tui.cli:main"):
        with pytest.raises(UntrustedError):
            load_function(name)


def test_every_knob_that_names_code_says_so() -> None:
    configs = [*(each.config for each in METHODS.values()), *(each.options for each in TASKS.values())]
    found = {knob.name for config in configs for knob in knobs(config) if knob.code}
    assert found == {"function", "custom_loss", "gold"}
    assert found == {knob.name for config in configs for knob in knobs(config) if "module:function" in knob.help}


def test_what_a_person_types_for_such_a_knob_is_allowed_and_nothing_else() -> None:
    trust_named(CustomConfig, {"function": "mine:best", "reward": "learned", "learning_rate": 0.1})
    trust_named(DPOConfig, {"custom_loss": ""})
    trust_named(CustomConfig, {"function": CustomConfig().function})
    assert trusted() == ("mine:best",)
    with pytest.raises(ConfigError, match="expected module:name"):
        trust_named(DPOConfig, {"custom_loss": "mine"})
