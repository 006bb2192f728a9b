"""The terminal app: owns the engine's life, the session's view and the screens; holds no training logic.

Torch-free: the engine is another process. Everything that changes the state runs in the event loop, in the order in
which the engine said it. What the first frame does not need is imported where it is used, after that frame.
"""

import asyncio
import gc
import signal
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events, on, work
from textual.app import App
from textual.binding import Binding, BindingType
from textual.command import CommandPalette
from textual.driver import Driver
from textual.message import Message
from textual.screen import Screen
from textual.worker import NoActiveWorker, get_current_worker

from core.store import StoreError
from rlhf_tui.safe_text import safe_str
from rlhf_tui.screens.base import PlaygroundScreen
from rlhf_tui.screens.opening import OpeningScreen
from rlhf_tui.screens.table import SCREENS, neighbour
from rlhf_tui.session_keeping import SessionKeeping
from rlhf_tui.state import ABOUT_STORAGE, AppState
from rlhf_tui.themes import LINE_COLOURS, THEMES, theme_for
from rlhf_tui.widgets.banner import EngineBanner
from rlhf_tui.widgets.title_bar import TitleBar

if TYPE_CHECKING:
    from core.engine.protocol import Command, Event
    from core.store import Session
    from rlhf_tui.engine_client import EngineClient
    from rlhf_tui.palette import ActionsProvider

_SAVE_UI_EVERY = 2.0  # seconds
_SETTLE_AFTER = 1.0  # seconds
_GAP_WAIT = 1.5  # seconds until the engine has surely written what it did not send


def _actions() -> "type[ActionsProvider]":
    from rlhf_tui.palette import ActionsProvider

    return ActionsProvider


class PlaygroundApp(SessionKeeping):
    """One session, one engine, the screens of the table. ``engine_command`` starts another engine (tests)."""

    TITLE = "rlhf-tui"
    ENABLE_COMMAND_PALETTE = True
    COMMANDS: ClassVar[set[Any]] = {_actions}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+q,ctrl+c", "quit", "Quit", key_display="q", id="app.quit", tooltip="Save everything and leave"),
        Binding("question_mark,f1", "help", "Help", key_display="?", id="app.help",
                tooltip="What the focused pane means, and its keys"),
        Binding("colon,ctrl+p", "command_palette", "Commands", key_display=":", id="app.palette",
                tooltip="Find any action by its name"),
        Binding("ctrl+z", "suspend_process", "Suspend", show=False, id="app.suspend",
                tooltip="Back to the shell; training goes on; fg returns"),
        Binding("e", "restart_engine", "Restart engine", show=False, id="app.restart_engine",
                tooltip="Start the engine again and go on from the last resume points"),
        Binding("f12", "screenshot", "Screenshot", show=False, id="app.screenshot",
                tooltip="Save the screen as an SVG picture"),
    ]  # fmt: skip

    class EngineEnded(Message):
        """The engine's process has ended."""

        def __init__(self, engine: "EngineClient", how: str) -> None:
            super().__init__()
            self.engine, self.how = engine, how

    def __init__(
        self,
        session: "Session",
        *,
        device: str = "auto",
        threads: int | None = None,
        engine_command: list[str] | None = None,
        screen: str | None = None,
    ) -> None:
        super().__init__()
        self.session = session
        self.state = AppState()
        self.interrupted: list[int] = []  # runs that the engine's death cut short
        self.engine: EngineClient | None = None
        self._device, self._threads, self._engine_command = device, threads, engine_command
        self._saved_ui = self.kept_ui()
        known = {entry.name for entry in SCREENS}
        self._first_screen = next(
            name for name in (screen, self._saved_ui.get("screen"), SCREENS[0].name) if name in known
        )
        self._leaving = False
        self.key_pressed = -1.0  # when the newest one came (time.monotonic)
        for entry in SCREENS:
            self.add_mode(entry.name, entry.load)
        for theme in THEMES:
            self.register_theme(theme)

    # --- beginning and end -------------------------------------------------------------------------------------

    async def on_mount(self) -> None:
        wanted = self._saved_ui.get("theme")
        self.theme = wanted if wanted in self.available_themes else theme_for(self.console.color_system)
        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, self._end_by_signal, number)
        self.app_resume_signal.subscribe(self, self._back_in_front)
        self.set_interval(_SAVE_UI_EVERY, self.keep_session)
        self.fill_soon()

    def fill_soon(self) -> None:
        """Fill the app once its first frame is on the screen."""
        self.call_after_refresh(self.fill)

    def fill(self) -> None:
        """Read what happened before, start an engine, and show the first screen of the table."""
        from rlhf_tui.history import load_history
        from rlhf_tui.keymap import keys_file, read_keys

        load_history(self.session, self.state)
        keys = read_keys(keys_file())
        self.set_keymap(keys.keymap)
        for problem in keys.problems:
            self.toast(problem, severity="warning")
        self.start_engine()
        opening = self.screen
        self.show_screen(self._first_screen)
        self.set_timer(_SETTLE_AFTER, self._settle)
        for key in opening.typed if isinstance(opening, OpeningScreen) else ():
            self.post_message(key)

    def _back_in_front(self, _: App[Any]) -> None:
        """After Ctrl-Z and fg: the terminal shows nothing of what was there."""
        self.screen.refresh()

    @work(group="settling")
    async def _settle(self) -> None:
        """Import what draws the first line, and spare later garbage collections what is there by now: to look through
        all of that takes a tenth of a second, and found nothing."""
        from rlhf_tui import plotting

        await asyncio.to_thread(plotting.prepare)
        if not gc.isenabled():  # the command line put it off
            gc.freeze()
            gc.enable()

    def start_engine(self) -> None:
        """Start an engine beside the screen and open the session in it; none for a session that is only looked at."""
        if self.session.read_only:
            self.state.engine, self.state.engine_line = "none", "read-only: another instance has this session open"
            self.engine_state_changed()
            return
        self.run_worker(self._start_engine(), name="engine", group="engine", exclusive=True)

    async def _start_engine(self) -> None:
        from core.engine.protocol import Open, Resume
        from rlhf_tui.engine_client import EngineClient, EngineDied, EngineError

        self.state.engine, self.state.engine_line = "starting", "the engine is starting"
        self.engine_state_changed()
        engine = self.engine = EngineClient(
            self._hear,
            device=self._device,
            threads=self._threads,
            command=self._engine_command,
        )
        try:
            self.state.apply(await engine.start())
            engine.exited.add_done_callback(lambda how: self.post_message(self.EngineEnded(engine, how.result())))
            self.state.apply(await engine.request(Open, **self.open_fields()))
        except EngineDied:
            if not engine.exited.done():
                raise
            self.post_message(self.EngineEnded(engine, engine.exited.result()))
            return
        except EngineError as error:
            self.state.engine, self.state.engine_line = "dead", str(error)
            self.state.say("error", str(error))
            self.engine_state_changed()
            return
        self.engine_state_changed()
        self.ask_about_code()
        for number in self.interrupted:
            await self.ask(Resume, run=number)
        self.interrupted = []

    async def ask(self, command: "type[Command]", **fields: Any) -> "Event | None":
        """Send a command and wait for its answer. A refusal is shown as a toast; then, and without an engine, None.

        Call it from a worker: a handler that waits for a busy engine keeps every key waiting. A worker also waits for
        an engine that is starting.
        """
        from rlhf_tui.engine_client import EngineDied, EngineError

        if self.state.engine == "starting" and _in_worker():
            self.toast("the engine is starting; this is done as soon as it is ready")
            while self.state.engine == "starting":
                await asyncio.sleep(0.05)
        if self.engine is None or not self.engine.alive or self.engine.ready is None:
            why = {"starting": "the engine is still starting", "none": "this session is open to look at only"}
            self.toast(why.get(self.state.engine, "no engine is running; press e to start it"))
            return None
        try:
            answer = await self.engine.request(command, **fields)
        except EngineDied:
            return None  # EngineEnded tells
        except EngineError as error:
            self.state.say("error", str(error))
            self.toast(str(error), severity="error")
            return None
        self.take(answer)
        return answer

    def tell(self, command: "type[Command]", **fields: Any) -> None:
        """Send a command without waiting for its answer, which arrives like any event."""
        self.run_worker(self.ask(command, **fields), group="commands")

    def toast(self, text: str, severity: Any = "information") -> None:
        """A notification of foreign or own text."""
        self.notify(safe_str(text, 300), markup=False, severity=severity)

    # --- events of the engine ----------------------------------------------------------------------------------

    def _hear(self, event: "Event") -> None:
        """Take in what answers no command – after the answers that came before it, whose tasks wait in the same queue.

        Otherwise "paused" could be overtaken by the "pausing" that it follows.
        """
        asyncio.get_running_loop().call_soon(self.take, event)

    def take(self, event: "Event") -> None:
        """Let the state and every loaded screen take in an event."""
        from core.engine.protocol import Alert, Metrics

        trouble = self.state.storage_trouble
        self.state.apply(event)
        if isinstance(event, Alert) and event.kind in ABOUT_STORAGE:
            self.toast(event.message, severity="information" if event.kind == "saved_again" else "warning")
        if trouble != self.state.storage_trouble:
            self.engine_state_changed()
        if isinstance(event, Metrics) and event.skipped and event.run in self.state.runs:
            self.set_timer(_GAP_WAIT, partial(self._fill_gap, event.run))
        for screen in self.loaded_screens():
            screen.engine_event(event)

    def _fill_gap(self, run: int) -> None:
        """Read from the database the steps that the engine did not send, since this process was stopped or slow."""
        from rlhf_tui.history import read_series

        try:
            self.state.runs[run].series.complete(read_series(self.session, run))
        except StoreError as error:
            self.state.say("error", str(error), run)

    @on(EngineEnded)
    def _engine_ended(self, message: EngineEnded) -> None:
        if message.engine is not self.engine or self._leaving:
            return
        self.interrupted = sorted({*self.interrupted, *self.state.engine_died(message.how)})
        self.engine_state_changed()

    def engine_state_changed(self) -> None:
        """Show on every loaded screen how the engine is."""
        for screen in self.loaded_screens():
            for banner in screen.query(EngineBanner):
                banner.show_state()
            screen.query(TitleBar).refresh()
            screen.engine_changed()

    def action_restart_engine(self) -> None:
        if self.state.engine != "dead":
            self.toast("the engine is running")
            return
        self.start_engine()

    # --- screens -----------------------------------------------------------------------------------------------

    def loaded_screens(self) -> list[PlaygroundScreen]:
        """The screens of the table that have been shown before."""
        return [
            screen
            for stack in self._screen_stacks.values()
            for screen in stack
            if isinstance(screen, PlaygroundScreen) and screen.is_mounted
        ]

    def show_screen(self, name: str) -> None:
        """Go to a screen of the table."""
        if self.current_mode != name:
            self.switch_mode(name)

    def action_show_screen(self, name: str) -> None:
        self.show_screen(name)

    def action_switch_screen_by(self, distance: int) -> None:
        self.show_screen(neighbour(self.current_mode, distance).name)

    def saved_ui_of(self, screen: PlaygroundScreen) -> dict[str, Any]:
        """What a screen told to keep when it was last open."""
        kept = self._saved_ui.get("screens", {})
        own = kept.get(screen.entry_name, {}) if isinstance(kept, dict) else {}
        return own if isinstance(own, dict) else {}

    def action_help(self) -> None:
        from rlhf_tui.screens.help import HelpScreen, key_lines, topic_of

        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(topic_of(self.screen), key_lines(self.screen)))

    def action_command_palette(self) -> None:
        if not isinstance(self.screen, CommandPalette):
            self.push_screen(CommandPalette(id="--command-palette"))

    # --- leaving -----------------------------------------------------------------------------------------------

    def would_be_lost(self) -> list[str]:
        """What quitting now would lose, a line each. A run that trains is not lost: it is saved and can go on."""
        lost = [line for screen in self.loaded_screens() for line in screen.would_be_lost()]
        if self.state.own_trouble:
            lost.append(f"What was last changed on the screen ({self.state.own_trouble})")
        if self.state.storage_trouble and any(run.active for run in self.state.runs.values()):
            lost.append(f"Training since the last save that worked ({self.state.storage_trouble})")
        return lost

    async def action_quit(self) -> None:
        if self._leaving:
            self.exit()  # asked twice: the engine sees its pipe close, saves and ends by itself
            return
        lost = self.would_be_lost()
        if lost:
            from rlhf_tui.screens.quit import QuitScreen

            self.push_screen(QuitScreen(lost), self._answered)
        else:
            self.leave()

    def _answered(self, leave: bool | None) -> None:
        if leave:
            self.leave()

    def leave(self, return_code: int = 0) -> None:
        """Save the screens' state, let the engine save and end, then exit."""
        self._leaving = True
        self.run_worker(self._leave(return_code), group="leaving", exclusive=True)

    async def _leave(self, return_code: int) -> None:
        self.save_ui()
        if self.engine is not None and self.engine.alive:
            self.notify("Saving …", timeout=30)
            await self.engine.close()
        self.exit(return_code=return_code)

    def _end_by_signal(self, number: int) -> None:
        if not self._leaving:
            self.leave(128 + number)

    def get_driver_class(self) -> type[Driver]:
        found = super().get_driver_class()
        if sys.platform == "win32" or found.__name__ != "LinuxDriver":
            return found
        from rlhf_tui.driver import HangUpDriver

        return HangUpDriver

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key):
            self.key_pressed = time.monotonic()
        await super().on_event(event)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Line colours for themes that are not ours."""
        return LINE_COLOURS

    def get_default_screen(self) -> Screen[Any]:
        return OpeningScreen(self._first_screen)


def _in_worker() -> bool:
    try:
        get_current_worker()
    except NoActiveWorker:
        return False
    return True


def run(session: "Session", *, device: str = "auto", threads: int | None = None, screen: str | None = None) -> int:
    """Run the app on an open session until it is left; the exit status."""
    app = PlaygroundApp(session, device=device, threads=threads, screen=screen)
    try:
        app.run()
    finally:
        app.session.close()  # perhaps not the one that it began with
    return app.return_code or 0
