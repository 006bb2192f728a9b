"""Engines with a trainer that costs nothing. To load torch takes seconds, so they are forked from one that has, and a
module's tests share one that lives."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from engine_process import REAL_ENGINE, Engine, Maker
from forked_engine import nursery

__all__ = ["nursery"]  # a fixture


@pytest.fixture(scope="session")
def new_engine(request: pytest.FixtureRequest) -> Maker:
    """Makes an engine with the fake trainer."""
    if sys.platform != "linux":
        return lambda stderr=None: Engine(stderr=stderr)
    return request.getfixturevalue("nursery").engine


@pytest.fixture(scope="session")
def new_real_engine(request: pytest.FixtureRequest) -> Maker:
    """Makes an engine with the real trainers."""
    if sys.platform != "linux":
        return lambda stderr=None: Engine(REAL_ENGINE, stderr)
    fork = request.getfixturevalue("nursery").engine
    return lambda stderr=None: fork(stderr, real=True)


class Shelf:
    """Holds the living engine of a module."""

    def __init__(self, make: Maker) -> None:
        self._make = make
        self.engine: Engine | None = None

    def living(self) -> Engine:
        if self.engine is None or self.engine.process.poll() is not None:
            self.engine = self._make()
            self.engine.hello()
        return self.engine

    def clear(self) -> None:
        if self.engine is not None:
            self.engine.kill()


@pytest.fixture(scope="module")
def shelf(new_engine: Maker) -> Iterator[Shelf]:
    shelf = Shelf(new_engine)
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
