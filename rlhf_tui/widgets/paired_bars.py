"""Columns in pairs, one for each side, over labels: how often each letter, how many texts of each length."""

from collections.abc import Mapping, Sequence

from textual.content import Content
from textual.widget import Widget

from rlhf_tui.safe_text import fit

_EIGHTHS = " ▁▂▃▄▅▆▇█"
_WIDEST = 3  # cells of a pair: two columns, and a gap where there is room


class PairedBars(Widget):
    """Left columns are A, right ones B; all have one scale."""

    DEFAULT_CSS = """
    PairedBars {
        border: round $panel-lighten-2; border-title-color: $foreground; border-subtitle-color: $text-muted;
        text-wrap: nowrap; padding: 0 1;
    }
    """

    def __init__(self, title: str, *, fold: bool = False, id: str | None = None) -> None:
        """``fold``: neighbours share a pair where there is no room for each; else the last labels are left out."""
        super().__init__(id=id)
        self.border_title = title
        self.fold = fold
        self.labels: list[str] = []
        self.left: list[float] = []
        self.right: list[float] = []

    def show(self, left: Mapping[str, float], right: Mapping[str, float], order: list[str]) -> None:
        """Shares by label; ``order`` lists the labels to show, the first ones where there is no room for all."""
        self.labels = order
        self.left = [left.get(label, 0.0) for label in order]
        self.right = [right.get(label, 0.0) for label in order]
        self.refresh()

    def render(self) -> Content:
        rows = self.size.height - 1
        cells = _WIDEST if _WIDEST * len(self.labels) <= self.size.width + 1 else _WIDEST - 1
        labels, left, right = self._fitting((self.size.width + cells - 2) // cells)
        largest = max([*left, *right], default=0.0)
        if rows < 1 or not largest:
            self.border_subtitle = ""
            return Content.styled("nothing measured yet", "$text-muted")
        self.border_subtitle = f"▌A ▐B  tallest {largest:.0%}"
        lines = []
        for row in range(rows - 1, -1, -1):
            line = Content("")
            for one, other in zip(left, right, strict=True):
                line += Content.styled(_cell(one / largest, row, rows), "$line-1")
                line += Content.styled(_cell(other / largest, row, rows), "$line-2") + Content(" " * (cells - 2))
            lines.append(line)
        lines.append(Content.styled(_names(labels, cells), "dim"))
        return Content("\n").join(lines)

    def _fitting(self, room: int) -> tuple[list[str], list[float], list[float]]:
        count = len(self.labels)
        together = max(-(-count // room), 1) if self.fold and room > 0 else 1
        if together == 1:
            return self.labels[:room], self.left[:room], self.right[:room]
        starts = range(0, count, together)
        folded = [[sum(side[at : at + together]) for at in starts] for side in (self.left, self.right)]
        return [self.labels[at] for at in starts], folded[0], folded[1]


def _names(labels: Sequence[str], cells: int) -> str:
    """What stands below the columns; a number that would touch the one before it is left out."""
    line = ""
    for label in labels:
        apart = len(label) == 1 or not line or line.endswith(" ")
        line += fit(("␣" if label == " " else label) if apart else "", cells)
    return line


def _cell(share: float, row: int, rows: int) -> str:
    eighths = round(share * rows * 8)
    if share > 0 and eighths == 0:
        eighths = 1  # what is there must be seen
    return _EIGHTHS[min(max(eighths - 8 * row, 0), 8)]
