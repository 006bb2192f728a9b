"""Compare: what is asked of the engine, what is shown of the answer, and coming back."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from app_helpers import DirectApp, screen_lines
from scripted_engine import HOSTILE

from core.engine.protocol import Sample, Samples, SampleText
from core.store import Session
from rlhf_tui.comparing import Side
from rlhf_tui.screens.compare import CompareScreen
from rlhf_tui.widgets.sample_pairs import SamplePairs
from rlhf_tui.widgets.side_summary import SideSummary


def answer(command: Sample, texts: tuple[str, str] = ("bale", "bade")) -> Samples:
    """A side writes one text, so that what is shown can be told."""

    def side(text: str, reward: float) -> list[SampleText]:
        return [
            SampleText(prompt=prompt, text=text, ended=True, gold_reward=reward, learned_reward=-reward, logprob=-3.5,
                       reference_logprob=-4.25, kl=0.75)
            for prompt in command.prompts for _ in range(command.count)
        ]  # fmt: skip

    return Samples(
        id=command.id, run=command.run, step=99 if command.step is None else command.step, samples=side(texts[1], 2.0),
        reference=side(texts[0], 1.0), reference_step=5 if command.reference_step is None else command.reference_step,
    )  # fmt: skip


class CompareApp(DirectApp):
    texts = ("bale", "bade")

    async def ask(self, command: type, **fields: Any) -> Any:
        if command is Sample:
            self.asked.append(("Sample", fields))
            found = answer(Sample(id=len(self.asked), **fields), self.texts)
            self.take(found)
            return found
        return await super().ask(command, **fields)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with Session.create(tmp_path / "s", title="first steps") as made:
        for method, parent in (("sft", None), ("rm", 1), ("ppo", 1)):
            run = made.runs.add(method, config={"steps": 99}, parent=parent, parent_step=99 if parent else None)
            made.runs.update(run.id, state="done", step=99, seconds=61.0)
            for step in (0, 33, 66, 99):
                made.checkpoints.save(run.id, step, "snapshot", b"weights")
        made.metrics.append(3, [(99, 1000, 61.0, {"gold_reward": 0.875, "objective/kl": 2.5})])
        yield made


def compare(app: DirectApp) -> CompareScreen:
    assert isinstance(app.screen, CompareScreen)
    return app.screen


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_reference_and_policy_stand_side_by_side_with_what_is_known(
    session: Session, size: tuple[int, int]
) -> None:
    app = CompareApp(session, screen="compare")
    async with app.run_test(size=size) as pilot:
        await pilot.pause(0.2)
        fields = app.last("Sample")
        assert (fields["run"], fields["reference"], fields["seed"]) == (3, 1, 0)
        text = "\n".join(screen_lines(app))
        for shown in ("SFT #1 · step 5", "PPO #3 · step 99", "bale", "bade", "▲2.00", "1.00", "-3.50", "-4.25", "0.75"):
            assert shown in text, text
        assert all(len(line) <= size[0] for line in screen_lines(app))


async def test_averages_letters_and_the_scoreboard(session: Session) -> None:
    app = CompareApp(session, screen="compare")
    async with app.run_test(size=(120, 40)) as pilot:
        summary = app.screen.query_one(SideSummary)
        for _ in range(200):
            await pilot.pause(0.05)
            if summary.right is not None:
                break
        wide = next(fields for name, fields in reversed(app.asked) if name == "Sample" and fields["count"] == 8)
        assert len(wide["prompts"]) == 20
        assert summary.right is not None and summary.wins == 1.0 and summary.right.count == 160
        text = "\n".join(screen_lines(app))
        assert f"{'wins of B over A':<17}{'':>9}{'100%':>9}" in text
        assert f"{'unique texts':<17}{'1%':>9}{'1%':>9}" in text
        assert "0.875" in text and "2.500" in text and "1 m 01 s" in text


async def test_one_key_scrubs_through_the_snapshots(session: Session) -> None:
    app = CompareApp(session, screen="compare")
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause(0.2)
        walked = []
        for key in (",", ",", ",", ",", ".", "."):
            await pilot.press(key)
            await pilot.pause(0.05)
            walked.append(app.last("Sample")["step"])
        assert walked == [66, 33, 0, 0, 33, 66]
        await pilot.press("<")
        await pilot.pause(0.05)
        assert app.last("Sample")["reference_step"] == 66
        await pilot.press("x")
        await pilot.pause(0.05)
        assert compare(app).question.left == Side(3, 66) and compare(app).question.right == Side(1, 66)


async def test_keys_change_what_is_asked(session: Session) -> None:
    app = CompareApp(session, screen="compare")
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause(0.2)
        prompts = app.last("Sample")["prompts"]
        await pilot.press("down", "n")
        await pilot.pause(0.05)
        assert (app.last("Sample")["prompts"], app.last("Sample")["count"]) == ([prompts[1]], 8)
        await pilot.press("n", "r", "t", "+")
        await pilot.pause(0.05)
        last = app.last("Sample")
        assert (last["seed"], last["temperature"], len(last["prompts"])) == (1, 1.0, 16)
        await pilot.press("o")
        await pilot.pause()
        await pilot.press("ctrl+u", *"top_k=3 top_p=0.5 temperature=9 seed=4", "enter")
        await pilot.pause(0.05)
        last = app.last("Sample")
        assert (last["top_k"], last["top_p"], last["temperature"], last["seed"]) == (3, 0.5, 9.0, 4)
        await pilot.press("p", *"ba", "enter")
        await pilot.pause(0.05)
        assert app.last("Sample")["prompts"] == ["ba"]
        await pilot.press("p", *"b4", "enter")
        await pilot.pause()
        assert any("the alphabet lacks 4" in line for line in screen_lines(app))
        await pilot.press("escape", "b", "up", "up", "enter")
        await pilot.pause(0.05)
        assert app.last("Sample")["run"] is None or app.last("Sample")["run"] == 1


async def test_while_keys_come_faster_than_answers_only_the_newest_question_is_asked(session: Session) -> None:
    import asyncio

    app = CompareApp(session, screen="compare")
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause(0.2)
        gate, asked = asyncio.Event(), app.asked
        direct = app.ask

        async def slow(command: type, **fields: Any) -> Any:
            await gate.wait()
            return await direct(command, **fields)

        app.ask = slow  # type: ignore[method-assign]
        before = len(asked)
        for _ in range(10):
            await pilot.press("r")
        gate.set()
        await pilot.pause(0.1)
        assert len(asked) - before <= 3  # the one under way and the newest, perhaps averages
        pairs = app.screen.query_one(SamplePairs)
        assert pairs.samples is not None and compare(app).question.sampling.seed == 10


async def test_a_pair_is_copied_to_the_clipboard(session: Session) -> None:
    app = CompareApp(session, screen="compare")
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause(0.2)
        await pilot.press("y")
        lines = app.clipboard.splitlines()
        assert lines[0].split("\t") == ["prompt", "side", "text", "gold", "learned", "lp A", "lp B", "KL"]
        assert lines[1].split("\t")[1:] == ["A", "bale", "1.0000", "-1.0000", "-4.2500", "-3.5000", "0.7500"]
        assert len(lines) == 3
        await pilot.press("Y")
        assert len(app.clipboard.splitlines()) == 17


async def test_it_comes_back_as_it_was(session: Session) -> None:
    app = CompareApp(session, screen="compare")
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause(0.2)
        await pilot.press(",", "r", "v")
        await pilot.pause(0.05)
        question = compare(app).question
        app.save_ui()
    app = CompareApp(session)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause(0.2)
        assert compare(app).question == question and compare(app).pane == "summary"
        assert app.last("Sample")["step"] == 66 and app.last("Sample")["seed"] == 1


@pytest.mark.parametrize("saved", [3, {"question": 3}, {"question": {"left": [9, "x"], "right": None}}, {"pane": []}])
async def test_it_opens_whatever_was_kept(session: Session, saved: object) -> None:
    session.set_setting("ui", {"screen": "compare", "screens": {"compare": saved}})
    app = CompareApp(session)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause(0.1)
        assert compare(app).question.right == Side(3)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (20, 5)])
async def test_hostile_and_long_texts_do_no_harm(session: Session, size: tuple[int, int]) -> None:
    app = CompareApp(session, screen="compare")
    async with app.run_test(size=size) as pilot:
        await pilot.pause(0.1)
        for index in range(0, len(HOSTILE)):
            app.texts = (HOSTILE[index], HOSTILE[(index + 5) % len(HOSTILE)])
            await pilot.press("r", "down")
            await pilot.pause(0.02)
            text = "".join(screen_lines(app))
            assert not [letter for letter in text if ord(letter) < 32 or 127 <= ord(letter) < 160]
            assert "\u202e" not in text and "\u200b" not in text


async def test_without_runs_it_says_what_is_missing(tmp_path: Path) -> None:
    with Session.create(tmp_path / "empty") as session:
        app = CompareApp(session, screen="compare")
        async with app.run_test(size=(120, 40)) as pilot:
            await pilot.pause(0.1)
            assert "No runs yet" in "\n".join(screen_lines(app))
