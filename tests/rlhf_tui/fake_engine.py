"""An engine without torch whose bad habits are chosen on its command line, to see what a client makes of them.

It answers ``hello`` and, by the title of a ``start`` command, does what the title says.
"""

import json
import os
import signal
import sys
import time


def say(**message: object) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


READY = {"type": "ready", "protocol": 1, "device": "cpu", "device_line": "CPU", "threads": 1, "torch": "0"}


def state(command: dict[str, object], message: str = "") -> dict[str, object]:
    return {
        "type": "run_state", "run": 1, "method": "sft", "title": "", "state": "running", "step": 0, "steps": 9,
        "message": message,
    }  # fmt: skip


def alert(message: str) -> dict[str, object]:
    return {"type": "alert", "run": None, "step": None, "kind": "storage", "message": message}


def act(habit: str, command: dict[str, object]) -> None:
    if habit == "crash":
        print("Traceback …\nMemoryError: no room for weights", file=sys.stderr, flush=True)
        os._exit(3)
    if habit == "hang":
        time.sleep(1000)
    if habit == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if habit == "garbage":
        sys.stdout.write('warming up 100%\n\x1b[31m\n{}\n{"type":"unheard"}\n[1,2]\n\n')
        sys.stdout.buffer.flush()
        os.write(1, b"\xff\xfe\x00 not utf-8\n")
    if habit == "long":
        say(**alert("x" * 1_000_000))
    if habit == "endless":
        for _ in range(600):
            sys.stdout.write("y" * 10_000)
        sys.stdout.write("\n")
    if habit == "pieces":
        line = json.dumps(alert("äöü€𝄞")).encode() + b"\n"
        for index in range(len(line)):
            os.write(1, line[index : index + 1])
    if habit == "refuse":
        say(type="error", id=command["id"], message="there is no such run")
        return
    if habit == "flood":
        for number in range(20_000):
            say(type="metrics", run=1, step=number, completions=0, seconds=0.0, values={"loss": 1.0})
    if habit == "grandchild" and os.fork() == 0:
        time.sleep(30)
        os._exit(0)
    if habit == "grandchild":
        os._exit(0)
    if habit == "twice":
        say(**state(command), id=command["id"])
        say(**state(command, "again"), id=command["id"])
    say(**state(command, habit), id=command["id"])


def main() -> None:
    habit = sys.argv[1] if len(sys.argv) > 1 else ""
    if habit == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(1000)
    if habit == "stillborn":
        print("ModuleNotFoundError: No module named 'torch'", file=sys.stderr)
        raise SystemExit(1)
    for line in sys.stdin:
        command = json.loads(line)
        if command["type"] == "hello" and habit == "old":
            say(**{**READY, "protocol": 99}, id=command["id"])
        elif command["type"] == "hello":
            say(**READY, id=command["id"])
        elif command["type"] == "quit" and habit == "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(1000)
        elif command["type"] == "quit":
            say(type="goodbye", id=command["id"])
            return
        else:
            act(str(command.get("title", "")), command)


if __name__ == "__main__":
    main()
