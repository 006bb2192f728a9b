"""``evaluate``, ``frontier``, ``bench`` and ``tasks``, and the task and backbone of a new session."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest

from core.config import knobs
from core.engine.protocol import BenchLine, BestOfNPlace, OptimalPlace, Plane
from core.models.config import BackboneConfig
from core.store import Session
from core.tasks.table import CONTENT, TASKS
from rlhf_tui import cli, engine_client
from rlhf_tui.commands import bench, evaluate, frontier, train
from rlhf_tui.commands.report import figures_table

FAKE = [sys.executable, str(Path(__file__).with_name("cli_with_fake_engine.py"))]
BENCH_ENGINE = Path(__file__).parents[1] / "core" / "engine" / "fake_bench.py"


def command(saves: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*FAKE, "--saves", str(saves), *argv], capture_output=True, text=True, timeout=120, check=False
    )  # fmt: skip


def test_trained_runs_are_evaluated_and_their_frontier_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saves = tmp_path / "saves"
    tiny = ["--backbone", "embedding=4 hidden=4 layers=1"]
    arguments = ["--session", "s", "--steps", "2", "--batch-size", "1", "--reward", "gold"]
    trained = command(saves, "train", "ppo", *arguments, *tiny)
    assert trained.returncode == 0, trained.stderr
    with Session.open(saves / "s", read_only=True) as session:
        assert (session.backbone["hidden"], session.backbone["layers"]) == (4, 1)

    measured = command(saves, "evaluate", "--completions", "8", "--optimality", "--beta", "50", "--json")
    assert measured.returncode == 0, measured.stderr
    sft, ppo = map(json.loads, measured.stdout.splitlines())
    assert (sft["run"], sft["method"], ppo["run"], ppo["method"]) == (1, "sft", 2, "ppo")
    assert sft["notes"] and "began from nothing" in sft["notes"][0]
    assert "gold_reward" in ppo["values"] and ppo["values"]["beta"] == 50.0
    assert "optimality at β 50 by the gold rule" in ppo["notes"][0]

    told = command(saves, "frontier", "--json")
    assert told.returncode == 0, told.stderr
    plane = json.loads(told.stdout)
    assert plane["run"] == 2 and plane["reward"] == "gold" and len(plane["optimal"]) > 10

    for line in (["frontier", "9"], ["evaluate", "1", "9"]):
        with pytest.raises(SystemExit) as end:
            cli.main(["--saves", str(saves), *line])
        printed = capsys.readouterr().err
        assert end.value.code == 1 and printed.count("\n") == 1 and "9" in printed


def test_runs_with_and_without_an_optimality_share_a_table() -> None:
    found = {"gold_reward": 5.614, "gold_reward_error": 0.02, "objective": 5.1, "objective_error": 0.01,
             "best_objective": 5.6, "optimality": 0.781, "optimality_error": 0.013}  # fmt: skip
    rows = [("1 SFT", 9.6, {"gold_reward": 4.9}), ("2 PPO", 143.2, found)]
    assert figures_table(rows).splitlines() == [
        "       gold reward            J  best J   optimality  seconds",
        "1 SFT         4.90            –       –            –       10",
        "2 PPO  5.61 ± 0.02  5.10 ± 0.01    5.60  0.78 ± 0.01      143",
    ]


def test_a_plane_is_two_tables_that_say_what_not_to_trust() -> None:
    plane = Plane(
        run=2, reward="learned", reward_run=3, reward_step=40, reference_reward=4.9, least_effective=30.0,
        completions=81_920,
        optimal=[OptimalPlace(beta=0.5, reward=5.53, kl=0.58, effective_sample_size=1200.0),
                 OptimalPlace(beta=0.1, reward=6.9, kl=6.0, effective_sample_size=4.2)],
        best_of_n=[BestOfNPlace(n=2, reward=5.2, kl=0.19, kl_bound=0.1931)],
    )  # fmt: skip
    assert frontier.plane_text(plane).splitlines() == [
        "the reference of run 2: reward of run 3, step 40 4.90, from 81,920 completions",
        "",
        "best at β  reward of run 3, step 40    KL  effective samples",
        "0.5                            5.53  0.58              1,200",
        "0.1                            6.90  6.00        4 – too few",
        "",
        "best of n  reward of run 3, step 40    KL  KL at most",
        "2                              5.20  0.19        0.19",
    ]


def test_the_bench_is_a_table_with_both_memories(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_client, "ENGINE_COMMAND", [sys.executable, "-P", str(BENCH_ENGINE)])
    assert cli.main(["bench", "--device", "cpu", "--threads", "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    figures = {each["name"]: each for each in told["figures"]}
    assert told["threads"] == 1 and "CPU" in told["device"] and told["torch"]
    assert {"matrix product", "SFT", "sampling", "reward model", "DPO, offline"} < set(figures)
    # An app without torch is far smaller than an engine with it.
    assert 20 < figures["memory of the app"]["rate"] < figures["memory of the engine"]["rate"]


def test_a_backbone_that_cannot_be_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["bench", "--backbone", "transfomer"])
    assert "kind must be one of lstm, transformer, not 'transfomer' (did you mean 'transformer'?)" in (
        capsys.readouterr().err
    )


def test_the_bench_says_which_model_it_measures(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_client, "ENGINE_COMMAND", [sys.executable, "-P", str(BENCH_ENGINE)])
    assert cli.main(["bench", "--device", "cpu", "--threads", "1", "--backbone", "transformer"]) == 0
    told = capsys.readouterr().out
    assert "model     transformer, 235,806 parameters" in told
    assert "a transformer was measured" in told


def test_the_benchs_table_has_shares_where_they_say_something() -> None:
    lines = [
        BenchLine(name="matrix product", rate=83.04, unit="GFLOP/s"),
        BenchLine(name="SFT", rate=43210.9, unit="tokens/s", share=0.7449),
    ]
    assert bench.bench_table(lines).splitlines() == [
        "                  rate      unit  of peak",
        "matrix product      83   GFLOP/s",
        "SFT             43,211  tokens/s      74%",
    ]
    assert [bench.figure(value) for value in (0.01234, 5.678, 99.94, 100.2, 1234567.0)] == [
        "0.0123", "5.68", "99.9", "100", "1,234,567",
    ]  # fmt: skip


def test_an_engine_that_ends_under_the_bench_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_client, "ENGINE_COMMAND", [sys.executable, "-c", "raise SystemExit(3)"])
    with pytest.raises(SystemExit) as end:
        cli.main(["bench"])
    assert end.value.code == 1 and capsys.readouterr().err.count("\n") == 1


def test_every_task_is_listed_with_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tasks"]) == 0
    text = capsys.readouterr().out
    for kind in TASKS.values():
        assert kind.name in text and kind.title in text
        for each in knobs(kind.options):
            assert each.name in text and each.help in text


def folder_for(saves: Path, **given: object) -> Path:
    wanted = {"task": None, "task_options": "", "backbone": "", "session": "s", "seed": 3, "resume": False}
    return train._session_folder(argparse.Namespace(method="sft", saves=str(saves), **{**wanted, **given}))


def test_a_new_session_keeps_its_tasks_options_and_its_backbone(tmp_path: Path) -> None:
    folder = folder_for(tmp_path, task="arithmetic", task_options="digits=2 wrong_share=0.1", backbone="transformer")
    with Session.open(folder) as session:
        assert (session.task, session.seed, session.backbone["kind"]) == ("arithmetic", 3, "transformer")
        kept = session.get_setting(CONTENT)
        assert kept["digits"] == 2 and kept["wrong_share"] == 0.1
    assert folder_for(tmp_path) == folder  # the same name: the same session, as it is
    with pytest.raises(train.CommandError, match="has the task arithmetic; a new session can have words"):
        folder_for(tmp_path, task="words")
    with pytest.raises(train.CommandError, match="--backbone is for new sessions"):
        folder_for(tmp_path, backbone="lstm")


def test_a_task_of_ones_own_files_is_read_into_the_session(tmp_path: Path) -> None:
    file = tmp_path / "poems.txt"
    file.write_text("rose\tred\nviolet\tblue\nsun\tgold\nsea\tgreen\n")
    folder = folder_for(tmp_path, task="custom", task_options=f"demonstrations={file}")
    file.unlink()
    with Session.open(folder) as session:
        assert "violet" in json.dumps(session.get_setting(CONTENT))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("train sft --task arithmetic --task-options digts=2", "did you mean 'digits'?"),
        ("train sft --task arithmetic --task-options digits=9", "digits must be"),
        ("train sft --task custom", "name a file of demonstrations, or of pairs"),
        ("train sft --task custom --task-options demonstrations=/nowhere.txt", "/nowhere.txt"),
        ("train sft --backbone lsm", "did you mean 'lstm'?"),
        ("train sft --backbone hiden=3", "did you mean 'hidden'?"),
        ("evaluate", "there is no session in"),
        ("frontier --session x", "there is no session 'x'"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_writes_nothing(
    line: str, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["--saves", str(tmp_path / "none"), *line.split()])
    printed = capsys.readouterr()
    assert end.value.code == 1 and printed.err.count("\n") == 1 and said in printed.err
    assert not (tmp_path / "none").exists()


def test_the_command_line_draws_as_many_completions_as_the_engine_thinks_right() -> None:
    assert evaluate.PER_PROMPT == {} and frontier.PER_PROMPT == {}
    assert BackboneConfig().kind == "lstm"
