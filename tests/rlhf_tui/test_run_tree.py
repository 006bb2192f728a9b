"""The tree of runs, and the command that trains a run again."""

import shlex
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from core.config import parse_short
from core.methods.table import METHODS
from rlhf_tui.run_tree import branches, replay_command, short_config


def runs(**parents: int | None) -> dict[int, SimpleNamespace]:
    return {int(name[1:]): SimpleNamespace(parent=parent) for name, parent in parents.items()}


def test_children_stand_under_their_parents() -> None:
    tree = branches(runs(r1=None, r2=1, r3=2, r4=1, r5=None, r6=5))
    assert [(each.run, each.lead) for each in tree] == [
        (1, ""), (2, "├ "), (3, "│ └ "), (4, "└ "), (5, ""), (6, "└ "),
    ]  # fmt: skip


@given(st.dictionaries(st.integers(1, 60), st.none() | st.integers(1, 60), max_size=60))
def test_every_run_is_there_once_whatever_the_parents(parents: dict[int, int | None]) -> None:
    tree = branches({number: SimpleNamespace(parent=parent) for number, parent in parents.items()})
    assert sorted(each.run for each in tree) == sorted(parents)


def test_a_long_chain_of_forks_is_a_list() -> None:
    chain = {number: SimpleNamespace(parent=number - 1 if number > 1 else None) for number in range(1, 200)}
    assert [each.run for each in branches(chain)] == list(range(1, 200))


def trained(method: str, parent: int | None = None, at: int | None = None, **others: Any) -> SimpleNamespace:
    knobs, inputs = others.get("config", {}), others.get("inputs", {})
    config = METHODS[method].config(**knobs).to_dict()
    return SimpleNamespace(method=method, config=config, inputs=inputs, parent=parent, parent_step=at)


def test_the_command_names_everything_that_the_run_began_with() -> None:
    ppo = trained("ppo", 1, 350, config={"beta": 0.3, "steps": 50}, inputs={"reward_run": 2, "pairs": 0})
    words = shlex.split(replay_command(ppo, 4, 7, "my session"))
    begins = "rlhf-tui train ppo --session 'my session' --parent 1 --parent-step 350 --seed 7 --reward-run 2"
    assert words[:-2] == shlex.split(begins)
    assert words[-2] == "--config"
    assert parse_short(METHODS["ppo"].config, words[-1]).to_dict() == ppo.config


def test_a_first_run_names_its_session_and_seed() -> None:
    command = replay_command(trained("sft"), 1, 7, "s", saves="/else where")
    assert command == "rlhf-tui train sft --session s --seed 7 --saves '/else where'"


def test_a_fork_goes_on_from_its_parent_and_labels_are_those_of_the_run_itself() -> None:
    fork = trained("ppo", 4, 20, inputs={"reward_run": 2, "fork": True})
    command = replay_command(fork, 5, 7, "s")
    assert command == "rlhf-tui train ppo --session s --parent 4 --parent-step 20 --fork --seed 7"
    labelled = trained("dpo", 1, 9, config={"pairs": "labels"})
    assert "--pairs-of 6" in replay_command(labelled, 6, 7, "s")


def test_a_configuration_of_another_version_has_no_short_form() -> None:
    assert short_config("ppo", {"gone": 1}) == "" and short_config("unknown", {}) == ""
