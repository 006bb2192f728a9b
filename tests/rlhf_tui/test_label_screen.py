"""Every key of the Label screen: what stands in the session's database first, then what the screen says."""

import asyncio
import resource
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from app_helpers import screen_lines
from labelling_app import LabellingApp, label_screen
from textual._compositor import Compositor
from textual.widget import Widget
from textual.widgets import DataTable, Input, Static

from core.config import parse_short
from core.engine.protocol import RunState
from core.preferences.labels import KEYS, Answer, LabelRecord, Reason, Side
from core.preferences.selection import ChosenFour, ChosenPair
from core.store import Session
from core.tasks.table import CONTENT, TASKS, task_content
from rlhf_tui.labelling.options import SETTING
from rlhf_tui.screens.label import QUIET
from rlhf_tui.screens.label_browser import LabelBrowser
from rlhf_tui.screens.prompt import PromptScreen
from rlhf_tui.widgets.judged_texts import TextPane

NORMAL, SMALL = (120, 40), (80, 24)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with Session.create(tmp_path / "s", title="first steps") as made:
        yield made


@pytest.fixture
def app(session: Session) -> LabellingApp:
    return LabellingApp(session)


def pair(app: LabellingApp) -> ChosenPair:
    item = label_screen(app).desk.item
    assert isinstance(item, ChosenPair)
    return item


def boxes(app: LabellingApp) -> list[str]:
    """What stands in the boxes that are seen."""
    return [str(box.query_one(Static).content) for box in app.screen.query(TextPane) if box.display and box.size.area]


def text(app: LabellingApp) -> str:
    return "\n".join(screen_lines(app))


async def begun(app: LabellingApp, pilot: object) -> None:
    app.with_run(1, "sft")
    async with asyncio.timeout(10):
        while label_screen(app).desk.item is None:
            await pilot.pause(0.02)  # type: ignore[attr-defined]
    await pilot.pause()  # type: ignore[attr-defined]


@pytest.mark.parametrize("count", [30, pytest.param(200, marks=pytest.mark.long)])
async def test_each_keypress_is_a_label(app: LabellingApp, session: Session, count: int) -> None:
    """Each key is one label, on disk before the next pair is seen, of the pair seen before, the sides as they stood."""
    async with app.run_test(size=NORMAL) as pilot:
        await begun(app, pilot)
        keys = (list(KEYS) * 19)[:count]
        expected = []
        disk = sqlite3.connect(session.folder / "session.db")  # as another program sees it
        for key in keys:
            shown = boxes(app)
            expected.append((pair(app).prompt, *shown, KEYS[key]))
            await pilot.press(key)
            assert disk.execute("SELECT count(*) FROM labels").fetchone() == (len(expected),)
        disk.close()
        stored = session.labels.current()
        assert [
            (each.prompt, each.left.text, each.right and each.right.text, each.answer) for each in stored
        ] == expected
        assert len({each.id for each in stored}) == count
        assert count // 25 <= sum(each.reason is Reason.REPEAT for each in stored) <= count // 5


async def test_a_key_draws_the_texts_that_changed_and_lays_out_nothing(
    app: LabellingApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that is drawn stands between a key and the next pair: not the boxes, nor the lines that say the same."""
    async with app.run_test(size=NORMAL) as pilot:
        await begun(app, pilot)
        await pilot.press("2")  # from here on the lines below have something to say
        await pilot.pause(QUIET + 0.3)
        drawn: set[Widget] = set()
        update_widgets = Compositor.update_widgets

        def update(compositor: Compositor, widgets: set[Widget]) -> None:
            drawn.update(widgets)
            update_widgets(compositor, widgets)

        def never(*_: object, **__: object) -> None:
            raise AssertionError("the whole screen")

        monkeypatch.setattr(Compositor, "update_widgets", update)
        for name in ("reflow", "render_full_update"):
            monkeypatch.setattr(Compositor, name, never)
        before = boxes(app)
        await pilot.press("2")
        await pilot.pause()
        assert boxes(app) != before
        assert all(isinstance(each, Static) for each in drawn)
        assert not {"guideline", "scale"} & {each.id for each in drawn}


async def test_a_label_says_all_that_was_known_when_it_was_given(app: LabellingApp, session: Session) -> None:
    app.reward = (7, 120)
    async with app.run_test(size=NORMAL) as pilot:
        await begun(app, pilot)
        left = pair(app).left
        await pilot.press("f", "n", *"odd", "enter", "3")
        label = session.labels.current()[0]
        assert (label.flagged, label.note, label.answer, label.strength) == (True, "odd", Answer.LEFT_SLIGHTLY, 0.0)
        assert label.left == left and label.left.source == "reference" and label.left.run == 1 and label.left.step == 9
        assert label.left.temperature == 1.0
        assert label.left.seed in {fields["seed"] for name, fields in app.asked if name == "Sample"}
        assert label.left.score == pytest.approx(sum(app.scores(left.text)) / 3)
        assert (label.reward_run, label.reward_step) == (7, 120)
        assert label.guideline == "Which word is more pleasant to say?"
        assert label.latency is not None and 0 < label.latency < 60


async def test_scores_and_sources_are_hidden_until_the_vote(app: LabellingApp) -> None:
    app.reward = (7, 120)
    async with app.run_test(size=NORMAL) as pilot:
        await begun(app, pilot)
        assert "reward model agreed" not in text(app) and "A reference" not in text(app)
        first = pair(app)
        assert first.left.score is not None and first.right.score is not None
        await pilot.press("2")
        await pilot.pause()
        said = (
            "agreed"
            if first.left.score > first.right.score
            else "disagreed"
            if first.left.score < first.right.score
            else "says"
        )
        assert f"the reward model {said}" in text(app)
        assert "A reference@9, B reference@9" in text(app)
        assert "reward model: hard label, half margin · DPO: pair" in " ".join(text(app).split())


async def test_undo_has_no_end_and_brings_the_pairs_back(app: LabellingApp, session: Session) -> None:
    async with app.run_test(size=NORMAL) as pilot:
        await begun(app, pilot)
        seen = []
        for key in ("1", "4", "b"):
            seen.append(boxes(app))
            await pilot.press(key)
        waiting = boxes(app)
        for number in (2, 1, 0):
            await pilot.press("u")
            assert boxes(app) == seen[number]
            assert session.labels.count() == number
        await pilot.press("u")
        assert session.labels.count() == 0
        # Judged again, in their order, and then what had been waiting.
        for number in (0, 1, 2):
            assert boxes(app) == seen[number]
            await pilot.press("2")
        assert boxes(app) == waiting


async def test_undo_works_after_a_restart(session: Session) -> None:
    app = LabellingApp(session)
    async with app.run_test(size=NORMAL) as pilot:
        await begun(app, pilot)
        seen = boxes(app)
        await pilot.press("2")
    again = LabellingApp(session)
    async with again.run_test(size=NORMAL) as pilot:
        await begun(again, pilot)
        await pilot.press("backspace")
        assert session.labels.count() == 0
        assert boxes(again) == seen


async def test_g_shows_another_pair_and_writes_nothing(app: LabellingApp, session: Session) -> None:
    async with app.run_test(size=NORMAL) as pilot:
        await begun(app, pilot)
        before = boxes(app)
        await pilot.press("g")
        assert boxes(app) != before and session.labels.count() == 0


async def test_best_and_worst_of_four_give_five_labels_and_are_undone_as_one(
    app: LabellingApp, session: Session
) -> None:
    async with app.run_test(size=NORMAL) as pilot:
        await begun(app, pilot)
        await pilot.press("w")
        await pilot.pause()
        four = label_screen(app).desk.item
        assert isinstance(four, ChosenFour)
        names = boxes(app)
        assert len(names) == 4
        await pilot.press("3", "3", "1")  # the third is the best; it cannot be the worst as well; the first is
        labels = session.labels.current()
        judged = {(each.chosen.text, each.rejected.text) for each in labels if each.chosen and each.rejected}
        first, second, third, fourth = names
        assert judged == {(third, first), (third, second), (third, fourth), (second, first), (fourth, first)}
        assert len({each.group for each in labels}) == 1
        await pilot.press("u")
        assert session.labels.count() == 0
        assert sorted(boxes(app)) == sorted(names)


async def test_a_collapsed_model_is_said_to_be_one(app: LabellingApp) -> None:
    app.only_text = "aaaa"
    async with app.run_test(size=NORMAL) as pilot:
        app.with_run(1, "sft")
        await pilot.pause(2.5)
        assert "Only duplicates are left" in text(app)
        asked = len(app.asked)
        await pilot.pause(1.5)
        assert len(app.asked) == asked  # it does not ask for ever
        app.only_text = ""
        await pilot.press("g")
        await pilot.pause(0.5)
        assert len(boxes(app)) == 2


async def test_without_a_model_the_screen_says_which_key_trains_one(app: LabellingApp) -> None:
    async with app.run_test(size=NORMAL) as pilot:
        await pilot.pause(0.3)
        assert "Press t to train SFT." in text(app) and "↵" not in text(app)
        await pilot.press("t", "t")
        await pilot.pause()
        starts = [fields["method"] for name, fields in app.asked if name == "Start"]
        assert starts == ["sft"]  # a key pressed twice starts one run
        assert "SFT is still training (40 of 500)" in text(app) and "no reference yet" not in text(app)


async def test_a_round_is_a_key_per_stage(app: LabellingApp, session: Session) -> None:
    async with app.run_test(size=NORMAL) as pilot:
        await begun(app, pilot)
        await pilot.press("t")
        assert "Start" not in [name for name, _ in app.asked]  # no labels yet
        await pilot.press(*"26262626")
        await pilot.press("t")
        await pilot.pause()
        start = app.last("Start")
        assert (start["method"], start["parent"]) == ("rm", 1)
        assert start["config"] == {"pairs": "labels", "ensemble": 3}
        assert start["title"] == "Reward model, round 1"
        app.reward = (2, 40)
        app.with_run(2, "rm", pair_counts={"labels": 8})
        await pilot.pause(0.3)
        held_out = [each for each in session.labels.current() if each.held_out]
        assert len(held_out) < 5
        said = " ".join(text(app).split())
        assert "right on" in said and "too few are held out yet" in said
        assert "p align (due)" in said  # the keys of the next stage stay
        await pilot.press("p")
        await pilot.pause()
        start = app.last("Start")
        assert (start["method"], start["parent"], start["reward_run"]) == ("ppo", 1, 2)
        assert start["config"] == {"reward": "learned"}
        app.with_run(3, "ppo")
        await pilot.press("c")
        await pilot.pause(0.3)
        sampled = [fields["run"] for name, fields in app.asked if name == "Sample"]
        assert sampled[-2:] == [1, 3]


async def test_a_run_that_ended_in_an_earlier_life_is_not_measured_again(app: LabellingApp, session: Session) -> None:
    session.labels.add(LabelRecord(
        id="1", time=0.0, annotator="t", prompt="tree", left=Side("e"), right=Side("ee"), answer=Answer.LEFT,
    ))  # fmt: skip
    async with app.run_test(size=NORMAL) as pilot:
        await begun(app, pilot)
        app.take(RunState(run=2, method="rm", title="", state="done", step=9, steps=9))  # as an opened session tells it
        await pilot.pause(0.3)
        assert "Score" not in [name for name, _ in app.asked] and "right on" not in text(app)


async def test_after_a_second_retraining_one_line_says_what_changed(app: LabellingApp, session: Session) -> None:
    """Five held-out labels prefer the shorter text; the old model liked long ones, the new one likes short ones."""
    for number in range(5):
        session.labels.add(LabelRecord(
            id=str(number), time=0.0, annotator="t", prompt="tree", left=Side("e" * (number + 1)),
            right=Side("e" * (number + 2)), answer=Answer.LEFT, held_out=True,
        ))  # fmt: skip
    async with app.run_test(size=NORMAL) as pilot:
        await begun(app, pilot)
        app.reward = (2, 9)
        app.with_run(2, "rm", pair_counts={"labels": 5})
        await pilot.pause(0.3)
        assert "right on 0 of 5 held-out labels" in text(app)
        app.scores = lambda text: [-float(len(text))] if asked_for(app) == 3 else [float(len(text))]  # type: ignore[method-assign]
        app.with_run(3, "rm", pair_counts={"labels": 9})
        await pilot.pause(0.3)
        assert "accuracy 0% → 100% on 5 labels; 5 pairs flipped, 5 of them to agree with you" in text(app)
        assert "'e' now above 'ee'" in text(app)


def asked_for(app: LabellingApp) -> object:
    return app.last("Score")["reward_run"]


async def test_the_simulated_person_labels_by_taste_and_stops(app: LabellingApp, session: Session) -> None:
    async with app.run_test(size=NORMAL) as pilot:
        await begun(app, pilot)
        await pilot.press("a")
        assert isinstance(app.screen, PromptScreen)
        app.screen.query_one(Input).value = "starts-with:zz noise=0.5"
        await pilot.press("enter")
        assert "noise must be from 0 to 0.4" in text(app)
        app.screen.query_one(Input).value = "long count=12"
        await pilot.press("enter")
        await pilot.pause(2.0)
        labels = session.labels.current()
        assert len(labels) == 12
        assert {each.annotator for each in labels} == {"automatic: long"}
        for each in labels:
            lengths = [len(text) for text in each.texts]
            right = Answer.TIE if lengths[0] == lengths[1] else Answer.LEFT if lengths[0] > lengths[1] else Answer.RIGHT
            assert each.answer is right and each.latency is None


async def test_earlier_labels_are_found_changed_and_deleted_and_all_of_it_undone(
    app: LabellingApp, session: Session
) -> None:
    async with app.run_test(size=NORMAL) as pilot:
        await begun(app, pilot)
        await pilot.press("2", "4", "6", "h")
        assert isinstance(app.screen, LabelBrowser)
        await pilot.press("slash", *"is:tie", "enter")
        assert app.screen.query_one(DataTable).row_count == 1
        await pilot.press("7")
        assert [each.answer for each in session.labels.current()] == [Answer.LEFT, Answer.RIGHT_MUCH, Answer.RIGHT]
        assert app.screen.query_one(DataTable).row_count == 0  # it is no tie any more
        app.screen.query_one("#find", Input).value = ""
        await pilot.pause()
        await pilot.press("home", "x")
        assert [each.answer for each in session.labels.current()] == [Answer.LEFT, Answer.RIGHT_MUCH]
        await pilot.press("u", "u")
        assert [each.answer for each in session.labels.current()] == [Answer.LEFT, Answer.TIE, Answer.RIGHT]
        assert len(session.labels.history()) == 7
        await pilot.press("slash", *"is:flaged")
        await pilot.pause(0.2)
        assert "is:flagged" in text(app)
        await pilot.press("escape")


async def test_a_label_given_on_a_full_disk_does_not_count_and_the_same_pair_waits(
    app: LabellingApp, session: Session
) -> None:
    async with app.run_test(size=NORMAL) as pilot:
        await begun(app, pilot)
        before = boxes(app)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
        try:
            await pilot.press("2")
            await pilot.pause()
            assert boxes(app) == before and "Saving failed" in text(app)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert session.labels.count() == 0
        await pilot.press("2")
        await pilot.pause()
        assert session.labels.current()[0].left.text == before[0]
        assert boxes(app) != before and "Saving failed" not in text(app)


async def test_labelling_goes_on_when_the_folder_is_deleted_underneath(app: LabellingApp, session: Session) -> None:
    async with app.run_test(size=NORMAL) as pilot:
        await begun(app, pilot)
        await pilot.press("2", "4")
        shutil.rmtree(session.folder)
        await pilot.press("6")
        answers = [Answer.LEFT, Answer.TIE, Answer.RIGHT]
        with Session.open(session.folder, read_only=True) as found:
            assert [each.answer for each in found.labels.current()] == answers
        shutil.rmtree(session.folder)
        await pilot.press("u")
        with Session.open(session.folder, read_only=True) as found:
            assert [each.answer for each in found.labels.current()] == answers[:2]


async def test_a_task_of_ones_own_is_the_one_that_is_labelled(tmp_path: Path) -> None:
    file = tmp_path / "poems.txt"
    file.write_text("rose\tred\nviolet\tblue\nsun\tgold\nsea\tgreen\n")
    options = parse_short(TASKS["custom"].options, f"demonstrations={file} guideline=Rhymes?")
    with Session.create(tmp_path / "own", task="custom") as session:
        session.set_setting(CONTENT, task_content("custom", options.to_dict(), lambda _: None))
        app = LabellingApp(session)
        async with app.run_test(size=NORMAL) as pilot:
            await pilot.pause()
            assert "Rhymes?" in text(app)
            app.with_run(1, "sft")
            await pilot.pause(0.7)
            assert pair(app).prompt in ("rose", "violet", "sun", "sea")


async def test_hostile_texts_reach_the_screen_as_glyphs(app: LabellingApp) -> None:
    hostile = ("a [/ b", "[red]hi[/red]", "\x1b[2J\x1b]0;x\x07", "\u202egnp", "日本語", "x" * 3_000)
    original = app._samples

    def samples(**fields: object) -> object:
        answer = original(**fields)  # type: ignore[arg-type]
        for at, each in enumerate(answer.samples):
            object.__setattr__(each, "text", hostile[at % len(hostile)])
            object.__setattr__(each, "prompt", hostile[(at // 6 + 1) % len(hostile)])
        return answer

    app._samples = samples  # type: ignore[method-assign,assignment]
    async with app.run_test(size=SMALL) as pilot:
        await begun(app, pilot)
        for key in "262626":
            await pilot.press(key)
            assert all(line.isprintable() for line in screen_lines(app))
        await pilot.press("h")
        await pilot.pause()
        assert all(line.isprintable() for line in screen_lines(app))


async def test_options_are_kept_in_the_session_and_a_wrong_one_is_said(app: LabellingApp, session: Session) -> None:
    async with app.run_test(size=NORMAL) as pilot:
        await begun(app, pilot)
        await pilot.press("r")
        app.screen.query_one(Input).value = "Which is rounder?"
        await pilot.press("enter", "2")
        assert session.labels.current()[0].guideline == "Which is rounder?"
        assert session.get_setting(SETTING)["guideline"] == "Which is rounder?"
        await pilot.press("o")
        await pilot.press(*["down"] * 6, "enter")
        app.screen.query_one("#value", Input).value = "refrence"
        await pilot.press("enter")
        await pilot.pause()
        assert "no source is called 'refrence' (did you mean 'reference'?)" in text(app).replace("\n", " ")
        await pilot.press("escape", "escape")
        assert label_screen(app).options.sources == "reference policy"


async def test_pairs_of_a_file_are_judged_without_a_model(session: Session, tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text(
        "".join(f'{{"prompt": "tree", "chosen": "elm{"abc"[n]}", "rejected": "oak{"abc"[n]}"}}\n' for n in range(3))
    )
    session.set_setting(SETTING, {"sources": f"file:{file}"})
    app = LabellingApp(session)
    async with app.run_test(size=NORMAL) as pilot:
        await pilot.pause(0.5)
        await pilot.press("2")
        label = session.labels.current()[0]
        assert label.left.source == "pairs.jsonl" and label.prompt == "tree"
        assert set(label.texts) <= {"elma", "elmb", "elmc", "oaka", "oakb", "oakc"}


async def test_at_80_by_24_pair_keys_and_lines_are_whole_and_v_shows_the_panel(app: LabellingApp) -> None:
    async with app.run_test(size=SMALL) as pilot:
        await begun(app, pilot)
        await pilot.press("2")
        await pilot.pause(0.6)
        lines = screen_lines(app)
        assert any("1 A≫B" in line and line.endswith("s skip") for line in lines)
        assert any(" A  " in line for line in lines) and "1 label" in text(app)
        await pilot.press("v")
        await pilot.pause(0.6)
        assert "left preferred" in text(app) and not boxes(app)
        await pilot.press("2")  # brings the pair back; what cannot be seen is not answered
        await pilot.pause()
        assert len(boxes(app)) == 2 and label_screen(app).desk.labels.count() == 1
