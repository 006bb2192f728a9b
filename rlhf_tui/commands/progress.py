"""How far a run has come, on stderr: a bar that moves on a terminal, a line now and then elsewhere."""

import sys
import time
from typing import TextIO

from core.engine.protocol import Metrics, RunState
from core.methods.table import find_method, method_title

BAR = 24
REDRAW_EVERY = 0.1  # seconds
LINE_EVERY = 10.0  # seconds, where there is no terminal


class Progress:
    """Takes a run's events and shows them. ``quiet`` shows nothing but messages."""

    def __init__(self, quiet: bool = False, out: TextIO | None = None) -> None:
        self._out = out or sys.stderr
        self._quiet = quiet
        self._moves = self._out.isatty()
        self._shown = False  # is there a bar to overwrite?
        self._last = 0.0
        self._drawn = -1  # step of the newest bar
        self._state: RunState | None = None
        self._began = (0, 0.0)  # step and time at which this process began to watch the run
        self._headline: dict[str, float] = {}

    def watch(self, state: RunState) -> None:
        """Show this run from now on."""
        self._state = state
        self._began = (state.step, time.monotonic())
        self._headline = {}
        self._drawn = -1
        self._last = -LINE_EVERY if self._moves else time.monotonic()
        self._draw(state.step)

    def metrics(self, metrics: Metrics) -> None:
        """One step was done."""
        if self._state is None or metrics.run != self._state.run:
            return
        for name in (find_method(self._state.method).headline, "loss", "objective/kl"):
            if name in metrics.values:
                self._headline[name] = metrics.values[name]
        self._draw(metrics.step)

    def message(self, text: str) -> None:
        """A line of its own, above the bar."""
        self._clear()
        print(text, file=self._out, flush=True)

    def done(self, state: RunState) -> None:
        """The run has come to a rest."""
        if self._state is None:
            return
        self._last = -LINE_EVERY
        self._draw(state.step)
        if self._shown and self._moves:
            print(file=self._out, flush=True)
        self._shown = False
        self._state = None

    def _draw(self, step: int) -> None:
        now = time.monotonic()
        if self._quiet or self._state is None or now - self._last < (REDRAW_EVERY if self._moves else LINE_EVERY):
            return
        if step == self._drawn and not self._moves:
            return
        self._last, self._drawn = now, step
        line = progress_line(self._state, step, self._began, now, self._headline)
        if self._moves:
            print(f"\r\x1b[K{line}", end="", file=self._out, flush=True)
        else:
            print(line, file=self._out, flush=True)
        self._shown = True

    def _clear(self) -> None:
        if self._shown and self._moves:
            print("\r\x1b[K", end="", file=self._out)
        self._shown = False


def progress_line(
    state: RunState, step: int, began: tuple[int, float], now: float, headline: dict[str, float]
) -> str:  # fmt: skip
    """``PPO           ████████░░░░  75/150  1.4 steps/s  0:54 left  gold_reward 5.31``."""
    filled = round(BAR * step / max(1, state.steps))
    bar = "█" * filled + "░" * (BAR - filled)
    rate = (step - began[0]) / (now - began[1]) if now > began[1] else 0.0
    left = f"{rate:.1f} steps/s  {clock((state.steps - step) / rate)} left" if rate > 0 else "…"
    figures = "  ".join(f"{name} {value:.3g}" for name, value in headline.items())
    title = method_title(state.method)
    return f"{title:<13} {bar} {step:>{len(str(state.steps))}}/{state.steps}  {left}  {figures}".rstrip()


def clock(seconds: float) -> str:
    """``1:05`` or ``2:01:05``."""
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    minutes, seconds = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
