"""A new session is checked as a whole before anything of it is written."""

from pathlib import Path

import pytest

from core import trust
from core.config import ConfigError
from core.models.config import BackboneConfig, ContextError
from core.new_session import make_session, plan_session
from core.preferences.formats.files import FileRefusedError
from core.store import Session
from core.tasks.base import TaskError
from core.tasks.table import CONTENT, load_task


def transformer(context: int) -> BackboneConfig:
    return BackboneConfig(kind="transformer", hidden=8, heads=2, context=context)


@pytest.fixture
def demonstrations(tmp_path: Path) -> str:
    file = tmp_path / "d.txt"
    file.write_text("hi\thello\nbye\tso long\n")
    return str(file)


def test_what_is_made_is_what_was_planned_and_needs_the_file_no_more(tmp_path: Path, demonstrations: str) -> None:
    plan = plan_session("custom", {"demonstrations": demonstrations, "title": "Greetings"}, 3, transformer(16))
    folder = make_session(tmp_path / "saves", "my own", plan)
    Path(demonstrations).unlink()
    with Session.open(folder) as session:
        assert (session.title, session.task, session.seed) == ("my own", "custom", 3)
        assert session.backbone == transformer(16).to_dict()
        assert load_task("custom", 3, session.get_setting(CONTENT)) == plan.task
        assert plan.task.title == "Greetings"


def test_a_task_of_options_keeps_its_options(tmp_path: Path) -> None:
    folder = make_session(
        tmp_path, "sums", plan_session("arithmetic", {"undemonstrated": 5}, 1, BackboneConfig())
    )  # fmt: skip
    with Session.open(folder) as session:
        assert session.get_setting(CONTENT)["undemonstrated"] == 5


def test_texts_must_fit_a_transformer_line_by_line_and_as_prompts_with_the_longest_answer(
    tmp_path: Path, demonstrations: str
) -> None:
    options = {"demonstrations": demonstrations}
    with pytest.raises(FileRefusedError, match=r"d\.txt:2: .* 10 letters; .* exceed the context of 12 tokens"):
        plan_session("custom", options, 3, transformer(12))
    # Every line fits, but not the longest prompt with as many letters as the longest answer has.
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("hello bye hi\n")
    with pytest.raises(ContextError, match="takes 22 tokens, more than the context of 21"):
        plan_session("custom", {**options, "prompts": str(prompts)}, 3, transformer(21))
    plan_session("custom", {**options, "prompts": str(prompts)}, 3, transformer(22))
    plan_session("custom", {**options, "prompts": str(prompts)}, 3, BackboneConfig(context=4))  # an LSTM has no context


def test_a_function_is_allowed_when_it_is_typed_and_not_when_a_file_names_it(
    tmp_path: Path, demonstrations: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_rules_of_new_sessions.py").write_text("def short(prompt, completion):\n    return 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    gold = "my_rules_of_new_sessions:short"
    toml = tmp_path / "t.toml"
    toml.write_text(f'demonstrations = "d.txt"\ngold = "{gold}"\n')
    assert plan_session("custom", {"file": str(toml)}, 1, BackboneConfig()).task.gold is None
    assert not trust.is_trusted(gold)
    typed = plan_session("custom", {"demonstrations": demonstrations, "gold": gold}, 1, BackboneConfig())
    assert typed.task.gold is not None and typed.task.gold("hi", "x") == 1.0
    trust.distrust(gold)


@pytest.mark.parametrize(
    ("task", "options", "error"),
    [
        ("wrods", {}, TaskError), ("words", {"digits": 2}, ConfigError), ("custom", {}, TaskError),
        ("custom", {"demonstrations": "/nowhere.txt"}, FileRefusedError),
    ],
)  # fmt: skip
def test_whatever_is_wrong_is_a_value_error_of_one_line(task: str, options: dict, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        plan_session(task, options, 1, BackboneConfig())
    assert isinstance(caught.value, ValueError) and "\n" not in str(caught.value)
