"""What the keys of the Label screen do: answers, corrections, the simulated person, and the stages of a round."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from textual import work
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.worker import Worker

from core.config import ConfigError
from core.engine.protocol import RunState, Score, Scores, Start
from core.preferences.labels import KEYS, LabelRecord
from core.preferences.quality import model_change
from core.tasks.base import Task
from rlhf_tui.flow import StartPlan
from rlhf_tui.labelling.automatic import Simulation, judge, parse_simulation, tastes_line
from rlhf_tui.labelling.desk import Desk, Outcome
from rlhf_tui.labelling.options import SETTING, LabelOptions
from rlhf_tui.labelling.rounds import effect_line, first_accuracy, measured_labels, plan_align, plan_retrain
from rlhf_tui.screens.prompt import PromptScreen
from rlhf_tui.state import Run

if TYPE_CHECKING:
    from rlhf_tui.app import PlaygroundApp

MEASURED = 256  # labels on which the effect of retraining is measured
SIMULATED_EVERY = 0.05  # seconds between two answers of the simulated person


class LabelActions(Screen[None]):
    """The keys of the Label screen that change something; :class:`LabelScreen` is what they act on."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(key, f"key('{key}')", answer.symbol, show=False, id=f"label.key_{key}",
                    tooltip=f"The answer {answer.symbol}")
            for key, answer in KEYS.items()
        ),
        Binding("u,backspace", "undo", "Undo", key_display="u", id="label.undo",
                tooltip="Take back the last answer, as many as there are, also of earlier days"),
        Binding("n", "note", "Note", id="label.note", tooltip="A note on this pair, stored with its answer"),
        Binding("f", "flag", "Flag", id="label.flag", tooltip="Flag this pair, to find it again"),
        Binding("g", "pass_by", "New pair", id="label.pass", tooltip="Another pair, without an answer"),
        Binding("t", "retrain", "Retrain", id="label.retrain", tooltip="Train a reward model on the labels"),
        Binding("p", "align", "Align", id="label.align", tooltip="Align the policy with the newest reward model"),
        Binding("c", "sample_again", "Sample again", id="label.sample",
                tooltip="Give up the completions there are and draw new ones"),
        Binding("h", "browse", "Labels", id="label.browse", tooltip="Look at earlier labels, change or delete them"),
        Binding("o", "options", "Options", id="label.options",
                tooltip="Sources, guideline, selection, two or four at a time"),
        Binding("w", "other_way", "Two or four", show=False, id="label.way",
                tooltip="Ask for the better of two, or for the best and the worst of four"),
        Binding("a", "automatic", "Automatic", show=False, id="label.automatic",
                tooltip="Let a simulated person of some taste label; again to stop"),
        Binding("r", "guideline", "Guideline", show=False, id="label.guideline",
                tooltip="Say what better means here"),
    ]  # fmt: skip

    # What LabelScreen has, for the type checker.
    if TYPE_CHECKING:
        desk: Desk
        judged_task: Task
        options: LabelOptions
        simulation: Simulation | None
        said: str

        @property
        def playground(self) -> PlaygroundApp: ...
        @property
        def guideline(self) -> str: ...
        def show_item(self) -> None: ...
        def settle(self) -> None: ...
        def told(self, records: tuple[LabelRecord, ...]) -> None: ...
        def fill(self, *, fresh: bool = False) -> Worker[None]: ...
        def supply_if_due(self) -> None: ...

    # --- answers -----------------------------------------------------------------------------------------------

    def action_key(self, key: str) -> None:
        """An answer: on disk first, then the next pair."""
        self._stop_simulation()
        if not self.query_one("#pair").region.area:
            self.remove_class("-panel")  # nobody answers a pair that the panel covers
            return
        if self.playground.session.read_only:
            self.playground.toast("this session is open to look at only", severity="warning")
            return
        picks = self.desk.fours and key in "1234"
        self._answered(self._kept(lambda: self.desk.pick(int(key) - 1) if picks else self.desk.answer(KEYS[key])))

    def _kept(self, give: Callable[[], tuple[LabelRecord, ...]]) -> tuple[LabelRecord, ...] | None:
        """What an answer wrote; None, after a toast, where it could not be saved and so does not count."""
        given: list[tuple[LabelRecord, ...]] = []
        if not self.playground.keep(lambda: given.append(give())):
            self.playground.toast(f"not saved, so not counted: {self.playground.state.own_trouble}", severity="error")
            return None
        return given[0]

    def _answered(self, records: tuple[LabelRecord, ...] | None) -> None:
        if records is None:
            return
        if records:
            self.told(records)
        self.show_item()
        self.call_after_refresh(self._afterwards, bool(records))

    def _afterwards(self, written: bool) -> None:
        if written:
            self.supply_if_due()
        self.settle()

    def action_undo(self) -> None:
        self._stop_simulation()
        taken: list[Outcome | None] = []
        if not self.playground.keep(lambda: taken.append(self.desk.undo())):
            why = self.playground.state.own_trouble or "this session is open to look at only"
            self.playground.toast(f"not taken back: {why}", severity="error")
            return
        undone = taken[0]
        if undone is None:
            self.playground.toast("there is nothing to take back")
            return
        if undone.records:
            symbols = undone.records[0].answer.symbol if len(undone.records) == 1 else f"{len(undone.records)} labels"
            self.said = f"taken back: {symbols}"
        self.show_item()
        self.call_after_refresh(self.settle)

    def action_pass_by(self) -> None:
        self.desk.pass_by()
        self.said = ""
        self.show_item()
        self.call_after_refresh(self.settle)
        if self.desk.item is None:
            self.fill()

    def action_flag(self) -> None:
        self.desk.flagged = not self.desk.flagged
        self.show_item()

    def action_note(self) -> None:
        item = self.desk.item

        def take(text: str | None) -> None:
            if text is not None and self.desk.item is item:
                self.desk.note = text.strip()
                self.show_item()

        self.app.push_screen(
            PromptScreen("Note", "Stored with the answer to this pair.", value=self.desk.note), take
        )  # fmt: skip

    # --- options -----------------------------------------------------------------------------------------------

    def set_options(self, options: LabelOptions) -> None:
        """Keep the options in the session and go by them."""
        from rlhf_tui.labelling.options import login_name

        before, self.options = self.options, options
        session = self.playground.session
        self.playground.keep(lambda: session.set_setting(SETTING, options.to_dict()))
        self.desk.retune(
            options, annotator=options.annotator or login_name(), guideline=self.guideline, fours=options.ask == "fours"
        )
        if (before.sources, before.temperature) != (options.sources, options.temperature):
            self.fill(fresh=True)
        self.show_item()
        self.settle()

    def action_options(self) -> None:
        from rlhf_tui.screens.label_options import LabelOptionsScreen

        self.app.push_screen(LabelOptionsScreen(self.options), lambda made: self.set_options(made) if made else None)

    def action_other_way(self) -> None:
        self.set_options(self._with(ask="pairs" if self.options.ask == "fours" else "fours"))

    def action_guideline(self) -> None:
        def take(text: str | None) -> None:
            if text is not None:
                self.set_options(self._with(guideline=text.strip()))

        self.app.push_screen(
            PromptScreen("What is better here?", "It stands above each pair and is stored with each label.",
                         value=self.guideline),
            take,
        )  # fmt: skip

    def _with(self, **changes: Any) -> LabelOptions:
        return LabelOptions(**{**self.options.to_dict(), **changes})

    def action_browse(self) -> None:
        from rlhf_tui.screens.label_browser import LabelBrowser

        self._stop_simulation()

        def back(_: None) -> None:
            self.show_item()
            self.settle()

        self.app.push_screen(LabelBrowser(self.desk, self.playground.keep, self.playground.session.read_only), back)

    # --- the simulated person ----------------------------------------------------------------------------------

    def action_automatic(self) -> None:
        if self.simulation is not None:
            self._stop_simulation()
            return

        def wrong(text: str) -> str:
            try:
                parse_simulation(text, self.judged_task, self.playground.session.seed)
            except ConfigError as error:
                return str(error)
            return ""

        self.app.push_screen(
            PromptScreen(
                "Let a simulated person label",
                f"Taste, noise (share of wrong answers, up to 0.4) and how many. Tastes: {tastes_line()}.",
                value="gold noise=0 count=50", check=wrong,
            ),
            lambda text: self._simulate(text) if text is not None else None,
        )  # fmt: skip

    def _simulate(self, text: str) -> None:
        self.simulation = parse_simulation(text, self.judged_task, self.playground.session.seed)
        self.set_timer(SIMULATED_EVERY, self._simulated_answer)

    def _simulated_answer(self) -> None:
        if self.simulation is None:
            return
        simulation = self.simulation
        records = self._kept(lambda: judge(self.desk, simulation))
        if records is None:
            self._stop_simulation()
            return
        if records:
            left = self.simulation.count - 1
            self.simulation = Simulation(self.simulation.labeller, left) if left else None
            self._answered(records)
        if self.simulation is not None:
            self.set_timer(SIMULATED_EVERY if records else 0.5, self._simulated_answer)

    def _stop_simulation(self) -> None:
        if self.simulation is not None:
            self.simulation = None
            self.settle()

    # --- rounds ------------------------------------------------------------------------------------------------

    async def action_retrain(self) -> None:
        await self._start(plan_retrain(self.playground.state, self.desk.labels.current(), self.options))

    async def action_align(self) -> None:
        await self._start(plan_align(self.playground.state, self.desk.labels.current(), self.options))

    async def _start(self, plan: StartPlan) -> None:
        if plan.obstacle:
            self.playground.toast(plan.obstacle, severity="warning")
            return
        answer = await self.playground.ask(Start, **plan.fields)
        if isinstance(answer, RunState):
            # Not a toast: that would lie over the keys and lines that a person goes on with.
            labelling = "; you can go on labelling" if self.desk.item is not None else ""
            self.said = f"{self.playground.state.runs[answer.run].name} trains{labelling}"
            if not labelling:
                self.fill()  # and say what is waited for
            self.show_item()
            self.settle()

    def action_sample_again(self) -> None:
        self.said = ""
        self.desk.problem = ""
        self.fill(fresh=True)

    def run_ended(self, run: Run) -> None:
        """A run has ended: measure a reward model, draw from a policy."""
        if run.method == "rm":
            self.measure_effect(run)
        else:
            self.fill()

    @work(group="effect", exclusive=True)
    async def measure_effect(self, run: Run) -> None:
        """Say what retraining did to the labels that nobody learned from."""
        labels, honest = measured_labels(self.desk.labels.current(), MEASURED)
        if not labels:
            self.fill(fresh=True)
            return
        before = [
            each.run
            for each in self.playground.state.runs.values()
            if each.method == "rm" and each.run < run.run and each.usable
        ]
        after = await self._scores(run.run, labels)
        old = await self._scores(max(before), labels) if before else None
        if after is not None:
            if old is None:
                self.said = f"{run.name}: {first_accuracy(labels, honest, after)}"
            else:
                self.said = f"{run.name}: {effect_line(model_change(labels, old, after), honest, after)}"
            self.show_item()
            self.playground.state.say("info", self.said)
        self.fill(fresh=True)

    async def _scores(self, run: int, labels: list[LabelRecord]) -> dict[str, tuple[float, float]] | None:
        """What a reward model says of both texts of each label."""
        sides = [(each, side) for each in labels for side in (each.left, each.right) if side is not None]
        answer = await self.playground.ask(
            Score, prompts=[each.prompt for each, _ in sides], texts=[side.text for _, side in sides], reward_run=run
        )
        if not isinstance(answer, Scores):
            return None
        found: dict[str, tuple[float, float]] = {}
        for number, each in enumerate(labels):
            left, right = answer.scores[2 * number], answer.scores[2 * number + 1]
            if left is not None and right is not None:
                found[each.id] = (sum(left) / len(left), sum(right) / len(right))
        return found
