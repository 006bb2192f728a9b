"""What can be done to runs from the Train screen: each key sends a command to the engine, whose events do the rest."""

from typing import TYPE_CHECKING, Any, ClassVar

from textual import on, work
from textual.binding import Binding, BindingType
from textual.screen import Screen

from core.config import ConfigError, parse_short
from core.engine.protocol import Fork, Pause, Resume, RunState, Sample, Samples, Save, SetKnob, Start, Step, Stop
from core.methods.base import Method
from core.methods.table import known_method
from core.store import StoreError
from rlhf_tui.chart_feed import ChartOptions
from rlhf_tui.flow import StartPlan, changed, plan_race, plan_start
from rlhf_tui.screens.prompt import PromptScreen
from rlhf_tui.state import Run
from rlhf_tui.unknown_methods import is_unknown
from rlhf_tui.widgets.chart import Chart
from rlhf_tui.widgets.knob_form import KnobForm

if TYPE_CHECKING:
    from rlhf_tui.app import PlaygroundApp

_NEED_THE_METHOD = ("go_on", "step", "stop", "again", "again_anew", "fork", "save", "longer", "sample")


FORK_DRAFT = "run "


def fork_draft(run: Run) -> str:
    """The key of the knobs with which an ended fork would be made again; other runs share those of their method."""
    return f"{FORK_DRAFT}{run.run}"


class TrainActions(Screen[None]):
    """The keys of the Train screen that change something; :class:`TrainScreen` is what they act on."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "start", "Start", id="train.start", tooltip="Start the selected method"),
        Binding("space", "pause", "Pause", id="train.pause", tooltip="Pause at the end of this step"),
        Binding("space", "go_on", "Go on", id="train.go_on", tooltip="Go on from here, or from the last resume point"),
        Binding("space", "already_done", "", show=False, id="train.already_done"),
        Binding("s", "step", "Step", id="train.step", tooltip="Do one step of a paused run (or start paused)"),
        Binding("x", "stop", "Stop", id="train.stop", tooltip="End the run and keep what it learned"),
        Binding("r", "again", "Again", id="train.again",
                tooltip="A new run from the same start, with the same seed and the form's knobs"),
        Binding("R", "again_anew", "New seed", show=False, id="train.again_anew",
                tooltip="A new run from the same start, with a new seed"),
        Binding("f", "fork", "Fork", id="train.fork",
                tooltip="A new run from here (from the reading line, where there is one), with a knob changed"),
        Binding("p", "pin", "Pin", id="train.pin",
                tooltip="Keep this run on the charts as an overlay, or take it away"),
        Binding("c", "race", "Race", id="train.race", tooltip="PPO and DPO at once from one reference, on one chart"),
        Binding("a", "sample", "Samples", show=False, id="train.sample", tooltip="Fresh samples now"),
        Binding("S", "save", "Save", show=False, id="train.save", tooltip="Keep this step under a name"),
        Binding("L", "longer", "Longer", show=False, id="train.longer", tooltip="Half as many steps again"),
    ]  # fmt: skip

    _starting = False  # a Start waits for its answer

    # What TrainScreen has, for the type checker.
    if TYPE_CHECKING:
        method: Method
        shown: Run | None
        drafts: dict[str, dict[str, Any]]
        options: ChartOptions

        @property
        def playground(self) -> PlaygroundApp: ...
        async def show_run(self, run: Run | None, method: Method | None = None) -> None: ...
        def show_all(self) -> None: ...
        def reveal(self, name: str) -> None: ...
        def values(self) -> dict[str, Any]: ...

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        run = self.shown
        if is_unknown(self.method) and action in _NEED_THE_METHOD:
            return False
        match action:
            case "start":
                return run is None
            case "pause":
                return run is not None and run.active
            case "go_on":
                return run is not None and run.resumable
            case "already_done":
                return run is not None and (run.finished or is_unknown(self.method))
            case "stop":
                return run is not None and not run.finished
            case "step":
                return run is None or run.state == "paused"
            case "again" | "again_anew" | "pin" | "sample":
                return run is not None
            case "fork" | "save" | "longer":
                return run is not None and run.step > 0
        return True

    # --- beginning ---------------------------------------------------------------------------------------------

    @work(group="actions")
    async def action_start(self) -> None:
        await self._start(plan_start(self.playground.state, self.method, self.drafts.get(self.method.name, {})))

    async def _start(self, plan: StartPlan, paused: bool = False) -> Run | None:
        if self._starting:
            return None  # pressed twice while the engine is busy
        if plan.obstacle:
            self.playground.toast(plan.obstacle, severity="warning")
            return None
        self._starting = True
        self.show_all()
        try:
            answer = await self.playground.ask(Start, **plan.fields, paused=paused)
        finally:
            self._starting = False
            self.show_all()
        return await self._follow(answer, plan.fields)

    async def _follow(self, answer: object, fields: dict[str, Any]) -> Run | None:
        """Look at the run that an answer tells of."""
        if not isinstance(answer, RunState):
            return None
        run = self.playground.state.runs[answer.run]
        method = known_method(run.method)
        if method is not None and not run.config:
            run.config = {**method.config().to_dict(), **fields.get("config", {})}
        await self.show_run(run)
        return run

    @work(group="actions")
    async def action_again(self, new_seed: bool = False) -> None:
        run = self.shown
        if run is None:
            return
        values = self.values()
        if run.active or run.resumable:
            await self.playground.ask(Stop, run=run.run)
            self.playground.toast(f"{run.name} was stopped and stays as it is; this is a new run from its beginning")
        seed = run.seed if run.seed is not None else self.playground.session.seed
        if new_seed:
            taken = {each.seed for each in self.playground.state.runs.values()} | {self.playground.session.seed}
            seed = max(each for each in taken if each is not None) + 1
        if run.forked:
            await self._fork_again(run, values, seed)
            return
        plan = plan_start(self.playground.state, self.method, values, seed)
        # The same start as before, as long as it is still there.
        if not plan.obstacle and run.parent is not None:
            plan.fields["parent"] = run.parent
            if run.parent_step is not None:
                plan.fields["parent_step"] = run.parent_step
        await self._start(plan)

    async def _fork_again(self, run: Run, values: dict[str, Any], seed: int) -> None:
        """From the same step of the same parent, optimizer, reference and all: not a fresh run from its weights."""
        if self._starting:
            return
        self._starting = True
        try:
            answer = await self.playground.ask(
                Fork, run=run.parent, step=run.parent_step, config=values, seed=seed
            )  # fmt: skip
        finally:
            self._starting = False
        await self._follow(answer, {"config": values})

    def action_again_anew(self) -> None:
        self.action_again(new_seed=True)

    @work(group="actions")
    async def action_race(self) -> None:
        ppo, dpo = plan_race(self.playground.state, self.drafts)
        first = await self._start(ppo)
        if first is None:
            return
        second = await self._start(dpo)
        if second is not None:
            self._pin(second, True)
            await self.show_run(first)
            self.playground.toast("PPO and DPO race from the same reference; . and , change between them")

    # --- while it trains ---------------------------------------------------------------------------------------

    def action_pause(self) -> None:
        if self.shown is not None:
            self.playground.tell(Pause, run=self.shown.run)

    def action_go_on(self) -> None:
        if self.shown is not None:
            self.playground.tell(Resume, run=self.shown.run)

    def action_already_done(self) -> None:
        if self.shown is not None:
            done = f"{self.shown.name} is {self.shown.state}: r runs it again, 1–9 choose another method"
            self.playground.toast(self.method.summary if is_unknown(self.method) else done)

    @work(group="actions")
    async def action_step(self) -> None:
        if self.shown is None:
            plan = plan_start(self.playground.state, self.method, self.drafts.get(self.method.name, {}))
            run = await self._start(plan, paused=True)
            if run is None:
                return
        if self.shown is not None:
            await self.playground.ask(Step, run=self.shown.run)

    def action_stop(self) -> None:
        if self.shown is not None:
            self.playground.tell(Stop, run=self.shown.run)

    @work(group="actions")
    async def action_longer(self) -> None:
        run = self.shown
        if run is not None:
            before, steps = run.steps, run.steps + max(run.steps // 2, 1)
            if await self.playground.ask(Resume, run=run.run, steps=steps) is not None:
                self.playground.toast(f"{run.name} goes on to step {steps} instead of {before}")

    @on(KnobForm.Turned)
    @work(group="actions")
    async def _turned(self, message: KnobForm.Turned) -> None:
        run = self.shown
        typed = message.value != self.values().get(message.name)  # not what came with the session
        if typed and not self.playground.allow_typed(self.method.config, {message.name: message.value}):
            return
        if run is not None and not run.finished:
            await self.playground.ask(SetKnob, run=run.run, name=message.name, value=message.value)
        elif run is not None and run.forked:
            key = fork_draft(run)
            self.drafts[key] = {**self.drafts.get(key, {}), message.name: message.value}
        else:
            draft = {**self.drafts.get(self.method.name, {}), message.name: message.value}
            self.drafts[self.method.name] = changed(self.method, draft)
        self.show_all()

    # --- keeping and comparing ---------------------------------------------------------------------------------

    def action_pin(self) -> None:
        if self.shown is not None:
            self._pin(self.shown, not self.shown.pinned)
            stays = "stays on the charts when you look at other runs"
            words = stays if self.shown.pinned else "is on the charts only while you look at it"
            self.playground.toast(f"{self.shown.name} {words}")

    def _pin(self, run: Run, pinned: bool) -> None:
        run.pinned = pinned
        if self.playground.session.read_only:
            return
        try:
            self.playground.session.runs.update(run.run, pinned=pinned)
        except StoreError as error:
            self.playground.toast(str(error), severity="warning")

    def action_fork(self) -> None:
        run = self.shown
        method = None if run is None else known_method(run.method)
        if run is None or method is None:
            return
        reading = next((chart.reading for chart in self.query(Chart) if chart.reading is not None), None)
        step = run.step if reading is None else run.step_at(reading, self.options.axis)

        def wrong(text: str) -> str:
            try:
                parse_short(method.config, text)
            except ConfigError as error:
                return str(error)
            return ""

        async def fork(text: str) -> None:
            config = {part.partition("=")[0]: None for part in text.split()}
            parsed = parse_short(method.config, text).to_dict()
            config = {name: parsed[name] for name in config}
            if not self.playground.allow_typed(method.config, config):
                return
            answer = await self.playground.ask(
                Fork, run=run.run, step=None if reading is None else step, config=config
            )  # fmt: skip
            if isinstance(answer, RunState):
                self._pin(run, True)
                await self._follow(answer, {"config": {**run.config, **config}})

        def answered(text: str | None) -> None:
            if text is not None:
                self.run_worker(fork(text), group="actions")

        self.app.push_screen(
            PromptScreen(
                f"Fork {run.name} at step {step}",
                "Knobs to change, as name=value with blanks between; empty for none. The old run stays pinned.",
                placeholder="learning_rate=0.0005", check=wrong,
            ),
            answered,
        )  # fmt: skip

    def action_save(self) -> None:
        run = self.shown
        if run is None:
            return
        self.app.push_screen(
            PromptScreen(f"Keep step {run.step} of {run.name}", "A name for this resume point; it is never pruned.",
                         check=lambda text: "" if text.strip() else "a name, please"),
            lambda name: self.playground.tell(Save, run=run.run, name=name.strip()) if name else None,
        )  # fmt: skip

    @work(group="actions")
    async def action_sample(self) -> None:
        run = self.shown
        if run is not None and self.method.trains != "policy":
            self.playground.toast("a reward model writes no samples")
            return
        answer = await self.playground.ask(
            Sample, run=run.run if run else None, reference=run.parent if run else None
        )  # fmt: skip
        if isinstance(answer, Samples) and run is not None:
            run.samples = answer
            self.reveal("samples")
        self.show_all()
