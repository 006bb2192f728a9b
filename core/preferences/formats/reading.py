"""Files that are not ours, read line by line within limits, with a reason for each line that cannot be used.

Torch-free. A file is used as a whole or not at all: :class:`Problems` collects what is wrong with which line, and
raises when there was anything.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

PROBLEMS_TOLD = 20


@dataclass(frozen=True)
class Limits:
    """How much of a foreign file is read at most."""

    file_bytes: int = 64 * 1024 * 1024
    line_bytes: int = 1024 * 1024
    nesting: int = 16  # of JSON objects and lists


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class Problem:
    """What is wrong with a line; ``line`` is 0 where it is the file as a whole."""

    line: int
    reason: str


class FileRefusedError(ValueError):
    """A file of which nothing was taken. The message is one line; :meth:`lines` tells each problem."""

    def __init__(self, file: Path, problems: list[Problem], more: int = 0) -> None:
        self.file = file
        self.problems = problems
        self.more = more  # problems beyond those told
        first = self.lines()[0]
        count = len(problems) + more
        super().__init__(first if count == 1 else f"{first} (and {count - 1} more); nothing was taken from it")

    def lines(self) -> list[str]:
        """``FILE:LINE: reason`` for each problem."""
        told = [f"{self.file}:{each.line}: {each.reason}" if each.line else f"{self.file}: {each.reason}"
                for each in self.problems]  # fmt: skip
        return [*told, f"{self.file}: {self.more} more"] if self.more else told


class LineError(ValueError):
    """The line at hand cannot be used; the message says why."""


class Problems:
    """Collects what is wrong with a file."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.found: list[Problem] = []
        self.more = 0

    def add(self, line: int, reason: str) -> None:
        """Note a problem; those beyond the first 20 are only counted."""
        if len(self.found) < PROBLEMS_TOLD:
            self.found.append(Problem(line, reason))
        else:
            self.more += 1

    def refuse(self, line: int, reason: str) -> FileRefusedError:
        """The error for a problem after which reading cannot go on."""
        self.add(line, reason)
        return FileRefusedError(self.file, self.found, self.more)

    def raise_if_any(self) -> None:
        """Raises FileRefusedError when there was a problem."""
        if self.found:
            raise FileRefusedError(self.file, self.found, self.more)


def read_lines(file: Path, problems: Problems, limits: Limits = DEFAULT_LIMITS) -> Iterator[tuple[int, str]]:
    """Number (from 1) and text of each line, its end included, without the byte order mark of the file.

    Only a newline ends a line: U+2028 and their like stay inside. Lines that are not UTF-8 become problems and are
    left out. Raises FileRefusedError for a file that is missing, no file, too large, or has a line that is too long.
    """
    try:
        # Not to wait for a writer: a pipe is told apart below.
        descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except OSError as error:
        raise problems.refuse(0, (error.strerror or str(error)).lower()) from None
    except ValueError:
        raise problems.refuse(0, "no file can have this name") from None
    # closefd=False: a folder would be refused before the stream could own the descriptor.
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise problems.refuse(0, "this is a folder" if stat.S_ISDIR(about.st_mode) else "this is not a file")
        if about.st_size > limits.file_bytes:
            raise problems.refuse(0, f"the file has {_size(about.st_size)}, more than {_size(limits.file_bytes)}")
        with os.fdopen(descriptor, "rb", closefd=False) as stream:
            yield from _decoded_lines(stream, problems, limits)
    finally:
        os.close(descriptor)


def _decoded_lines(stream: BinaryIO, problems: Problems, limits: Limits) -> Iterator[tuple[int, str]]:
    total = 0
    number = 0
    while raw := stream.readline(limits.line_bytes + 1):
        number += 1
        total += len(raw)
        if len(raw) > limits.line_bytes:
            raise problems.refuse(number, f"the line is longer than {_size(limits.line_bytes)}")
        if total > limits.file_bytes:  # it grew while it was read
            raise problems.refuse(number, f"the file is larger than {_size(limits.file_bytes)}")
        if number == 1:
            if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
                raise problems.refuse(0, "the file is UTF-16; save it as UTF-8")
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        try:
            yield number, raw.decode("utf-8")
        except UnicodeDecodeError as error:
            problems.add(number, f"not UTF-8: byte {raw[error.start]:#04x} at position {error.start + 1}")


def _size(count: int) -> str:
    for unit, size in (("GB", 1024**3), ("MB", 1024**2), ("KB", 1024)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count} bytes"
