"""The app and its session on disk: open another one, keep what the screens look like, say when saving fails."""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.app import App

from core.store import Session, SessionLockedError, SessionMissingError, StoreError
from rlhf_tui.screens.base import PlaygroundScreen
from rlhf_tui.state import AppState

if TYPE_CHECKING:
    from core.config import Config
    from core.engine.protocol import Command, Event
    from rlhf_tui.engine_client import EngineClient

UI_SETTING = "ui"


class SessionKeeping(App[None]):
    """The part of the app that owns the open session."""

    session: Session
    state: AppState
    interrupted: list[int]
    _saved_ui: dict[str, Any]

    if TYPE_CHECKING:
        engine: EngineClient | None

        def loaded_screens(self) -> list[PlaygroundScreen]: ...
        def toast(self, text: str, severity: Any = "information") -> None: ...
        def engine_state_changed(self) -> None: ...
        async def ask(self, command: type[Command], **fields: Any) -> Event | None: ...

    # --- writing -----------------------------------------------------------------------------------------------

    def keep(self, write: Callable[[], object]) -> bool:
        """Write to the session. A store that refuses costs a banner, not the app; False then. Nothing is kept in a
        session that is open to look only."""
        if self.session.read_only:
            return False
        before = self.state.own_trouble
        try:
            try:
                write()
            except SessionMissingError:
                said = self.session.recover()
                if said:
                    self.state.say("alert", said)
                    self.toast(said, severity="warning")
                write()
            self.state.own_trouble = ""
        except StoreError as error:
            self.state.own_trouble = str(error)
        if before != self.state.own_trouble:
            self.engine_state_changed()
        return not self.state.own_trouble

    def kept_ui(self) -> dict[str, Any]:
        """What the screens looked like when the session was last open."""
        saved = self.session.get_setting(UI_SETTING)
        return saved if isinstance(saved, dict) else {}

    def save_ui(self) -> None:
        """Keep what the screens look like in the session, where anything changed."""
        screens = dict(self._saved_ui.get("screens") or {})
        screens |= {screen.entry_name: screen.ui_state() for screen in self.loaded_screens()}
        now = {"screen": self.current_mode, "theme": self.theme, "screens": screens}
        if now != self._saved_ui and self.keep(lambda: self.session.set_setting(UI_SETTING, now)):
            self._saved_ui = now

    def keep_session(self) -> None:
        """What is done every few seconds."""
        self.save_ui()
        self.look_after_the_folder()

    def action_screenshot(self, filename: str | None = None, path: str | None = None) -> None:
        """Save a picture of the screen where the program was started, else among the sessions. Textual would take the
        folder of downloads, which a machine that one reaches over ssh seldom has."""
        name = filename or time.strftime("rlhf-tui-%Y%m%d-%H%M%S.svg")
        places = [Path(path)] if path else [Path.cwd(), self.session.folder.absolute().parent]
        picture = self.export_screenshot(title="rlhf-tui")
        for folder in places:
            try:
                (folder / name).write_text(picture, encoding="utf-8")
            except OSError as error:
                why = f"{folder / name}: {error.strerror}"
            else:
                self.toast(f"a picture of the screen is in {folder / name}")
                return
        self.toast(f"no picture: {why}", severity="error")

    def look_after_the_folder(self) -> None:
        """Notice a deleted folder also while nothing is written."""
        if not self.session.read_only and not os.path.lexists(self.session.folder / "session.db"):
            self.keep(lambda: self.session.set_setting(UI_SETTING, self._saved_ui))

    # --- another session ---------------------------------------------------------------------------------------

    def open_fields(self) -> dict[str, Any]:
        """Of the Open command for the session of this app."""
        looks = {"read_only": True} if self.session.read_only else {}
        return {"folder": str(self.session.folder), **looks}

    async def open_session(self, folder: Path, read_only: bool = False) -> bool:
        """Save and close the session that is open and open another one. Where that one cannot be opened, this one
        stays and a toast says why."""
        try:
            new = Session.open(folder, read_only=read_only)
        except SessionLockedError as error:
            self._ask_about_locked(folder, str(error))
            return False
        except StoreError as error:
            self.toast(str(error), severity="error")
            return False
        await self.use_session(new)
        return True

    async def use_session(self, new: Session) -> None:
        """Go over to a session that is open already; the one before is closed, the engine stays."""
        from core.engine.protocol import Close, Open, Opened
        from rlhf_tui.engine_client import EngineError
        from rlhf_tui.history import load_history

        self.save_ui()
        old, self.session = self.session, new
        alive = self.engine is not None and self.engine.alive and self.engine.ready is not None
        if alive:
            assert self.engine is not None
            try:
                await self.engine.request(Close)
            except EngineError as error:
                self.state.say("error", str(error))  # it had no session open
        old.close()
        state = AppState(engine=self.state.engine, engine_line=self.state.engine_line)
        state.clock = self.state.clock
        self.state, self.interrupted = state, []
        load_history(new, state)
        self._saved_ui = self.kept_ui()
        if alive:
            assert self.engine is not None
            try:
                answer = await self.engine.request(Open, **self.open_fields())
            except EngineError as error:
                self.state.say("error", str(error))
                self.toast(str(error), severity="error")
            else:
                if isinstance(answer, Opened):
                    self.state.apply(answer)
        for screen in self.loaded_screens():
            screen.session_changed()
        self.engine_state_changed()
        words = " (read-only)" if new.read_only else ""
        self.toast(f"opened {new.title}{words}")
        if self.state.engine == "ready":  # one that is starting asks by itself
            self.call_later(self.ask_about_code)  # on the screen that is gone to now

    def ask_about_code(self) -> None:
        """A session that names a function nobody has allowed on this machine is open without it: let it be allowed."""
        from rlhf_tui.screens.choose import ChooseScreen
        from rlhf_tui.tasks import code_to_allow

        name = code_to_allow(self.session)
        if not name:
            return
        session = self.session

        async def chosen(allowed: bool | None) -> None:
            if allowed and session is self.session:
                await self._allow(name)

        about = (
            f"Its gold reward is {name}, Python code on this machine. To use it is to run it with all your rights. "
            "Without it, everything else of the session works."
        )
        options = [(None, "Go on without it"), (True, "Allow it on this machine: I know it")]
        self.push_screen(ChooseScreen("This session names a function", about, options), chosen)

    def allow_typed(self, config: "type[Config]", values: Mapping[str, Any]) -> bool:
        """Allow the code that a person has just typed into knobs of ``config``. False, after a toast, where it is no
        name of code."""
        from core.config import ConfigError
        from core.trust import trust_named

        try:
            trust_named(config, values)
        except ConfigError as error:
            self.toast(str(error), severity="error")
            return False
        return True

    async def _allow(self, name: str) -> None:
        """Allow a function and let the engine take up the session anew, with it."""
        from core.config import ConfigError
        from core.engine.protocol import Open
        from core.trust import trust

        try:
            trust(name)
        except ConfigError as error:
            self.toast(str(error), severity="error")
            return
        if await self.ask(Open, **self.open_fields()) is not None:
            self.toast(f"{name} is the gold reward from now on")

    def _ask_about_locked(self, folder: Path, why: str) -> None:
        from rlhf_tui.screens.choose import ChooseScreen

        async def chosen(how: str | None) -> None:
            if how == "look":
                await self.open_session(folder, read_only=True)
            elif how == "copy":
                await self.open_copy(folder)

        options = [("look", "Look at it read-only"), ("copy", "Open a copy of it"), (None, "Leave it")]
        self.push_screen(ChooseScreen("This session is open elsewhere", why, options), chosen)

    async def open_copy(self, folder: Path) -> bool:
        """Open a copy of a session, which may be in use."""
        import asyncio

        from core.store.locations import duplicate_session

        try:
            copy = await asyncio.to_thread(duplicate_session, folder)
        except StoreError as error:
            self.toast(str(error), severity="error")
            return False
        return await self.open_session(copy)
