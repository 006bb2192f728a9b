"""``rlhf-tui doctor``: versions, device, threads and terminal, for a bug report or a look before a start."""

import argparse
import asyncio
import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from core.store.locations import saves_folder
from rlhf_tui.commands.arguments import FAILED, Parser, add_shared
from rlhf_tui.commands.version import installed, version_line
from rlhf_tui.engine_client import EngineClient, EngineError

PACKAGES = ("torch", "textual", "plotext", "numpy", "safetensors", "rich")


def configure(commands: Any) -> None:
    about = "show versions, device, threads and terminal"
    parser: Parser = commands.add_parser("doctor", help=about, description=about)
    add_shared(parser)
    parser.set_defaults(run=run, parser=parser)


def run(args: argparse.Namespace) -> int:
    """Print what is found; 1 when something is in the way, which is then said."""
    lines = [("program", version_line()), ("python", f"{platform.python_version()} on {platform.platform()}")]
    lines += [(package, installed(package)) for package in PACKAGES]
    lines += [("terminal", terminal_line()), ("cores", f"{os.cpu_count()}")]
    saves = saves_folder(args.saves)
    problem = folder_problem(saves)
    lines.append(("sessions", f"{saves}" + (f" – {problem}" if problem else "")))
    engine, works = asyncio.run(_engine(args.device, args.threads))
    lines += engine
    for name, text in lines:
        print(f"{name:<12}{text}")
    return 0 if works and not problem else FAILED


def terminal_line() -> str:
    """Size, kind and colours of the terminal."""
    size = shutil.get_terminal_size()
    kind = os.environ.get("TERM", "none")
    colours = (
        "no colours (NO_COLOR)" if os.environ.get("NO_COLOR") else os.environ.get("COLORTERM") or "256 or fewer colours"
    )
    encoding = getattr(sys.stdout, "encoding", None) or "unknown encoding"
    through = next((name for name in ("TMUX", "STY", "SSH_CONNECTION") if os.environ.get(name)), None)
    inside = {"TMUX": ", inside tmux", "STY": ", inside screen", "SSH_CONNECTION": ", over ssh"}.get(through or "", "")
    return f"{kind}, {size.columns}×{size.lines}, {colours}, {encoding}{inside}" + (
        "" if sys.stdout.isatty() else ", output not on a terminal"
    )


def folder_problem(saves: Path) -> str:
    """Why sessions could not be saved there; empty when they could."""
    at = saves
    while not at.exists() and at != at.parent:
        at = at.parent
    try:
        with tempfile.TemporaryFile(dir=at):
            pass
    except OSError as error:
        return f"not writable: {error.strerror}"
    free = shutil.disk_usage(at).free
    return f"only {free >> 20} MB free" if free < 100 << 20 else ""


async def _engine(device: str, threads: int | None) -> tuple[list[tuple[str, str]], bool]:
    client = EngineClient(lambda _: None, device=device, threads=threads)
    try:
        ready = await client.start()
    except EngineError as error:
        return [("engine", f"does not start: {error}")], False
    await client.close()
    return [("device", ready.device_line), ("threads", str(ready.threads)), ("engine", "starts and answers")], True
