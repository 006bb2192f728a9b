"""One table gives every task, its options and what a session keeps of it."""

import json

import pytest

from core.config import ConfigError
from core.tasks.base import TaskError
from core.tasks.table import TASKS, listing, load_task, task_content

FROM_OPTIONS = ("words", "arithmetic", "sentences")


@pytest.mark.parametrize("name", FROM_OPTIONS)
def test_a_session_keeps_json_that_gives_the_task_again(name):
    content = json.loads(json.dumps(task_content(name, {})))
    task = load_task(name, 5, content)
    assert task.name == name
    assert task.demonstrations == load_task(name, 5).demonstrations


@pytest.mark.parametrize("name", FROM_OPTIONS)
def test_every_task_can_be_trained_on(name):
    """Prompts to practise on and to measure with, and demonstrations that can be encoded, held-out ones too."""
    task = load_task(name, 5)
    assert task.prompts and task.held_out_prompts and task.demonstrations and task.held_out_demonstrations
    for each in (*task.demonstrations[:50], *task.held_out_demonstrations):
        assert len(task.encode_completion(each.completion)) <= task.max_new_tokens
        assert not task.unknown_letters(each.prompt)


def test_options_are_kept_with_their_defaults():
    assert task_content("arithmetic", {"digits": 2}) == {
        "digits": 2, "wrong_share": 0.3, "undemonstrated": 20, "working_reward": 2.0, "scaled": False
    }  # fmt: skip
    with pytest.raises(ConfigError):
        task_content("words", {"digits": 2})


def test_the_listing_names_every_task_and_option():
    text = "\n".join(listing())
    assert all(name in text for name in TASKS)
    assert "wrong_share" in text and "largest_alphabet" in text


def test_custom_without_data_says_what_it_needs():
    with pytest.raises(TaskError, match="needs data"):
        load_task("custom", 1)
    with pytest.raises(TaskError, match="name a file of demonstrations, or of pairs"):
        task_content("custom", {})
