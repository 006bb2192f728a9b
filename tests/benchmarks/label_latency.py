"""How long from a key to the next pair, on a real terminal, while the real engine trains.

    python tests/benchmarks/label_latency.py [--labels 200] [--columns 120] [--rows 40] [--idle]

The app runs in a pseudo-terminal on a session of its own; SFT trains in the engine all the while (``--idle``: nothing
does). Pairs come from a file, so that there is something to judge at once. A key counts from the moment it is written
to the terminal until the terminal has been sent the next pair; p50, p99 and the worst are printed.
"""

import argparse
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
PROMPT = re.compile(r"prompt\s+(\w+)")
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
        made.set_setting("ui", {"screen": "label"})
    return folder / "s"


def shown(terminal: Terminal) -> str:
    found = PROMPT.search(terminal.text)
    return found[1] if found else ""


def measure(terminal: Terminal, count: int) -> list[float]:
    """Seconds from each of ``count`` keys to the pair after it."""
    waits = []
    for number in range(count):
        before = shown(terminal)
        began = time.perf_counter()
        terminal.send(KEYS[number % len(KEYS)])
        while True:
            # Short looks: a long one would wait for more output than the pair.
            terminal.read(0.002)
            if shown(terminal) not in ("", before):
                break
            if time.perf_counter() - began > 20:
                raise SystemExit(f"no next pair after key {number + 1}:\n{terminal.text}")
        waits.append(time.perf_counter() - began)
        terminal.read(0.25)  # a person looks at the pair
    return waits


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
                terminal.send("t")
                terminal.wait_for("trains; you can go on", timeout=60)
            waits = sorted(measure(terminal, options.labels))
            terminal.send("q")
            terminal.ended(60)
        finally:
            terminal.close()
        with Session.open(saved, read_only=True) as made:
            count = made.labels.count()
            steps = [run.step for run in made.runs.all()]
    p50, p99 = waits[len(waits) // 2], waits[min(len(waits) - 1, int(0.99 * len(waits)))]
    print(f"{count} labels; trained meanwhile: {steps or 'nothing'} steps")
    print(f"key to next pair: p50 {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms, worst {waits[-1] * 1000:.0f} ms")
    return 0 if p99 <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
