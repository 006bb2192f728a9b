"""The tree of runs, and the command that trains a run again."""

import shlex
from types import SimpleNamespace

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


def test_the_command_trains_the_same_again() -> None:
    config = METHODS["ppo"].config(beta=0.3, steps=50).to_dict()
    words = shlex.split(replay_command("ppo", config, 7, "words", 1, "my session"))
    assert words[:5] == ["rlhf-tui", "train", "ppo", "--seed", "7"]
    assert words[words.index("--session") + 1] == "my session" and "--task" not in words
    again = parse_short(METHODS["ppo"].config, words[words.index("--config") + 1])
    assert again.to_dict() == config
    alone = shlex.split(replay_command("sft", METHODS["sft"].config().to_dict(), 7, "words", None, "s"))
    assert alone == ["rlhf-tui", "train", "sft", "--seed", "7", "--task", "words"]


def test_a_configuration_of_another_version_has_no_short_form() -> None:
    assert short_config("ppo", {"gone": 1}) == "" and short_config("unknown", {}) == ""
