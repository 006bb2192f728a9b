"""``rlhf-tui bench``: how fast this machine trains and samples, as a table to paste."""

import argparse
import asyncio
import dataclasses
import json
import platform
import subprocess
import sys
from typing import Any

from core.engine.protocol import Bench, BenchLine, Event, Ready
from core.models.config import BACKBONE_TEXT, BackboneConfig, parse_backbone
from core.tasks.table import load_task
from rlhf_tui.commands.arguments import CommandError, Parser, add_shared
from rlhf_tui.commands.report import aligned
from rlhf_tui.commands.version import installed, version_line
from rlhf_tui.engine_client import EngineClient, EngineError

APP_MEMORY = """
import pathlib, re, resource, sys, rlhf_tui.app
status = pathlib.Path("/proc/self/status")  # ru_maxrss would begin with what this process was forked from
peak = re.search(r"VmHWM:\\s+(\\d+) kB", status.read_text()) if status.exists() else None
unit = 1 if sys.platform == "darwin" else 1024
print(1024 * int(peak[1]) if peak else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)
"""
CLOSING = 0.5  # seconds that an interrupted engine gets: a figure under way is not worth waiting for


def configure(commands: Any) -> None:
    about = "measure how fast this machine trains and samples"
    parser: Parser = commands.add_parser(
        "bench", help=about,
        description="Rates are of whole steps: 256 completions (64 pairs) of 20 letters. "
        "Shares are of what the same machine reaches in a bare matrix product, by the arithmetic of the model alone.",
    )  # fmt: skip
    add_shared(parser)
    parser.add_argument(
        "--backbone", metavar="TEXT", default="", help=f"the model, by default that of a session: {BACKBONE_TEXT}"
    )
    parser.add_argument("--growth", action="store_true", help="also how cost grows with size (minutes)")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run, parser=parser)


def run(args: argparse.Namespace) -> int:
    """Measure and print. Raises CommandError, ConfigError."""
    backbone = parse_backbone(args.backbone)
    ready, lines = asyncio.run(_measure(args, backbone))
    lines.append(BenchLine(name="memory of the app", rate=app_memory() / 1e6, unit="MB"))
    versions = {"rlhf-tui": version_line(), "python": platform.python_version(), "torch": ready.torch,
                "textual": installed("textual"), "platform": platform.platform()}  # fmt: skip
    if args.json:
        figures = [{name: value for name, value in dataclasses.asdict(each).items() if name != "id"} for each in lines]
        print(json.dumps({"device": ready.device_line, "threads": ready.threads, **versions, "figures": figures}))
        return 0
    print(f"device    {ready.device_line}")
    print(f"model     {backbone.kind}, {backbone.parameter_count(len(load_task('words', 0).tokenizer)):,} parameters")
    print("versions  " + ", ".join(f"{name} {value}" for name, value in versions.items() if name != "rlhf-tui"))
    print()
    print(bench_table(lines), end="")
    return 0


async def _measure(args: argparse.Namespace, backbone: BackboneConfig) -> tuple[Ready, list[BenchLine]]:
    lines: list[BenchLine] = []

    def hear(event: Event) -> None:
        if isinstance(event, BenchLine):
            lines.append(event)
            if sys.stderr.isatty():
                print(
                    f"\x1b[2K\r{event.name}: {figure(event.rate)} {event.unit} …", end="", file=sys.stderr, flush=True
                )

    client = EngineClient(hear, device=args.device, threads=args.threads)
    done = False
    try:
        ready = await client.start()
        await client.request(Bench, growth=args.growth, backbone=backbone.to_dict())
        done = True
    except EngineError as error:
        raise CommandError(str(error)) from error
    finally:
        if sys.stderr.isatty():
            print("\x1b[2K\r", end="", file=sys.stderr, flush=True)
        await client.close(**({} if done else {"timeout": CLOSING}))
    return ready, lines


def app_memory() -> float:
    """The most memory, in bytes, that a process needs which loads the app. Raises CommandError."""
    done = subprocess.run([sys.executable, "-c", APP_MEMORY], capture_output=True, text=True, check=False)
    if done.returncode:
        raise CommandError(f"the app's memory cannot be measured: {done.stderr.strip().splitlines()[-1]}")
    return float(done.stdout)


def bench_table(lines: list[BenchLine]) -> str:
    """One line a figure, with its share of the matrix product's peak."""
    rows = [["", "rate", "unit", "of peak"]]
    rows += [
        [each.name, figure(each.rate), each.unit, "" if each.share is None else f"{each.share:.0%}"] for each in lines
    ]
    return aligned(rows)


def figure(value: float) -> str:
    """Three digits at least, thousands apart: 1,234 or 12.3."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
