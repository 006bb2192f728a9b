"""From runs to what a chart draws: the metrics of one chart of a method, of the shown run and of pinned ones."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from core.methods.base import Chart as ChartDefinition
from rlhf_tui.plotting import ChartData, Line, Mark
from rlhf_tui.series import AXES, Axis
from rlhf_tui.state import Run

SMOOTHING = (0.0, 0.6, 0.9, 0.97)  # factors of the exponential average that a key walks through
MAX_LINES = 6


@dataclass(frozen=True)
class ChartOptions:
    """How the charts of a screen are drawn; ``log`` holds the titles of those with a logarithmic y axis."""

    axis: Axis = "step"
    smoothing: float = 0.6
    log: frozenset[str] = field(default_factory=frozenset)

    def next_axis(self) -> "ChartOptions":
        return replace(self, axis=AXES[(AXES.index(self.axis) + 1) % len(AXES)])

    def next_smoothing(self) -> "ChartOptions":
        at = SMOOTHING.index(self.smoothing) if self.smoothing in SMOOTHING else -1
        return replace(self, smoothing=SMOOTHING[(at + 1) % len(SMOOTHING)])


def chart_data(definition: ChartDefinition, run: Run | None, pinned: Iterable[Run], options: ChartOptions) -> ChartData:
    """What the chart shows now; of no run, or of one without numbers yet, what it will mean."""
    lines: list[Line] = []
    marks: list[Mark] = []
    if run is not None:
        lines += [
            line for name in definition.metrics if (line := _line(run, name, metric_label(name, definition), options))
        ]
        marks = [Mark(run.series.place(each.step, options.axis), each.kind, each.text) for each in run.happenings]
    for other in pinned:
        for name in definition.metrics:
            label = f"{other.name} {metric_label(name, definition)}".removesuffix(f" {definition.title}")
            if len(lines) < MAX_LINES and (line := _line(other, name, label, options, overlay=True)):
                lines.append(line)
    return ChartData(
        tuple(lines), tuple(marks), options.axis, definition.title in options.log, empty=definition.meaning
    )  # fmt: skip


def _line(run: Run, name: str, label: str, options: ChartOptions, overlay: bool = False) -> Line | None:
    x, y = run.series.line(name, options.axis)
    if not len(x):
        return None
    # What is measured at validations only has too few points to be smoothed.
    smooth = run.series.line(name, options.axis, options.smoothing)[1] if options.smoothing and len(x) > 20 else None
    return Line(label, x, y, smooth, overlay)


def metric_label(name: str, definition: ChartDefinition) -> str:
    """A metric's name without what the chart's title says already: ``gold_reward`` on *reward* is ``gold``."""
    label = name.rpartition("/")[2].removesuffix("_avg")
    if label.lower() == definition.title.lower():
        return definition.title
    for word in (definition.title, "reward"):
        label = label.removesuffix(f"_{word}")
    return label.replace("_", " ")
