"""Averages of both sides in a small table, and who wins."""

from textual.content import Content
from textual.widget import Widget

from core.evaluation.side_by_side import Summary
from rlhf_tui.screens.topics import HelpTopic


class SideSummary(Widget, can_focus=True):
    DEFAULT_CSS = """
    SideSummary {
        border: round $panel-lighten-2; border-title-color: $foreground; border-subtitle-color: $text-muted;
        text-wrap: nowrap; padding: 0 1;
    }
    SideSummary:focus { border: round $accent; border-title-style: bold; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.border_title = "averages"
        self.left: Summary | None = None
        self.right: Summary | None = None
        self.wins: float | None = None

    def show(self, left: Summary, right: Summary, wins: float | None) -> None:
        """``wins``: how often B beats A."""
        self.left, self.right, self.wins = left, right, wins
        self.border_subtitle = f"of {left.count} each"
        self.refresh()

    def rows(self) -> list[tuple[str, float | None, float | None, str]]:
        """Name, A, B, and the format of the figures."""
        if self.left is None or self.right is None:
            return []
        a, b = self.left, self.right
        return [
            ("gold reward", a.gold_reward, b.gold_reward, ".3f"),
            ("learned reward", a.learned_reward, b.learned_reward, ".3f"),
            ("wins of B over A", None, self.wins, ".0%"),
            ("KL(B‖A), nats", a.kl, b.kl, ".2f"),
            ("distinct-2", a.distinct_2, b.distinct_2, ".3f"),
            ("unique texts", a.unique, b.unique, ".0%"),
            ("mean length", a.length, b.length, ".1f"),
            ("ended by itself", a.ended, b.ended, ".0%"),
        ]

    def render(self) -> Content:
        rows = self.rows()
        if not rows:
            return Content.styled("nothing measured yet", "$text-muted")
        lines = [Content.styled(f"{'':<17}{'A':>9}{'B':>9}", "dim")]
        for name, a, b, style in rows:
            if a is None and b is None:
                continue
            shown = "".join(f"{'' if each is None else format(each, style):>9}" for each in (a, b))
            lines.append(Content(f"{name:<17}{shown}"))
        return Content("\n").join(lines[: max(self.size.height, 1)])

    def help_topic(self) -> HelpTopic:
        return HelpTopic(
            "Averages of A and B",
            (
                (
                    "What it shows",
                    "Means over completions of the same prompts with the same random numbers. A win of B is a higher "
                    "gold reward (learned where there is no rule) on the same prompt and seed; a tie counts half. "
                    "distinct-2 is the share of different letter pairs, unique texts the share of different texts: "
                    "both fall when a policy collapses.",
                ),
                (
                    "The usual misreading",
                    "A win rate near 100% with few unique texts is one good answer repeated. distinct-2 falls with the "
                    "number of texts: compare only the same number.",
                ),
            ),
        )
