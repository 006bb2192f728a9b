"""The command line: usage by itself, and whole commands over a real engine process."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from core.config import knobs
from core.methods.table import METHODS
from core.store import Session
from rlhf_tui import cli

FAKE = [sys.executable, str(Path(__file__).with_name("cli_with_fake_engine.py"))]


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    """Exit status and the one line on stderr of a command that must not work."""
    with pytest.raises(SystemExit) as end:
        sys.exit(cli.main(argv))
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1 and printed.err.startswith("rlhf-tui: ")
    return int(str(end.value.code)), printed.err.strip()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("trian", "'trian' is no command (did you mean 'train'?)"),
        ("train sftt", "'sftt' is no method (did you mean 'sft'?)"),
        ("train", "METHOD"),
        ("train ppo --lerning-rate 1", "there is no option --lerning-rate (did you mean '--learning-rate'?)"),
        ("train ppo --beta -1", "beta must be ≥ 0, not -1"),
        ("train ppo --beta", "--beta: expected one argument"),
        ("train ppo --steps 0", "steps must be ≥ 1"),
        ("train ppo --steps many", "steps must be a whole number"),
        ("train ppo --critic both", "critic must be one of"),
        ("train ppo --config beta=x", "beta must be a number"),
        ("train ppo --config bteta=1", "no knob is called 'bteta' (did you mean 'beta'?)"),
        ("train sft --preset quik", "'quik' is no preset (did you mean 'quick'?)"),
        ("train sft extra", "unexpected argument 'extra'"),
        ("train all --set ppo.learning_rat=1", "did you mean 'learning_rate'?"),
        ("train all --set pppo.steps=1", "no method is called 'pppo' (did you mean 'ppo'?)"),
        ("train all --set ppo.steps", "expected METHOD.KNOB=VALUE"),
        ("train all --set ppo.beta=-1", "beta must be ≥ 0"),
        ("train all --steps 0", "must be from 1 to"),
        ("sample --count 0", "must be from 1 to 512, not 0"),
        ("sample --temperature 0", "must be > 0"),
        ("sessions lst", "'lst' is no action (did you mean 'list'?)"),
    ],
)
def test_wrong_usage_is_one_line_that_names_the_nearest_word(
    line: str, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status, message = refused(capsys, "--saves", str(tmp_path / "none"), *line.split())
    assert status == 2
    assert said in message
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("sample", "there is no session in"),
        ("sample --session x", "there is no session 'x'"),
        ("open x", "there is no session 'x'"),
        ("sessions show x", "there is no session 'x'"),
        ("sessions restore x", "there is no 'x' in the trash"),
        ("train ppo --resume", "to go on with"),
        ("train rm --pairs file --pairs-file /nowhere.jsonl", "there is no file /nowhere.jsonl"),
        ("train sft --task wrods", "no task is called 'wrods' (did you mean 'words'?)"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_writes_nothing(
    line: str, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status, message = refused(capsys, "--saves", str(tmp_path / "none"), *line.split())
    assert status == 1
    assert said in message
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("method", METHODS)
def test_the_help_of_a_method_has_every_knob_with_its_range(method: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["train", method, "--help"])
    assert end.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for knob in knobs(METHODS[method].config):
        assert f"--{knob.name.replace('_', '-')}" in text
        assert knob.range.split(" | ")[0] in text


@pytest.mark.parametrize("argument", ["--version", "--help"])
def test_version_and_help_import_neither_torch_nor_textual(argument: str) -> None:
    check = (
        "import sys\nfrom rlhf_tui import cli\n"
        f"try: cli.main([{argument!r}])\nexcept SystemExit as end: assert end.code == 0\n"
        "print(sorted({'torch', 'textual', 'plotext', 'safetensors'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def command(saves: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*FAKE, "--saves", str(saves), *argv], capture_output=True, text=True, timeout=120, check=False
    )  # fmt: skip


def test_a_run_is_interrupted_and_gone_on_with(tmp_path: Path) -> None:
    saves = tmp_path / "saves"
    arguments = ["train", "sft", "--session", "mine", "--steps", "120", "--batch-size", "20", "--seed", "5"]
    running = subprocess.Popen(
        [*FAKE, "--saves", str(saves), *arguments, "--jsonl"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert running.stdout is not None and running.stderr is not None
    events = []
    for line in running.stdout:
        events.append(json.loads(line))
        if events[-1]["type"] == "metrics":
            break
    assert [each["type"] for each in events[:2]] == ["ready", "opened"]
    os.kill(running.pid, signal.SIGINT)
    events += [json.loads(line) for line in running.stdout]
    assert running.wait(20) == 130
    assert "paused" in {each.get("state") for each in events}
    with Session.open(saves / "mine") as session:
        (run,) = session.runs.all()
        assert (run.state, run.seed) == ("paused", 5)
        stopped_at = run.step
    assert 0 < stopped_at < 120

    going_on = command(saves, "train", "sft", "--session", "mine", "--resume")
    assert going_on.returncode == 0, going_on.stderr
    assert f"going on from step {stopped_at}" in going_on.stderr
    with Session.open(saves / "mine") as session:
        assert session.runs.get(1).state == "done"
        assert session.metrics.read(1).steps.tolist() == list(range(1, 121))


def test_a_method_trains_what_it_needs_first_and_says_so_and_the_run_can_write(tmp_path: Path) -> None:
    saves = tmp_path / "saves"
    tuned = command(saves, "train", "ppo", "--session", "mine", "--steps", "5", "--batch-size", "1", "--reward", "gold")
    assert tuned.returncode == 0, tuned.stderr
    assert "PPO needs SFT first: training it" in tuned.stderr
    assert tuned.stderr.index("needs SFT") < tuned.stderr.index("PPO  ")
    assert "PPO" in tuned.stdout and "gold reward" in tuned.stdout and "prompt" in tuned.stdout
    with Session.open(saves / "mine") as session:
        (sft, ppo) = session.runs.all()
        assert (sft.method, sft.parent, sft.state) == ("sft", None, "done")
        assert (ppo.method, ppo.parent, ppo.config["steps"]) == ("ppo", sft.id, 5)

    written = command(saves, "sample", "--session", "mine", "--jsonl", "--count", "2", "hello", "wörd")
    assert written.returncode == 0, written.stderr
    assert [json.loads(line)["prompt"] for line in written.stdout.splitlines()] == ["hello", "hello", "wörd", "wörd"]
    assert "the alphabet lacks ö" in written.stderr


def test_a_failed_run_and_a_missing_device_are_one_line_each(tmp_path: Path) -> None:
    saves = tmp_path / "saves"
    failed = command(saves, "train", "sft", "--steps", "9", "--batch-size", "1", "--max-grad-norm", "666")
    assert failed.returncode == 1
    assert failed.stderr.splitlines()[-1] == "rlhf-tui: stopped at step 5: the loss is NaN"
    missing = command(saves, "train", "sft", "--device", "cuda:7")
    assert missing.returncode == 1
    assert missing.stderr.count("\n") == 1 and "cuda:7 is not available" in missing.stderr


def test_an_engine_killed_under_the_command_is_said_and_can_be_gone_on_with(tmp_path: Path) -> None:
    saves = tmp_path / "saves"
    killed = command(saves, "train", "sft", "--session", "s", "--steps", "50", "--max-grad-norm", "668")
    assert killed.returncode == 1
    last = killed.stderr.splitlines()[-1]
    assert "ended by SIGKILL" in last and "--resume goes on" in last


def test_sessions_are_listed_renamed_copied_deleted_and_restored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saves = ["--saves", str(tmp_path)]
    with Session.create(tmp_path / "first", title="The first \x1b[31m one") as session:
        run = session.runs.add("sft", "SFT", METHODS["sft"].config(steps=9).to_dict(), seed=1)
        session.runs.add("ppo", "PPO", METHODS["ppo"].config(beta=0.5).to_dict(), seed=1, parent=run.id, parent_step=9)
    assert cli.main([*saves, "sessions"]) == 0
    listed = capsys.readouterr().out
    assert "first" in listed and "\x1b" not in listed
    assert cli.main([*saves, "sessions", "show", "first"]) == 0
    tree = capsys.readouterr().out.splitlines()
    assert "--config 'steps=9'" in tree[0]
    assert tree[1].startswith("  2  PPO (ppo from step 9)") and "--config 'beta=0.5'" in tree[1]
    assert cli.main([*saves, "sessions", "show", "first", "--commands"]) == 0
    assert "rlhf-tui train ppo --session first --parent 1 --parent-step 9 --seed 1" in capsys.readouterr().out
    assert cli.main([*saves, "sessions", "export", "first", str(tmp_path / "first.zip")]) == 0
    capsys.readouterr()
    assert cli.main([*saves, "sessions", "import", str(tmp_path / "first.zip")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'first-2'}\n"
    assert cli.main([*saves, "sessions", "delete", "first-2"]) == 0
    assert cli.main([*saves, "sessions", "duplicate", "first", "--title", "second"]) == 0
    assert cli.main([*saves, "sessions", "rename", "second", "third"]) == 0
    assert cli.main([*saves, "sessions", "delete", "third"]) == 0
    assert not (tmp_path / "third").exists()
    assert cli.main([*saves, "sessions", "restore", "third"]) == 0
    assert (tmp_path / "third" / "session.db").exists()


@pytest.mark.long
def test_an_empty_prompt_is_refused(tmp_path: Path) -> None:
    saves = tmp_path / "saves"
    assert command(saves, "train", "sft", "--session", "mine", "--steps", "1").returncode == 0
    refused = command(saves, "sample", "--session", "mine", "")
    assert refused.returncode == 1 and refused.stderr.splitlines()[-1].startswith("rlhf-tui: the prompt is empty")


@pytest.mark.long
def test_the_doctor_names_device_and_versions(tmp_path: Path) -> None:
    found = command(tmp_path / "saves", "doctor")
    assert found.returncode == 0, found.stdout + found.stderr
    for word in ("python", "torch", "textual", "device", "threads", "terminal", "sessions"):
        assert word in found.stdout


@pytest.mark.long
def test_the_whole_pipeline_in_a_few_steps(tmp_path: Path) -> None:
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "rlhf_tui.cli", "train", "all", "--preset", "quick", "--steps", "4", "--seed", "0",
         "--set", "rm.pair_count=100", "--saves", str(tmp_path / "saves")],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = [line.split()[0] for line in done.stdout.splitlines() if line.strip()]
    assert {"SFT", "PPO", "DPO"} <= set(rows)
    assert "learned reward" in done.stdout and "distinct-2" in done.stdout and "KL" in done.stdout
    assert time.monotonic() - began < 300
