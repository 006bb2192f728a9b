"""``rlhf-tui train module:METHOD``: a method from outside is a method like any other on the command line."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.methods.table import known_method, method_title, trains_policy
from core.store import Session
from rlhf_tui import cli
from rlhf_tui.run_tree import short_config

SHORT_REPORT = [sys.executable, str(Path(__file__).with_name("cli_with_short_report.py"))]
RANKS = """
from dataclasses import dataclass, replace

from core.config import knob
from core.methods.grpo import GRPO, GRPOConfig


@dataclass(frozen=True, kw_only=True)
class RankConfig(GRPOConfig):
    spread: float = knob(1.0, "multiplies ranks; 100 % of them by default", above=0, maximum=7)


@dataclass(frozen=True, kw_only=True)
class ClashingConfig(GRPOConfig):
    session: str = knob("", "a knob with the name of another option")


METHOD = replace(GRPO, title="Ranks", config=RankConfig, trainer="ranks_from_outside:trainer",
                 summary="GRPO on ranks, 100 % of them.")
CLASHING = replace(METHOD, config=ClashingConfig)


def trainer(config, inputs):
    from core.trainers.grpo import GRPOTrainer

    class RankTrainer(GRPOTrainer):
        def advantages(self, rewards):
            ranks = rewards.argsort(1).argsort(1).float()
            return self.config.spread * (ranks - ranks.mean(1, keepdim=True))

    return RankTrainer(config, inputs)
"""


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "ranks_from_outside.py").write_text(RANKS)
    (tmp_path / "half_a_method.py").write_text("METHOD = (")
    (tmp_path / "stumbling_method.py").write_text("METHOD = 1 / 0")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("ranks_from_outside", None)


def test_its_knobs_are_flags_and_its_words_the_help(outside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["train", "ranks_from_outside:METHOD", "--help"])
    assert end.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "GRPO on ranks, 100 % of them." in text
    assert "--spread X multiplies ranks; 100 % of them by default (> 0, ≤ 7; default 1.0)" in text
    assert "--group-size N" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("no_such_module:METHOD", "no_such_module:METHOD: no_such_module cannot be imported: No module named"),
        ("ranks_from_outside:METHODS", "ranks_from_outside has no 'METHODS' (did you mean 'METHOD'?)"),
        ("ranks_from_outside:trainer", "ranks_from_outside:trainer is no Method but function"),
        ("half_a_method:METHOD", "half_a_method cannot be imported: SyntaxError: '(' was never closed"),
        ("stumbling_method:METHOD", "stumbling_method cannot be imported: ZeroDivisionError: division by zero"),
        ("ranks_from_outside:CLASHING", "conflicting option string: --session"),
        (":METHOD", "expected module:name"),
        ("ranks_from_outside:METHOD --spread 8", "spread must be > 0, ≤ 7, not 8"),
        ("ranks_from_outside:METHOD --spred 1", "there is no option --spred (did you mean '--spread'?)"),
    ],
)
def test_what_is_wrong_with_it_is_said_in_one_line(
    outside: Path, words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["--saves", str(outside / "saves"), "train", *words.split()])
    printed = capsys.readouterr()
    assert end.value.code == 2
    assert printed.out == "" and printed.err.count("\n") == 1
    assert said in printed.err
    assert not (outside / "saves").exists()


def test_a_run_whose_method_is_gone_is_a_run_of_unknown_kind() -> None:
    assert known_method("gone_method:METHOD") is None
    assert method_title("gone_method:METHOD") == "gone_method:METHOD"
    assert not trains_policy("gone_method:METHOD")
    assert short_config("gone_method:METHOD", {"steps": 3}) == ""
    assert (method_title("ppo"), trains_policy("ppo"), trains_policy("rm")) == ("PPO", True, False)


def test_it_trains_and_is_found_again(outside: Path) -> None:
    def command(*words: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*SHORT_REPORT, "--saves", str(outside), *words],
            capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "PYTHONPATH": str(outside)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done

    few = ["--session", "mine", "--steps", "1", "--batch-size", "8"]
    command("train", "sft", *few)
    name = "ranks_from_outside:METHOD"
    trained = command("train", name, *few, "--group-size", "4", "--spread", "2", "--probe-completions", "16")
    assert "\nRanks " in trained.stdout
    command("train", name, *few[:2], "--resume", "--steps", "2")
    with Session.open(outside / "mine", read_only=True) as session:
        run = session.runs.get(2)
        assert (run.method, run.title, run.state, run.step) == (name, "Ranks", "done", 2)
        assert (run.config["spread"], run.config["group_size"]) == (2.0, 4)
