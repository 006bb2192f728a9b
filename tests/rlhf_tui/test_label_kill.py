"""kill −9 while labels are given on a real terminal: one whose next pair was seen is on disk, once, as it was given."""

import os
import random
import re
import signal
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pseudo_terminal import Terminal, app_command

from core.preferences.labels import KEYS, Answer
from core.store import Session

Given = tuple[str, str, str, Answer]  # prompt, left, right, answer
PROMPT = re.compile(r"prompt +(p[a-j]{5})")
TEXTS = re.compile(r"│ ((?:one|two)[a-j]{5}) +││ ((?:one|two)[a-j]{5}) ")
ANSWERS = "1234567bs"


@dataclass
class Storm:
    """What was seen of the labels in one life of the app: ``proven`` had their next pair shown, ``open`` did not."""

    dice: random.Random
    proven: list[Given] = field(default_factory=list)
    open: list[Given] = field(default_factory=list)

    def strike(self, folder: Path) -> None:
        """Label until the app is killed at a random moment."""
        terminal = Terminal(app_command(folder), 100, 30)
        dead = threading.Event()

        def kill() -> None:
            os.kill(terminal.pid, signal.SIGKILL)
            dead.set()

        try:
            while seen(terminal) is None:
                terminal.read(0.02)
            timer = threading.Timer(self.dice.uniform(0.0, 2.0), kill)
            timer.start()
            while not dead.is_set():
                self.label(terminal, dead)
            timer.join()
        finally:
            terminal.close()

    def label(self, terminal: Terminal, dead: threading.Event) -> None:
        shown = seen(terminal)
        assert shown is not None
        key = self.dice.choice(ANSWERS)
        given = (*shown, KEYS[key])
        try:
            terminal.send(key)
        except OSError:
            return  # killed between two keys
        while not dead.is_set() and seen(terminal) in (None, shown):
            terminal.read(0.01)
        terminal.read(0.05 if dead.is_set() else 0.0)  # what was on its way to the screen counts as shown
        (self.proven if seen(terminal) not in (None, shown) else self.open).append(given)


def seen(terminal: Terminal) -> tuple[str, str, str] | None:
    """The pair on the screen, if it is wholly there."""
    prompt, texts = PROMPT.search(terminal.text), TEXTS.search(terminal.text)
    if prompt is None or texts is None or not prompt[1][1:] == texts[1][3:] == texts[2][3:]:
        return None
    return prompt[1], texts[1], texts[2]


def session(folder: Path, pairs: int) -> Path:
    rows = []
    for number in range(pairs):
        word = "".join("abcdefghij"[int(digit)] for digit in f"{number:05d}")
        rows.append(f'{{"prompt": "p{word}", "chosen": "one{word}", "rejected": "two{word}"}}\n')
    file = folder / "pairs.jsonl"
    file.write_text("".join(rows))
    with Session.create(folder / "s") as made:
        made.set_setting("labelling", {"sources": f"file:{file}", "repeats": 0.0})
        made.set_setting("ui", {"screen": "label"})
    return folder / "s"


def strike_often(folder: Path, kills: int, pairs: int) -> None:
    saved = session(folder, pairs)
    dice = random.Random(20)
    given: list[Given] = []  # all that must be on disk, in order
    proven = 0
    for number in range(kills):
        storm = Storm(dice)
        storm.strike(saved)
        with Session.open(saved, read_only=True) as opened:
            stored = [
                (each.prompt, each.left.text, each.right.text, each.answer)
                for each in opened.labels.current() if each.right is not None
            ]  # fmt: skip
        proven += len(storm.proven)
        given += storm.proven
        assert len(storm.open) <= 1
        # The last one may have reached the disk before the kill, or not: then its pair is shown again.
        if len(stored) > len(given):
            given += storm.open
        assert stored == given, f"after kill {number + 1}"
        assert len({each[0] for each in stored}) == len(stored), "no pair is judged twice"
    assert proven >= kills
    assert {side for each in given for side in (each[1][:3] + "|" + each[2][:3],)} == {"one|two", "two|one"}


def test_no_label_is_lost_or_doubled_by_two_kills(tmp_path: Path) -> None:
    strike_often(tmp_path, 2, 400)


@pytest.mark.long
def test_no_label_is_lost_or_doubled_by_two_hundred_kills(tmp_path: Path) -> None:
    began = time.monotonic()
    strike_often(tmp_path, 200, 6000)
    print(f"{time.monotonic() - began:.0f} s")
