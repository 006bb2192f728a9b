import os
import platform
import signal
import time

import pytest
from children import run_in_child

from core.store import Session, SessionLockedError
from core.store.lock import SessionLock, current_holder


@pytest.fixture
def folder(tmp_path):
    Session.create(tmp_path / "s").close()
    return tmp_path / "s"


def refusal(folder):
    """What opening the session says to a stranger: a grandchild, whose parent does not hold it."""

    def stranger():
        try:
            Session.open(folder).close()
        except SessionLockedError as error:
            return [str(error), None if error.holder is None else error.holder.pid]
        return None

    return run_in_child(lambda: run_in_child(stranger))


def test_a_second_instance_is_told_who_holds_the_session(folder):
    with Session.open(folder):
        message, pid = refusal(folder)
        assert pid == os.getpid()
        assert f"is open in process {pid} on {platform.node()} since " in message
        assert message.endswith("look at it read-only, or take a copy")
        assert current_holder(folder).pid == os.getpid()
    assert refusal(folder) is None
    assert current_holder(folder) is None


def test_a_second_instance_may_look(folder):
    def stranger():
        with Session.open(folder, read_only=True) as session:
            return session.title

    with Session.open(folder):
        assert run_in_child(lambda: run_in_child(stranger)) == "s"


def test_the_engine_of_an_app_is_let_in_and_a_second_engine_is_not(folder):
    def engine():
        with Session.open(folder) as session:
            session.runs.add("sft")
            return True

    def second_engine():
        with pytest.raises(SessionLockedError) as refused:
            Session.open(folder)
        return refused.value.holder.pid

    with Session.open(folder) as app:
        assert run_in_child(engine)
        assert len(app.runs.all()) == 1
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            held = SessionLock.acquire(folder)
            os.write(writing, b"x")
            time.sleep(60)
            held.release()
            os._exit(0)
        os.read(reading, 1)
        assert run_in_child(second_engine) == child
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert run_in_child(engine), "the lock ended with its process"


def test_an_engine_that_came_first_lets_its_app_in(folder):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with Session.open(folder):
            os.write(writing, b"x")
            time.sleep(60)
        os._exit(0)
    try:
        os.read(reading, 1)
        with Session.open(folder) as app:
            app.set_setting("a", 1)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_the_session_is_held_until_app_and_engine_are_both_gone(folder):
    """The app dies, its engine is still saving: a new app is refused until the engine ends."""
    reading, writing = os.pipe()
    stop_reading, stop_writing = os.pipe()
    app = os.fork()
    if app == 0:
        held = SessionLock.acquire(folder)
        if os.fork() == 0:
            mine = SessionLock.acquire(folder)
            os.close(stop_writing)
            os.write(writing, str(os.getpid()).encode())
            os.read(stop_reading, 1)
            mine.release()
            os._exit(0)
        time.sleep(60)
        held.release()
        os._exit(0)
    os.close(stop_reading)
    engine = int(os.read(reading, 20))
    os.kill(app, signal.SIGKILL)
    os.waitpid(app, 0)
    message, pid = refusal(folder)
    assert pid == engine and f"process {engine}" in message
    os.close(stop_writing)  # the engine ends
    for _ in range(200):
        if refusal(folder) is None:
            break
        time.sleep(0.02)
    assert refusal(folder) is None


def test_opening_twice_in_one_process_is_refused(folder):
    with Session.open(folder), pytest.raises(SessionLockedError):
        Session.open(folder)


def test_a_failed_opening_lets_go(folder):
    content = (folder / "session.db").read_bytes()
    (folder / "session.db").write_bytes(content[:1000])
    with pytest.raises(Exception, match="damaged"):
        Session.open(folder)
    (folder / "session.db").write_bytes(content)
    Session.open(folder).close()


def test_what_a_holder_says_may_be_garbage(folder):
    lock = SessionLock.acquire(folder)
    for said in (b"", b"[]", b"{}", b"\xff" * 9, b'{"pid": "x", "parent": 1, "host": "", "since": 0}', b"[" * 10**5):
        (folder / ".lock-holder.json").write_bytes(said)
        message, _ = refusal(folder)
        assert message == "session s is open in another program"
    lock.release()
