"""Code in a forked child process, which may be killed, limited or stripped of its rights without harm to the tests."""

import json
import os
import signal
import traceback
from collections.abc import Callable
from typing import Any


def run_in_child(work: Callable[[], Any]) -> Any:
    """What ``work`` returned (JSON values) in a child process; a tuple ("killed", signal) when a signal ended it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reading)
            os.write(writing, json.dumps({"value": work()}).encode())
            status = 0
        except BaseException:
            os.write(writing, json.dumps({"traceback": traceback.format_exc()[-3000:]}).encode())
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return ("killed", os.WTERMSIG(status))
    answer = json.loads(said)
    assert "traceback" not in answer, answer["traceback"]
    return answer["value"]


def without_privileges(work: Callable[[], Any]) -> Any:
    """What ``work`` returned as a user to whom file permissions apply (root ignores them)."""

    def as_nobody() -> Any:
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        return work()

    return run_in_child(as_nobody)


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
