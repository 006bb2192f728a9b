"""What training on the words task relies on, for several seeds."""

import string
from collections import Counter

import pytest

from core.rewards import word_rule
from core.tasks.base import Task
from core.tasks.table import load_task
from core.tasks.words import word_list

SEEDS = [0, 1, 42, 2**31]


@pytest.fixture(scope="module", params=SEEDS)
def task(request) -> Task:
    return load_task("words", request.param)


def test_words_are_3303_of_4_to_9_small_letters_each_once():
    words = word_list()
    assert len(words) == len(set(words)) == 3303
    assert words == sorted(words)
    assert all(4 <= len(word) <= 9 and set(word) <= set(string.ascii_lowercase) for word in words)


def test_there_are_at_least_300_prompts_each_once_and_familiar_ones_first(task):
    assert len(task.prompts) >= 300
    assert len(set(task.prompts)) == len(task.prompts)
    assert task.prompts[0] == "hello"


def test_held_out_prompts_are_never_trained_on(task):
    assert len(task.held_out_prompts) >= 20
    assert len(set(task.held_out_prompts)) == len(task.held_out_prompts)
    assert not set(task.held_out_prompts) & set(task.prompts)
    assert not set(task.held_out_prompts) & {each.prompt for each in task.demonstrations}


def test_every_held_out_ending_is_covered_by_at_least_5_trained_prompts(task):
    """Else the model could not know the rule there."""
    endings = Counter(prompt[-1] for prompt in task.prompts)
    assert min(endings[prompt[-1]] for prompt in task.held_out_prompts) >= 5


def test_demonstrations_follow_the_chain_rule(task):
    for each in task.demonstrations + task.held_out_demonstrations:
        assert each.completion[0] == each.prompt[-1]
        assert task.follows(each.prompt, each.completion)
        assert each.completion != each.prompt
        assert set(each.prompt + each.completion) <= set(task.alphabet)
        assert len(each.completion) < task.max_new_tokens


def test_demonstrations_are_words_each_once_a_prompt_and_show_every_prompt_several(task):
    vocabulary = set(word_list())
    assert all(each.completion in vocabulary for each in task.demonstrations)
    assert len(set(task.demonstrations)) == len(task.demonstrations)
    counts = Counter(each.prompt for each in task.demonstrations)
    assert set(counts) == set(task.prompts)
    assert min(counts[prompt] for prompt in task.prompts) >= 3


def test_the_answer_depends_on_the_prompt(task):
    """Were every first letter as likely after any prompt, a model could ignore what it reads."""
    first_letters: dict[str, set[str]] = {}
    for each in task.demonstrations:
        first_letters.setdefault(each.prompt, set()).add(each.completion[0])
    assert all(len(letters) == 1 for letters in first_letters.values())
    assert len({prompt[-1] for prompt in task.prompts}) >= 8


def test_held_out_demonstrations_hold_out_prompts_and_words(task):
    assert {each.prompt for each in task.held_out_demonstrations} <= set(task.held_out_prompts)
    assert len(task.held_out_demonstrations) >= 50
    shown = {each.completion for each in task.demonstrations}
    assert not shown & {each.completion for each in task.held_out_demonstrations}


def test_probe_prompts_are_20_half_of_them_held_out(task):
    assert task.probe_prompts == task.prompts[:10] + task.held_out_prompts[:10]
    assert len(task.probe_prompts) == 20


def test_the_gold_reward_is_the_word_rule_whatever_the_prompt(task):
    assert task.gold("hello", "banana") == task.gold("x", "banana") == word_rule("banana")


def test_the_same_seed_gives_the_same_task_and_another_seed_another_split():
    first, again, other = (load_task("words", seed) for seed in (7, 7, 8))
    assert first.prompts == again.prompts
    assert first.demonstrations == again.demonstrations
    assert first.held_out_demonstrations == again.held_out_demonstrations
    assert first.held_out_prompts != other.held_out_prompts
    assert first.demonstrations != other.demonstrations


def test_making_the_task_leaves_the_global_generator_alone():
    import random

    before = random.getstate()
    load_task("words", 3)
    assert random.getstate() == before
