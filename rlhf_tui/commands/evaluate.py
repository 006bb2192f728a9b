"""``rlhf-tui evaluate``: reward, KL, diversity and optimality of trained policies."""

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any, cast

from core.engine.protocol import Evaluate, Evaluation
from core.methods.table import method_title
from core.store.runs import RunRecord
from rlhf_tui.commands.arguments import Parser, add_session, add_shared, number, whole
from rlhf_tui.commands.report import figures_table
from rlhf_tui.commands.workshop import Workshop, choose_session, trained_policies

PER_PROMPT: dict[str, int] = {}  # fields of Evaluate that tests set, to draw less


def configure(commands: Any) -> None:
    about = "measure trained policies"
    parser: Parser = commands.add_parser(
        "evaluate", help=about,
        description="Reward, KL and diversity on fresh completions at temperature 1. Optimality is (J − R) / (J* − R): "
        "how much of the way from the reference to the best that is possible a run has gone, J = reward − β·KL.",
    )  # fmt: skip
    parser.add_argument(
        "runs", nargs="*", type=whole(1, 2**31), metavar="RUN", help="numbers of runs (default: every trained policy)"
    )
    add_session(parser, "session (default: the last one)")
    add_shared(parser)
    parser.add_argument("--optimality", action="store_true", help="also how near to the best possible (a minute each)")
    parser.add_argument(
        "--beta", type=number(0, 1e6), metavar="X", help="price of a nat in the optimality (default: the run's, or 0.2)"
    )
    parser.add_argument(
        "--completions", type=whole(2, 1_000_000), default=2048, metavar="N", help="completions a run (default 2048)"
    )
    parser.add_argument(
        "--reward-run", type=whole(1, 2**31), metavar="N",
        help="reward model that scores (default: the newest; optimality goes by the gold rule where there is one)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one JSON object a run")
    parser.set_defaults(run=run, parser=parser)


def run(args: argparse.Namespace) -> int:
    """Measure what is asked for. Raises CommandError or StoreError."""
    folder = choose_session(args.saves, args.session)
    return asyncio.run(_evaluate(args, folder, trained_policies(folder, args.runs)))


async def _evaluate(args: argparse.Namespace, folder: Path, records: list[RunRecord]) -> int:
    rows: list[tuple[str, float, dict[str, float]]] = []
    async with Workshop(folder, device=args.device, threads=args.threads, jsonl=False, quiet=args.json) as workshop:
        for record in records:
            answer = await workshop.request(
                Evaluate, run=record.id, completions=args.completions, optimality=args.optimality, beta=args.beta,
                reward_run=args.reward_run, **PER_PROMPT,
            )  # fmt: skip
            found = cast(Evaluation, answer)
            if args.json:
                print(json.dumps({"run": record.id, "method": record.method, "title": record.title, "step": found.step,
                                  "values": found.values, "notes": found.notes}, ensure_ascii=False))  # fmt: skip
                continue
            for note in found.notes:
                workshop.say(f"run {record.id}: {note}")
            rows.append((f"{record.id} {record.title or method_title(record.method)}", record.seconds, found.values))
    if rows:
        print(figures_table(rows), end="")
    return 0
