"""Optimality, the frontier's plane and the bench: over a real engine process, and the sums behind them in process."""

import itertools
import math
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_process import TINY, Engine, Maker

from core.engine import measuring
from core.engine.asking import evaluate
from core.engine.launching import RefusedError
from core.engine.measuring import plane
from core.engine.protocol import Evaluate, Evaluation, Frontier, Plane, Start
from core.engine.references import ReferenceSamples, digest
from core.engine.saving import Environment
from core.engine.workspace import Workspace
from core.evaluation.store_growth import store_growth
from core.rewards.sources import GoldReward
from core.tasks.table import load_task

SFT = {"steps": 1, "batch_size": 4}
RM = {"steps": 1, "batch_size": 4, "pair_count": 8}
PPO = {"steps": 2, "batch_size": 8, "minibatch_size": 8, "learning_rate": 0.05, "reward": "gold", "beta": 2.0}
FEW = {"completions": 4, "per_prompt": 8, "reference_per_prompt": 64}
BENCH_ENGINE = [sys.executable, "-P", str(Path(__file__).with_name("fake_bench.py"))]


def finish(job: Generator[None, None, Any]) -> Any:
    while True:
        try:
            next(job)
        except StopIteration as end:
            return end.value


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    """SFT (1), a reward model (2) and PPO from SFT (3)."""
    folder = tmp_path_factory.mktemp("measuring") / "s"
    environment = Environment(torch.__version__, "cpu", 1)
    made = Workspace.open(folder, "words", 7, TINY, torch.device("cpu"), environment, lambda _: None)
    for number, (method, config) in enumerate((("sft", SFT), ("rm", RM), ("ppo", PPO)), 1):
        made.start(Start(id=number, method=method, config=config, parent=1 if number > 1 else None))
        driver = made.drivers[number]
        while driver.active:
            driver.slice()
        assert driver.state == "done", driver.message
        made.settle(driver)
    yield made
    made.close()


def measured(workspace: Workspace, **fields: Any) -> Evaluation:
    answer = finish(evaluate(workspace, Evaluate(id=1, **{**FEW, "optimality": True, **fields})))
    assert isinstance(answer, Evaluation)
    return answer


def seen(workspace: Workspace, **fields: Any) -> Plane:
    answer = finish(plane(workspace, Frontier(id=1, **{"reference_per_prompt": 64, **fields})))
    assert isinstance(answer, Plane)
    return answer


def test_optimality_is_the_share_of_the_way_from_the_reference_to_the_best(trained: Workspace) -> None:
    found = measured(trained, run=3, beta=4.0)
    values = found.values
    way = values["best_objective"] - values["reference_reward"]
    assert values["optimality"] == pytest.approx((values["objective"] - values["reference_reward"]) / way, rel=1e-6)
    assert values["optimality_error"] == pytest.approx(values["objective_error"] / way, rel=1e-6)
    assert values["effective_sample_size"] >= 30
    assert "gold_reward" in values, "what is measured without optimality is still there"
    assert found.notes == ["optimality at β 4 by the gold rule"]


def test_the_reference_reward_is_the_gold_rule_on_the_references_own_completions(trained: Workspace) -> None:
    found = seen(trained, run=3)
    (drawn,) = (each["gold"] for (_, count), each in trained.models.reference_samples._kept.items() if count == 64)
    rule = trained.task.gold
    assert rule is not None
    scores = [
        rule(prompt, text)
        for prompt, batch in zip(trained.task.probe_prompts, drawn.completions, strict=True)
        for text in batch.texts(trained.task.tokenizer)
    ]
    assert len(scores) == 20 * 64
    assert found.reference_reward == pytest.approx(sum(scores) / len(scores), abs=1e-4)


def test_the_price_is_the_runs_own_unless_another_is_asked_for(trained: Workspace) -> None:
    assert measured(trained, run=3).values["beta"] == 2.0
    assert measured(trained, run=3, beta=0.7).values["beta"] == 0.7
    assert measuring.chosen_beta(trained, Evaluate(id=1, run=1)) == 0.2  # SFT has no β
    for beta in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(RefusedError, match="β must be a number above 0"):
            measured(trained, run=3, beta=beta)


def test_where_the_best_cannot_be_told_there_is_no_optimality_but_the_reason(trained: Workspace) -> None:
    found = measured(trained, run=3, beta=0.01)
    assert "optimality" not in found.values and "optimality_error" not in found.values
    assert found.values["effective_sample_size"] < 30
    assert "effective sample size" in found.notes[0] and "below 30" in found.notes[0]


def test_a_run_that_began_from_nothing_has_no_optimality_but_a_plane_of_its_own(trained: Workspace) -> None:
    found = measured(trained, run=1)
    assert "optimality" not in found.values and "began from nothing" in found.notes[0]
    # PPO's reference is SFT's policy: both see the same plane.
    assert seen(trained, run=1).optimal == seen(trained, run=3).optimal


def test_the_plane_rises_from_the_reference_and_best_of_n_lies_below_the_best(trained: Workspace) -> None:
    found = seen(trained, run=3)
    assert (found.reward, found.reward_run, found.completions) == ("gold", None, 20 * 64)
    assert [each.n for each in found.best_of_n] == [2, 4]  # 64 completions are too few for 8
    assert all(one.kl < two.kl and one.reward < two.reward for one, two in itertools.pairwise(found.optimal))
    for each in found.best_of_n:
        # No policy is above the line of slope β through the best one of that β.
        assert each.kl <= each.kl_bound + 1e-9
        for best in found.optimal:
            assert each.reward <= best.reward + best.beta * (each.kl - best.kl) + 1e-6


def test_a_reward_model_makes_a_plane_of_its_own_on_the_same_completions(trained: Workspace) -> None:
    gold, learned = seen(trained, run=3), seen(trained, run=3, reward_run=2)
    assert (learned.reward, learned.reward_run, learned.reward_step) == ("learned", 2, 1)
    assert learned.reference_reward != gold.reference_reward
    found = measured(trained, run=3, reward_run=2, beta=5.0)
    assert found.values["reference_reward"] == pytest.approx(learned.reference_reward, abs=1e-5)
    assert found.notes == ["optimality at β 5 by the reward model of run 2, step 1"]


def test_further_runs_of_a_reference_draw_nothing_anew(trained: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    before = seen(trained, run=3)

    def forbidden(*_: object) -> None:
        raise AssertionError("drawn again")

    monkeypatch.setattr("core.engine.references.reference_sample", forbidden)
    assert seen(trained, run=3) == before
    assert seen(trained, run=3, reward_run=2).reward == "learned"
    assert measured(trained, run=3).values["reference_reward"] == pytest.approx(before.reference_reward, abs=1e-6)


def test_what_cannot_be_measured_is_refused(trained: Workspace) -> None:
    with pytest.raises(RefusedError, match="run 2 trained a reward model"):
        seen(trained, run=2)
    with pytest.raises(RefusedError, match="run 1 trained no reward model"):
        seen(trained, run=3, reward_run=1)
    with pytest.raises(RefusedError, match="reference_per_prompt must be from 2 to 16384, not 1"):
        seen(trained, run=3, reference_per_prompt=1)
    with pytest.raises(RefusedError, match="per_prompt must be from 2"):
        measured(trained, run=3, per_prompt=0)


def test_weights_have_one_name_and_other_weights_another() -> None:
    weights = {"a": torch.tensor([1.0, 2.0]), "b": torch.zeros(2)}
    assert digest(weights) == digest({"b": torch.zeros(2), "a": torch.tensor([1.0, 2.0])})
    assert digest(weights) != digest({"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([0.0, 1e-7])})
    assert digest(weights) != digest({"b": torch.tensor([1.0, 2.0]), "a": torch.zeros(2)})


def test_the_least_used_references_are_given_up(trained: Workspace) -> None:
    task = load_task("words", 7)
    kept = ReferenceSamples(task)
    untrained = trained.models.untrained()
    for count in (2, 3, 4):
        finish(kept.sample(untrained, "gold", GoldReward(task), count))
    assert [count for _, count in kept._kept] == [3, 4]
    for name in "abcdef":
        finish(kept.sample(untrained, name, GoldReward(task), 4))
    assert [list(scored) for scored in kept._kept.values()] == [["gold"], ["c", "d", "e", "f"]]


def test_an_engine_measures_beside_a_run_that_trains(folder: Path, new_real_engine: Maker) -> None:
    with new_real_engine() as engine:
        engine.hello()
        engine.open(folder)
        engine.do("start", method="sft", config=SFT)
        engine.state(1, "done")
        run = engine.do("start", method="ppo", config={**PPO, "steps": 100_000})["run"]
        refused = engine.ask("bench")
        assert refused["type"] == "error" and "pause what trains" in refused["message"]
        answer = engine.do("frontier", run=run, reference_per_prompt=32)
        assert answer["type"] == "plane" and len(answer["optimal"]) > 10 and answer["best_of_n"][0]["n"] == 2
        answer = engine.do("evaluate", run=run, optimality=True, beta=5.0, **FEW)
        assert answer["type"] == "evaluation" and answer["values"]["effective_sample_size"] > 0
        trained_meanwhile = [each for each in engine.seen if each["type"] == "metrics" and each["run"] == run]
        assert len(trained_meanwhile) > 2
        engine.quit()


def test_the_bench_needs_no_session_tells_each_figure_when_it_is_known_and_can_be_given_up() -> None:
    with Engine(BENCH_ENGINE) as engine:
        engine.hello()
        id = engine.send("bench", growth=True)
        answer = engine.wait_for(lambda message: message.get("id") == id, 60.0)
        assert answer["type"] == "acknowledged"
        lines = [each for each in engine.seen if each["type"] == "bench_line"]
        names = [each["name"] for each in lines]
        assert names[:2] == ["matrix product", "SFT"] and "memory of the engine" in names
        learning = {"reward model", "DPO, offline", "PPO, 1 epoch", "PPO, 4 epochs", "GRPO, groups of 4"}
        assert learning | {"sampling"} < set(names)
        assert all(each["rate"] > 0 for each in lines)
        shares = {each["name"]: each["share"] for each in lines}
        assert shares["matrix product"] is None and 0 < shares["SFT"] < 1.5
        assert names[-1] == "reading 200 metric points"
        engine.seen.clear()
        engine.send("bench")
        engine.wait_for(lambda message: message["type"] == "bench_line")
        engine.quit()
        assert any("the bench was given up" in each.get("message", "") for each in engine.seen)


def test_storing_and_reading_are_measured_at_every_size() -> None:
    found = [each.name for each in store_growth(labels=(3, 30), points=(20, 1_000))]
    assert found == [
        "giving a label beside 3", "reading 3 labels", "giving a label beside 30", "reading 30 labels",
        "storing 20 metric points", "reading 20 metric points", "storing 1,000 metric points",
        "reading 1,000 metric points",
    ]  # fmt: skip
