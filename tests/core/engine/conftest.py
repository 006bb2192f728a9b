"""Engines with a trainer that costs nothing. Starting one takes seconds, so a module's tests share one that lives."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from engine_process import Engine


class Shelf:
    """Holds the living engine of a module."""

    def __init__(self) -> None:
        self.engine: Engine | None = None

    def living(self) -> Engine:
        if self.engine is None or self.engine.process.poll() is not None:
            self.engine = Engine()
            self.engine.hello()
        return self.engine

    def clear(self) -> None:
        if self.engine is not None:
            self.engine.kill()


@pytest.fixture(scope="module")
def shelf() -> Iterator[Shelf]:
    shelf = Shelf()
    yield shelf
    shelf.clear()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "session"


@pytest.fixture
def engine(shelf: Shelf, folder: Path) -> Iterator[Engine]:
    """An engine with an open, new session. A test may end it."""
    engine = shelf.living()
    engine.open(folder)
    yield engine
    if engine.process.poll() is None and (engine.broken or "goodbye" in {each["type"] for each in engine.seen}):
        engine.kill()
