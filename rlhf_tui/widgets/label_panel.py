"""The quality panel: how many labels there are and of what, how consistent they are, and what would spoil training."""

from collections.abc import Callable, Sequence

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content

from core.preferences.conversion import count_labels, decided_pairs
from core.preferences.labels import LabelRecord
from core.preferences.pair_checks import check_pairs
from core.preferences.quality import label_quality
from rlhf_tui.labelling.desk import sources_line
from rlhf_tui.safe_text import safe_text
from rlhf_tui.widgets.still_text import StillText

NO_BREAK = "\u00a0\u00a0"
Gold = Callable[[str, str], float]


def panel_content(records: Sequence[LabelRecord], gold: Gold | None, pool: str, changes: int) -> Content:
    """The whole panel."""
    quality = label_quality(records, gold)
    lines = [safe_text(count_labels(records).line(), style="bold")]
    # Blanks at a line's beginning would be dropped where lines wrap.
    lines += [safe_text(line.replace("  ", NO_BREAK)) for line in quality.lines()]
    if records:
        lines += [Content(""), Content.styled("shown from", "dim"), safe_text(sources_line(records))]
    lines += [Content.styled("to choose from", "dim"), safe_text(pool)]
    if changes > len(records):
        lines.append(Content.styled(f"{changes} changes in the history", "dim"))
    warnings = check_pairs(decided_pairs(records)) if records else []
    if warnings:
        lines.append(Content(""))
        lines += [safe_text(f"! {each.message}", style="$text-warning") for each in warnings]
    for cycle in quality.cycles[:2]:
        texts = " > ".join((*cycle.texts, cycle.texts[0]))
        lines.append(safe_text(f"! in a circle for '{cycle.prompt}': {texts}", 400, "$text-warning"))
    return Content("\n").join(lines)


class LabelPanel(VerticalScroll, can_focus=False):
    DEFAULT_CSS = """
    LabelPanel {
        border: round $panel-lighten-2; border-title-color: $foreground; padding: 0 1; scrollbar-size-vertical: 1;
    }
    """

    def compose(self) -> ComposeResult:
        yield StillText()

    def on_mount(self) -> None:
        self.border_title = "quality"

    def show(self, content: Content) -> None:
        self.query_one(StillText).show(content)
