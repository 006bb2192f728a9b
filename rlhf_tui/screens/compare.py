"""Compare: what two models write after the same prompts with the same random numbers, and how they got there."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Static

from core.engine.protocol import CheckpointSaved, Event, RunState, Sample, Samples
from core.evaluation.side_by_side import length_shares, letter_shares, summarise, win_rate
from core.store import StoreError
from core.tasks.base import Task
from rlhf_tui.comparing import Question, Side, first_question, snapshot_steps, writes
from rlhf_tui.safe_text import safe_str, safe_text
from rlhf_tui.screens.base import PlaygroundScreen
from rlhf_tui.screens.compare_actions import CompareActions
from rlhf_tui.screens.topics import HelpTopic
from rlhf_tui.tasks import task_of
from rlhf_tui.widgets.paired_bars import PairedBars
from rlhf_tui.widgets.pane_tabs import PaneTabs
from rlhf_tui.widgets.sample_pairs import SamplePairs
from rlhf_tui.widgets.scoreboard import Scoreboard
from rlhf_tui.widgets.side_summary import SideSummary

PANES = (("samples", "Samples"), ("summary", "Averages"), ("bars", "Letters"), ("runs", "Runs"))
QUIET = 0.35  # seconds without a change before the averages are measured
REFRESH = 0.5  # seconds between two looks at what happened meanwhile
MOST_LETTERS = 40


class CompareScreen(CompareActions, PlaygroundScreen):
    entry_name = "compare"
    CSS_PATH = "compare.tcss"
    AUTO_FOCUS = "#samples"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("v", "next_pane", "Next pane", show=False, id="compare.pane", tooltip="Go to the next pane"),
        Binding("m", "maximize_pane", "Maximise", show=False, id="compare.maximise",
                tooltip="The focused pane over the whole screen, and back"),
    ]  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.question = Question()
        self.chosen = False  # did a person choose the sides? else they follow the newest run
        self.answer: Samples | None = None  # to the question shown
        self.steps: dict[int | None, list[int]] = {}  # snapshots by run
        self.pane = PANES[0][0]
        self._asked_task: Task | None = None
        self._asking = self._again = False
        self._stale = True  # the runs or their snapshots have changed
        self._quiet: Timer | None = None

    def compose_body(self) -> Iterable[Widget]:
        yield Static(id="sides")
        yield Static(id="sampling")
        yield PaneTabs(PANES, id="tabs")
        yield SamplePairs(id="samples")
        with Horizontal(id="middle"):
            yield SideSummary(id="summary")
            with Horizontal(id="bars"):
                yield PairedBars("letters", id="letters")
                yield PairedBars("lengths", fold=True, id="lengths")
        yield Scoreboard(id="runs")

    def on_mount(self) -> None:
        self.restore(self.playground.saved_ui_of(self))
        self._show_pane(self.pane)
        self._look_around()
        self.set_interval(REFRESH, self._look_around)

    @property
    def asked_task(self) -> Task:
        if self._asked_task is None:
            self._asked_task = task_of(self.playground.session)
        return self._asked_task

    # --- asking ------------------------------------------------------------------------------------------------

    def ask_again(self, question: Question | None = None, chosen: bool = True) -> None:
        """Let both sides write, after another ``question`` where one is given."""
        if question is not None:
            self.question, self.chosen = question, self.chosen or chosen
        self._show_head()
        if self._asking:
            self._again = True
            return
        self._asking = True
        self.run_worker(self._ask(), group="compare")

    async def _ask(self) -> None:
        """One request at a time: while keys come faster than answers, only the newest question is asked."""
        try:
            self._again = True
            while self._again:
                self._again = False
                question = self.question
                if not self.can_ask:
                    return
                answer = await self.playground.ask(Sample, **question.fields(self.asked_task))
                if isinstance(answer, Samples) and question == self.question:
                    self._take(answer)
        finally:
            self._asking = False
        if self._quiet is not None:
            self._quiet.stop()
        self._quiet = self.set_timer(QUIET, lambda: self.run_worker(self._measure(), group="measure", exclusive=True))

    def _take(self, answer: Samples) -> None:
        self.answer = answer
        self.query_one(SamplePairs).show_samples(answer)
        for note in answer.notes:
            self.playground.toast(note, severity="warning")
        self._show_head()

    async def _measure(self) -> None:
        """Averages and bars, of many more completions."""
        question = self.question
        if not self.can_ask or self._asking or not self.is_current:
            return
        answer = await self.playground.ask(Sample, **question.measured_fields(self.asked_task))
        if not isinstance(answer, Samples) or question != self.question or self._asking:
            return
        left, right = answer.reference, answer.samples
        self.query_one(SideSummary).show(summarise(left), summarise(right), win_rate(right, left))
        texts = [[each.text for each in side] for side in (left, right)]
        letters = [letter_shares(side) for side in texts]
        self.query_one("#letters", PairedBars).show(letters[0], letters[1], self._letters(letters))
        lengths = [{str(length): share for length, share in length_shares(side).items()} for side in texts]
        every = sorted({int(length) for side in lengths for length in side})
        known = list(range(every[0], every[-1] + 1)) if every and every[-1] - every[0] < MOST_LETTERS else every
        self.query_one("#lengths", PairedBars).show(lengths[0], lengths[1], [str(length) for length in known])

    def _letters(self, shares: list[dict[str, float]]) -> list[str]:
        """All letters of a small alphabet in its order, the most frequent ones of a large one."""
        alphabet = self.asked_task.alphabet
        if len(alphabet) <= MOST_LETTERS:
            return sorted(alphabet)
        total = {letter: sum(side.get(letter, 0.0) for side in shares) for side in shares for letter in side}
        return sorted(total, key=lambda letter: -total[letter])[:MOST_LETTERS]

    @property
    def can_ask(self) -> bool:
        return self.playground.state.engine == "ready"

    # --- showing -----------------------------------------------------------------------------------------------

    def _look_around(self) -> None:
        """Take up what has happened, while the screen is seen."""
        if not self._stale or not self.is_current:
            return
        self._stale = False
        state = self.playground.state
        if not self.chosen:
            question = replace(first_question(state), prompt=self.question.prompt, sampling=self.question.sampling)
            moved = question != self.question
            self.question = question
        else:
            moved = False
        try:
            self.steps = {side.run: snapshot_steps(self.playground.session, side.run) for side in self.sides}
        except StoreError as error:
            self.playground.toast(str(error), severity="warning")
        self.query_one(Scoreboard).show_runs(self.playground.session, state, self.question)
        if moved or self.answer is None or self._moves():
            self.ask_again(chosen=False)
        else:
            self._show_head()

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.question.left, self.question.right

    def _moves(self) -> bool:
        """Does a side stand for a run that has gone on since it was asked?"""
        assert self.answer is not None
        runs = self.playground.state.runs
        return any(
            side.step is None and side.run in runs and runs[side.run].step != step
            for side, step in zip(self.sides, (self.answer.reference_step, self.answer.step), strict=True)
        )

    def _show_head(self) -> None:
        answer = self.answer
        found = (answer.reference_step, answer.step) if answer is not None else (None, None)
        half = max(self.size.width - 2, 20) // 2
        parts = [
            self._side_line(mark, side, step, half)
            for mark, side, step in zip("AB", self.sides, found, strict=True)
        ]  # fmt: skip
        self.query_one("#sides", Static).update(
            parts[0] + Content(" " * max(half - parts[0].cell_length, 0)) + parts[1]
        )
        how = self.question.sampling
        asked = (
            f"{how.count} samples of “{safe_str(self.question.prompt, 30)}”"
            if self.question.prompt
            else f"{how.count} prompts, one sample each"
        )
        line = (
            f"{asked} · temperature {how.temperature:g} · top-k {how.top_k or 'off'} · "
            f"top-p {'off' if how.top_p == 1 else f'{how.top_p:g}'} · seed {how.seed}"
        )
        if not self.can_ask:
            line = f"{self.playground.state.engine_line} – samples need the engine"
        self.query_one("#sampling", Static).update(Content.styled(line, "$text-muted"))

    def _side_line(self, mark: str, side: Side, found: int | None, width: int) -> Content:
        run = self.playground.state.runs.get(side.run) if side.run is not None else None
        name = "untrained model" if run is None else run.name
        steps = self.steps.get(side.run, [])
        if run is None:
            where = ""
        elif side.step is None:
            where = f" · step {run.step if found is None else found}" + (" (training)" if run.active else " (latest)")
        else:
            where = f" · step {side.step}"
        head = Content.styled(f" {mark} ", "bold reverse") + Content(" ") + safe_text(name, max(width // 2, 8), "bold")
        head += Content(where)
        room = min(width - head.cell_length - 3, 34)
        if run is None or not steps or room < 6:
            return head
        share = 1.0 if side.step is None else side.step / max(run.step, 1)
        at = round(min(max(share, 0.0), 1.0) * (room - 1))
        return head + Content("  ") + Content.styled("─" * at, "$line-1") + Content("●") + Content.styled(
            "─" * (room - 1 - at), "dim"
        )  # fmt: skip

    def on_resize(self) -> None:
        self._show_head()

    # --- hooks of the app --------------------------------------------------------------------------------------

    def engine_event(self, event: Event) -> None:
        match event:
            case RunState() | CheckpointSaved():
                self._stale = True
            case Samples(id=None) if any(side == Side(event.run) for side in self.sides):
                self._stale = True

    def engine_changed(self) -> None:
        self._stale = True
        self._show_head()
        if self.can_ask:
            self.ask_again(chosen=False)

    def runs_changed(self) -> None:
        runs = self.playground.state.runs
        if any(side.run is not None and side.run not in runs for side in self.sides):
            self.chosen = False
        self._stale = True

    def session_changed(self) -> None:
        self._asked_task, self.answer, self.chosen = None, None, False
        self.question = Question(sampling=self.question.sampling)
        self._stale = True

    def on_screen_resume(self) -> None:
        self._look_around()

    def ui_state(self) -> dict[str, Any]:
        return {"question": self.question.to_dict(), "chosen": self.chosen, "pane": self.pane}

    def restore(self, saved: dict[str, Any]) -> None:
        kept = saved.get("question")
        question = Question.from_dict(kept, self.playground.state) if isinstance(kept, dict) else None
        self.chosen = question is not None and saved.get("chosen") is True
        self.question = question or first_question(self.playground.state)
        pane = str(saved.get("pane"))
        self.pane = pane if pane in dict(PANES) else self.pane

    def help_topic(self) -> HelpTopic | None:
        return HelpTopic(
            "Compare",
            (
                (
                    "What it shows",
                    "A (by default the reference) and B (by default the newest aligned policy) write after the same "
                    "prompts with the same random numbers. a and b choose runs, , and . walk through the snapshots of "
                    "B, < and > through those of A: the texts morph from before to after.",
                ),
                ("Prompts", "p asks with a prompt of yours, n changes between one prompt and several."),
            ),
        )

    # --- panes -------------------------------------------------------------------------------------------------

    def _show_pane(self, name: str) -> None:
        self.pane = name
        for each, _ in PANES:
            self.set_class(each == name, f"-pane-{each}")
        self.query_one(PaneTabs).show(name)

    @on(PaneTabs.Chosen)
    def _pane_chosen(self, message: PaneTabs.Chosen) -> None:
        self.focus_pane(message.name)

    def focus_pane(self, name: str) -> None:
        """Show a pane, where only one is shown, and go there."""
        self._show_pane(name)
        pane = self.query_one(f"#{name}")
        if pane.focusable:
            self.call_after_refresh(pane.focus)

    def action_next_pane(self) -> None:
        names = [name for name, _ in PANES]
        self.focus_pane(names[(names.index(self.pane) + 1) % len(names)])

    def action_maximize_pane(self) -> None:
        if self.maximized is not None:
            self.minimize()
        elif self.focused is not None:
            self.maximize(self.focused, container=False)

    def policies(self) -> list[tuple[int, str]]:
        """The untrained model (0) and every run that writes, by number and name."""
        runs = sorted(self.playground.state.runs.values(), key=lambda run: run.run)
        named = [(run.run, f"{run.name} · {run.state}, step {run.step}/{run.steps}") for run in runs if writes(run)]
        return [(0, "untrained model"), *named]
