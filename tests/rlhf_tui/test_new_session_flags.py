"""Data of one's own from the command line: flags, what contradicts itself, and the whole way through a real engine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from test_cli import FAKE, refused

from core.store import Session
from core.tasks.table import CONTENT

SHORT_REPORT = [sys.executable, str(Path(__file__).with_name("cli_with_short_report.py"))]
ROWS = [("hi", "hello", "what"), ("bye", "so long", "go"), ("hey", "hi you", "no"), ("yo", "yo yo", "hm")]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three small files, in the folder in which the command is given."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d.tsv").write_text("".join(f"{prompt}\t{chosen}\n" for prompt, chosen, _ in ROWS))
    (tmp_path / "prompts.txt").write_text("hi\nbye\nhey\nyo\noh\n")
    pairs = [{"prompt": prompt, "chosen": chosen, "rejected": rejected} for prompt, chosen, rejected in ROWS]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(each) + "\n" for each in pairs))
    (tmp_path / "task.toml").write_text('title = "Greetings"\ndemonstrations = "d.tsv"\npairs = "pairs.jsonl"\n')
    with Session.create(tmp_path / "saves" / "old", title="old"):
        pass
    return tmp_path


def command(folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SHORT_REPORT, "--saves", str(folder / "saves"), *line.split()],
        capture_output=True, text=True, timeout=120, check=False, cwd=folder,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ("sft --task words --demonstrations d.tsv", 2, "--demonstrations is for the task custom, not for words"),
        ("rm --task sentences --pairs pairs.jsonl", 2, "--pairs is for the task custom, not for sentences"),
        ("sft --resume --task-file task.toml", 2, "--resume goes on; --task-file is for a new session"),
        ("sft --pairs pairs.jsonl --task-options pairs=pairs.jsonl", 2, "--pairs is given, and pairs= in --task-opt"),
        ("sft --session old --gold x:y", 1, "--gold is for new sessions, and old is there already"),
        ("rm --session old --pairs pairs.jsonl", 1, "already; to learn from other pairs: --pairs file --pairs-file"),
        ("sft --resume --backbone transformer", 1, "--backbone is for new sessions"),
        ("rm --pairs automatc", 2, "pairs must be one of automatic, labels, file, mixed, not 'automatc' (did you mean"),
        ("rm --pairs gone.jsonl", 1, "gone.jsonl: no such file or directory"),
        ("sft --demonstration d.tsv", 2, "there is no option --demonstration (did you mean '--demonstrations'?)"),
        ("sft --prompts prompts.txt", 1, "name a file of demonstrations, or of pairs"),
        ("sft --task-file d.tsv", 1, "d.tsv: not TOML"),
        ("sft --demonstrations d.tsv --gold no_module_9:f", 1, "gold: there is no module no_module_9"),
        ("sft --demonstrations d.tsv --backbone kind=transformer,context=9", 1, "kind must be one of"),
    ],
)
def test_what_does_not_go_together_is_one_line_and_makes_nothing(
    data: Path, line: str, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found, message = refused(capsys, "--saves", str(data / "saves"), "train", *line.split())
    assert (found, [each.name for each in (data / "saves").iterdir() if each.is_dir()]) == (status, ["old"])
    assert said in message


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("bad.txt", b"a\tb\na\t\xff\n", "bad.txt:2: not UTF-8: byte 0xff at position 3"),
        ("bad.jsonl", b'{"prompt": "a", "completion": "b"}\n{"prompt": "a"}\n',
         "bad.jsonl:2: the prompt-completion row lacks 'completion'"),
        ("bad.csv", b"", "bad.csv: the file is empty"),
        ("bad.txt", None, "bad.txt: the file has 100 MB, more than 16 MB"),
        ("bad.txt", "".join(f"a\t{chr(0x4E00 + code)}\n" for code in range(50_000)).encode("utf-8", "replace"),
         "bad.txt:2048: '嗿' is one more than the 2,048 different characters"),
        ("bad.txt", b"a\tb\n" + b"a" * 80 + b"\tb\n",
         "bad.txt:2: prompt and completion have 81 letters, more than the 61 of 'longest'"),
    ],
    ids=["encoding", "missing field", "empty", "100 MB", "50,000 characters", "longer than the context"],
)  # fmt: skip
def test_a_bad_file_is_one_line_with_file_line_and_reason(
    data: Path, name: str, content: bytes | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with (data / name).open("wb") as file:
        if content is None:
            file.truncate(100 * 1024 * 1024)
        else:
            file.write(content)
    status, message = refused(capsys, "--saves", str(data / "saves"), "train", "sft", "--demonstrations", name)
    assert status == 1
    assert message.removeprefix("rlhf-tui: ").startswith(said)
    assert [each.name for each in (data / "saves").iterdir()] == ["old"]


def test_three_small_files_go_all_the_way_in_real_processes_and_are_needed_no_more(data: Path) -> None:
    three = "--demonstrations d.tsv --prompts prompts.txt --pairs pairs.jsonl --seed 5 --backbone hidden=8"
    small = "--set ppo.batch_size=16 --set ppo.minibatch_size=16 --set dpo.batch_size=4 --set dpo.pairs=automatic"
    everything = command(data, f"train all {three} --steps 2 --session mine {small}")
    assert everything.returncode == 0, everything.stderr
    assert "learns from 4 pairs of the task" in everything.stderr
    assert "learned reward" in everything.stdout and "gold" not in everything.stdout
    for name in ("d.tsv", "prompts.txt", "pairs.jsonl"):
        (data / name).unlink()
    # With no gold rule there, PPO goes by the reward model without being told to.
    ppo = command(data, "train ppo --steps 1 --session mine --batch-size 8 --minibatch-size 8 --probe-completions 16")
    assert ppo.returncode == 0, ppo.stderr
    with Session.open(data / "saves" / "mine", read_only=True) as session:
        assert (session.task, session.seed) == ("custom", 5)
        runs = session.runs.all()
        assert [(each.method, each.state, each.step) for each in runs] == [
            ("sft", "done", 2), ("rm", "done", 2), ("ppo", "done", 2), ("dpo", "done", 2), ("ppo", "done", 1),
        ]  # fmt: skip
        assert [each.inputs.get("pair_counts") for each in runs[1:4:2]] == [{"task": 4}, {"task": 4}]
        assert runs[4].config["reward"] == "learned"
        assert session.get_setting(CONTENT)["alphabet"] == " abeghilmnostuwy"


def test_a_gold_reward_where_there_is_no_gold_rule_is_refused_before_anything_trains(data: Path) -> None:
    asked = subprocess.run(
        [*FAKE, "--saves", "saves", "train", "ppo", "--task-file", "task.toml", "--session", "t", "--reward", "gold"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert asked.returncode == 1
    assert asked.stderr.splitlines()[-1].endswith("leave --reward out, or set it to learned")
    with Session.open(data / "saves" / "t", read_only=True) as session:
        assert session.runs.all() == []


def test_a_toml_file_and_text_with_blanks_describe_a_session(data: Path) -> None:
    from rlhf_tui import cli
    from rlhf_tui.commands import new_session

    args = cli.build_parser().parse_args(
        ["train", "rm", "--task-file", "task.toml", "--session", "t", "--task-options", "guideline='Which is kinder?'"]
    )
    new_session.check_words(args)
    folder = new_session.begin(args, data / "saves")
    with Session.open(folder, read_only=True) as session:
        content = session.get_setting(CONTENT)
        assert (content["title"], content["guideline"]) == ("Greetings", "Which is kinder?")
        assert len(content["pairs"]) == 4


def test_progress_stands_on_one_line_of_a_terminal_and_nowhere_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rlhf_tui.commands.new_session import Reading

    Reading()("reading a file")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    reading = Reading()
    reading("d.txt: 2,000 rows\x1b[2J")
    reading("d.txt: 4,000 rows")
    reading.close()
    told = capsys.readouterr().err.split("\r\x1b[K")
    assert [each for each in told if "rows" in each] == [told[1], "d.txt: 4,000 rows"]
    assert told[-1] == "" and "\n" not in "".join(told) and "\x1b" not in told[1]
