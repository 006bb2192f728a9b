"""A command that runs named experiments over seeds: a line of JSON for each as it is done, at the end their means."""

import argparse
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from core.device import choose_device
from core.models.config import BackboneConfig

Figures = dict[str, float]
B = TypeVar("B")


def run(
    about: str | None,
    experiments: Mapping[str, Callable[[B], Figures]],
    bench: Callable[[int, BackboneConfig], B],
    arguments: Sequence[str] | None = None,
) -> None:
    """``bench`` makes what the experiments of one seed share."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiments", nargs="*", metavar="EXPERIMENT", help=f"of {', '.join(experiments)}")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--backbone", choices=("lstm", "transformer"), default="lstm")
    parser.add_argument("--out", type=Path, default=None, help="append a line of JSON per experiment and seed")
    options = parser.parse_args(arguments)
    names = options.experiments or list(experiments)
    if unknown := [name for name in names if name not in experiments]:
        parser.error(f"no experiment is called {', '.join(unknown)}")
    choose_device("cpu", threads=1)
    results: dict[str, list[Figures]] = {name: [] for name in names}
    for seed in options.seeds:
        shared = bench(seed, BackboneConfig(kind=options.backbone))
        for name in names:
            figures = experiments[name](shared)
            results[name].append(figures)
            line = json.dumps({"experiment": name, "seed": seed, **{k: round(v, 4) for k, v in figures.items()}})
            print(line, flush=True)
            if options.out:
                with options.out.open("a") as file:
                    file.write(line + "\n")
    for name, rows in results.items():
        print(f"{name:18}" + "  ".join(f"{key} {value:.3f}" for key, value in means(rows).items()))


def means(rows: list[Figures]) -> Figures:
    """The mean of each figure over the seeds that have it."""
    keys = dict.fromkeys(key for row in rows for key in row)
    return {key: statistics.mean(row[key] for row in rows if key in row) for key in keys}
