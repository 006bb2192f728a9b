"""What tests of the app share: an app with a scripted engine inside its own process, and the text of its screen."""

import sys
from pathlib import Path
from typing import Any

from scripted_engine import ScriptedEngine

from core.engine.protocol import Command, Error, Event
from core.store import Session
from rlhf_tui.app import PlaygroundApp

SCRIPTED = str(Path(__file__).with_name("scripted_engine.py"))
NOON = 1_700_000_000.0  # a fixed time for logs


def scripted_command(*options: str) -> list[str]:
    return [sys.executable, SCRIPTED, *options]


class DirectApp(PlaygroundApp):
    """Its engine answers inside the same process and at once; ``asked`` keeps what was asked of it.

    ``hold``: how many steps a run does when it starts; it does no more until it is told to.
    """

    def __init__(self, session: Session, hold: int = 40, hostile: bool = False, **options: Any) -> None:
        super().__init__(session, **options)
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.script = ScriptedEngine(rate=0, hold=hold, hostile=hostile)
        self.script.say = self._hear  # type: ignore[method-assign]
        self.state.clock = lambda: NOON
        self._heard: list[Event] = []

    def _hear(self, event: Event) -> None:
        self._heard.append(event)

    def fill_soon(self) -> None:
        self.fill()  # nobody looks at the first frame

    def start_engine(self) -> None:
        self.state.engine, self.state.engine_line = "ready", "cpu, 1 thread"
        self.engine_state_changed()

    async def ask(self, command: type[Command], **fields: Any) -> Event | None:
        self.asked.append((command.__name__, fields))
        self.script.take(command(id=len(self.asked), **fields))
        answer = None
        heard, self._heard = self._heard, []
        for event in heard:
            if isinstance(event, Error):
                self.toast(event.message, severity="error")
                continue
            answer = event if event.id is not None else answer
            self.take(event)
        return answer

    def last(self, command: str) -> dict[str, Any]:
        """The fields of the newest command of a kind."""
        return next(fields for name, fields in reversed(self.asked) if name == command)


def screen_lines(app: PlaygroundApp) -> list[str]:
    """What stands on the screen, a line each, blanks at the ends cut."""
    strips = app.screen._compositor.render_strips()
    return ["".join(segment.text for segment in strip).rstrip() for strip in strips]
