"""The model of the Compare screen: which two sides, at which snapshots, asked how."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.store import Session
from core.tasks.table import load_task
from rlhf_tui.comparing import (
    Question,
    Sampling,
    Side,
    first_question,
    mixed_prompts,
    outcome,
    reference_of,
    scrubbed,
    snapshot_steps,
)
from rlhf_tui.state import AppState, Run


def state(*runs: tuple[int, str, int | None]) -> AppState:
    return AppState(runs={number: Run(number, method, "", parent=parent) for number, method, parent in runs})


def test_it_begins_with_the_newest_aligned_policy_beside_its_reference() -> None:
    assert first_question(state()) == Question()
    assert first_question(state((1, "sft", None))) == Question(Side(), Side(1))
    runs = state((1, "sft", None), (2, "rm", 1), (3, "ppo", 1), (4, "sft", None))
    assert first_question(runs) == Question(Side(1), Side(3))


def test_the_reference_of_a_fork_is_that_of_what_was_forked() -> None:
    runs = state((1, "sft", None), (2, "ppo", 1), (3, "ppo", 2), (4, "ppo", 3))
    assert reference_of(runs, runs.runs[4]) == 1
    runs.runs[2].parent = 4  # as only a damaged session says
    assert reference_of(runs, runs.runs[4]) is None


@pytest.mark.parametrize(
    ("step", "distance", "expected"),
    [
        (None, -1, 20), (None, -2, 10), (None, 1, None), (20, 1, None), (20, -1, 10), (10, -9, 0), (0, -1, 0),
        (13, 1, 20), (30, -1, 20), (99, 1, None),
    ],
)  # fmt: skip
def test_scrubbing_walks_the_snapshots_and_ends_where_the_run_stands(
    step: int | None, distance: int, expected: int | None
) -> None:
    assert scrubbed(Side(3, step), [0, 10, 20, 30], 30, distance) == Side(3, expected)


def test_a_run_without_snapshots_cannot_be_scrubbed() -> None:
    assert scrubbed(Side(3), [], 0, -1) == Side(3)
    assert scrubbed(Side(), [], 0, 1) == Side()


def test_the_same_question_asks_the_same_and_a_larger_one_contains_it() -> None:
    task = load_task("words", 42)
    question = Question(Side(1, 30), Side(2), sampling=Sampling(seed=5, top_k=3))
    fields = question.fields(task)
    assert (fields["run"], fields["step"], fields["reference"], fields["reference_step"]) == (2, None, 1, 30)
    assert (fields["seed"], fields["top_k"], fields["count"]) == (5, 3, 1)
    assert len(fields["prompts"]) == 8 and len(set(fields["prompts"])) == 8
    assert set(fields["prompts"]) & set(task.held_out_prompts) and set(fields["prompts"]) & set(task.prompts)
    # The n-th completion of a prompt does not depend on how many there are, so those shown are among those measured.
    assert set(fields["prompts"]) <= set(question.measured_fields(task)["prompts"])
    one = Question(Side(), Side(2), prompt="ba").fields(task)
    assert (one["prompts"], one["count"], one["reference"]) == (["ba"], 8, 0)


@pytest.mark.parametrize("name", ["words", "arithmetic", "sentences"])
@pytest.mark.parametrize("count", [1, 8, 64])
def test_every_task_has_prompts_to_compare_on(name: str, count: int) -> None:
    prompts = mixed_prompts(load_task(name, 1), count)
    assert 1 <= len(prompts) <= count and len(set(prompts)) == len(prompts)


def test_a_question_is_kept_and_read_back() -> None:
    runs = state((1, "sft", None), (2, "ppo", 1))
    question = Question(Side(1, 30), Side(2), "ba", Sampling(temperature=1.2, count=16))
    assert Question.from_dict(question.to_dict(), runs) == question
    assert Question.from_dict(question.to_dict(), state((1, "sft", None))) is None


json = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner))


@settings(max_examples=40, deadline=None)
@given(left=json, right=json, prompt=json, sampling=json | st.dictionaries(st.text(), json))
def test_nonsense_that_was_kept_is_none(left: object, right: object, prompt: object, sampling: object) -> None:
    saved = {"left": left, "right": right, "prompt": prompt, "sampling": sampling}
    found = Question.from_dict(saved, state((1, "sft", None)))
    assert found is None or found.left.run in (None, 1)


def test_an_outcome_is_the_mean_of_the_last_measurements(tmp_path: Path) -> None:
    with Session.create(tmp_path / "s") as session:
        session.runs.add("ppo")
        rows = [(step, step, 0.1, {"gold_reward": float(step)}) for step in range(1, 2001)]
        rows += [(step, step, 0.1, {"loss": 1.0}) for step in range(2001, 2011)]  # not measured every step
        session.metrics.append(1, rows)
        found = outcome(session, Run(1, "ppo", ""))
        assert found.gold_reward == pytest.approx(sum(range(1991, 2001)) / 10)
        assert (found.learned_reward, found.kl) == (None, None)
        session.checkpoints.save(1, 20, "snapshot", b"x")
        session.checkpoints.save(1, 10, "snapshot", b"y")
        session.checkpoints.save(1, 30, "resume", b"z")
        assert snapshot_steps(session, 1) == [10, 20]
        assert snapshot_steps(session, None) == []
