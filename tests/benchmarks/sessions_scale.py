"""A thousand sessions, and one session with 100 runs × 10,000 steps × 15 metrics: how long they take, how much memory.

    python tests/benchmarks/sessions_scale.py [--sessions 1000] [--runs 100] [--steps 10000]

Measures in a process of its own: the list, the Sessions screen from its key to its rows, opening the large session,
and reward and KL of every run of it. Exit status 1 where the screen takes over 0.5 s, loading over 2 s or memory over
200 MB.
"""

import argparse
import asyncio
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "rlhf_tui")]

from core.store import Session  # noqa: E402
from core.store.locations import list_sessions  # noqa: E402

METRICS = 15
DRAWN = ("gold_reward", "objective/kl")  # by the first charts, and by the frontier for its paths


def fill(saves: Path, sessions: int, runs: int, steps: int) -> None:
    first = saves / "s0"
    with Session.create(first, title="session 0") as session:
        session.runs.add("sft", config={"steps": 10})
    for number in range(1, sessions):
        shutil.copytree(first, saves / f"s{number}")
    values = np.random.default_rng(0).random((steps, METRICS))
    with Session.create(saves / "large", title="large") as session:
        names = ["gold_reward", "learned_reward", "objective/kl", *(f"metric {at}" for at in range(METRICS - 3))]
        rows = [
            (step + 1, 512 * step, 0.5 * step, dict(zip(names, values[step].tolist(), strict=True)))
            for step in range(steps)
        ]
        for number in range(runs):
            run = session.runs.add(
                "ppo", config={"steps": steps}, parent=number or None, parent_step=5 if number else None
            )
            session.metrics.append(run.id, rows)
            session.metrics.pack(run.id)  # as the engine does when a run ends
            session.runs.update(run.id, state="done", step=steps)


class Watch:
    """Seconds on the clock, and of processor time: on a busy machine the second says what the first would be."""

    def __init__(self) -> None:
        self.wall, self.cpu = time.monotonic(), time.process_time()

    def read(self, name: str) -> dict[str, float]:
        return {f"{name}_s": time.monotonic() - self.wall, f"{name}_cpu_s": time.process_time() - self.cpu}


async def screens(saves: Path) -> dict[str, float]:
    from app_helpers import DirectApp

    from rlhf_tui.history import load_run
    from rlhf_tui.widgets.line_list import LineList

    watch = Watch()
    with Session.open(saves / "large") as session:
        app = DirectApp(session, screen="train")
        async with app.run_test(size=(120, 40)) as pilot:
            await pilot.pause()
            result = watch.read("large_session_loaded")  # with the charts of its newest run
            watch = Watch()
            app.show_screen("sessions")
            while not app.screen.query("#list") or len(app.screen.query_one("#list", LineList).rows) < 1001:
                await asyncio.sleep(0.005)
            result |= watch.read("sessions_screen")
            await pilot.pause(0.5)
            result["memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            watch = Watch()
            for run in app.state.runs.values():
                load_run(session, run)
                for name in DRAWN:
                    assert len(run.series.line(name, "step", 0.6)[0]) == run.steps
            result |= watch.read("every_run_drawn")
            result["memory_with_every_run_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return result


def measure(saves: Path) -> dict[str, float]:
    watch = Watch()
    list_sessions(saves)  # which remembers what it read
    cold = watch.read("list_cold")
    return {**cold, **asyncio.run(screens(saves)), "load": os.getloadavg()[0]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        result = measure(options.measure)
        print(json.dumps({name: round(value, 3) for name, value in result.items()}, indent=2))
        late = result["sessions_screen_s"] > 0.5 or result["large_session_loaded_s"] > 2.0
        return int(late or result["memory_with_every_run_mb"] > 200)
    with tempfile.TemporaryDirectory() as place:
        saves = Path(place)
        fill(saves, options.sessions, options.runs, options.steps)
        return subprocess.run([sys.executable, __file__, "--measure", place], check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
