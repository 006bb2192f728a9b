"""The plane as a picture, and every key of the Frontier screen."""

from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import pytest
from app_helpers import DirectApp, screen_lines
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_engine import ScriptedEngine

from core.engine.protocol import BestOfNPlace, Command, Evaluate, Evaluation, Frontier, OptimalPlace, Plane
from core.methods.table import METHODS
from core.store import Session
from rlhf_tui.plane import Path, PlaneData, draw_plane, path_of
from rlhf_tui.screens.frontier import FrontierScreen
from rlhf_tui.series import RunSeries


def plane(reward: str = "gold", run: int | None = None) -> Plane:
    """Reward 5 at KL 0, then √KL more – but for the last point, which is told from 4 completions."""
    return Plane(
        run=2, reward=reward, reward_run=run, reward_step=None if run is None else 9, reference_reward=5.0,
        least_effective=30.0, completions=80,
        optimal=[
            OptimalPlace(beta=beta, reward=5 + kl**0.5, kl=kl, effective_sample_size=size)
            for beta, kl, size in ((1.0, 0.25, 900.0), (0.5, 1.0, 300.0), (0.2, 4.0, 40.0), (0.1, 4.2, 4.0))
        ],
        best_of_n=[BestOfNPlace(n=2, reward=5.3, kl=0.19, kl_bound=0.193)],
    )  # fmt: skip


def text_of(data: PlaneData, width: int = 80, height: int = 20) -> list[str]:
    rows = draw_plane(data, width, height).rows
    assert {len(row) for row in rows} == {width}
    return ["".join(cell.glyph for cell in row) for row in rows]


def place_of(lines: list[str], text: str) -> tuple[int, int]:
    """Row and column of the one place that shows ``text``."""
    (found,) = [(row, line.index(text)) for row, line in enumerate(lines) if text in line]
    return found


def best_at(lines: list[str], beta: float) -> tuple[int, int]:
    """Row and column of the mark of the best policy at β: the one to the right of and below its label."""
    row, column = place_of(lines, f"β{beta:g}")
    after = column + len(f"β{beta:g}")
    return next((at, after) for at in (row + 1, row + 2) if lines[at][after] == "+")


def path(kl: list[float], reward: list[float], chosen: bool = True) -> Path:
    return Path("PPO", np.array(kl), np.array(reward), chosen)


def test_points_stand_where_their_reward_and_kl_put_them() -> None:
    lines = text_of(PlaneData(plane(), (path([4.0], [6.0]),), square_root=False))
    start, best, run = place_of(lines, "○"), best_at(lines, 0.5), place_of(lines, "●")
    # The best at β 0.5 has reward 6 as the run has, at a quarter of its KL.
    assert best[0] == run[0] < start[0]
    assert abs((best[1] - start[1]) - (run[1] - start[1]) / 4) <= 1
    assert lines[-1].rstrip().endswith("KL, nats")


def test_on_the_root_a_frontier_that_grows_like_it_is_straight() -> None:
    lines = text_of(PlaneData(plane(), square_root=True))
    start, half, best = place_of(lines, "○"), best_at(lines, 0.5), best_at(lines, 0.2)
    assert abs((half[1] - start[1]) * 2 - (best[1] - start[1])) <= 2
    assert abs((start[0] - half[0]) * 2 - (start[0] - best[0])) <= 2
    assert lines[-1].rstrip().endswith("√KL")


def test_points_told_from_few_completions_are_faint_and_said_and_set_no_range() -> None:
    picture = draw_plane(PlaneData(plane(), (path([5.0], [5.5]),)), 80, 20)
    styles = {cell.style for row in picture.rows for cell in row}
    assert {"line-7", "faint-7"} <= styles
    assert picture.notes == ["faint: effective sample size below 30"]
    text = "\n".join("".join(cell.glyph for cell in row) for row in picture.rows)
    assert "β0.2" in text and "β0.1" not in text
    beyond = draw_plane(PlaneData(plane()), 80, 20)  # nothing else reaches so far
    assert beyond.notes == [] and "faint-7" not in {cell.style for row in beyond.rows for cell in row}


def test_a_path_may_turn_back_and_a_chosen_one_is_bright() -> None:
    there_and_back = path([0.0, 1.0, 2.0, 1.0, 0.5] * 3, [5.0, 5.5, 6.0, 6.2, 6.4] * 3)
    for chosen, style in ((True, "line-1"), (False, "faint-1")):
        drawn = Path("PPO", there_and_back.kl, there_and_back.reward, chosen)
        rows = draw_plane(PlaneData(None, (drawn,)), 60, 15).rows
        braille = [cell for row in rows for cell in row if "⠀" < cell.glyph <= "⣿"]
        assert len(braille) > 20 and {cell.style for cell in braille} == {style}


def test_a_path_has_the_steps_at_which_both_were_measured() -> None:
    series = RunSeries()
    series.append(1, 8, 0.1, {"objective/kl": 0.5})
    series.append(2, 16, 0.2, {"objective/kl": 0.6, "gold_reward": 5.0, "learned_reward": 1.0})
    series.append(3, 24, 0.3, {"gold_reward": 5.1})
    series.append(4, 32, 0.4, {"objective/kl": 0.8, "gold_reward": float("nan")})
    series.append(5, 40, 0.5, {"objective/kl": 0.9, "gold_reward": 5.4})
    found = path_of(series, "gold_reward", "PPO")
    assert (found.kl.tolist(), found.reward.tolist()) == ([0.6, 0.9], [5.0, 5.4])
    assert found.final == (pytest.approx(0.75), pytest.approx(5.2))
    assert path_of(series, "learned_reward", "PPO").kl.tolist() == [0.6]
    assert path_of(series, "nothing", "PPO").final is None


def test_what_is_measured_rarely_has_its_figure_from_the_last_steps_alone() -> None:
    """DPO from fixed pairs samples at validations only: the mean of its last 20 would be that of its whole way."""
    series = RunSeries()
    for step in range(1, 101):
        measured = {"objective/kl": 0.1 * step, "gold_reward": 4 + 0.01 * step} if step % 10 == 0 else {}
        series.append(step, 8 * step, 0.1 * step, {"loss": 1.0, **measured})
    assert path_of(series, "gold_reward", "DPO").final == (pytest.approx(9.5), pytest.approx(4.95))  # steps 90 and 100


def test_kl_counts_from_the_start_where_the_reference_was_refreshed() -> None:
    series = RunSeries()
    series.append(1, 8, 0.1, {"objective/kl": 1.0, "gold_reward": 5.0, "objective/kl_from_start": 1.0})
    series.append(2, 16, 0.2, {"objective/kl": 0.1, "gold_reward": 5.2})
    series.append(3, 24, 0.3, {"objective/kl": 0.4, "gold_reward": 5.4, "objective/kl_from_start": 2.1})
    found = path_of(series, "gold_reward", "PPO")
    assert (found.kl.tolist(), found.reward.tolist()) == ([1.0, 2.1], [5.0, 5.4])


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.floats(), st.floats()), max_size=40), st.integers(0, 90), st.integers(0, 30), st.booleans(),
    st.booleans(),
)  # fmt: skip
def test_any_numbers_and_sizes_give_a_picture_of_that_size(
    points: list[tuple[float, float]], width: int, height: int, square_root: bool, possible: bool
) -> None:
    kl, reward = [each for each, _ in points], [each for _, each in points]
    data = PlaneData(plane() if possible else None, (path(kl, reward),), square_root=square_root, empty="nothing")
    rows = draw_plane(data, width, height).rows
    assert len(rows) <= height and all(len(row) == width for row in rows)


# --- the screen ------------------------------------------------------------------------------------------------


class PlaneEngine(ScriptedEngine):
    """Answers the two questions of the screen; by ``--reward`` models too."""

    def take(self, command: Command) -> None:
        match command:
            case Frontier(reward_run=None):
                self.say(answer_to(command, plane()))
            case Frontier(reward_run=run):
                self.say(answer_to(command, plane("learned", run)))
            case Evaluate(run=2):
                values = {
                    "optimality": 0.78, "optimality_error": 0.01, "beta": 0.2, "effective_sample_size": 400.0,
                    "best_kl": 5.0, "best_reward": 7.2,
                }  # fmt: skip
                self.say(Evaluation(id=command.id, run=2, step=20, values=values))
            case Evaluate():
                note = "no optimality at β 0.2 by the gold rule: 4.0 effective"
                self.say(Evaluation(id=command.id, run=command.run, step=20, values={}, notes=[note]))
            case _:
                super().take(command)


def answer_to(command: Command, answer: Any) -> Any:
    return type(answer)(**{**vars(answer), "id": command.id})


@pytest.fixture
def session(tmp_path: FilePath) -> Iterator[Session]:
    """SFT (1), PPO (2) and DPO (3) from it, a reward model (4), and a PPO of another reference (6, from SFT 5)."""
    with Session.create(tmp_path / "s", title="planes") as made:
        for method, parent in (("sft", None), ("ppo", 1), ("dpo", 1), ("rm", 1), ("sft", None), ("ppo", 5)):
            inputs = {"reference": None if parent is None else {"run": parent, "step": 20}, "reward_run": None}
            config = METHODS[method].config(steps=20).to_dict()
            run = made.runs.add(method, METHODS[method].title, config, seed=1, inputs=inputs, parent=parent)
            made.runs.update(run.id, state="done", step=20)
            rows = [
                (step, step, 0.1 * step,
                 {"objective/kl": 0.15 * step, "gold_reward": 5 + 0.05 * step, "learned_reward": 0.1 * step})
                for step in range(1, 21)
            ]  # fmt: skip
            made.metrics.append(run.id, rows if parent else [(1, 1, 0.1, {"gold_reward": 5.0})])
        yield made


async def settled(pilot: Any) -> None:
    """What the keys began has ended."""
    await pilot.app.workers.wait_for_complete()
    await pilot.pause()


def app_on(session: Session) -> DirectApp:
    app = DirectApp(session, screen="frontier")
    say = app.script.say
    app.script = PlaneEngine(rate=0, hold=0, hostile=False)
    app.script.say = say  # type: ignore[method-assign]
    return app


def screen(app: DirectApp) -> FrontierScreen:
    assert isinstance(app.screen, FrontierScreen)
    return app.screen


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 12)])
async def test_every_size_shows_the_plane_and_the_runs(session: Session, size: tuple[int, int]) -> None:
    app = app_on(session)
    async with app.run_test(size=size) as pilot:
        await settled(pilot)
        await pilot.press("comma", "comma", "space")
        await settled(pilot)
        lines = screen_lines(app)
        assert len(lines) == size[1]
        text = "\n".join(lines)
        assert "○" in text and "√KL" in text and "●" in text
        if size[0] >= 80:
            assert "PPO #2" in text and "DPO #3" in text and "×" in text and "80 completions" in text


async def test_space_asks_for_the_frontier_of_the_chosen_run_and_g_for_the_learned_one(session: Session) -> None:
    app = app_on(session)
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        assert screen(app).run is app.state.runs[6]  # the newest with a reference
        await pilot.press("comma", "comma", "comma", "space")
        await settled(pilot)
        assert app.last("Frontier") == {"run": 2}
        assert [run.run for run in screen(app).drawn()] == [1, 2, 3]
        assert "gold reward against KL" in "\n".join(screen_lines(app))
        await pilot.press("g")
        assert "space measures what is possible" in "\n".join(screen_lines(app))
        await pilot.press("space")
        await settled(pilot)
        assert app.last("Frontier") == {"run": 2, "reward_run": 4}
        assert "learned reward against KL" in "\n".join(screen_lines(app))
        assert set(screen(app).planes) == {"gold from 1 at 20", "run 4 from 1 at 20"}


async def test_o_gives_the_chosen_runs_optimality_and_shift_o_that_of_all(session: Session) -> None:
    app = app_on(session)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("comma", "comma", "comma", "o")
        await settled(pilot)
        assert app.last("Evaluate") == {"run": 2, "completions": 2, "optimality": True}
        assert "optimality 0.78 ± 0.01 at β 0.2" in "\n".join(screen_lines(app))
        assert screen(app).data().bests == ((5.0, 7.2),)
        asked = len(app.asked)
        await pilot.press("O")
        await settled(pilot)
        # SFT began from nothing: there is nothing to ask.
        assert [fields["run"] for _, fields in app.asked[asked:]] == [2, 3]
        assert "no optimality at β 0.2" in "\n".join(screen_lines(app))


async def test_only_runs_of_the_same_reference_are_drawn_and_the_others_are_said(session: Session) -> None:
    app = app_on(session)
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        assert [run.run for run in screen(app).drawn()] == [5, 6]
        assert "3 runs not drawn" in "\n".join(screen_lines(app))


async def test_pinned_runs_stay_and_the_screen_comes_back_as_it_was(session: Session) -> None:
    app = app_on(session)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("comma", "comma", "comma", "p", "full_stop", "t", "space", "o")
        await settled(pilot)
        assert [run.run for run in screen(app).drawn()] == [2, 3]  # SFT is not pinned
        assert session.runs.get(2).pinned
        app.save_ui()
    again = app_on(session)
    async with again.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        back = screen(again)
        assert (back.run, back.square_root) == (again.state.runs[3], False)
        assert back.data().plane == plane()
        assert "no optimality at β 0.2" in "\n".join(screen_lines(again))


async def test_a_session_without_policies_says_what_to_do(tmp_path: FilePath) -> None:
    with Session.create(tmp_path / "e") as empty:
        app = app_on(empty)
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.press("space", "o", "O", "comma", "p", "g", "t")
            await settled(pilot)
            assert app.asked == []
            assert "No policy is trained yet" in " ".join("\n".join(screen_lines(app)).split())


async def test_damaged_state_of_the_screen_is_left_out(session: Session) -> None:
    saved = {"run": "x", "planes": {"a": {"type": "nonsense"}, "b": 3}, "optimality": [1], "square_root": 7}
    session.set_setting("ui", {"screens": {"frontier": saved}})
    app = app_on(session)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        assert screen(app).planes == {} and screen(app).found == {} and screen(app).square_root
