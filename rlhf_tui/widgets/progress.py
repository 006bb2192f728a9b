"""One line: the shown run, how far it is, how fast, how long it will take."""

from textual.content import Content
from textual.widget import Widget

from core.methods.table import known_method
from rlhf_tui.safe_text import safe_text
from rlhf_tui.scale import count, duration, number
from rlhf_tui.state import Run
from rlhf_tui.widgets.pipeline import STATE_GLYPHS, STATE_STYLES

_EIGHTHS = " ▏▎▍▌▋▊▉█"


class ProgressLine(Widget):
    DEFAULT_CSS = """
    ProgressLine { height: 1; padding: 0 1; background: $surface; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.run: Run | None = None

    def show(self, run: Run | None) -> None:
        self.run = run
        self.refresh()

    def render(self) -> Content:
        run, width = self.run, self.size.width
        if run is None:
            return Content.styled("○ not started", "dim")
        style = STATE_STYLES.get(run.state, "")
        left = Content.styled(f"{STATE_GLYPHS.get(run.state, '?')} {run.state} ", style)
        left += safe_text(run.name, max(8, width // 5)) + Content(" ")
        facts = [f"{run.step}/{run.steps} steps"]
        if run.rate and run.active:
            facts.append(f"{number(run.rate)} steps/s")
        if run.eta is not None:
            facts.append(f"{duration(run.eta)} left")
        facts += [f"{duration(run.seconds)} trained", f"{count(run.completions)} {_seen(run)}"]
        while len(facts) > 1 and width - left.cell_length - len(" · ".join(facts)) < 12:
            facts.pop()
        right = " " + " · ".join(facts)
        room = width - left.cell_length - len(right)
        return left + bar(run.step / run.steps if run.steps else 0.0, room, style) + Content(right)


def _seen(run: Run) -> str:
    """What a run's completions are: a method that samples nothing counts the examples that it has seen."""
    method = known_method(run.method)
    if method is not None and method.trains == "reward_model":
        return "pairs"
    return "examples" if run.method == "sft" else "completions"


def bar(share: float, width: int, style: str = "") -> Content:
    """A bar in eighths of a cell."""
    if width < 3:
        return Content("")
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    full, rest = divmod(eighths, 8)
    filled = "█" * full + (_EIGHTHS[rest] if rest else "")
    return Content.styled(filled, style or "$primary") + Content.styled("·" * (width - len(filled)), "dim")
