"""When the session's folder is deleted while runs train: put it back, with fresh checkpoints of what is in memory."""

from collections.abc import Callable, Iterable
from functools import partial

from core.engine import launching, origin
from core.engine.driver import RunDriver
from core.engine.protocol import Alert, Event
from core.store import Session


def recover(session: Session, drivers: Iterable[RunDriver], emit: Callable[[Event], None]) -> None:
    """Bring the session back and save each run in memory again. Raises StoreError when that cannot be done yet."""
    said = session.recover()
    if not said:
        return
    emit(Alert(run=None, step=None, kind="storage", message=said))
    for driver in drivers:
        given = launching.origin_of(driver.trainer)
        session.checkpoints.save(driver.id, 0, origin.KIND, given.to_bytes())
        driver.at_boundary(partial(_save, driver))


def _save(driver: RunDriver, gone: str | None) -> None:
    if gone is None:
        driver.save_now()
