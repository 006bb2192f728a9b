import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.tasks.base import Demonstration, Task, TaskError
from core.tasks.table import TASKS, load_task

TASK = Task(
    name="toy", title="Toy", alphabet="abc", prompts=tuple("abc" * 5), held_out_prompts=("cc",),
    demonstrations=(Demonstration("a", "b"),), held_out_demonstrations=(),
)  # fmt: skip
BOS, EOS, UNK, A, B, C = 1, 2, 3, 4, 5, 6


def test_a_prompt_stands_between_two_markers():
    assert TASK.encode_prompt("ab") == [BOS, A, B, BOS]


def test_a_completion_ends_with_eos_so_the_model_learns_to_stop():
    assert TASK.encode_completion("ca") == [C, A, EOS]
    assert TASK.encode_completion("") == [EOS]


def test_unknown_letters_stand_in_prompts_only():
    assert TASK.encode_prompt("a?") == [BOS, A, UNK, BOS]
    with pytest.raises(TaskError, match=re.escape("'b?!?' has letters outside the alphabet: ? !")):
        TASK.encode_completion("b?!?")
    assert TASK.unknown_letters("x?ax") == ["x", "?"]
    assert TASK.unknown_letters("abcab") == []


def test_an_empty_prompt_is_refused():
    with pytest.raises(TaskError, match="empty"):
        TASK.encode_prompt("")


@given(st.text("abc"), st.text("abc", min_size=1))
def test_completions_and_prompts_come_back_as_text(completion, prompt):
    assert TASK.tokenizer.decode(TASK.encode_completion(completion)) == completion
    assert TASK.tokenizer.decode(TASK.encode_prompt(prompt)) == prompt


@given(st.text(max_size=20))
def test_a_completion_is_taken_or_refused_with_a_task_error(text):
    try:
        ids = TASK.encode_completion(text)
    except TaskError:
        assert set(text) - set("abc")
    else:
        assert set(text) <= set("abc")
        assert 3 not in ids


def test_fewer_probe_prompts_where_the_task_has_fewer():
    assert TASK.probe_prompts == (*"abcabcabca", "cc")


def test_an_unknown_task_names_the_nearest():
    with pytest.raises(TaskError, match=r"no task is called 'wrods' \(did you mean 'words'\?\); there are words"):
        load_task("wrods", 0)
    assert "words" in TASKS
