"""``rlhf-tui frontier``: the best reward that is possible at each KL from a reference, and best of n."""

import argparse
import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any, cast

from core.engine.protocol import Frontier, Plane
from rlhf_tui.commands.arguments import Parser, add_session, add_shared, whole
from rlhf_tui.commands.report import aligned
from rlhf_tui.commands.workshop import Workshop, choose_session, trained_policies

PER_PROMPT: dict[str, int] = {}  # fields of Frontier that tests set, to draw less


def configure(commands: Any) -> None:
    about = "the best reward possible at each KL from a reference"
    parser: Parser = commands.add_parser(
        "frontier", help=about,
        description="No policy gets more reward at the same KL than the optimal ones. Both are estimated from "
        "completions of the reference; a small effective sample size says: from too few.",
    )  # fmt: skip
    parser.add_argument(
        "run_number", nargs="?", type=whole(1, 2**31), metavar="RUN",
        help="run whose reference is meant (default: the newest trained policy)",
    )  # fmt: skip
    add_session(parser, "session (default: the last one)")
    add_shared(parser)
    parser.add_argument(
        "--reward-run", type=whole(1, 2**31), metavar="N", help="reward model to go by (default: the gold rule)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run, parser=parser)


def run(args: argparse.Namespace) -> int:
    """Measure and print. Raises CommandError or StoreError."""
    folder = choose_session(args.saves, args.session)
    wanted = [] if args.run_number is None else [args.run_number]
    return asyncio.run(_frontier(args, folder, trained_policies(folder, wanted)[-1].id))


async def _frontier(args: argparse.Namespace, folder: Path, run: int) -> int:
    async with Workshop(folder, device=args.device, threads=args.threads, jsonl=False, quiet=args.json) as workshop:
        answer = await workshop.request(Frontier, run=run, reward_run=args.reward_run, **PER_PROMPT)
    plane = cast(Plane, answer)
    print(json.dumps(dataclasses.asdict(plane)) if args.json else plane_text(plane))
    return 0


def plane_text(plane: Plane) -> str:
    """The plane as tables: the reference, the best by β, best of n."""
    by = "gold reward" if plane.reward_run is None else f"reward of run {plane.reward_run}, step {plane.reward_step}"
    best = [["best at β", by, "KL", "effective samples"]]
    best += [
        [f"{each.beta:g}", f"{each.reward:.2f}", f"{each.kl:.2f}",
         f"{each.effective_sample_size:,.0f}" + (" – too few" if _weak(each, plane) else "")]
        for each in plane.optimal
    ]  # fmt: skip
    draws = [["best of n", by, "KL", "KL at most"]]
    draws += [[f"{each.n}", f"{each.reward:.2f}", f"{each.kl:.2f}", f"{each.kl_bound:.2f}"] for each in plane.best_of_n]
    head = (
        f"the reference of run {plane.run}: {by} {plane.reference_reward:.2f}, from {plane.completions:,} completions"
    )
    return "\n".join([head, "", aligned(best), aligned(draws).rstrip()])


def _weak(each: Any, plane: Plane) -> bool:
    return bool(each.effective_sample_size < plane.least_effective)
