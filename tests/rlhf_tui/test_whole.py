"""The whole of it as a person has it: keys into a real pseudo-terminal, the real engine behind the app."""

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pseudo_terminal import Terminal, app_command
from test_terminal import children_of, gone

from core.config import knobs
from core.methods.table import METHODS
from core.store import Session
from rlhf_tui.screens.new_session import form_of

DOWN = "\x1b[B"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Session.create(tmp_path / "s", title="first steps").close()
    return tmp_path / "s"


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    made: list[Terminal] = []
    yield made
    for terminal in made:
        terminal.close()


def opened(terminals: list[Terminal], folder: Path) -> Terminal:
    terminal = Terminal(app_command(folder, "--threads", "1", scripted=False))
    terminals.append(terminal)
    terminal.wait_for("● CPU", timeout=60)
    return terminal


def type_knobs(terminal: Terminal, method: str, values: dict[str, int]) -> None:
    """Go to each knob in the list, and type its value."""
    names = [knob.name for knob in knobs(METHODS[method].config)]
    for name, value in values.items():
        terminal.send("k\x1b[H" + DOWN * names.index(name))
        terminal.read(0.1)
        terminal.send("\r")
        terminal.wait_for("Enter sets")
        terminal.read(0.3)  # the focus follows what is shown
        terminal.send(f"{value}\r")
        terminal.wait_for(f" {value}*")


def train(terminal: Terminal, method: str, **values: int) -> None:
    terminal.send(f"{list(METHODS).index(method) + 1}k")
    terminal.wait_for(f"knobs of {METHODS[method].title}")
    type_knobs(terminal, method, values)
    terminal.send(" ")
    terminal.wait_for("is done", timeout=60)


@pytest.mark.long
def test_a_person_trains_sft_a_reward_model_and_ppo_and_finds_them_again(
    terminals: list[Terminal], folder: Path
) -> None:
    terminal = opened(terminals, folder)
    engine = children_of(terminal.pid)
    train(terminal, "sft", steps=3)
    terminal.wait_for("SFT #1 is done")
    train(terminal, "rm", steps=3, pair_count=40)
    terminal.wait_for("Reward model #2 is done")
    train(terminal, "ppo", steps=2, batch_size=32)
    terminal.wait_for("PPO #3 is done", "2/2 steps")
    terminal.send("q")
    assert terminal.ended() == 0
    assert gone(engine)
    with Session.open(folder) as session:
        assert [(run.method, run.state, run.step, run.parent) for run in session.runs.all()] == [
            ("sft", "done", 3, None), ("rm", "done", 3, 1), ("ppo", "done", 2, 1),
        ]  # fmt: skip
        assert session.metrics.read(3).steps.tolist() == [1, 2]

    again = opened(terminals, folder)
    again.wait_for("knobs of PPO", "PPO #3 is done", "2/2 steps")  # as it was left
    strip = again.text.splitlines()[1]
    assert all(f"{method} ✓" in strip for method in ("SFT", "Reward model", "PPO"))
    again.send("1")
    again.wait_for("SFT #1 is done", "3/3 steps")
    again.send("q")
    assert again.ended() == 0


@pytest.mark.long
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_a_person_makes_a_session_of_three_files_and_trains_on_them(
    terminals: list[Terminal], folder: Path, size: tuple[int, int]
) -> None:
    data = folder.parent / "data"
    data.mkdir()
    rows = [
        ("春天", "花开了", "风大"),
        ("夏天", "很凉快", "太热"),
        ("秋天", "果子熟了", "叶子掉"),
        ("冬天", "看雪", "冷"),
    ]
    (data / "d.tsv").write_text("".join(f"{prompt}\t{chosen}\n" for prompt, chosen, _ in rows))
    (data / "p.txt").write_text("".join(f"{prompt}\n" for prompt, _, _ in rows))
    pairs = [{"prompt": prompt, "chosen": chosen, "rejected": rejected} for prompt, chosen, rejected in rows]
    (data / "pairs.jsonl").write_text("".join(json.dumps(each) + "\n" for each in pairs))

    terminal = Terminal(app_command(folder, "--threads", "1", scripted=False), *size)
    terminals.append(terminal)
    terminal.wait_for("Press space", timeout=60)
    terminal.send("[")
    terminal.wait_for("n New")
    terminal.send("n")
    terminal.wait_for("knobs of Word chain")
    terminal.send(f"{DOWN}-")
    terminal.wait_for("knobs of Your own data", "name a file of demonstrations")
    fields = [each.name for each in knobs(form_of("custom"))]
    files = [("demonstrations", "d.tsv"), ("prompts", "p.txt"), ("pairs", "gone.jsonl"), ("pairs", "pairs.jsonl")]
    for name, file in files:
        terminal.send("\x1b[H" + DOWN * fields.index(name))
        terminal.read(0.2)
        terminal.send("\r")
        terminal.wait_for("Enter sets")
        terminal.read(0.3)
        terminal.send(f"{data / file}\r")
        terminal.wait_for("no such file" if file == "gone.jsonl" else f"{file}*")
    terminal.wait_for("4 pairs")
    terminal.send("c")
    terminal.wait_for("new session · custom", "Press space")
    shutil.rmtree(data)

    train(terminal, "sft", steps=3)
    train(terminal, "rm", steps=3)
    terminal.send("4k")
    terminal.wait_for("knobs of DPO")
    terminal.send("\x1b[H" + DOWN * [each.name for each in knobs(METHODS["dpo"].config)].index("pairs"))
    terminal.read(0.3)
    terminal.send("\r")  # online becomes automatic: the task's own
    terminal.wait_for("automatic*")
    train(terminal, "dpo", steps=2)
    train(terminal, "ppo", steps=2, batch_size=32)
    terminal.send("q")
    assert terminal.ended() == 0
    with Session.open(folder.parent / "new-session") as session:
        runs = session.runs.all()
        assert [(run.method, run.state, run.step) for run in runs] == [
            ("sft", "done", 3), ("rm", "done", 3), ("dpo", "done", 2), ("ppo", "done", 2),
        ]  # fmt: skip
        assert runs[2].inputs["pair_counts"] == {"task": 4}
        assert runs[3].config["reward"] == "learned"


@pytest.mark.long
def test_half_a_minute_in_the_background_loses_no_step(terminals: list[Terminal], folder: Path) -> None:
    terminal = opened(terminals, folder)
    terminal.send(" ")
    terminal.wait_for("SFT #1 is learning", timeout=30)
    terminal.read(3.0)
    engine = children_of(terminal.pid)
    terminal.send("\x1a")
    end = time.monotonic() + 10
    while _state_of(terminal.pid) != "T" and time.monotonic() < end:
        terminal.read(0.05)
    assert b"\x1b[?1049l" in terminal.bytes[-500:]  # the shell's own screen again
    with Session.open(folder, read_only=True) as session:
        before = session.runs.get(1).step
    quiet = terminal.read(30.0)
    assert quiet == b"" and all(Path(f"/proc/{pid}").exists() for pid in engine)
    with Session.open(folder, read_only=True) as session:
        after = session.runs.get(1).step
    assert after >= before + 30  # it trained on: more than a step a second
    terminal.screen.reset()
    os.kill(terminal.pid, signal.SIGCONT)  # as fg does
    terminal.wait_for("Train", "SFT #1 is", "knobs of SFT", "loss", timeout=10)
    terminal.send("x")
    terminal.wait_for("SFT #1 is stopped", timeout=20)
    assert f"{after}/500" not in terminal.text.splitlines()[1]  # it tells the newest step, not that of the pause
    terminal.send("q")
    assert terminal.ended() == 0
    assert gone(engine)
    with Session.open(folder) as session:
        steps = session.metrics.read(1).steps.tolist()
        assert steps == list(range(1, session.runs.get(1).step + 1))


def _state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
