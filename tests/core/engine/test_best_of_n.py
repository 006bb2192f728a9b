"""A best-of-n run is a policy like any other: it writes, is measured and is held against the frontier as best of n."""

from collections.abc import Generator, Iterator
from typing import Any

import pytest
import torch
from engine_process import TINY

from core.engine.asking import evaluate, finish, sample, strip
from core.engine.launching import RefusedError
from core.engine.protocol import Evaluate, Evaluation, Sample, Samples, Start
from core.engine.saving import Environment
from core.engine.workspace import Workspace
from core.evaluation.best_of_n import best_of_n_point, kl_bound
from core.evaluation.optimal import optimal_point

N = 4
BEST = {"steps": 1, "batch_size": 8, "group_size": N, "probe_completions": 16}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    """SFT (1), a reward model (2), best of 4 by the gold rule (3) and by the reward model (4)."""
    made = Workspace.open(
        tmp_path_factory.mktemp("best") / "s", "words", 7, TINY, torch.device("cpu"),
        Environment(torch.__version__, "cpu", 1), lambda _: None,
    )  # fmt: skip
    rm = {"steps": 1, "batch_size": 4, "pair_count": 8}
    for number, (method, config) in enumerate(
        (("sft", {"steps": 1, "batch_size": 4}), ("rm", rm), ("best-of-n", BEST),
         ("best-of-n", {**BEST, "reward": "learned"})), 1,
    ):  # fmt: skip
        made.start(Start(id=number, method=method, config=config, parent=1 if number > 1 else None))
        driver = made.drivers[number]
        while driver.active:
            driver.slice()
        assert driver.state == "done", driver.message
        made.settle(driver)
    yield made
    made.close()


def written(workspace: Workspace, **fields: Any) -> Samples:
    answer = finish(sample(workspace, Sample(id=1, **fields)))
    assert isinstance(answer, Samples)
    return answer


def test_it_writes_the_best_of_what_it_draws_and_the_first_draw_is_the_references(trained: Workspace) -> None:
    asked: dict[str, Any] = {"prompts": ["ba", "ti"], "count": 8, "seed": 3, "temperature": 1.0}
    both = written(trained, run=3, reference=1, **asked)
    gains = [
        best.gold_reward - one.gold_reward
        for best, one in zip(both.samples, both.reference, strict=True)
        if best.gold_reward is not None and one.gold_reward is not None
    ]
    assert len(gains) == 16 and min(gains) >= 0 and max(gains) > 0
    assert [each.text for each in both.reference] == [each.text for each in written(trained, run=1, **asked).samples]
    same = sum(best.text == one.text for best, one in zip(both.samples, both.reference, strict=True))
    assert 0 < same < 16, "sometimes the first of four draws is the best"
    assert written(trained, run=3, **asked).samples[5].text == both.samples[5].text
    learned = written(trained, run=4, reference=1, **asked)
    rises = [b.learned_reward - a.learned_reward for b, a in zip(learned.samples, learned.reference, strict=True)
             if b.learned_reward is not None and a.learned_reward is not None]  # fmt: skip
    assert len(rises) == 16 and min(rises) >= -1e-6 and max(rises) > 0


def test_no_model_says_how_likely_its_texts_are_and_that_is_said(trained: Workspace) -> None:
    found = written(trained, run=3, reference=1, prompts=["ba"])
    assert [(each.logprob, each.kl) for each in (*found.samples, *found.reference)] == [(None, None)] * 2
    assert all(each.reference_logprob is not None for each in found.samples)
    assert found.notes == ["the policy is best of 4, at most 0.64 nats from what it draws from"]
    turned = written(trained, run=1, reference=3, prompts=["ba"])
    assert turned.notes == ["the reference is best of 4, at most 0.64 nats from what it draws from"]
    assert turned.samples[0].logprob is not None and turned.samples[0].reference_logprob is None


def test_a_large_n_lets_others_have_their_turn(trained: Workspace) -> None:
    job: Generator[None, None, Any] = sample(trained, Sample(id=1, run=3, prompts=["ba"], count=300))
    slices = sum(1 for _ in job)
    assert slices == 3  # of 512 draws at most


def test_the_strip_of_a_run_shows_the_best_too(trained: Workspace) -> None:
    trained.start(Start(id=9, method="best-of-n", config={**BEST, "steps": 2}, parent=1, paused=True))
    driver = trained.drivers[max(trained.drivers)]
    shown = strip(trained, driver)
    assert shown is not None and len(shown.samples) == len(shown.reference) == 5
    assert all(
        best.gold_reward >= one.gold_reward
        for best, one in zip(shown.samples, shown.reference, strict=True)
        if best.gold_reward is not None and one.gold_reward is not None
    )
    assert any(best.text != one.text for best, one in zip(shown.samples, shown.reference, strict=True))
    driver.stop()
    trained.settle(driver)


def test_the_strips_reference_is_the_one_that_kl_is_counted_from(trained: Workspace) -> None:
    """Unlike what Evaluate counts from: the reference that the run began with."""
    config = {"steps": 6, "batch_size": 8, "learning_rate": 0.1, "warmup": 0.0, "average": 0.0, "reference_refresh": 2}
    trained.start(Start(id=9, method="reinforce", config=config, parent=1, paused=True))
    driver = trained.drivers[max(trained.drivers)]
    shown = [strip(trained, driver)]
    for _ in range(5):
        driver.single_step()
        while driver.active:
            driver.slice()
        shown.append(strip(trained, driver))
    assert [each.reference_step for each in shown if each] == [None, None, 2, 2, 4, 4]
    columns = [[one.text for one in each.reference] for each in shown if each]
    assert columns[0] == columns[1] != columns[2] == columns[3] != columns[4]
    assert [one.text for one in shown[4].samples] == columns[4], "at once after the refresh both are one"  # type: ignore[union-attr]
    assert sum(one.kl or 0.0 for one in shown[4].samples) < 1e-4  # type: ignore[union-attr]
    evaluation = finish(evaluate(trained, Evaluate(id=1, run=driver.id, completions=32)))
    assert isinstance(evaluation, Evaluation)
    assert evaluation.values["objective/kl"] > 0.01
    assert evaluation.notes == ["KL is counted from the reference that the run began with, not from a refreshed one"]
    driver.stop()
    trained.settle(driver)


def test_it_is_measured_as_what_it_picks(trained: Workspace) -> None:
    asked: dict[str, Any] = {"completions": 64, "optimality": True, "beta": 4.0, "reference_per_prompt": 64}
    answer = finish(evaluate(trained, Evaluate(id=1, run=3, **asked)))
    assert isinstance(answer, Evaluation)
    values = answer.values
    alone = finish(evaluate(trained, Evaluate(id=1, run=1, completions=64)))
    assert isinstance(alone, Evaluation)
    assert values["gold_reward"] > alone.values["gold_reward"] + 3 * values["gold_reward_error"]
    assert 0 < values["objective/kl"] <= kl_bound(N)
    assert values["win_rate"] > 0.6
    (drawn,) = trained.models.reference_samples._kept.values()
    rewards = drawn["gold"].rewards
    point = best_of_n_point(rewards, N)
    assert values["objective"] == pytest.approx(point.reward - 4 * point.kl)
    assert values["best_objective"] == pytest.approx(optimal_point(rewards, 4.0).objective)
    way = values["best_objective"] - values["reference_reward"]
    assert values["optimality"] == pytest.approx((values["objective"] - values["reference_reward"]) / way)
    with pytest.raises(RefusedError, match=r"^best of 4 needs at least 8 completions"):
        finish(evaluate(trained, Evaluate(id=1, run=3, **{**asked, "reference_per_prompt": 7})))
