"""How long from a key to the next pair, on a real terminal, while the real engine trains.

    python tests/benchmarks/label_latency.py [--labels 200] [--columns 120] [--rows 40] [--idle]

The app runs in a pseudo-terminal on a session of its own; SFT trains in the engine all the while (``--idle``: nothing
does). Pairs come from a file, so that there is something to judge at once. A key counts from the moment it is written
to the terminal until the bytes of the next pair, its prompt and both texts, have arrived here; p50, p99 and the worst
are printed. So the figure has in it: the pseudo-terminal both ways, reading the key, writing the label and fsync,
laying out and encoding the next pair. It has not: what a terminal emulator takes to draw those bytes (nothing plays
them here while the clock runs or between two keys).
"""

import argparse
import random
import re
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "rlhf_tui"))

from pseudo_terminal import Terminal, app_command

from core.store import Session

LIMIT = 0.050  # seconds, p99
PROMPT = re.compile(r"prompt +p([a-j]{5})")
SENT_PROMPT = re.compile(rb"mp([a-j]{5})\x1b")  # the m ends the sequence that sets its style
PLACES = 3  # on the screen that tell which pair it is: the prompt and both texts
KEYS = "2635417"


def pairs_file(folder: Path, count: int) -> Path:
    """So many pairs, each of a prompt of its own, which tells on the screen which pair it is."""
    file = folder / "pairs.jsonl"
    letters = "abcdefghij"
    rows = []
    for number in range(count):
        word = "".join(letters[int(digit)] for digit in f"{number:05d}")
        rows.append(f'{{"prompt": "p{word}", "chosen": "one{word}", "rejected": "two{word}"}}\n')
    file.write_text("".join(rows))
    return file


def session(folder: Path, count: int) -> Path:
    """A session whose Label screen judges the pairs of a file."""
    with Session.create(folder / "s", title="latency") as made:
        file = pairs_file(folder, count + 50)
        made.set_setting("labelling", {"sources": f"file:{file}", "repeats": 0.0})
        # SFT must not end before the last key does.
        screens = {"train": {"method": "sft", "drafts": {"sft": {"steps": 100_000}}}}
        made.set_setting("ui", {"screen": "label", "screens": screens})
    return folder / "s"


def arrived(data: bytes, before: bytes) -> bytes:
    """The word of the pair that is wholly in ``data``, if it is another than before; else b""."""
    new = next((each for each in SENT_PROMPT.findall(data) if each != before), b"")
    return new if new and data.count(new) >= PLACES else b""


def measure(terminal: Terminal, count: int) -> tuple[list[float], list[str]]:
    """Seconds from each of ``count`` keys to the pair after it, and the words of the pairs that were judged."""
    dice = random.Random(0)
    waits, judged = [], []
    word = PROMPT.search(terminal.text)
    assert word is not None
    shown = word[1].encode()
    for number in range(count):
        judged.append(shown.decode())
        data = b""
        began = time.perf_counter()
        terminal.send(KEYS[number % len(KEYS)])
        while not (new := arrived(data, shown)):
            data += terminal.next_bytes(1.0)
            if time.perf_counter() - began > 20:
                raise SystemExit(f"no next pair after key {number + 1}")
        waits.append(time.perf_counter() - began)
        shown = new
        terminal.read(dice.uniform(0.2, 0.6))  # a person looks at the pair
    terminal.skip()
    return waits, judged


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, default=200)
    parser.add_argument("--columns", type=int, default=120)
    parser.add_argument("--rows", type=int, default=40)
    parser.add_argument("--idle", action="store_true", help="train nothing meanwhile")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        saved = session(Path(folder), options.labels)
        terminal = Terminal(app_command(saved, scripted=False), options.columns, options.rows)
        try:
            terminal.wait_for("prompt", "● CPU", timeout=120)
            if not options.idle:
                terminal.send("[")
                terminal.wait_for("knobs of SFT")
                terminal.send(" ")
                terminal.wait_for("is learning", timeout=60)
                terminal.send("]")
                terminal.wait_for("prompt")
                terminal.read(1.0)
            waits, judged = measure(terminal, options.labels)
            waits.sort()
            terminal.send("q")
            terminal.ended(60)
        finally:
            terminal.close()
        with Session.open(saved, read_only=True) as made:
            given = [each.prompt[1:] for each in made.labels.current()]
            assert given == judged, "each key is a label of what was shown"
            runs = made.runs.all()
            assert all(run.steps == 100_000 for run in runs), "it trained until the end"
            steps = [run.step for run in runs]
    p50, p99 = waits[len(waits) // 2], waits[min(len(waits) - 1, int(0.99 * len(waits)))]
    print(f"{len(judged)} labels; trained meanwhile: {steps or 'nothing'} steps")
    print(f"key to next pair: p50 {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms, worst {waits[-1] * 1000:.0f} ms")
    return 0 if p99 <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
