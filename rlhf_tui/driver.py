"""Textual's driver for terminals that may vanish: a closed window, a lost ssh connection.

Textual writes from a thread that ends at the first failed write, after which the app waits for ever to hand over its
next line, and its reading thread ends the app with a traceback nobody sees. Here both outlive the terminal, so that
the app can heed SIGHUP: save, let the engine save, and end.
"""

from typing import IO, Any

from textual.drivers.linux_driver import LinuxDriver


class HangUpDriver(LinuxDriver):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._file: Any = _Lasting(self._file)

    def run_input_thread(self) -> None:
        try:
            super().run_input_thread()
        except OSError:
            return  # nothing can be typed any more; SIGHUP tells the app


class _Lasting:
    """A file whose writes are dropped once they fail."""

    def __init__(self, file: IO[str]) -> None:
        self._wrapped = file

    def write(self, text: str) -> int:
        try:
            return self._wrapped.write(text)
        except OSError:
            return len(text)

    def flush(self) -> None:
        try:
            self._wrapped.flush()
        except OSError:
            return

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)
