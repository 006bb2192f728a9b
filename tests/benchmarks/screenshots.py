"""The pictures of the README: the real app, the real engine, a session trained on the spot (some minutes).

python tests/benchmarks/screenshots.py [--folder .pictures] [--size 120x40]
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from core.store import Session
from core.store.locations import find_session
from rlhf_tui.app import PlaygroundApp

PREPARE = ("sft --steps 350", "rm --steps 150")
LABELS = ("left", "right", "1", "4", "right", "left")


def prepare(saves: Path) -> None:
    """Train what PPO starts from."""
    for command in PREPARE:
        arguments = ["--saves", str(saves), "train", *command.split(), "--session", "tour", "--seed", "0"]
        subprocess.run([sys.executable, "-m", "rlhf_tui.cli", *arguments], check=True)


async def wait_for(app: PlaygroundApp, steps: int, patience: float = 300) -> None:
    """Until a PPO run has done ``steps`` steps."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        if any(run.method == "ppo" and run.step >= steps for run in app.state.runs.values()):
            return
        await asyncio.sleep(0.5)
    raise TimeoutError(f"PPO did not come to step {steps} in {patience:g} s")


def save(app: PlaygroundApp, file: Path) -> None:
    """The screen as SVG; blanks are kept by renderers that would fold them."""
    svg = app.export_screenshot(title="rlhf-tui")
    file.write_text(svg.replace("<text ", '<text xml:space="preserve" '), encoding="utf-8")
    print(file)


async def take(saves: Path, folder: Path, size: tuple[int, int]) -> None:
    folder.mkdir(exist_ok=True)
    with Session.open(find_session(saves, "tour")) as session:
        app = PlaygroundApp(session, device="cpu")
        async with app.run_test(size=size) as pilot:
            while app.state.engine != "ready":
                await asyncio.sleep(0.2)
            await pilot.press("3", "space")
            await wait_for(app, 60)
            save(app, folder / "train.svg")
            app.show_screen("label")
            await asyncio.sleep(15)
            for key in LABELS:
                await pilot.press(key)
                await asyncio.sleep(0.5)
            save(app, folder / "label.svg")
            app.show_screen("compare")
            await asyncio.sleep(15)
            save(app, folder / "compare.svg")
            app.show_screen("sessions")
            await asyncio.sleep(3)
            save(app, folder / "sessions.svg")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(".pictures"))
    parser.add_argument("--size", default="120x40", help="columns x lines")
    options = parser.parse_args()
    width, height = map(int, options.size.split("x"))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as saves:
        prepare(Path(saves))
        asyncio.run(take(Path(saves), options.folder, (width, height)))


if __name__ == "__main__":
    main()
