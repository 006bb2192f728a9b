"""Key to repaint while PPO trains at full speed: the real engine, four live charts, 120×40, a real pseudo-terminal.

    python tests/benchmarks/ui_latency.py [--seconds 60] [--headless-seconds 30]

A key is pressed about five times a second at an uneven pace, one that changes something at once (the next pane, a
knob). Latency is from the write of the key to the first byte that comes back after it, less whatever was
already on its way. The trainer's rate with the screen is set beside its rate without one (the same engine, asked over
pipes). Also, from the command that a person types: first frame, Train screen, engine ready. And: pause acknowledged and
in force.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[1] / "rlhf_tui")]

from pseudo_terminal import Terminal, app_command  # noqa: E402

from core.engine.protocol import Event, Metrics, Open, RunState, Start  # noqa: E402
from core.store import Session  # noqa: E402
from rlhf_tui.engine_client import EngineClient  # noqa: E402

DOWN, UP = "\x1b[B", "\x1b[A"
KEYS = ("k", DOWN, DOWN, UP, UP, "v", "v", "g")
"""Pressed in turn: each changes something on the screen wherever it comes, and none leaves the run. An arrow at the end
of a list changes nothing, and would be timed until a chart happens to be drawn."""
SFT_STEPS = 40  # a reference of some sort; its quality does not matter here


async def headless(folder: Path, seconds: float) -> float:
    """Steps a second of PPO without a screen; trains the SFT run that the other half starts from, too."""
    done = asyncio.Event()
    steps: list[float] = []

    def hear(event: Event) -> None:
        if isinstance(event, RunState) and event.method == "sft" and event.state == "done":
            done.set()
        if isinstance(event, Metrics) and event.run == 2:
            steps.append(time.monotonic())

    client = EngineClient(hear, device="cpu", threads=1)
    await client.start()
    await client.request(Open, folder=str(folder), task="words")
    await client.request(Start, method="sft", config={"steps": SFT_STEPS})
    await done.wait()
    await client.request(Start, method="ppo", config={"steps": 100_000}, parent=1)
    while len(steps) < 3:  # warm
        await asyncio.sleep(0.1)
    first = len(steps)
    start = time.monotonic()
    await asyncio.sleep(seconds)
    rate = (len(steps) - first) / (time.monotonic() - start)
    await client.close()
    return rate


def settle(terminal: Terminal, quiet: float = 0.03, timeout: float = 1.0) -> None:
    """Read until nothing has come for a moment, so that the next byte is an answer."""
    end = time.monotonic() + timeout
    while terminal.read(quiet) and time.monotonic() < end:
        pass


def redraw(terminal: Terminal) -> None:
    """Have the whole screen sent. What came while measuring was not played: a terminal in Python wants a core, too."""
    terminal.skip()
    for columns in (100, 120):
        terminal.resize(columns, 40)
        terminal.read(0.5)
    terminal.wait_for("is learning")


def last_step(folder: Path, run: int) -> tuple[int, float]:
    with Session.open(folder, read_only=True) as session:
        table = session.metrics.read(run)
        return (int(table.steps[-1]), float(table.seconds[-1])) if len(table) else (0, 0.0)


def with_screen(folder: Path, seconds: float) -> dict[str, float]:
    began = time.monotonic()
    terminal = Terminal(app_command(folder, scripted=False), 120, 40)
    try:
        terminal.wait_for("Train", "knobs")  # the frame, its panes still empty
        first_frame = time.monotonic() - began
        terminal.wait_for("knobs of")
        filled = time.monotonic() - began
        terminal.wait_for("CPU", timeout=60)
        ready = time.monotonic() - began
        terminal.send("3")
        terminal.read(0.5)
        terminal.send("R")  # another PPO run from the same reference
        terminal.wait_for("is learning", timeout=60)
        terminal.read(5.0)
        before, start = last_step(folder, 3), time.monotonic()
        generator = random.Random(0)
        latencies = []
        while time.monotonic() - start < seconds:
            terminal.read(generator.uniform(0.05, 0.25))
            settle(terminal)
            pressed, key = time.monotonic(), KEYS[len(latencies) % len(KEYS)]
            terminal.send(key)
            terminal.answered(2.0)
            latencies.append((1000 * (time.monotonic() - pressed), key))
        after, elapsed = last_step(folder, 3), time.monotonic() - start
        redraw(terminal)
        pressed = time.monotonic()
        terminal.send(" ")
        terminal.wait_for("pause", timeout=10)  # "pauses at the end of this step", or paused already
        acknowledged = time.monotonic() - pressed
        terminal.wait_for("is paused", timeout=10)
        paused = time.monotonic() - pressed
        terminal.send("q")
        terminal.ended()
    finally:
        terminal.close()
    latencies.sort()
    print("slowest:", ", ".join(f"{key!r} {taken:.0f} ms" for taken, key in latencies[:-9:-1]))
    times = [taken for taken, _ in latencies]
    return {
        "first_frame_s": first_frame, "screen_filled_s": filled, "engine_ready_s": ready, "keys": len(latencies),
        "p50_ms": statistics.median(times), "p99_ms": times[int(0.99 * (len(times) - 1))],
        "max_ms": times[-1], "steps_per_s": (after[0] - before[0]) / elapsed,
        "pause_acknowledged_s": acknowledged, "pause_in_force_s": paused,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--headless-seconds", type=float, default=30.0)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "session"
        Session.create(folder, title="latency").close()
        alone = asyncio.run(headless(folder, options.headless_seconds))
        result = {"headless_steps_per_s": alone, **with_screen(folder, options.seconds)}
    result["lost_share"] = 1 - result["steps_per_s"] / alone if alone else float("nan")
    result["load"] = os.getloadavg()[0]
    print(json.dumps({name: round(value, 3) for name, value in result.items()}, indent=2))


if __name__ == "__main__":
    main()
