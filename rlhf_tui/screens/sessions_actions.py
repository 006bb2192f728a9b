"""What can be done on the Sessions screen: to the session at the cursor, or to the run at the cursor of its tree."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Input

from core.config import ConfigError, parse_short
from core.engine.protocol import Acknowledged, Delete, Fork, Rename, RunState
from core.methods.table import known_method
from core.store import Session, StoreError
from core.store.archive import export_session, import_session
from core.store.locations import (
    duplicate_session,
    list_trash,
    rename_session,
    restore_session,
    saves_folder,
    trash_session,
)
from core.store.summaries import SessionSummary
from rlhf_tui.run_tree import replay_command, turned_knobs
from rlhf_tui.screens.choose import ChooseScreen
from rlhf_tui.screens.prompt import PromptScreen
from rlhf_tui.widgets.line_list import LineList

if TYPE_CHECKING:
    from rlhf_tui.app import PlaygroundApp
    from rlhf_tui.state import Run


class SessionsActions(Screen[None]):
    """The keys of the Sessions screen; r and x mean the run where the tree has the focus, else the session."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("v", "go_to('tree')", "Runs", id="sessions.pane", tooltip="To the runs of the session"),
        Binding("v", "go_to('list')", "Sessions", id="sessions.pane_back", tooltip="Back to the sessions"),
        Binding("f", "fork", "Fork", id="sessions.fork", tooltip="A new run from this one, with knobs changed"),
        Binding("w", "notes", "Notes", id="sessions.notes", tooltip="Write a note on the run"),
        Binding("n", "new", "New", id="sessions.new", tooltip="A new session: task, seed, backbone"),
        Binding("slash", "search", "Search", key_display="/", id="sessions.search",
                tooltip="Find by title, name or task"),
        Binding("s", "sort", "Sort", show=False, id="sessions.sort", tooltip="By last use, title, size or runs"),
        Binding("r", "rename", "Rename", id="sessions.rename", tooltip="Another title"),
        Binding("x", "delete", "Delete", id="sessions.delete", tooltip="The session to the trash; the run for good"),
        Binding("d", "duplicate", "Duplicate", id="sessions.duplicate", tooltip="A copy of the session"),
        Binding("E", "export", "Export", show=False, id="sessions.export",
                tooltip="Write the session to one file, to send or to keep"),
        Binding("I", "import", "Import", show=False, id="sessions.import",
                tooltip="Take in a session that was exported to a file"),
        Binding("T", "trash", "Trash", show=False, id="sessions.trash", tooltip="What was deleted, and back"),
        Binding("u", "restore", "Restore", show=False, id="sessions.restore",
                tooltip="Bring back the session at the cursor of the trash, else the one deleted last"),
        Binding("p", "pin", "Pin", show=False, id="sessions.pin", tooltip="Keep the run on the charts as an overlay"),
        Binding("c", "copy", "Copy", id="sessions.copy",
                tooltip="Copy the command that trains the run again to the same numbers"),
    ]  # fmt: skip

    # What SessionsScreen has, for the type checker.
    if TYPE_CHECKING:
        sort_by: str
        trash: bool

        @property
        def saves(self) -> Path: ...
        @property
        def playground(self) -> PlaygroundApp: ...
        @property
        def summary(self) -> SessionSummary | None: ...
        @property
        def in_tree(self) -> bool: ...
        @property
        def shows_open_session(self) -> bool: ...
        def is_open(self, folder: Path) -> bool: ...
        def read_again(self, select: Path | None = None) -> Any: ...
        def show_list(self, select: Path | None = None) -> None: ...
        def show_tree(self, select: int | None = None) -> None: ...
        def show_trash(self, trash: bool) -> None: ...
        def run_at_cursor(self) -> Run | None: ...

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        in_tree = self.is_mounted and self.in_tree
        match action:
            case "fork" | "notes" | "pin" | "copy":
                return in_tree
            case "go_to":
                return parameters != ("tree" if in_tree else "list",)
            case "duplicate" | "sort" | "export":
                return not in_tree and not self.trash
            case "new" | "import":
                return not self.trash
            case "rename":
                return not self.trash
            case "delete":
                return not self.trash
        return True

    # --- sessions ----------------------------------------------------------------------------------------------

    async def _do(self, work: Callable[[], Any]) -> Any:
        """Do something to the files, off the screen's thread; None after a toast where the store refuses."""
        try:
            return await asyncio.to_thread(work)
        except StoreError as error:
            self.playground.toast(str(error), severity="error")
            return None

    @on(LineList.Chosen, "#list")
    async def _session_chosen(self, message: LineList.Chosen) -> None:
        summary = self.summary
        if summary is None:
            return
        if self.trash:
            await self.action_restore()
        elif self.is_open(summary.folder) or await self.playground.open_session(summary.folder):
            self.playground.show_screen("train")

    def action_search(self) -> None:
        self.query_one("#search", Input).focus()

    def action_sort(self) -> None:
        from rlhf_tui.screens.sessions import SORTS

        names = list(SORTS)
        self.sort_by = names[(names.index(self.sort_by) + 1) % len(names)]
        self.show_list()

    def action_new(self) -> None:
        from rlhf_tui.screens.new_session import NewSessionScreen

        async def made(folder: Path | None) -> None:
            if folder is not None and await self.playground.open_session(folder):
                self.playground.show_screen("train")

        self.app.push_screen(NewSessionScreen(self.saves), made)

    def action_rename(self) -> None:
        if self.in_tree:
            self._rename_run()
            return
        summary = self.summary
        if summary is None or summary.problem:
            return

        async def named(title: str | None) -> None:
            if title is None:
                return
            if self.is_open(summary.folder):
                session = self.playground.session
                if self.playground.keep(lambda: session.set_title(title)):
                    self.playground.engine_state_changed()
                    self.read_again(summary.folder)
                return
            folder = await self._do(lambda: rename_session(summary.folder, title))
            if folder is not None:
                self.read_again(folder)

        about = "The folder keeps its name while the session is open." if self.is_open(summary.folder) else ""
        self.app.push_screen(
            PromptScreen("Another title", about or "The folder is named after it.", value=summary.title, check=_title),
            named,
        )  # fmt: skip

    async def action_duplicate(self) -> None:
        summary = self.summary
        if summary is not None:
            folder = await self._do(lambda: duplicate_session(summary.folder))
            if folder is not None:
                self.playground.toast(f"copied to {folder.name}")
                self.read_again(folder)

    def action_export(self) -> None:
        summary = self.summary
        if summary is None or summary.problem:
            return

        async def named(place: str | None) -> None:
            if place is None:
                return
            file = await self._do(lambda: export_session(summary.folder, Path(place.strip()).expanduser()))
            if file is not None:
                self.playground.toast(f"written to {file}; I takes it in elsewhere")

        about = "A file or a folder. The session with its runs, labels and weights becomes one ZIP."
        self.app.push_screen(
            PromptScreen(
                f"Export {summary.title}", about, value=str(Path.cwd() / f"{summary.name}.zip"),
                check=lambda text: "" if text.strip() else "a file, please",
            ),
            named,
        )  # fmt: skip

    def action_import(self) -> None:
        async def named(place: str | None) -> None:
            if place is None:
                return
            folder = await self._do(lambda: import_session(Path(place.strip()).expanduser(), self.saves))
            if folder is not None:
                self.playground.toast(f"taken in as {folder.name}; Enter opens it")
                self.read_again(folder)

        self.app.push_screen(
            PromptScreen("Import a session", "A file that Export wrote, here or elsewhere.",
                         check=lambda text: "" if text.strip() else "a file, please"),
            named,
        )  # fmt: skip

    async def action_delete(self) -> None:
        if self.in_tree:
            self._delete_run()
            return
        summary = self.summary
        if summary is None:
            return
        if self.is_open(summary.folder):
            self.playground.toast("this session is open; open another one, then delete it", severity="warning")
            return
        if await self._do(lambda: trash_session(summary.folder)) is not None:
            self.playground.toast(f"{summary.title} is in the trash; u brings it back, T shows the trash")
            self.read_again()

    def action_trash(self) -> None:
        self.show_trash(not self.trash)

    async def action_restore(self) -> None:
        summary = self.summary if self.trash else None
        if not self.trash:
            trashed = await self._do(lambda: list_trash(self.saves))
            summary = trashed[0] if trashed else None
        if summary is None:
            self.playground.toast("the trash is empty")
            return
        folder = await self._do(lambda: restore_session(summary.folder))
        if folder is not None:
            self.playground.toast(f"{summary.title} is back")
            self.read_again(None if self.trash else folder)

    # --- runs --------------------------------------------------------------------------------------------------

    def _own_run(self, changes: bool = True) -> "Run | None":
        """The run at the cursor, where it can be worked with; a toast says what is in the way."""
        run = self.run_at_cursor()
        if run is None:
            return None
        if not self.shows_open_session:
            self.playground.toast("open this session first (Enter on it), then work with its runs")
            return None
        if changes and self.playground.session.read_only:
            self.playground.toast("this session is open read-only")
            return None
        return run

    @on(LineList.Chosen, "#tree")
    async def _run_chosen(self, message: LineList.Chosen) -> None:
        run = self._own_run(changes=False)
        if run is not None:
            await self._watch(run)

    async def _watch(self, run: "Run") -> None:
        """Go to the Train screen, at a run."""
        from rlhf_tui.screens.train import TrainScreen

        self.playground.show_screen("train")
        for screen in self.playground.loaded_screens():
            if isinstance(screen, TrainScreen):
                await screen.show_run(run)

    def _rename_run(self) -> None:
        run = self._own_run()
        if run is None:
            return

        async def named(title: str | None) -> None:
            if title is not None:
                await self.playground.ask(Rename, run=run.run, title=title)
                self.show_tree(run.run)

        self.app.push_screen(PromptScreen(f"Another title for {run.name}", "", value=run.title, check=_title), named)

    def action_notes(self) -> None:
        run = self._own_run()
        if run is None:
            return

        def written(notes: str | None) -> None:
            if notes is None:
                return
            session = self.playground.session
            if self.playground.keep(lambda: session.runs.update(run.run, notes=notes)):
                run.notes = notes
                self.show_tree(run.run)

        self.app.push_screen(PromptScreen(f"Notes on {run.name}", "Kept with the run.", value=run.notes), written)

    def action_pin(self) -> None:
        run = self._own_run()
        if run is not None:
            self._pin(run, not run.pinned)
            self.show_tree(run.run)

    def _pin(self, run: "Run", pinned: bool) -> None:
        if self.playground.keep(lambda: self.playground.session.runs.update(run.run, pinned=pinned)):
            run.pinned = pinned

    def _delete_run(self) -> None:
        run = self._own_run()
        if run is None:
            return

        async def answered(sure: bool | None) -> None:
            if sure and isinstance(await self.playground.ask(Delete, run=run.run), Acknowledged):
                self.playground.state.runs.pop(run.run, None)
                for screen in self.playground.loaded_screens():
                    screen.runs_changed()
                self.show_tree()

        options = [(None, "Keep it"), (True, "Delete it with its checkpoints, for good")]
        self.app.push_screen(ChooseScreen(f"Delete {run.name}?", "", options), answered)

    def action_fork(self) -> None:
        run = self._own_run()
        method = None if run is None else known_method(run.method)
        if run is None or method is None:
            return

        def parts(text: str) -> tuple[int | None, dict[str, Any]]:
            step: int | None = None
            knobs = []
            for part in text.split():
                name, _, value = part.partition("=")
                if name == "step":
                    step = int(value) if value.isdecimal() else -1
                    if not 0 <= step <= run.step:
                        raise ConfigError(f"step must be from 0 to {run.step}")
                else:
                    knobs.append(part)
            parsed = parse_short(method.config, " ".join(knobs)).to_dict()
            return step, {name: parsed[name] for name in (part.partition("=")[0] for part in knobs)}

        def wrong(text: str) -> str:
            try:
                parts(text)
            except ConfigError as error:
                return str(error)
            return ""

        async def fork(text: str | None) -> None:
            if text is None:
                return
            step, config = parts(text)
            if not self.playground.allow_typed(method.config, config):
                return
            answer = await self.playground.ask(Fork, run=run.run, step=step, config=config)
            if isinstance(answer, RunState):
                self._pin(run, True)
                await self._watch(self.playground.state.runs[answer.run])

        self.app.push_screen(
            PromptScreen(
                f"Fork {run.name}",
                "Where from and what changes, as name=value; the nearest saved step counts. The old run stays pinned.",
                value=f"step={run.step} " if run.step < run.steps else f"steps={run.steps * 2} ",
                check=wrong,
            ),
            fork,
        )  # fmt: skip

    def action_copy(self) -> None:
        run = self.run_at_cursor()
        summary = self.summary
        if run is None or summary is None:
            return
        seed = summary.seed if run.seed is None else run.seed
        elsewhere = None if self.saves == saves_folder(None).absolute() else str(self.saves)
        command = replay_command(run, run.run, seed, summary.name, elsewhere)
        self.app.copy_to_clipboard(command)
        turned = self._turned_knobs(run.run, summary.folder)
        but = f" – but {', '.join(turned)} changed on the way, which it does not repeat" if turned else ""
        self.playground.toast(f"copied: {command}{but}")

    def _turned_knobs(self, run: int, folder: Path) -> list[str]:
        """Which knobs were turned while a run trained."""
        try:
            if self.is_open(folder):
                return turned_knobs(self.playground.session, run)
            with Session.open(folder, read_only=True) as session:
                return turned_knobs(session, run)
        except StoreError as error:
            self.playground.toast(str(error), severity="error")
            return []


def _title(text: str) -> str:
    return "" if text.strip() else "a title, please"
