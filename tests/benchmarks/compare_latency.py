"""How long Compare waits for 2 × 8 samples while PPO trains at full speed: the real engine, asked over pipes.

    python tests/benchmarks/compare_latency.py [--asks 60] [--limit 300]

Each ask names another snapshot or seed, as scrubbing does. The same question asked again must give the same texts. The
engine never idles here, so the share of a core that it got says how much longer all took than on a quiet machine;
exit status 1 when the median, less that, is above the limit.
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

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from core.engine.protocol import Event, Metrics, Open, RunState, Sample, Samples, Start
from core.store import Session
from core.tasks.table import load_task
from rlhf_tui.comparing import Question, Sampling, Side, snapshot_steps
from rlhf_tui.engine_client import EngineClient


def cpu_seconds(process: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(folder: Path, asks: int) -> dict[str, float]:
    done, trained = asyncio.Event(), asyncio.Event()

    def hear(event: Event) -> None:
        if isinstance(event, RunState) and event.run == 1 and event.state == "done":
            done.set()
        if isinstance(event, Metrics) and event.run == 2 and event.step >= 6:
            trained.set()

    client = EngineClient(hear, device="cpu", threads=1)
    await client.start()
    await client.request(Open, folder=str(folder), task="words")
    await client.request(Start, method="sft", config={"steps": 30})
    await done.wait()
    await client.request(Start, method="ppo", config={"steps": 60}, parent=1)
    await trained.wait()
    task = load_task("words", 42)
    with Session.open(folder, read_only=True) as session:
        kept = [*snapshot_steps(session, 2), None]
    dice = random.Random(0)
    waits, texts = [], {}
    assert client.pid is not None
    start, used = time.monotonic(), cpu_seconds(client.pid)
    for _ in range(asks):
        await asyncio.sleep(dice.uniform(0.0, 0.3))
        question = Question(Side(1), Side(2, dice.choice(kept)), sampling=Sampling(seed=dice.randrange(3)))
        began = time.monotonic()
        answer = await client.request(Sample, **question.fields(task))
        waits.append(1000 * (time.monotonic() - began))
        assert isinstance(answer, Samples) and len(answer.samples) == len(answer.reference) == 8
        if question.right.step is not None:
            found = [each.text for each in (*answer.reference, *answer.samples)]
            assert texts.setdefault(question, found) == found, "the same question gave other texts"
    share = (cpu_seconds(client.pid) - used) / (time.monotonic() - start)
    await client.close()
    waits.sort()
    return {
        "asks": asks, "p50_ms": statistics.median(waits), "p90_ms": waits[int(0.9 * (asks - 1))], "max_ms": waits[-1],
        "share_of_a_core": share, "p50_quiet_ms": share * statistics.median(waits),
        "p90_quiet_ms": share * waits[int(0.9 * (asks - 1))],
        "asked_again": asks - len(texts), "load": os.getloadavg()[0],
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--asks", type=int, default=60)
    parser.add_argument("--limit", type=float, default=300.0, help="milliseconds for the median")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as place:
        result = asyncio.run(measure(Path(place) / "session", options.asks))
    print(json.dumps({name: round(value, 2) for name, value in result.items()}, indent=2))
    return int(result["p50_quiet_ms"] > options.limit)


if __name__ == "__main__":
    raise SystemExit(main())
