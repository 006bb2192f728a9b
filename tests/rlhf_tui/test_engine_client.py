"""The client over a real child process with every bad habit an engine can have."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from core.engine.protocol import Alert, Error, Event, Metrics, Pause, RunState, Start
from rlhf_tui.engine_client import EngineClient, EngineDied, EngineError

FAKE = [sys.executable, str(Path(__file__).with_name("fake_engine.py"))]


class Watcher:
    """A started client and the events it reported."""

    def __init__(self, habit: str = "", **kwargs: object) -> None:
        self.events: list[Event] = []
        self.client = EngineClient(self.events.append, command=[*FAKE, habit] if habit else FAKE, **kwargs)  # type: ignore[arg-type]

    async def __aenter__(self) -> "Watcher":
        await self.client.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.client.alive and self.client.pid:
            os.killpg(self.client.pid, signal.SIGKILL)
        await self.client.exited

    async def act(self, habit: str) -> Event:
        return await self.client.request(Start, method="sft", title=habit)


async def test_answers_reach_the_request_that_asked() -> None:
    async with Watcher() as engine:
        first, second = await asyncio.gather(engine.act("first"), engine.act("second"))
        assert isinstance(first, RunState) and first.message == "first"
        assert isinstance(second, RunState) and second.message == "second"
        assert engine.events == []
        assert engine.client.ready is not None and engine.client.ready.device_line == "CPU"


async def test_a_refusal_is_an_engine_error_with_its_message() -> None:
    async with Watcher() as engine:
        with pytest.raises(EngineError, match="there is no such run"):
            await engine.act("refuse")
        assert isinstance(await engine.act("then"), RunState)


async def test_close_lets_the_engine_end_by_itself() -> None:
    async with Watcher() as engine:
        assert await engine.client.close() == "the engine ended"
        assert not engine.client.alive
        with pytest.raises(EngineDied):
            await engine.act("late")


async def test_a_crash_fails_what_waits_and_quotes_the_last_words() -> None:
    async with Watcher() as engine:
        crash, pause = await asyncio.gather(
            engine.act("crash"), engine.client.request(Pause, run=7), return_exceptions=True
        )
        for answer in (crash, pause):
            assert isinstance(answer, EngineDied)
            assert str(answer) == "the engine failed with exit status 3: MemoryError: no room for weights"
        assert (await engine.client.exited).endswith("no room for weights")


async def test_last_words_come_from_the_log_where_there_is_one(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    async with Watcher(log=log) as engine:
        with pytest.raises(EngineDied, match="no room for weights"):
            await engine.act("crash")
    assert "Traceback" in log.read_text()


async def test_kill_minus_nine_is_said() -> None:
    async with Watcher() as engine:
        with pytest.raises(EngineDied, match=r"ended by SIGKILL \(by hand, or because memory ran out\)"):
            await engine.act("kill")


async def test_a_hang_blocks_neither_others_nor_close() -> None:
    async with Watcher() as engine:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await engine.act("hang")
        began = time.monotonic()
        assert "SIGTERM" in await engine.client.close(timeout=0.2)
        assert time.monotonic() - began < 2


async def test_an_engine_deaf_to_sigterm_is_killed() -> None:
    async with Watcher("stubborn") as engine:
        assert "SIGKILL" in await engine.client.close(timeout=0.1)


async def test_garbage_on_stdout_is_reported_and_survived() -> None:
    async with Watcher() as engine:
        assert isinstance(await engine.act("garbage"), RunState)
        assert len(engine.events) == 6
        assert all(isinstance(event, Error) and event.id is None for event in engine.events)


async def test_lines_longer_than_64_kib_arrive_whole() -> None:
    async with Watcher() as engine:
        await engine.act("long")
        (event,) = engine.events
        assert isinstance(event, Alert) and event.message == "x" * 1_000_000


async def test_a_line_longer_than_any_message_is_dropped_and_said() -> None:
    async with Watcher() as engine:
        assert isinstance(await engine.act("endless"), RunState)
        (event,) = engine.events
        assert isinstance(event, Error) and "bytes" in event.message


async def test_letters_cut_in_two_by_the_pipe_are_joined() -> None:
    async with Watcher() as engine:
        await engine.act("pieces")
        (event,) = engine.events
        assert isinstance(event, Alert) and event.message == "äöü€𝄞"


async def test_a_slow_listener_gets_every_event_in_order() -> None:
    async with Watcher() as engine:
        asking = asyncio.create_task(engine.act("flood"))
        await asyncio.sleep(0)
        time.sleep(0.3)  # the event loop is stalled on purpose
        await asking
        assert [event.step for event in engine.events if isinstance(event, Metrics)] == list(range(20_000))


async def test_a_second_answer_to_one_command_is_ignored() -> None:
    async with Watcher() as engine:
        await engine.act("twice")
        assert isinstance(await engine.act("next"), RunState)
        assert engine.events == []


async def test_a_grandchild_that_holds_the_pipe_does_not_hide_the_end() -> None:
    async with Watcher() as engine:
        began = time.monotonic()
        with pytest.raises(EngineDied):
            await engine.act("grandchild")
        assert time.monotonic() - began < 5
        os.killpg(engine.client.pid or 0, signal.SIGKILL)


async def test_a_listener_that_fails_stops_neither_events_nor_answers() -> None:
    seen: list[Event] = []
    failures: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["message"]))

    def listen(event: Event) -> None:
        seen.append(event)
        raise RuntimeError("listener broke")

    client = EngineClient(listen, command=FAKE)
    await client.start()
    await client.request(Start, method="sft", title="long")
    await client.request(Start, method="sft", title="long")
    await client.close()
    assert len(seen) == 2 and failures == ["the listener failed on Alert"] * 2


async def test_an_engine_that_cannot_start_says_so() -> None:
    client = EngineClient(lambda _: None, command=["/nowhere/python"])
    with pytest.raises(EngineError, match="did not start"):
        await client.start()
    client = EngineClient(lambda _: None, command=[*FAKE, "stillborn"])
    with pytest.raises(EngineDied, match="No module named 'torch'"):
        await client.start()
    client = EngineClient(lambda _: None, command=[*FAKE, "deaf"])
    with pytest.raises(EngineError, match=r"not ready within 0\.3 s"):
        await client.start(timeout=0.3)
    assert not client.alive
    client = EngineClient(lambda _: None, command=[*FAKE, "old"])
    with pytest.raises(EngineError, match="another protocol"):
        await client.start()


async def test_the_engine_is_out_of_reach_of_ctrl_c() -> None:
    async with Watcher() as engine:
        assert engine.client.pid is not None
        assert os.getpgid(engine.client.pid) == engine.client.pid != os.getpgid(0)
