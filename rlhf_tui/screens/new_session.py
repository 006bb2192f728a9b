"""Asks for a new session: title, task with its options, seed and backbone – with a look at what the task is."""

import asyncio
import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

from rich.cells import cell_len
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static
from textual.worker import get_current_worker

from core.config import Config, ConfigError, knob, knobs, make
from core.models.config import BackboneConfig
from core.new_session import Plan, make_session, plan_session
from core.store import StoreError
from core.tasks.base import TaskError
from core.tasks.table import TASKS
from rlhf_tui.safe_text import fit, safe_str, safe_text
from rlhf_tui.widgets.knob_form import HasKnobs, KnobForm

SHOWN = 8  # demonstrations in the preview


@dataclasses.dataclass(frozen=True, kw_only=True)
class Basics(Config):
    """What every new session has."""

    session: str = knob("new session", "what the session is called; its folder is named after it")
    task: str = knob("words", "what the model learns to do", choices=tuple(TASKS))
    seed: int = knob(42, "of the session: the same seed gives the same numbers", minimum=0, maximum=2**53)


def form_of(task: str) -> type[Config]:
    """The knobs of a new session on a task: the basics, the task's options, the backbone's sizes."""
    fields: list[tuple[str, Any, Any]] = []
    for part in (Basics, TASKS[task].options, BackboneConfig):
        hints = {each.name: each.type for each in knobs(part)}
        fields += [(each.name, hints[each.name], _field(each)) for each in dataclasses.fields(part)]
    made = dataclasses.make_dataclass("NewSession", fields, bases=(Config,), frozen=True, kw_only=True)
    return cast(type[Config], made)


def _field(original: "dataclasses.Field[Any]") -> Any:
    return dataclasses.field(default=original.default, metadata=original.metadata)


def parted(values: dict[str, Any], config: type[Config]) -> dict[str, Any]:
    """The ``values`` that are knobs of ``config``."""
    names = {each.name for each in knobs(config)}
    return {name: value for name, value in values.items() if name in names}


class NewSessionScreen(ModalScreen[Path | None]):
    """Dismissed with the folder of the session that was made, or None."""

    CSS_PATH = "new_session.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", "Cancel", id="new.cancel"),
        Binding(
            "c,ctrl+s", "create", "Create", key_display="c", id="new.create", tooltip="Make the session and open it"
        ),
    ]

    def __init__(self, saves: Path) -> None:
        super().__init__()
        self.saves = saves
        self.values: dict[str, Any] = {}

    def compose(self) -> ComposeResult:
        with Vertical(id="new") as box:
            box.border_title = "New session"
            box.border_subtitle = "Enter edits · c creates · Esc cancels"
            with Horizontal():
                yield KnobForm(id="form")
                with VerticalScroll(id="preview", can_focus=False):
                    yield Static(id="task-about")
            yield Static(id="impossible")

    def on_mount(self) -> None:
        self._show()
        self.query_one("#form #list").focus()

    @property
    def basics(self) -> Basics:
        return make(Basics, parted(self.values, Basics))

    def _show(self) -> None:
        kind = TASKS[self.basics.task]
        form = cast(HasKnobs, SimpleNamespace(title=kind.title, config=form_of(kind.name)))
        self.query_one("#form", KnobForm).show(form, self.values, False)
        self.preview()

    @on(KnobForm.Turned)
    def _turned(self, message: KnobForm.Turned) -> None:
        self.values[message.name] = message.value
        known = {each.name for each in knobs(form_of(self.basics.task))}
        self.values = {name: value for name, value in self.values.items() if name in known}
        self._show()

    @work(exclusive=True, group="preview")
    async def preview(self) -> None:
        """What the task is like, with these options and this seed."""
        kind = TASKS[self.basics.task]
        lines = [safe_text(kind.title, style="bold"), safe_text(f"{kind.summary[:1].upper()}{kind.summary[1:]}.")]
        try:
            plan = await self._plan()
        except (ConfigError, TaskError, OSError, ValueError) as error:
            self._say(str(error))
        else:
            self._say("")
            lines += _about(plan)
        self.query_one("#task-about", Static).update(Content("\n").join(lines))

    async def _plan(self) -> Plan:
        """What these values make, read beside the event loop. Raises a ValueError that says why they make nothing."""
        basics, values = self.basics, dict(self.values)
        backbone = make(BackboneConfig, parted(values, BackboneConfig))
        options = parted(values, TASKS[basics.task].options)
        worker = get_current_worker()

        def tell(line: str) -> None:
            if worker.is_cancelled:
                raise ValueError("something newer is read")  # nobody waits for this any more
            self.app.call_from_thread(self._tell, line)

        return await asyncio.to_thread(plan_session, basics.task, options, basics.seed, backbone, tell)

    def _tell(self, line: str) -> None:
        """How far reading has come."""
        self.query_one("#impossible", Static).update(safe_text(line, style="$text-muted"))

    def _say(self, wrong: str) -> None:
        self.query_one("#impossible", Static).update(safe_text(f"✗ {wrong}" if wrong else "", style="$text-error"))

    @work(exclusive=True, group="create")
    async def action_create(self) -> None:
        try:
            plan = await self._plan()
            folder = await asyncio.to_thread(make_session, self.saves, self.basics.session, plan)
        except (ConfigError, TaskError, StoreError, OSError, ValueError) as error:
            self._say(str(error))
            return
        self.dismiss(folder)

    def action_cancel(self) -> None:
        self.dismiss(None)


def _about(plan: Plan) -> list[Content]:
    """Alphabet, prompts, demonstrations and the size of the model."""
    task = plan.task
    model = plan.backbone
    weights = model.parameter_count(len(task.tokenizer))
    letters = safe_str(task.alphabet, 60)
    lines = [
        safe_text(f"{len(task.alphabet)} letters: {letters}", style="$text-secondary"),
        safe_text(
            f"{len(task.prompts):,} prompts, {len(task.held_out_prompts)} held out · {len(task.demonstrations):,} "
            f"demonstrations{f' · {len(task.pairs)} pairs' if task.pairs else ''} · "
            f"{'a gold rule' if task.gold else 'no gold rule'}",
            style="$text-muted",
        ),
        safe_text(
            f"{model.kind}, embedding {model.embedding}, hidden {model.hidden}: {weights:,} weights",
            style="$text-muted",
        ),
    ]
    if task.guideline:
        lines.append(safe_text(f"Asked for labels: {task.guideline}"))
    lines += [safe_text(f"! {note}", style="$text-warning") for note in task.notes]
    first = {each.prompt: each for each in reversed(task.demonstrations)}  # many prompts have many demonstrations
    shown = [*reversed(first.values()), *(each for each in task.demonstrations if each not in first.values())][:SHOWN]
    if shown:
        lines += [Content(""), Content.styled("demonstrations", "dim")]
        width = min(max(cell_len(safe_str(each.prompt, 24)) for each in shown), 24)
        lines += [
            Content.styled(f"{fit(each.prompt, width)}  ", "$text-secondary") + safe_text(each.completion, 60)
            for each in shown
        ]
    if task.pairs:
        lines += [Content(""), Content.styled("pairs", "dim")]
        lines += [
            safe_text(f"{each.prompt} → {each.chosen}  not  {each.rejected}", 80) for each in task.pairs[: SHOWN // 2]
        ]
    return lines
