"""The arithmetic task: which sums are demonstrated, how many of them wrongly, and how."""

import re
from collections import Counter

import pytest

from core.config import ConfigError
from core.rewards.arithmetic import arithmetic_rule, is_right
from core.tasks.table import load_task


def test_rl_practises_on_all_hundred_sums_and_twenty_are_never_demonstrated():
    task = load_task("arithmetic", 3)
    assert sorted(task.prompts) == sorted(f"{a}+{b}=" for a in range(10) for b in range(10))
    shown = {each.prompt for each in task.demonstrations}
    assert len(task.held_out_prompts) == 20
    assert shown == set(task.prompts) - set(task.held_out_prompts)
    assert {each.prompt for each in task.held_out_demonstrations} == set(task.held_out_prompts)
    assert set(task.probe_prompts[10:]) <= set(task.held_out_prompts)
    assert set(task.probe_prompts[:10]) <= shown


@pytest.mark.parametrize("digits", [1, 2])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_set_share_of_demonstrations_is_wrong_and_all_keep_the_form(digits, share):
    task = load_task("arithmetic", 1, {"wrong_share": share, "digits": digits})
    wrong = [each for each in task.demonstrations if not is_right(each.prompt, each.completion)]
    assert len(wrong) == round(share * len(task.demonstrations))
    for each in task.demonstrations:
        assert re.fullmatch(r"<\d+(\+\d+){1,2}>\[\d+\]", each.completion)
        assert set(each.prompt + each.completion) <= set(task.alphabet)
        assert len(task.encode_completion(each.completion)) <= task.max_new_tokens
    rewards = Counter(arithmetic_rule(each.prompt, each.completion) for each in task.demonstrations)
    if share < 1:
        assert rewards[12] == len(task.demonstrations) - len(wrong)
    if share:  # slips beside the sum or further off, in the working or behind it
        assert {0, 2, 5, 7} <= set(rewards)
    assert all(is_right(each.prompt, each.completion) for each in task.held_out_demonstrations)


def test_two_digits():
    task = load_task("arithmetic", 1, {"digits": 2, "undemonstrated": 10})
    assert len(set(task.prompts)) == 2000
    assert all(re.fullmatch(r"[1-9]\d\+[1-9]\d=", prompt) for prompt in task.prompts)
    assert len(task.held_out_prompts) == 200


def test_options_reach_the_reward():
    task = load_task("arithmetic", 1, {"scaled": True, "working_reward": 3})
    assert task.gold is not None and task.follows is not None
    assert task.gold("2+3=", "<2+3>[5]") == pytest.approx(1.3)
    assert task.follows("2+3=", "<>[5]") and not task.follows("2+3=", "<2+3>[6]")


def test_a_seed_gives_one_task():
    first, again, other = (load_task("arithmetic", seed) for seed in (7, 7, 8))
    assert first.demonstrations == again.demonstrations
    assert first.held_out_prompts != other.held_out_prompts


def test_options_out_of_range_are_refused():
    with pytest.raises(ConfigError, match="wrong_share must be"):
        load_task("arithmetic", 1, {"wrong_share": 2})
    with pytest.raises(ConfigError, match="did you mean 'wrong_share'"):
        load_task("arithmetic", 1, {"wrong_shar": 0.2})
