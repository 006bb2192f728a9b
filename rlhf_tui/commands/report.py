"""What a training came to, as plain text tables."""

from collections.abc import Mapping, Sequence

from core.engine.protocol import RunState, Samples, SampleText
from core.methods.table import method_title

COLUMNS = (
    ("gold reward", "gold_reward"), ("learned reward", "learned_reward"), ("KL", "objective/kl"),
    ("distinct-2", "distinct_2"), ("unique", "unique_fraction"), ("follows prompt", "follows_prompt"),
    ("… held out", "held_out/follows_prompt"), ("win rate", "win_rate"),
    ("J", "objective"), ("best J", "best_objective"), ("optimality", "optimality"),
)  # fmt: skip


def outcome_table(rows: Sequence[tuple[RunState, Mapping[str, float]]]) -> str:
    """One line a run: its figures on the trained probe prompts, where they were measured, and its training time."""
    return figures_table([(method_title(state.method), state.seconds, values) for state, values in rows])


def figures_table(rows: Sequence[tuple[str, float, Mapping[str, float]]]) -> str:
    """One line for each (name, seconds of training, figures); a column for each figure that any of them has."""
    from rlhf_tui.safe_text import visible

    shown = [column for column in COLUMNS if any(column[1] in values for _, _, values in rows)]
    head = ["", *(title for title, _ in shown), "seconds"]
    lines = [
        [visible(name), *(_figure(values, column) for _, column in shown), f"{seconds:.0f}"]
        for name, seconds, values in rows
    ]
    return aligned([head, *lines])


def completions_table(written: Mapping[str, Samples]) -> str:
    """One line a prompt: what each run answers, the same seeds for all."""
    from rlhf_tui.safe_text import visible

    def shown(sample: SampleText) -> str:
        return visible(sample.text) + ("" if sample.ended else "…")

    columns = list(written.values())
    head = ["prompt", *written]
    lines = [
        [visible(first.prompt), *(shown(each.samples[at]) for each in columns)]
        for at, first in enumerate(columns[0].samples)
    ]
    return aligned([head, *lines], numbers=False)


def aligned(rows: Sequence[Sequence[str]], numbers: bool = True) -> str:
    """Columns of equal width: the first to the left, the others to the right where they hold numbers."""
    from rich.cells import cell_len

    widths = [max(cell_len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = []
        for at, cell in enumerate(row):
            blanks = " " * (widths[at] - cell_len(cell))
            cells.append(blanks + cell if numbers and at else cell + blanks)
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines) + "\n"


def _figure(values: Mapping[str, float], name: str) -> str:
    if name not in values:
        return "–"
    error = values.get(f"{name}_error")
    return f"{values[name]:.2f}" + (f" ± {error:.2f}" if error is not None else "")
