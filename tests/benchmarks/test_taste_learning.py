"""What a person's labels must teach, over three seeds (long: an hour and more on one core)."""

import statistics

import pytest
from learning import Bench
from tastes import EXPERIMENTS

pytestmark = pytest.mark.long
SEEDS = (0, 1, 2)


@pytest.fixture(scope="module")
def benches() -> dict[int, Bench]:
    """What the experiments of a seed share: the reference and the people who label."""
    return {seed: Bench(seed) for seed in SEEDS}


@pytest.mark.parametrize("seed", SEEDS)
def test_fifty_labels_teach_a_reward_model_a_taste(benches: dict[int, Bench], seed: int) -> None:
    """10% of the labels are wrong; the accuracy is on fresh decided pairs, judged without noise."""
    assert EXPERIMENTS["vowel-50"](benches[seed])["accuracy"] >= 0.95


@pytest.mark.parametrize("seed", SEEDS)
def test_ppo_on_that_reward_model_writes_what_the_person_likes(benches: dict[int, Bench], seed: int) -> None:
    found = EXPERIMENTS["vowel-ppo"](benches[seed])
    assert found["after"] >= 0.9 and found["unique"] >= 0.5


@pytest.mark.parametrize("seed", SEEDS)
def test_dpo_on_three_hundred_labels_moves_towards_the_taste(benches: dict[int, Bench], seed: int) -> None:
    assert EXPERIMENTS["vowel-dpo"](benches[seed])["gain"] >= 0.25


def test_three_hundred_labels_teach_the_gold_rule(benches: dict[int, Bench]) -> None:
    accuracies = [EXPERIMENTS["gold-300"](bench)["accuracy"] for bench in benches.values()]
    assert statistics.mean(accuracies) >= 0.68
