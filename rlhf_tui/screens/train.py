"""Train: choose a method, turn its knobs, start it, and watch it learn."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widget import Widget

from core.engine.protocol import Event, Metrics, RunState, Samples
from core.methods.base import Chart as ChartDefinition
from core.methods.base import Method
from core.methods.table import METHODS, known_method
from core.pipeline import fitting
from rlhf_tui.chart_feed import SMOOTHING, ChartOptions, chart_data
from rlhf_tui.flow import key_of, next_step
from rlhf_tui.history import adopt, load_run
from rlhf_tui.plotting import ChartData
from rlhf_tui.safe_text import safe_text
from rlhf_tui.screens.base import PlaygroundScreen
from rlhf_tui.screens.topics import HelpTopic
from rlhf_tui.screens.train_actions import FORK_DRAFT, TrainActions, fork_draft
from rlhf_tui.series import AXES
from rlhf_tui.state import Run
from rlhf_tui.unknown_methods import is_unknown, method_of
from rlhf_tui.widgets.chart import Chart
from rlhf_tui.widgets.chart_deck import ChartDeck
from rlhf_tui.widgets.knob_form import KnobForm
from rlhf_tui.widgets.pane_tabs import PaneTabs
from rlhf_tui.widgets.pipeline import Pipeline
from rlhf_tui.widgets.progress import ProgressLine
from rlhf_tui.widgets.run_log import RunLog
from rlhf_tui.widgets.sample_strip import SampleStrip
from rlhf_tui.widgets.still_text import StillText

PANES = (("charts", "Charts"), ("knobs", "Knobs"), ("samples", "Samples"), ("log", "Log"))
_CHANGING_ACTIONS = ("start", "pause", "go_on", "stop", "step", "again", "fork")
REFRESH = 0.25  # seconds between two looks at what changed, but for the charts, which have their own clock


class TrainScreen(TrainActions, PlaygroundScreen):
    entry_name = "train"
    CSS_PATH = "train.tcss"
    AUTO_FOCUS = "#pipeline"
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(str(digit), f"choose({digit})", method.title, show=False, id=f"train.method_{digit}",
                    tooltip=f"Look at {method.title}")
            for digit, method in zip(range(1, 10), METHODS.values(), strict=False)
        ),
        Binding("comma", "walk(-1)", "Earlier run", key_display=",", show=False, id="train.previous_run",
                tooltip="Show the run before this one"),
        Binding("full_stop", "walk(1)", "Later run", key_display=".", show=False, id="train.next_run",
                tooltip="Show the run after this one"),
        Binding("l", "toggle_log", "Log scale", show=False, id="train.log",
                tooltip="Logarithmic y axis of the focused chart, else of all"),
        Binding("o", "next_smoothing", "Smoothing", show=False, id="train.smoothing",
                tooltip=f"Next smoothing: {', '.join(str(each) for each in SMOOTHING)}"),
        Binding("t", "next_axis", "X axis", show=False, id="train.axis",
                tooltip="Draw over steps, completions or seconds"),
        Binding("m", "maximize_pane", "Maximise", show=False, id="train.maximise",
                tooltip="The focused pane over the whole screen, and back"),
        Binding("v", "next_pane", "Next pane", show=False, id="train.pane", tooltip="Go to the next pane"),
        Binding("k", "focus_pane('knobs')", "Knobs", show=False, id="train.knobs", tooltip="Go to the knobs"),
        Binding("g", "focus_pane('charts')", "Charts", show=False, id="train.charts", tooltip="Go to the charts"),
    ]  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.method: Method = next(iter(METHODS.values()))
        self.shown: Run | None = None  # the run looked at; None: the one that would start
        self.drafts: dict[str, dict[str, Any]] = {}  # knobs for the next run of each method, and to fork anew with
        self.options = ChartOptions()
        self.pane = PANES[0][0]
        self._changed = True
        self._offered: list[bool | None] = []

    def compose_body(self) -> Iterable[Widget]:
        yield Pipeline(id="pipeline")
        yield StillText(id="hint")
        yield PaneTabs(PANES, id="tabs")
        with Horizontal(id="upper"):
            yield KnobForm(id="knobs")
            yield ChartDeck(id="charts")
        with Horizontal(id="lower"):
            yield SampleStrip(id="samples")
            yield RunLog(id="log")
        yield ProgressLine(id="progress")

    async def on_mount(self) -> None:
        self.restore(self.playground.saved_ui_of(self))
        self._show_pane(self.pane)
        await self.show_run(self.shown)
        self.set_interval(REFRESH, self._refresh)

    # --- what is shown -----------------------------------------------------------------------------------------

    async def show_run(self, run: Run | None, method: Method | None = None) -> None:
        """Look at a run, or (None) at ``method`` before it starts."""
        self.shown = run
        for each in self.drawn_runs():
            load_run(self.playground.session, each)
        if run is not None:
            self.method = method_of(run)
        elif method is not None:
            self.method = method
        await self.query_one(ChartDeck).show(
            (definition.title, partial(self._feed, definition)) for definition in self.method.charts
        )
        self.show_all()

    def drawn_runs(self) -> list[Run]:
        """The shown run and those pinned beside it."""
        runs = self.playground.state.runs.values()
        shown = [self.shown] if self.shown is not None else []
        return shown + [run for run in runs if run.pinned and run is not self.shown]

    def _feed(self, definition: ChartDefinition) -> ChartData:
        pinned = [run for run in self.drawn_runs() if run is not self.shown]
        return chart_data(definition, self.shown, pinned, self.options)

    def show_all(self) -> None:
        """Bring everything but the charts up to date."""
        self._changed = False
        state = self.playground.state
        runs = {name: state.newest(name) for name in METHODS}
        if self.shown is not None:
            runs[self.method.name] = self.shown
        self.query_one(Pipeline).show(self.method, runs)
        self.query_one(ProgressLine).show(self.shown)
        self.query_one(RunLog).show(state)
        self._show_samples()
        self.query_one(KnobForm).show(self.method, self.values(), self.only_live())
        line = next_step(state, self.method, self.drafts.get(self.method.name, {}), self.shown)
        if self._starting:
            line = f"{self.method.title} is starting: its data are prepared …"
        self.query_one("#hint", StillText).show(safe_text(line))
        # The footer makes its keys anew for this, which costs more than the rest together.
        offered = [self.check_action(action, ()) for action in _CHANGING_ACTIONS]
        if offered != self._offered:
            self._offered = offered
            self.refresh_bindings()

    def _show_samples(self) -> None:
        if is_unknown(self.method):
            empty = "None were kept."
        elif self.method.trains == "reward_model":
            empty = "A reward model scores texts and writes none."
        else:
            empty = "What the model writes will stand here, the reference's text beside it."
            if self.shown is not None:
                empty += " Press a for samples now."
        self.query_one(SampleStrip).show(self.shown.samples if self.shown else None, empty)

    def only_live(self) -> bool:
        """Has the shown run begun, so that most of its knobs are fixed?"""
        return is_unknown(self.method) or (self.shown is not None and not self.shown.finished)

    def values(self) -> dict[str, Any]:
        """What the form shows: the run's knobs while it can go on, else those of the next run."""
        if self.shown is not None and not self.shown.finished:
            return self.shown.config
        if self.shown is not None and self.shown.forked:
            return {**self.shown.config, **self.drafts.get(fork_draft(self.shown), {})}
        state = self.playground.state
        return fitting(self.method, self.drafts.get(self.method.name, {}), state.gold, state.backbone)

    def _refresh(self) -> None:
        if self._changed and self.is_current:
            self.show_all()

    # --- hooks of the app --------------------------------------------------------------------------------------

    def engine_event(self, event: Event) -> None:
        self._changed = True
        match event:
            case RunState():
                run = self.playground.state.runs[event.run]
                if run.seed is None:
                    adopt(self.playground.session, run)
            case Metrics(run=number):
                if any(run.run == number for run in self.drawn_runs()):
                    self.query_one(ChartDeck).touch()
            case Samples():
                self._show_samples()

    def engine_changed(self) -> None:
        self._changed = True

    def session_changed(self) -> None:
        self.drafts, self.shown, self.method = {}, None, next(iter(METHODS.values()))
        self.restore(self.playground.saved_ui_of(self))
        self.query_one(RunLog).forget()
        self.run_worker(self.show_run(self.shown))

    def runs_changed(self) -> None:
        if self.shown is not None and self.shown.run not in self.playground.state.runs:
            self.shown = None
        method = next(iter(METHODS.values())) if is_unknown(self.method) else self.method
        self.run_worker(self.show_run(self.shown, method))

    def ui_state(self) -> dict[str, Any]:
        return {
            "method": self.method.name,
            "run": self.shown.run if self.shown else None,
            "drafts": self.drafts,
            "axis": self.options.axis,
            "smoothing": self.options.smoothing,
            "log": sorted(self.options.log),
            "pane": self.pane,
        }

    def restore(self, saved: dict[str, Any]) -> None:
        self.method = METHODS.get(str(saved.get("method")), self.method)
        number = saved.get("run")
        self.shown = self.playground.state.runs.get(number) if isinstance(number, int) else None
        if "run" not in saved:
            self.shown = self.playground.state.newest(self.method.name)
        drafts = saved.get("drafts")
        kept = drafts.items() if isinstance(drafts, dict) else ()
        self.drafts = {name: dict(draft) for name, draft in kept if _has_draft(name) and isinstance(draft, dict)}
        axis, smoothing, log = saved.get("axis"), saved.get("smoothing"), saved.get("log")
        self.options = ChartOptions(
            axis if axis in AXES else "step",
            smoothing if smoothing in SMOOTHING else self.options.smoothing,
            frozenset(str(title) for title in log) if isinstance(log, list) else frozenset(),
        )
        pane = str(saved.get("pane"))
        self.pane = pane if pane in dict(PANES) else self.pane

    def would_be_lost(self) -> list[str]:
        unsent = self.query_one(KnobForm).unsent
        return [f"A value typed and not entered: {unsent}"] if unsent else []

    def help_topic(self) -> HelpTopic | None:
        title = self.focused.title if isinstance(self.focused, Chart) else None
        definition = next((each for each in self.method.charts if each.title == title), None)
        if definition is None:
            return self.query_one(Pipeline).help_topic()
        return HelpTopic(
            f"{definition.title} · {self.method.title}",
            (
                ("What it shows", definition.meaning),
                ("The usual misreading", definition.misreading),
                ("Lines", "Raw values faint, smoothed ones bright; pinned runs faint with a glyph of their own. "
                          "▾ marks a turned knob, ! an alert."),
                ("Metrics", ", ".join(definition.metrics)),
            ),
        )  # fmt: skip

    # --- looking around ----------------------------------------------------------------------------------------

    async def choose_method(self, name: str) -> None:
        await self.show_run(self.playground.state.newest(name), known_method(name))

    async def action_choose(self, digit: int) -> None:
        for name in METHODS:
            if key_of(name) == str(digit):
                await self.choose_method(name)

    @on(Pipeline.Chosen)
    async def _chosen(self, message: Pipeline.Chosen) -> None:
        await self.choose_method(message.method)

    async def action_walk(self, distance: int) -> None:
        runs = sorted(self.playground.state.runs.values(), key=lambda run: run.run)
        if not runs:
            return
        at = runs.index(self.shown) + distance if self.shown in runs else (0 if distance > 0 else -1)
        await self.show_run(runs[at % len(runs)])

    def _draw_with(self, options: ChartOptions, said: str) -> None:
        self.options = options
        self.query_one(ChartDeck).touch(fresh=True)
        self.playground.toast(said)

    def action_toggle_log(self) -> None:
        titles = [each.title for each in self.method.charts]
        if isinstance(self.focused, Chart):
            titles = [self.focused.title]
        log = not set(titles) <= self.options.log
        changed = self.options.log | set(titles) if log else self.options.log - set(titles)
        self._draw_with(replace(self.options, log=changed), f"{', '.join(titles)}: {'log' if log else 'linear'} scale")

    def action_next_smoothing(self) -> None:
        options = self.options.next_smoothing()
        self._draw_with(options, f"smoothing {options.smoothing:g}" if options.smoothing else "no smoothing")

    def action_next_axis(self) -> None:
        options = self.options.next_axis()
        for chart in self.query(Chart):
            chart.reading = None
        self._draw_with(options, f"x axis: {options.axis}")

    # --- panes -------------------------------------------------------------------------------------------------

    def _show_pane(self, name: str) -> None:
        self.pane = name
        for each, _ in PANES:
            self.set_class(each == name, f"-pane-{each}", update=False)
        self.query_one(PaneTabs).show(name)
        # Where all panes are on the screen nothing looks different, and to style every widget anew takes long.
        if self._one_pane_at_a_time:
            self.update_node_styles()
            self.query_one(ChartDeck).touch(fresh=True)

    @property
    def _one_pane_at_a_time(self) -> bool:
        return bool(self.classes & {"-narrow", "-short", "-tiny"})

    @on(PaneTabs.Chosen)
    def _pane_chosen(self, message: PaneTabs.Chosen) -> None:
        self.action_focus_pane(message.name)

    def reveal(self, name: str) -> None:
        """Bring a pane on the screen where it hides behind others."""
        if self._one_pane_at_a_time:
            self.action_focus_pane(name)

    def action_focus_pane(self, name: str) -> None:
        self._show_pane(name)
        if self._one_pane_at_a_time:
            self.call_after_refresh(self._focus_in, name)  # nothing can be focused before it is displayed
        else:
            self._focus_in(name)

    def _focus_in(self, name: str) -> None:
        pane = self.query_one(f"#{name}")
        target = pane if pane.focusable else next((each for each in pane.query("*") if each.focusable), None)
        if target is not None:
            target.focus()

    def action_next_pane(self) -> None:
        names = [name for name, _ in PANES]
        self.action_focus_pane(names[(names.index(self.pane) + 1) % len(names)])

    def action_maximize_pane(self) -> None:
        if self.maximized is not None:
            self.minimize()
        elif self.focused is not None:
            node: Any = self.focused
            while isinstance(node, Widget) and node.id not in dict(PANES) and not isinstance(node, Chart):
                node = node.parent
            if isinstance(node, Widget):
                self.maximize(node, container=False)
        self.query_one(ChartDeck).touch(fresh=True)


def _has_draft(name: str) -> bool:
    """Is it a key of the drafts: a method's name, or that of a fork?"""
    return name.startswith(FORK_DRAFT) or known_method(name) is not None
