"""Label: judge pairs by keyboard, watch how good the judgements are, and train on them round by round."""

import asyncio
from collections.abc import Iterable
from typing import Any, ClassVar

from textual import on, work
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from core.config import ConfigError
from core.engine.protocol import Event, RunState, Sample, Samples, Score, Scores
from core.preferences.conversion import count_labels, training_effect
from core.preferences.labels import Answer, LabelRecord
from core.preferences.selection import Candidate, ChosenFour, ChosenPair
from rlhf_tui.history import adopt
from rlhf_tui.labelling.desk import Desk, after_vote
from rlhf_tui.labelling.options import SETTING, LabelOptions, login_name, read_options
from rlhf_tui.labelling.rounds import stages
from rlhf_tui.labelling.sources import file_candidates, parse_sources, writers
from rlhf_tui.labelling.supply import EVERY, Supply, candidates_of, part_of, with_scores
from rlhf_tui.safe_text import safe_text
from rlhf_tui.screens.base import PlaygroundScreen
from rlhf_tui.screens.label_actions import LabelActions
from rlhf_tui.screens.topics import HelpTopic
from rlhf_tui.tasks import task_of
from rlhf_tui.widgets.judged_texts import JudgedTexts, TextPane
from rlhf_tui.widgets.label_panel import LabelPanel, panel_content

MOST_SCORED = 512  # texts of one request to a reward model
QUIET = 0.4  # seconds without a key after which the quality panel is drawn again
PATIENCE = 3  # askings in a row that bring nothing to judge, before the screen says so

EFFECTS = """\
answer    reward model                  DPO       export
A or B    hard label, strength: margin  pair      chosen, rejected
tie       target 0.5                    left out  left out
both bad  –                             –         two bad examples
skip      –                             –         –"""
SCALE = "1 A≫B  2 A>B  3 A≥B  4 tie  5 B≥A  6 B>A  7 B≫A · ←A →B · b both bad · s skip"
FOURS = "1–4 the best, then 1–4 the worst   s skip   u takes the first key back"


class LabelScreen(LabelActions, PlaygroundScreen):
    entry_name = "label"
    CSS_PATH = "label.tcss"
    AUTO_FOCUS = "#judged"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("v", "toggle_panel", "Quality", show=False, id="label.panel",
                tooltip="The quality panel over the pair, and back (narrow screens)"),
    ]  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.options = LabelOptions()
        self.said = ""  # the line about the last answer, or about what the last retraining did
        self.passing: dict[str, str] = {}  # why a source gives nothing now
        self._barren = 0  # askings in a row after which there was still nothing to judge
        self._since_supply = 0
        self._quiet: Any = None
        self._files: dict[str, list[Candidate]] = {}  # what was read of each
        self._trained: set[int] = set()  # runs that train now

    def compose_body(self) -> Iterable[Widget]:
        yield Static(id="guideline")
        with Horizontal(id="table"):
            with Vertical(id="pair"):
                yield JudgedTexts(id="judged")
                yield Static(Content.styled(EFFECTS, "$text-muted"), id="effects")
            yield LabelPanel(id="panel")
        yield Static(id="scale")
        yield Static(id="said")
        yield Static(id="progress")
        yield Static(id="round")

    def on_mount(self) -> None:
        self._sit_down()
        self.set_interval(0.5, self._look_around)

    def _sit_down(self) -> None:
        """Take the session's labels onto the desk."""
        session = self.playground.session
        self.options = read_options(session.get_setting(SETTING))
        self.judged_task = task_of(session)
        self.desk = Desk(
            session.labels, session.seed, self.options, annotator=self.options.annotator or login_name(),
            guideline=self.guideline, fours=self.options.ask == "fours",
        )  # fmt: skip
        self.supply = Supply(self.judged_task, session.seed, len(session.labels.history()))
        self.simulation = None
        self._files, self._barren, self._trained = {}, 0, set()
        self.show_item()
        self.settle()
        self.fill(fresh=True)

    @property
    def guideline(self) -> str:
        return self.options.guideline or self.judged_task.guideline

    # --- showing -----------------------------------------------------------------------------------------------

    def show_item(self) -> None:
        """What is on the desk; called at once after a key."""
        judged = self.query_one(JudgedTexts)
        marks = [] if not self.desk.flagged else ["⚑ flagged"]
        if self.desk.note:
            marks.append(f"note: {self.desk.note}")
        item = self.desk.item
        if isinstance(item, ChosenPair):
            judged.show_pair(item, " · ".join(marks))
        elif isinstance(item, ChosenFour):
            judged.show_four(item, self.desk.best, " · ".join(marks))
        else:
            judged.show_nothing(self.why_nothing())
        self._line("#said", safe_text(self.said))

    def settle(self) -> None:
        """Everything that may come a moment after the pair."""
        labels = self.playground.session.labels.current()
        self._line("#guideline", safe_text(self.guideline, style="bold") if self.guideline else Content(""))
        self._line("#scale", Content.styled(FOURS if self.desk.fours else SCALE, "$text-muted"))
        counts = count_labels(labels)
        parts = [f"{len(labels)} label{'s' if len(labels) != 1 else ''}" + (f": {counts.line()}" if labels else "")]
        if self.simulation is not None:
            parts.insert(0, f"▶ {self.simulation.annotator} labels, {self.simulation.count} to go (a stops)")
        if isinstance(self.desk.item, ChosenPair) and self.desk.item.note:
            parts.append(self.desk.item.note)
        parts += list(self.passing.values())
        self._line("#progress", safe_text(" · ".join(parts)))
        self._show_round(labels)
        self.desk.prepare()
        if self._quiet is not None:
            self._quiet.stop()
        self._quiet = self.set_timer(QUIET, self._show_panel)

    def _show_round(self, labels: tuple[LabelRecord, ...]) -> None:
        parts = []
        for each in stages(self.playground.state, labels):
            text = " ".join(part for part in (each.key, each.name) if part) + (f" ({each.state})" if each.state else "")
            parts.append(Content.styled(f" {text} ", "bold reverse" if each.current else ""))
        self._line("#round", Content("→").join(parts))

    def _show_panel(self) -> None:
        self._quiet = None
        labels = self.playground.session.labels
        pool = self.desk.pool_line()
        self.query_one(LabelPanel).show(
            panel_content(labels.current(), self.judged_task.gold, pool, len(labels.history()))
        )

    def _line(self, selector: str, content: Content) -> None:
        line = self.query_one(selector, Static)
        if not isinstance(line.content, Content) or not content.is_same(line.content):
            line.update(content, layout=False)

    def why_nothing(self) -> str:
        """Why nothing is on the desk, and what would help."""
        state = self.playground.state
        if self.playground.session.read_only:
            return "This session is open to look at only: nothing can be labelled."
        if state.engine == "starting" and not self.desk.pool_size:
            return "The engine is starting …"
        if state.newest_usable("sft") is None and "file:" not in self.options.sources:
            newest = state.newest("sft")
            if newest is not None and newest.active:
                return f"SFT is still training ({newest.step} of {newest.steps}). What it writes can be judged then."
            return "There is nothing to judge yet: the model has learned nothing.\n\nPress t to train SFT."
        if not self._barren and not self.desk.pool_size:
            return "Completions are being drawn …"
        why = self.desk.problem or "; ".join(self.passing.values()) or "nothing came"
        return f"{why[:1].upper()}{why[1:]}.\n\nPress g or c to draw new completions, o to choose other sources."

    def told(self, records: tuple[LabelRecord, ...]) -> None:
        """Say what the last answer was and meant."""
        record = records[-1]
        labels = self.playground.session.labels.current()
        if record.group is not None:
            meaning = "five pairs: the best before all others, all others before the worst"
            self.said = f"{meaning} · {training_effect(record.answer)}"
            return
        seen = after_vote(record, labels) if record.answer is not Answer.SKIP else ""
        self.said = " · ".join(part for part in (record.answer.symbol, seen, training_effect(record.answer)) if part)

    # --- supply ------------------------------------------------------------------------------------------------

    @work(group="supply", exclusive=True)
    async def fill(self, *, fresh: bool = False) -> None:
        """Ask for completions in the background. ``fresh``: those there are given up."""
        self._since_supply = 0
        names = parse_sources(self.options.sources)
        found, missing = writers(names, self.playground.state)
        self.passing = {} if found else {line: line for line in missing}
        for name in names:
            if name.kind == "file":
                await self._fill_from(name.file, fresh)
                fresh = False
        if found and self.playground.state.engine == "ready":
            for writer in found:
                fields = self.supply.fields(writer, self.options.temperature)
                answer = await self.playground.ask(Sample, **fields)
                if isinstance(answer, Samples):
                    self.desk.offer(candidates_of(answer, writer, fields), fresh=fresh)
                    fresh = False
        self.supply.turn()
        self._barren = 0 if self.desk.item is not None else self._barren + 1
        self.show_item()
        self.settle()

    async def _fill_from(self, file: str, fresh: bool) -> None:
        """The file's texts, or of a long one the next part."""
        if fresh or file not in self._files:
            try:
                self._files[file] = await asyncio.to_thread(file_candidates, file, self.judged_task)
            except ConfigError as error:
                self.passing[file] = str(error)
                return
        elif len(self._files[file]) <= MOST_SCORED and self.desk.item is not None:
            return  # all of it is on the desk
        some = part_of(self._files[file], self.supply.asked, MOST_SCORED)
        scores = None
        if self.playground.state.newest_usable("rm") is not None and self.playground.state.engine == "ready":
            answer = await self.playground.ask(
                Score, prompts=[each.prompt for each in some], texts=[each.side.text for each in some]
            )
            scores = answer if isinstance(answer, Scores) else None
        self.desk.offer(with_scores(some, scores), fresh=fresh)

    def supply_if_due(self) -> None:
        """After an answer: new completions now and then, or at once where none is left."""
        self._since_supply += 1
        if (self.desk.item is None and self._barren < PATIENCE) or self._since_supply >= EVERY:
            self.fill()

    def _look_around(self) -> None:
        """Twice a second: how far is what trains, and has the engine, or a run, made something new possible?"""
        if self.playground.screen is not self:
            return
        if any(run.active for run in self.playground.state.runs.values()):
            self._show_round(self.desk.labels.current())
        if self.desk.item is None:
            self.show_item()
            if self._barren < PATIENCE and not self._filling():
                self.fill()

    def _filling(self) -> bool:
        return any(worker.group == "supply" and worker.is_running for worker in self.workers)

    # --- hooks of the app --------------------------------------------------------------------------------------

    def engine_event(self, event: Event) -> None:
        if not isinstance(event, RunState):
            return
        run = self.playground.state.runs[event.run]
        if run.seed is None:
            adopt(self.playground.session, run)
        if run.active:
            self._trained.add(event.run)
        elif event.state in ("done", "stopped"):
            self._barren = 0
            if event.run in self._trained:  # and did not just turn out to have ended before the session was opened
                self._trained.remove(event.run)
                self.run_ended(run)
        self.settle()

    def engine_changed(self) -> None:
        self._barren = 0
        if self.playground.state.engine == "ready":
            self.fill()

    def session_changed(self) -> None:
        self.said = ""
        self._sit_down()

    def help_topic(self) -> HelpTopic | None:
        return self.query_one(JudgedTexts).help_topic()

    def action_toggle_panel(self) -> None:
        self.toggle_class("-panel")

    @on(TextPane.Chosen)
    def _clicked(self, message: TextPane.Chosen) -> None:
        if isinstance(self.desk.item, ChosenFour):
            self.action_key(str(message.position + 1))
        elif message.position < 2:
            self.action_key("left" if message.position == 0 else "right")
