"""With which knobs a method starts on a task without a gold rule."""

import pytest

from core.methods.table import METHODS
from core.pipeline import Stage, fitting, missing_before


@pytest.mark.parametrize("name", ["ppo", "grpo", "rloo", "reinforce", "a2c", "trpo", "gspo", "raft", "best-of-n"])
def test_without_a_gold_rule_the_learned_reward_scores(name: str) -> None:
    method = METHODS[name]
    assert fitting(method, {"steps": 3}, gold=False) == {"steps": 3, "reward": "learned"}
    assert fitting(method, {"reward": "gold"}, gold=False) == {"reward": "learned"}
    assert fitting(method, {"reward": "mixed"}, gold=False) == {"reward": "mixed"}
    assert fitting(method, {"steps": 3}, gold=True) == {"steps": 3}
    needed = missing_before(Stage(method, fitting(method, {}, gold=False)), [])
    assert [each.method.name for each in needed] == ["sft", "rm"]


@pytest.mark.parametrize("name", ["sft", "rm", "dpo", "kto"])
def test_a_method_that_maximises_no_reward_is_left_as_it_is(name: str) -> None:
    assert fitting(METHODS[name], {"steps": 3}, gold=False) == {"steps": 3}


@pytest.mark.parametrize(
    ("name", "slower"),
    [("sft", 1e-3), ("rm", 5e-4), ("grpo", 2e-4), ("rloo", 2e-4), ("dpo", 5e-5), ("kto", 5e-5)],
)
def test_a_transformer_learns_slower_than_an_lstm(name: str, slower: float) -> None:
    method = METHODS[name]
    assert fitting(method, {}, gold=True, backbone="transformer") == {"learning_rate": slower}
    assert method.config().learning_rate > slower
    assert fitting(method, {"learning_rate": 0.1}, gold=True, backbone="transformer") == {"learning_rate": 0.1}
    assert fitting(method, {}, gold=True, backbone="lstm") == {}


def test_a_transformers_critic_is_as_fast_as_an_lstms_unless_it_has_a_trunk_of_its_own() -> None:
    ppo, rates = METHODS["ppo"], {"learning_rate": 2e-4, "critic_learning_rate": 3e-3}
    assert fitting(ppo, {}, gold=True, backbone="transformer") == rates
    assert ppo.config().learning_rate == 3e-3
    own = fitting(ppo, {"critic": "own"}, gold=True, backbone="transformer")
    assert own == {"critic": "own", "learning_rate": 2e-4}
