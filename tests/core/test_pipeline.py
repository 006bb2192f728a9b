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
