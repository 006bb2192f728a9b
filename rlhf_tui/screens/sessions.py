"""Sessions: find, open, make and keep them; the tree of a session's runs, to fork, rename, annotate and delete."""

import asyncio
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from textual import on, work
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input, Static

from core.engine.protocol import Event, Metrics, RunState
from core.methods.table import method_title
from core.store import Session, StoreError
from core.store.locations import glance_at_sessions, list_sessions, list_trash
from core.store.summaries import SessionSummary
from rlhf_tui.commands.sessions import size
from rlhf_tui.history import adopt
from rlhf_tui.run_tree import Branch, branches, short_config
from rlhf_tui.safe_text import fit, safe_text
from rlhf_tui.scale import duration
from rlhf_tui.screens.base import PlaygroundScreen
from rlhf_tui.screens.sessions_actions import SessionsActions
from rlhf_tui.screens.topics import HelpTopic
from rlhf_tui.state import AppState, Run
from rlhf_tui.widgets.line_list import LineList, Row
from rlhf_tui.widgets.pipeline import STATE_GLYPHS

SORTS = {
    "last used": lambda each: -each.used,
    "title": lambda each: each.title.casefold(),
    "size": lambda each: -each.size,
    "runs": lambda each: -each.runs,
}
_LOOK_AROUND = 0.5  # seconds between two looks at what the engine has told
_LOOK = 0.12  # seconds that the cursor rests on a session before its runs are read


class SessionsScreen(SessionsActions, PlaygroundScreen):
    entry_name = "sessions"
    CSS_PATH = "sessions.tcss"
    AUTO_FOCUS = "#list"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "all_sessions", "All", show=False, id="sessions.all",
                tooltip="Out of the search, out of the trash"),
    ]  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.found: list[SessionSummary] = []
        self.sort_by = "last used"
        self.trash = False  # is the trash shown?
        self.shown_runs: dict[int, Run] = {}  # of the session at the cursor
        self.looked_at: Path | None = None
        self._trouble = ""
        self._rest: Timer | None = None
        self._stale = True

    def compose_body(self) -> Iterable[Widget]:
        yield Input(placeholder="search title, name or task", id="search", compact=True)
        with Horizontal(id="both"):
            yield LineList(id="list", title="sessions", empty="No session matches.")
            with Vertical(id="right"):
                yield Static(id="facts")
                yield LineList(id="tree", title="runs", empty="No runs yet.")

    def on_mount(self) -> None:
        self.query_one("#list", LineList).head = self._head
        self.query_one("#tree", LineList).border_subtitle = self._way()
        self.restore(self.playground.saved_ui_of(self))
        self.read_again()
        self.set_interval(_LOOK_AROUND, self._look_around)

    @property
    def saves(self) -> Path:
        return self.playground.session.folder.absolute().parent

    @property
    def summary(self) -> SessionSummary | None:
        """The session at the cursor."""
        key = self.query_one("#list", LineList).key
        return next((each for each in self.found if each.folder == key), None)

    def is_open(self, folder: Path) -> bool:
        return folder.absolute() == self.playground.session.folder.absolute()

    @property
    def in_tree(self) -> bool:
        return self.focused is not None and self.focused.id == "tree"

    # --- the list ----------------------------------------------------------------------------------------------

    @work(exclusive=True, group="listing")
    async def read_again(self, select: Path | None = None) -> None:
        """Read the list from the disk, off the screen's thread."""
        saves, trash = self.saves, self.trash
        # Names first: to look into a thousand sessions takes half a second, and more on a slow disk.
        for look in (list_trash,) if trash else (list_sessions,) if self.found else (glance_at_sessions, list_sessions):
            try:
                found = await asyncio.to_thread(look, saves)
            except StoreError as error:
                self.playground.toast(str(error), severity="error")
                return
            if trash == self.trash and self.query("#list"):  # not while the app is leaving
                self.found = found
                self.show_list(select)

    def show_list(self, select: Path | None = None) -> None:
        """The sessions that match, in order, the open one marked."""
        words = self.query_one("#search", Input).value.casefold().split()
        matching = [
            each
            for each in self.found
            if all(word in f"{each.title} {each.name} {each.task}".casefold() for word in words)
        ]
        matching.sort(key=SORTS[self.sort_by])
        list_ = self.query_one("#list", LineList)
        kind = "trash" if self.trash else "sessions"
        list_.border_title = f"{kind}  {len(matching)}" + (f" of {len(self.found)}" if words else "")
        list_.border_subtitle = (
            "u restores  Esc back" if self.trash else f"by {self.sort_by}  Enter opens  v its runs  / search"
        )
        list_.empty = "The trash is empty." if self.trash and not words else "No session matches."
        rows = [Row(each.folder, partial(self._session_row, each)) for each in matching]
        fallback = None if list_.rows else self.playground.session.folder.absolute()
        list_.show(rows, key=select or fallback)
        self._look_soon()

    def _widths(self, width: int) -> list[int]:
        """Of title, task, runs, labels, size and last used; what has no room is left out."""
        wide = width >= 66
        others = [11 if wide else 0, 5, 7 if wide else 0, 9, 13]
        return [max(width - 2 - sum(others), 8), *others]

    def _cells(self, texts: list[str], width: int) -> str:
        widths = self._widths(width)
        title, task, *figures = texts
        line = fit(title, widths[0]) + (fit(f" {task}", widths[1]) if widths[1] else "")
        return line + "".join(
            fit(text, cells, "right") for text, cells in zip(figures, widths[2:], strict=True) if cells
        )

    def _head(self, width: int) -> Content:
        return Content.styled(
            "   " + self._cells(["title", "task", "runs", "labels", "size", "used"], width - 1), "dim"
        )

    def _session_row(self, each: SessionSummary, width: int, here: bool) -> list[Content]:
        return [self._line(each, width)]

    def _line(self, each: SessionSummary, width: int) -> Content:
        if each.problem:
            return Content.styled("✗ ", "$text-error") + safe_text(
                f"{each.name}: {each.problem}", width - 2, "$text-muted"
            )
        mark = "● " if self.is_open(each.folder) and not self.trash else "  "
        counts = [str(each.runs), str(each.labels), size(each.size)] if each.known else ["…"] * 3
        texts = [each.title, each.task, *counts, ago(each.used)]
        return Content.styled(mark, "$text-success") + Content(self._cells(texts, width))

    @on(Input.Changed, "#search")
    def _searched(self) -> None:
        self.show_list()

    @on(Input.Submitted, "#search")
    def _search_done(self) -> None:
        self.query_one("#list").focus()

    def action_all_sessions(self) -> None:
        search = self.query_one("#search", Input)
        if search.value:
            search.value = ""
        elif self.trash:
            self.show_trash(False)
        self.query_one("#list").focus()

    def show_trash(self, trash: bool) -> None:
        """Show what was deleted, or what was not."""
        self.trash = trash
        self.refresh_bindings()
        self.read_again()

    # --- the session at the cursor -----------------------------------------------------------------------------

    @on(LineList.Moved, "#list")
    def _moved(self) -> None:
        self._look_soon()

    @on(LineList.Moved, "#tree")
    def _moved_in_tree(self) -> None:
        self._show_facts()

    def _look_soon(self) -> None:
        if self._rest is not None:
            self._rest.stop()
        self._rest = self.set_timer(_LOOK, self.look)

    @work(exclusive=True, group="looking")
    async def look(self) -> None:
        """Read the runs of the session at the cursor."""
        summary = self.summary if self.query("#list") else None
        self._trouble = ""
        if summary is None or summary.problem:
            self.shown_runs, self.looked_at = {}, None
            self._trouble = summary.problem if summary else ""
        elif self.is_open(summary.folder) and not self.trash:
            self.looked_at, self.shown_runs = summary.folder, self.playground.state.runs
        else:
            try:
                runs = await asyncio.to_thread(read_runs, summary.folder)
            except StoreError as error:
                runs, self._trouble = {}, str(error)
            self.looked_at, self.shown_runs = summary.folder, runs
        self.show_tree()

    def show_tree(self, select: int | None = None) -> None:
        """The runs of the session at the cursor as a tree."""
        if not self.query("#tree"):
            return  # the app is leaving
        rows = [Row(branch.run, partial(self._run_row, branch)) for branch in branches(self.shown_runs)]
        tree = self.query_one("#tree", LineList)
        tree.border_title = f"runs  {len(rows)}"
        tree.show(rows, key=select)
        self._show_facts()

    def _run_row(self, branch: Branch, width: int, here: bool) -> list[Content]:
        return [self._branch(branch.run, branch.lead, width)]

    def _branch(self, number: int, lead: str, width: int) -> Content:
        run = self.shown_runs.get(number)
        if run is None:
            return Content("")
        start = f" from {run.parent_step}" if run.parent is not None and run.parent_step is not None else ""
        start = "" if run.name.endswith(start) else start  # as a fork is called
        right = f"{run.step}/{run.steps} {duration(run.seconds):>8}"
        marks = ("★" if run.pinned else "") + ("✎" if run.notes else "")
        head = Content.styled(lead, "dim") + Content(f"{STATE_GLYPHS.get(run.state, '?')} ")
        room = max(width - head.cell_length - len(right) - 3, 6)
        method = method_title(run.method)
        name = run.name if method in run.name else f"{run.name} ({method})"
        return head + Content(f"{fit(f'{name}{start}', room)}{marks:>2} ") + Content.styled(right, "$text-muted")

    def _show_facts(self) -> None:
        summary = self.summary
        facts = self.query_one("#facts", Static)
        if summary is None:
            facts.update("")
            return
        if self._trouble:
            facts.update(safe_text(self._trouble, style="$text-error"))
            return
        lines = [safe_text(f"{summary.title}", style="bold")]
        labels = f"{summary.labels:,} label{'' if summary.labels == 1 else 's'}"
        lines.append(
            safe_text(
                f"{summary.task} · seed {summary.seed} · {labels} · made {ago(summary.created)}", style="$text-muted"
            )
        )
        run = self.run_at_cursor()
        if run is not None:
            config = short_config(run.method, run.config) or "all knobs at their defaults"
            lines.append(safe_text(f"{run.name}: {config}", style="$text-secondary"))
            if run.notes or run.message:
                lines.append(safe_text(run.notes or run.message))
        facts.update(Content("\n").join(lines))

    def run_at_cursor(self) -> Run | None:
        """The run at the tree's cursor."""
        key = self.query_one("#tree", LineList).key
        return self.shown_runs.get(key) if key is not None else None

    @property
    def shows_open_session(self) -> bool:
        """Do the runs shown belong to the session that is open, so that something can be done to them?"""
        return self.looked_at is not None and self.is_open(self.looked_at) and not self.trash

    def action_go_to(self, pane: str) -> None:
        self.query_one(f"#{pane}").focus()

    def _way(self) -> str:
        """What Enter and v do, said below the runs."""
        return "Enter watches it  v back to the sessions" if self.in_tree else "v: to the runs"

    def on_descendant_focus(self) -> None:
        self.set_class(self.in_tree, "-runs")
        self.query_one("#tree", LineList).border_subtitle = self._way()
        self.refresh_bindings()

    # --- hooks of the app --------------------------------------------------------------------------------------

    def _look_around(self) -> None:
        if self._stale and self.is_current:
            self._stale = False
            if self.shows_open_session:
                self.shown_runs = self.playground.state.runs
                self.show_tree()

    def engine_event(self, event: Event) -> None:
        self._stale = self._stale or isinstance(event, RunState | Metrics)
        if isinstance(event, RunState):
            run = self.playground.state.runs.get(event.run)
            if run is not None and run.seed is None:
                adopt(self.playground.session, run)

    def runs_changed(self) -> None:
        self._stale = True

    def session_changed(self) -> None:
        self.read_again(self.playground.session.folder.absolute())

    def on_screen_resume(self) -> None:
        self._stale = True
        if self.found:
            self.read_again()

    def ui_state(self) -> dict[str, Any]:
        return {"sort": self.sort_by, "search": self.query_one("#search", Input).value, "in_tree": self.in_tree}

    def restore(self, saved: dict[str, Any]) -> None:
        sort, search = saved.get("sort"), saved.get("search")
        self.sort_by = sort if sort in SORTS else self.sort_by
        if isinstance(search, str):
            self.query_one("#search", Input).value = search
        if saved.get("in_tree") is True:
            self.call_after_refresh(self.query_one("#tree").focus)

    def help_topic(self) -> HelpTopic | None:
        return HelpTopic(
            "Sessions",
            (
                (
                    "What it shows",
                    "Every session, the last used first, ● the open one; beside it the runs of the session at the "
                    "cursor, each under the run that it started from. ★ is pinned on the charts, ✎ has notes.",
                ),
                (
                    "Deleting",
                    "A deleted session lies in the trash until it is emptied (rlhf-tui sessions empty-trash): T shows "
                    "it, u restores. A deleted run is gone.",
                ),
                ("Replaying", "c copies the command that trains a run again to the same numbers, without this app."),
            ),
        )


def read_runs(folder: Path) -> dict[int, Run]:
    """The runs of a session that is not open. Raises StoreError."""
    from rlhf_tui.history import load_history

    state = AppState()
    with Session.open(folder, read_only=True) as session:
        load_history(session, state)
    return state.runs


def ago(then: float) -> str:
    """When, in a word or two: the time of today, else the date."""
    now, at = time.localtime(), time.localtime(then)
    if now[:3] == at[:3]:
        return time.strftime("%H:%M", at)
    return time.strftime("%d %b" if now[0] == at[0] else "%Y-%m-%d", at)
