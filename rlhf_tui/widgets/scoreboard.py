"""Every run in a line: how long it trained, what reward it came to and at what KL."""

from functools import partial
from typing import TYPE_CHECKING

from textual.content import Content

from core.store import StoreError
from rlhf_tui.comparing import Outcome, Question, outcome, writes
from rlhf_tui.safe_text import fit
from rlhf_tui.scale import duration
from rlhf_tui.screens.topics import HelpTopic
from rlhf_tui.state import AppState, Run
from rlhf_tui.widgets.line_list import LineList, Row
from rlhf_tui.widgets.pipeline import STATE_GLYPHS

if TYPE_CHECKING:
    from core.store import Session

_FIGURE = 8


class Scoreboard(LineList):
    """Newest first. Outcomes are read for the rows that are drawn, once a step."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, empty="No runs yet: train some, then compare them here.", title="runs")
        self.head = self._head
        self.border_subtitle = "a, b or Enter: compare with it"
        self.runs: dict[int, Run] = {}
        self.question = Question()
        self._session: Session | None = None
        self._outcomes: dict[int, tuple[int, Outcome]] = {}

    @property
    def policy(self) -> int | None:
        """The run at the cursor, where it writes."""
        return self.key if self.key is not None and writes(self.runs[self.key]) else None

    def show_runs(self, session: "Session", state: AppState, question: Question) -> None:
        if session is not self._session:
            self._outcomes.clear()
        self._session, self.runs, self.question = session, state.runs, question
        numbers = sorted(state.runs, reverse=True)
        self.show([Row(number, partial(self._row, number)) for number in numbers])

    def outcome_of(self, run: Run) -> Outcome:
        """What the run came to so far."""
        known = self._outcomes.get(run.run)
        if known is None or known[0] != run.step:
            assert self._session is not None
            try:
                known = (run.step, outcome(self._session, run))
            except StoreError:
                known = (run.step, Outcome())  # the list must not fail with a damaged row; opening the run says so
            self._outcomes[run.run] = known
        return known[1]

    def _name_width(self, width: int) -> int:
        return max(width - 4 - 13 - 12 - 10 - 3 * _FIGURE - 2, 10)

    def _head(self, width: int) -> Content:
        name = self._name_width(width - 1)
        figures = "".join(f"{title:>{_FIGURE}}" for title in ("gold", "learned", "KL"))
        return Content.styled(f"     {'run':<{name}} {'':<12}{'step':>12}{'time':>10}{figures}", "dim")

    def _row(self, number: int, width: int, here: bool) -> list[Content]:
        return [self._line(number, width)]

    def _line(self, number: int, width: int) -> Content:
        run = self.runs.get(number)
        if run is None:
            return Content("")
        sides = "".join(
            mark if side.run == number else " "
            for mark, side in (("A", self.question.left), ("B", self.question.right))
        )
        found = self.outcome_of(run)
        figures = "".join(
            f"{'–' if value is None else f'{value:.3f}':>{_FIGURE}}"
            for value in (found.gold_reward, found.learned_reward, found.kl)
        )
        line = Content.styled(f"{sides} ", "bold $accent") + Content(f"{STATE_GLYPHS.get(run.state, '?')} ")
        line += Content(f"{fit(run.name, self._name_width(width))} {fit(run.state, 12)}")
        return line + Content(f"{f'{run.step}/{run.steps}':>12}{duration(run.seconds):>10}{figures}")

    def help_topic(self) -> HelpTopic:
        return HelpTopic(
            "Runs",
            (
                (
                    "What it shows",
                    "Every run with the time it trained, and the gold reward, the learned reward and the KL to its "
                    "reference that it came to: means over its last measurements.",
                ),
                (
                    "The usual misreading",
                    "A higher reward at a higher KL is not better by itself: compare runs at like KL, or like time.",
                ),
            ),
        )
