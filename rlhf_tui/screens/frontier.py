"""Frontier: reward against KL on one plane – what is possible, best of n, and where each run has gone."""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar

from textual import work
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from core.engine.protocol import (
    Evaluate,
    Evaluation,
    Event,
    Frontier,
    Metrics,
    Plane,
    ProtocolError,
    RunState,
    decode_event,
    encode,
)
from core.methods.table import trains_policy
from rlhf_tui.history import adopt, load_run
from rlhf_tui.plane import Path, PlaneData, path_of
from rlhf_tui.plotting import GLYPHS
from rlhf_tui.safe_text import safe_text
from rlhf_tui.scale import number
from rlhf_tui.screens.base import PlaygroundScreen
from rlhf_tui.screens.topics import HelpTopic
from rlhf_tui.state import Run
from rlhf_tui.widgets.plane_view import PlaneView

MOST_RUNS = 6  # as many as there are colours and glyphs
REFRESH = 0.5  # seconds between two looks at what changed
LEAST_EFFECTIVE = 30.0  # of an optimality's best policy, to be drawn as part of the frontier
HELP = HelpTopic(
    "Reward against KL",
    (
        ("What it shows",
         "Each run's way from the reference (○, KL 0) through reward and KL, the newest figure marked by its glyph. "
         "The bold line is the frontier: no policy gets more reward at the same KL. + marks the best policy of a price "
         "β, ×n best of n."),
        ("How it is known",
         "From completions of the reference, weighted by exp(reward / β). Where few of them carry the weight "
         "(effective sample size below 30 for some prompt) the line is faint: it lies too low there."),
        ("Optimality",
         "(J − R) / (J* − R) with J = reward − β·KL: the share of the way from the reference's reward R to the best J* "
         "that is possible at the run's β. Above 1 is the error of the measurement."),
        ("Usual misreading",
         "A run that is higher up is not better for that: compare at equal KL, or by optimality at one β. By a learned "
         "reward the frontier is what the reward model likes, gold or not."),
    ),
)  # fmt: skip


class FrontierScreen(PlaygroundScreen):
    entry_name = "frontier"
    CSS_PATH = "frontier.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "measure", "Frontier", id="frontier.measure",
                tooltip="Measure what is possible from this reference (takes a while; training goes on)"),
        Binding("o", "optimality", "Optimality", id="frontier.optimality",
                tooltip="How much of the way to the best the chosen run has gone"),
        Binding("O", "all_optimalities", "Of all", show=False, id="frontier.all_optimalities",
                tooltip="The optimality of every run on the plane, one after the other"),
        Binding("g", "other_reward", "Gold/learned", id="frontier.reward",
                tooltip="By the gold rule, or by the reward model"),
        Binding("t", "other_axis", "KL/√KL", id="frontier.axis", tooltip="KL or its square root on the x axis"),
        Binding("p", "pin", "Pin", id="frontier.pin", tooltip="Keep the chosen run on the plane, or take it away"),
        Binding("comma,up", "walk(-1)", "Earlier run", key_display=",", id="frontier.previous_run",
                tooltip="Choose the run before this one"),
        Binding("full_stop,down", "walk(1)", "Later run", key_display=".", id="frontier.next_run",
                tooltip="Choose the run after this one"),
    ]  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.chosen: int | None = None
        self.reward = "gold"
        self.square_root = True
        self.planes: dict[str, Plane] = {}
        self.found: dict[str, Evaluation] = {}  # optimality by run and reward
        self.doing = ""
        self._changed = True

    def compose_body(self) -> Iterable[Widget]:
        yield Static(id="about")
        with Horizontal(id="body"):
            yield PlaneView(self.data, id="plane")
            with VerticalScroll(id="runs", can_focus=False):
                yield Static(id="list")
        yield Static(id="doing")

    def on_mount(self) -> None:
        self.restore(self.playground.saved_ui_of(self))
        self.show_all()
        self.set_interval(REFRESH, self._refresh)

    # --- what is shown -----------------------------------------------------------------------------------------

    def policies(self) -> list[Run]:
        """The runs that can stand on a plane, oldest first."""
        runs = self.playground.state.runs.values()
        return sorted((run for run in runs if trains_policy(run.method) and run.step > 0), key=lambda run: run.run)

    @property
    def run(self) -> Run | None:
        """The chosen run; the newest that has a reference, where none is chosen."""
        policies = self.policies()
        found = next((run for run in policies if run.run == self.chosen), None)
        return found or max(policies, key=lambda run: (_reference(run) != (run.run, run.step), run.run), default=None)

    def drawn(self) -> list[Run]:
        """The chosen run and, of its reference, those that are pinned – or the newest, while none is."""
        chosen = self.run
        if chosen is None:
            return []
        others = [run for run in self.policies() if _reference(run) == _reference(chosen) and run is not chosen]
        pinned = [run for run in others if run.pinned]
        return sorted([chosen, *(pinned or others)[1 - MOST_RUNS :]], key=lambda run: run.run)

    def data(self) -> PlaneData:
        """What the plane shows now."""
        run = self.run
        paths = tuple(self._path(each) for each in self.drawn())
        bests = []
        for each in self.drawn():
            values = self._values(each)
            if values.get("effective_sample_size", 0.0) >= LEAST_EFFECTIVE and "best_kl" in values:
                bests.append((values["best_kl"], values["best_reward"]))
        if run is None:
            empty = "No policy is trained yet. [ and ] lead to the Train screen."
        else:
            empty = "Press space to measure what is possible from this reference."
        return PlaneData(self._plane(), paths, tuple(bests), self.square_root, empty)

    def _path(self, run: Run) -> Path:
        load_run(self.playground.session, run)
        return path_of(run.series, f"{self.reward}_reward", run.name, run is self.run)

    def _plane(self) -> Plane | None:
        run = self.run
        return None if run is None else self.planes.get(self._key(run))

    def _key(self, run: Run) -> str:
        source = "gold" if self.reward == "gold" else f"run {self._reward_run(run)}"
        parent, step = _reference(run)
        return f"{source} from {parent} at {step}"

    def _reward_run(self, run: Run) -> int | None:
        """The reward model that a run learned from, else the newest."""
        given = run.inputs.get("reward_run")
        newest = self.playground.state.newest_usable("rm")
        return given if isinstance(given, int) else newest.run if newest is not None else None

    def _values(self, run: Run) -> dict[str, float]:
        found = self.found.get(f"{run.run} {self._key(run)}")
        return {} if found is None else found.values

    def show_all(self) -> None:
        self._changed = False
        self.query_one(PlaneView).border_title = safe_text(f"{self.reward} reward against KL")
        self.query_one(PlaneView).redraw()
        self.query_one("#about", Static).update(self._about())
        lines = [self._line(at, run) for at, run in enumerate(self.drawn())]
        self.query_one("#list", Static).update(Content("\n").join(lines))
        self.query_one("#doing", Static).update(safe_text(self.doing))

    def _about(self) -> Content:
        run, plane = self.run, self._plane()
        if run is None:
            return Content("")
        parent, step = _reference(run)
        known = self.playground.state.runs.get(parent)
        parts = [f"reference: {known.name if known else f'run {parent}'} at step {step}"]
        if plane is not None:
            parts.append(f"reward {plane.reference_reward:.2f} ({plane.completions:,} completions)")
        else:
            parts.append("space measures what is possible")
        left_out = len(self.policies()) - len(self.drawn())
        if left_out:
            parts.append(f"{left_out} runs not drawn (another reference, or not pinned)")
        return safe_text(" · ".join(parts))

    def _line(self, at: int, run: Run) -> Content:
        """A run: glyph, name, where it stands, its optimality."""
        mark = "›" if run is self.run else " "
        pin = "⌃" if run.pinned else " "
        line = Content(mark) + safe_text(GLYPHS[at % 6], style=f"$line-{1 + at % 6}")
        line += safe_text(f"{pin}{run.name} ", style="bold" if run is self.run else "")
        final = self._path(run).final
        if final is not None:
            line += Content(f" {number(final[1])} at KL {number(final[0])}")
        return line + self._optimality(run)

    def _optimality(self, run: Run) -> Content:
        found = self.found.get(f"{run.run} {self._key(run)}")
        if found is None:
            return Content("")
        values = found.values
        if "optimality" not in values:
            return Content("\n     ") + safe_text((found.notes or ["no optimality"])[0], style="$text-muted")
        text = f"optimality {values['optimality']:.2f} ± {values['optimality_error']:.2f} at β {values['beta']:g}"
        return Content("\n     ") + safe_text(text + (f", step {found.step}" if found.step != run.step else ""))

    def _refresh(self) -> None:
        if self._changed and self.playground.screen is self:
            self.show_all()

    # --- keys --------------------------------------------------------------------------------------------------

    def action_measure(self) -> None:
        if self.doing:
            self.playground.toast(f"{self.doing} – wait for it")
        elif self.run is None:
            self.playground.toast("train a policy first")
        else:
            self._measure(self.run)

    @work(group="plane")
    async def _measure(self, run: Run) -> None:
        fields = self._by(run)
        if fields is None:
            return
        key = self._key(run)
        self._do("measuring what is possible: the reference writes …")
        answer = await self.playground.ask(Frontier, run=run.run, **fields)
        self._do("")
        if isinstance(answer, Plane):
            if answer.reward != self.reward:  # the task has no gold rule
                self.reward = answer.reward
                key = self._key(run)
            self.planes[key] = replace(answer, id=None)
            self.show_all()

    def action_optimality(self) -> None:
        if self.run is not None:
            self._judge([self.run])

    def action_all_optimalities(self) -> None:
        self._judge(self.drawn())

    def _judge(self, runs: list[Run]) -> None:
        if self.doing:
            self.playground.toast(f"{self.doing} – wait for it")
        else:
            self._judge_each([run for run in runs if _reference(run) != (run.run, run.step)])

    @work(group="plane")
    async def _judge_each(self, runs: list[Run]) -> None:
        if not runs:
            self.playground.toast("a run that began from nothing has no reference to be held against")
        for run in runs:
            fields = self._by(run)
            if fields is None:
                return
            key = f"{run.run} {self._key(run)}"
            self._do(f"measuring the optimality of {run.name} …")
            answer = await self.playground.ask(Evaluate, run=run.run, completions=2, optimality=True, **fields)
            self._do("")
            if not isinstance(answer, Evaluation):
                return
            self.found[key] = replace(answer, id=None)
            self.show_all()

    def _by(self, run: Run) -> dict[str, int] | None:
        """Fields that name the reward; None when there is none, which is said."""
        if self.reward == "gold":
            return {}
        reward_run = self._reward_run(run)
        if reward_run is None:
            self.playground.toast("there is no reward model yet; train one first (RM), or press g for the gold rule")
            return None
        return {"reward_run": reward_run}

    def _do(self, what: str) -> None:
        self.doing = what
        self.query_one("#doing", Static).update(safe_text(what))

    def action_other_reward(self) -> None:
        self.reward = "learned" if self.reward == "gold" else "gold"
        self.show_all()

    def action_other_axis(self) -> None:
        self.square_root = not self.square_root
        self.show_all()

    def action_pin(self) -> None:
        run = self.run
        if run is not None:
            run.pinned = not run.pinned
            self.playground.keep(lambda: self.playground.session.runs.update(run.run, pinned=run.pinned))
            self.show_all()

    def action_walk(self, distance: int) -> None:
        policies = self.policies()
        if self.run is not None:
            at = policies.index(self.run) + distance
            self.chosen = policies[min(max(at, 0), len(policies) - 1)].run
            self.show_all()

    # --- hooks of the app --------------------------------------------------------------------------------------

    def engine_event(self, event: Event) -> None:
        if isinstance(event, RunState | Metrics):
            self._changed = True
            run = self.playground.state.runs.get(event.run)
            if run is not None and run.seed is None:
                adopt(self.playground.session, run)

    def session_changed(self) -> None:
        self.planes, self.found, self.chosen, self.doing = {}, {}, None, ""
        self.restore(self.playground.saved_ui_of(self))
        self._changed = True

    def ui_state(self) -> dict[str, Any]:
        return {
            "run": self.chosen,
            "reward": self.reward,
            "square_root": self.square_root,
            "planes": {key: json.loads(encode(plane)) for key, plane in self.planes.items()},
            "optimality": {key: json.loads(encode(found)) for key, found in self.found.items()},
        }

    def restore(self, saved: dict[str, Any]) -> None:
        chosen = saved.get("run")
        self.chosen = chosen if isinstance(chosen, int) else None
        self.reward = "learned" if saved.get("reward") == "learned" else "gold"
        self.square_root = saved.get("square_root") is not False
        self.planes = {key: event for key, event in _events(saved.get("planes")) if isinstance(event, Plane)}
        self.found = {key: event for key, event in _events(saved.get("optimality")) if isinstance(event, Evaluation)}

    def help_topic(self) -> HelpTopic | None:
        return HELP


def _reference(run: Run) -> tuple[int, int]:
    """Run and step of a run's reference; its own where it began from nothing."""
    given = run.inputs.get("reference")
    if isinstance(given, dict) and isinstance(given.get("run"), int) and isinstance(given.get("step"), int):
        return given["run"], given["step"]
    return run.run, run.step


def _events(saved: Any) -> Iterable[tuple[str, Event]]:
    """Events kept as JSON; those that this program does not understand are left out."""
    for key, body in saved.items() if isinstance(saved, dict) else ():
        try:
            yield key, decode_event(json.dumps(body).encode())
        except ProtocolError:
            continue
