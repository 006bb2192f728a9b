"""``rlhf-tui sample``: completions of a run's policy."""

import argparse
import asyncio
import dataclasses
import json
from typing import Any, cast

from core.engine.protocol import Sample, Samples
from rlhf_tui.commands.arguments import Parser, add_session, add_shared, number, whole
from rlhf_tui.commands.report import aligned
from rlhf_tui.commands.workshop import Workshop, choose_session, trained_policies


def configure(commands: Any) -> None:
    about = "write completions with a trained policy"
    parser: Parser = commands.add_parser("sample", help=about, description=about)
    parser.add_argument("prompts", nargs="*", metavar="PROMPT", help="prompts (default: the task's probe prompts)")
    add_session(parser, "session (default: the last one)")
    add_shared(parser)
    parser.add_argument(
        "--run", dest="run_number", type=whole(0, 2**31), metavar="N",
        help="run whose policy writes (default: the newest finished one; 0: the untrained model)",
    )  # fmt: skip
    parser.add_argument("--step", type=whole(0, 10**9), metavar="N", help="the snapshot nearest to this step")
    parser.add_argument(
        "--reference", type=whole(1, 2**31), metavar="N", help="also give log-probs and KL under this run"
    )
    parser.add_argument("--count", type=whole(1, 512), default=1, metavar="N", help="completions a prompt (default 1)")
    parser.add_argument(
        "--seed", type=whole(-(2**62), 2**62), default=0, metavar="N", help="the same seed writes the same texts"
    )
    parser.add_argument("--temperature", type=number(0, 100), default=0.8, metavar="X", help="(default 0.8)")
    parser.add_argument(
        "--top-k", type=whole(0, 10**6), default=0, metavar="N", help="only the N likeliest letters (0: all)"
    )
    parser.add_argument(
        "--top-p", type=number(0, 1), default=1.0, metavar="X", help="only the likeliest letters of this mass"
    )
    parser.add_argument(
        "--max-new-tokens", type=whole(1, 10_000), metavar="N", help="length limit (default: the task's)"
    )
    parser.add_argument("--jsonl", action="store_true", help="one JSON object a completion")
    parser.set_defaults(run=run, parser=parser)


def run(args: argparse.Namespace) -> int:
    """Write what is asked for. Raises CommandError or StoreError."""
    folder = choose_session(args.saves, args.session)
    number = trained_policies(folder, [])[-1].id if args.run_number is None else args.run_number or None
    return asyncio.run(_write(args, folder, number))


async def _write(args: argparse.Namespace, folder: Any, run: int | None) -> int:
    async with Workshop(folder, device=args.device, threads=args.threads, jsonl=False, quiet=True) as workshop:
        answer = await workshop.request(
            Sample, run=run, step=args.step, prompts=args.prompts, count=args.count, seed=args.seed,
            temperature=args.temperature, top_k=args.top_k, top_p=args.top_p, max_new_tokens=args.max_new_tokens,
            reference=args.reference,
        )  # fmt: skip
    samples = cast(Samples, answer)
    for note in samples.notes:
        workshop.say(note)
    if args.jsonl:
        for each in samples.samples:
            print(json.dumps(dataclasses.asdict(each), ensure_ascii=False))
    else:
        print(samples_table(samples), end="")
    return 0


def samples_table(samples: Samples) -> str:
    """One line a completion with what is known of it."""
    from rlhf_tui.safe_text import visible

    titles = {
        "gold_reward": "gold", "learned_reward": "learned", "logprob": "log-prob",
        "reference_logprob": "reference log-prob", "kl": "KL",
    }  # fmt: skip
    known = [name for name in titles if any(getattr(each, name) is not None for each in samples.samples)]
    rows = [["prompt", "completion", *(titles[name] for name in known)]]
    for each in samples.samples:
        figures = [f"{value:.2f}" if (value := getattr(each, name)) is not None else "–" for name in known]
        rows.append([visible(each.prompt), visible(each.text) + ("" if each.ended else "…"), *figures])
    return aligned(rows, numbers=False)
