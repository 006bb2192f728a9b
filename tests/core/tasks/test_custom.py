"""A task of one's own data: what is taken from files, and what is said of files that cannot be used."""

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.config import ConfigError
from core.preferences.formats.reading import FileRefusedError
from core.preferences.pair import PreferencePair
from core.tasks.base import Demonstration, Task, TaskError
from core.tasks.table import load_task, task_content
from core.trust import distrust, trust

DEMONSTRATIONS = "hi\thello there\nbye\tsee you\nhey\thi you\nbye\tso long\n"


@pytest.fixture
def write(tmp_path):
    def write(name: str, text: str | bytes) -> str:
        file = tmp_path / name
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(file)

    return write


def opened(options: dict[str, object], seed: int = 1) -> Task:
    """The task as a session opens it again: from JSON, without the files."""
    content = json.loads(json.dumps(task_content("custom", options)))
    for name in ("file", "demonstrations", "prompts", "pairs"):
        if options.get(name):
            Path(str(options[name])).unlink()
    return load_task("custom", seed, content)


def test_three_small_files_make_a_task(write):
    task = opened(
        {
            "demonstrations": write("d.txt", DEMONSTRATIONS),
            "prompts": write("prompts.csv", "prompt\nhi\nyo\nbye\n"),
            "pairs": write("p.jsonl", '{"prompt": "hi", "chosen": "hello", "rejected": "what"}\n'),
            "title": "Greetings",
        }
    )  # fmt: skip
    assert task.title == "Greetings"
    assert set(task.prompts) | set(task.held_out_prompts) == {"hi", "yo", "bye"}
    assert len(task.held_out_prompts) == 1
    assert set(task.demonstrations) | set(task.held_out_demonstrations) == {
        Demonstration("hi", "hello there"), Demonstration("bye", "see you"), Demonstration("hey", "hi you"),
        Demonstration("bye", "so long"),
    }  # fmt: skip
    assert task.demonstrations and task.held_out_demonstrations
    assert task.pairs == (PreferencePair("hi", "hello", "what", source="file"),)
    assert task.alphabet == " abeghilnorstuwy"
    assert task.max_new_tokens == len("hello there") + 1
    assert "alphabet of 16 characters, 4 demonstrations, 1 pairs" in task.notes[-1]


def test_a_table_with_tabs_may_name_its_columns_or_not(write):
    named = opened({"demonstrations": write("a.tsv", 'completion\tprompt\nhello, you\thi\nsee "you"\tbye\n')})
    plain = opened({"demonstrations": write("b.tsv", 'hi\thello, you\nbye\tsee "you"\n')})
    for task in (named, plain):
        assert {*task.demonstrations, *task.held_out_demonstrations} == {
            Demonstration("hi", "hello, you"), Demonstration("bye", 'see "you"')
        }  # fmt: skip


def test_a_path_may_begin_at_home(write, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    write("d.txt", DEMONSTRATIONS)
    write("t.toml", 'demonstrations = "~/d.txt"')
    for options in ({"demonstrations": "~/d.txt"}, {"file": "~/t.toml"}):
        assert len(task_content("custom", options)["demonstrations"]) == 4
    with pytest.raises(FileRefusedError, match=r"~nobody-here-9/d\.txt: no such file"):
        task_content("custom", {"demonstrations": "~nobody-here-9/d.txt"})


def test_a_toml_file_names_files_beside_it_or_holds_the_data(write):
    write("d.jsonl", '{"prompt": "a", "completion": "bc"}\n{"prompt": "b", "completion": "c"}\n')
    task = opened(
        {
            "file": write(
                "task.toml",
                'title = "Tiny"\ndemonstrations = "d.jsonl"\nprompts = ["a", "x"]\nheld_out_prompts = ["b"]\n'
                'max_new_tokens = 9\npairs = [{prompt = "a", chosen = "b", rejected = "c"}]\n',
            ),
            "guideline": "Shorter?",
        }
    )  # fmt: skip
    assert (task.title, task.guideline, task.max_new_tokens) == ("Tiny", "Shorter?", 9)
    assert (task.prompts, task.held_out_prompts) == (("a", "x"), ("b",))
    assert task.held_out_demonstrations == (Demonstration("b", "c"),)
    assert task.pairs == (PreferencePair("a", "b", "c", source="file"),)


def test_letters_are_normalised_wherever_they_stand(write):
    """e + combining acute and é are one letter of the alphabet."""
    task = opened({"file": write("t.toml", 'demonstrations = ["e\u0301\\tcafe\u0301", "\u00e9\\tcaf\u00e9s"]')})
    assert task.alphabet == "acfs\u00e9"


def test_plain_texts_are_divided_behind_their_first_letter(write):
    task = opened({"demonstrations": write("d.txt", "春风来了\n雨停了\n")})
    assert {*task.demonstrations, *task.held_out_demonstrations} == {
        Demonstration("春", "风来了"), Demonstration("雨", "停了")
    }  # fmt: skip


def test_pairs_alone_will_do(write):
    pairs = '{"prompt":"a","chosen":"good","rejected":"bad"}\n{"prompt":"b","chosen":"fine","rejected":"bad"}\n'
    task = opened({"pairs": write("p.jsonl", pairs)})
    assert {each.completion for each in task.demonstrations + task.held_out_demonstrations} == {"good", "fine"}
    assert "chosen texts" in task.notes[0]


def test_one_prompt_for_all_still_leaves_demonstrations_to_measure_with(write):
    task = opened({"demonstrations": write("d.txt", "a\tb\na\tc\na\td\n")})
    assert task.prompts == ("a",) and task.held_out_prompts == ()
    assert len(task.demonstrations) == 2 and len(task.held_out_demonstrations) == 1


# --- files that cannot be used ---


@pytest.mark.parametrize(
    ("name", "content", "options", "reason"),
    [
        ("d.txt", b"a\tb\n" + b"\xff\tc\n", {}, "d.txt:2: not UTF-8: byte 0xff"),
        ("d.txt", "a\tb".encode("utf-16"), {}, "the file is UTF-16; save it as UTF-8"),
        ("d.txt", "", {}, "d.txt: the file is empty"),
        ("d.txt", "a\tb\nx\n", {}, "d.txt:2: too short to be divided"),
        ("d.jsonl", '{"prompt": "a", "completion": "b"}\n{"completion": "b"}\n', {}, "d.jsonl:2: .* lacks 'prompt'"),
        ("d.jsonl", '{"prompt": "a", "completion": "b"}\n{oops\n', {}, "d.jsonl:2: not JSON"),
        ("d.csv", "prompt,completion\na,b\na,b,c\n", {}, "d.csv:3: 3 cells where the first line names 2 columns"),
        ("d.jsonl", '{"prompt": "a", "chosen": "b", "rejected": "c"}\n', {}, "d.jsonl:1: not a demonstration"),
        ("d.txt", "a\tb\na\t" + "x" * 61 + "\n", {}, "d.txt:2: .* have 62 letters, more than the 61"),
        ("d.txt", "a\tb\na\tcd\n", {"largest_alphabet": 3}, "d.txt:2: 'd' is one more than the 3 different characters"),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_with_its_line_and_reason(write, name, content, options, reason):
    with pytest.raises(FileRefusedError, match=reason):
        task_content("custom", {"demonstrations": write(name, content), **options})


def test_fifty_thousand_different_characters_are_too_many(write):
    letters = [chr(code) for code in range(0x4E00, 0x4E00 + 20_000)] + [chr(code) for code in range(0xAC00, 0xD7A0)]
    letters += [chr(code) for code in range(0x20000, 0x20000 + 20_000)]
    assert len(letters) > 50_000
    lines = "".join(f"a\t{letter}\n" for letter in letters)
    with pytest.raises(FileRefusedError, match=r"d\.txt:2048: .* is one more than the 2,048 different characters"):
        task_content("custom", {"demonstrations": write("d.txt", lines)})


def test_a_line_longer_than_the_context_is_refused_and_one_that_just_fits_is_taken(write):
    """Three markers beside the letters: before the prompt, behind it, and at the end."""
    file = write("d.txt", "a\tb\nab\tcdef\n")
    assert task_content("custom", {"demonstrations": file}, context=9)["demonstrations"] == [["a", "b"], ["ab", "cdef"]]
    with pytest.raises(FileRefusedError, match=r"d\.txt:2: .* have 6 letters; .* exceed the context of 8 tokens"):
        task_content("custom", {"demonstrations": file}, context=8)


def test_a_hundred_megabytes_are_too_many(write):
    path = write("d.txt", "")
    with Path(path).open("r+b") as file:
        file.truncate(100 * 1024 * 1024)
    with pytest.raises(FileRefusedError, match="the file has 100 MB, more than 16 MB"):
        task_content("custom", {"demonstrations": path})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("title = 'x'\nb b\n", "t.toml: not TOML: .*line 2"),
        ("", "t.toml: the file is empty"),
        ("demonstration = []", "no option is called 'demonstration' .*'demonstrations'"),
        ("max_new_tokens = 'x'", "max_new_tokens must be a whole number"),
        ("demonstrations = ['a\tb', 7]", "demonstrations, entry 2: must be text or a table, not 7"),
        ("pairs = [{prompt = 'a', chosen = 'b'}]", "pairs, entry 1: .* preference row lacks 'rejected'"),
        ("prompts = 5", "prompts must be text"),
        ("file = 'other.toml'", "no option is called 'file'"),
    ],
)
def test_a_bad_toml_file_is_refused_with_its_reason(write, text, reason):
    with pytest.raises(FileRefusedError, match=reason):
        task_content("custom", {"file": write("t.toml", text)})


@given(st.text(max_size=60))
def test_any_toml_is_taken_or_refused_with_one_line(tmp_path_factory, text):
    file = tmp_path_factory.mktemp("toml") / "t.toml"
    file.write_text(text, encoding="utf-8", errors="replace")
    with pytest.raises((FileRefusedError, TaskError, ConfigError)) as caught:
        task_content("custom", {"file": str(file)})
    assert "\n" not in str(caught.value)


def test_progress_is_told_while_reading(write):
    told: list[str] = []
    lines = "".join(f"a\t{number}\n" for number in range(5000))
    task_content("custom", {"demonstrations": write("d.txt", lines)}, told.append)
    assert told[-1] == "putting 5,000 demonstrations and 0 pairs together"
    assert [line.partition(": ")[2] for line in told[1:]] == [
        "2,000 rows, 11 different characters", "4,000 rows, 11 different characters", "5,000 rows", ""
    ]  # fmt: skip


# --- the gold function ---


@pytest.fixture
def rules(tmp_path, monkeypatch):
    (tmp_path / "my_rules_7.py").write_text(
        "def short(prompt, completion):\n    return -len(completion)\n"
        "def broken(prompt, completion):\n    return 1 / 0\n"
        "def endless(prompt, completion):\n    return float('inf')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("short", "broken", "endless", "shorter"):
        trust(f"my_rules_7:{name}")
    yield
    sys.modules.pop("my_rules_7", None)


def test_a_function_of_ones_own_is_the_gold_reward(write, rules):
    task = opened({"demonstrations": write("d.txt", DEMONSTRATIONS), "gold": "my_rules_7:short"})
    assert "my_rules_7" not in sys.modules  # whoever only looks at the task does not run foreign code
    assert task.gold is not None and task.gold("hi", "four") == -4.0


def test_a_function_that_was_not_allowed_is_no_gold_reward_and_its_name_is_told(write, rules):
    distrust("my_rules_7:short")
    task = opened({"demonstrations": write("d.txt", DEMONSTRATIONS), "gold": "my_rules_7:short"})
    assert task.gold is None and len(task.demonstrations) + len(task.held_out_demonstrations) == 4
    assert task.notes[-1] == (
        "no gold reward: my_rules_7:short is code that you have not allowed; if you know it: "
        "rlhf-tui sessions trust my_rules_7:short"
    )


def test_nothing_is_imported_to_look_whether_a_function_is_there(write, tmp_path, monkeypatch):
    """To find the module a.b Python imports a."""
    package = tmp_path / "package_8"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('was run')")
    (package / "rules.py").write_text("raise SystemExit('was run')")
    monkeypatch.syspath_prepend(tmp_path)
    task = opened({"demonstrations": write("d.txt", DEMONSTRATIONS), "gold": "package_8.rules:short"})
    assert task.gold is None and "package_8.rules:short is code that you have not allowed" in task.notes[-1]


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("broken", "my_rules_7:broken failed on 'hi', 'x': ZeroDivisionError"),
        ("endless", "gave inf for 'hi', 'x'"),
        ("shorter", "my_rules_7 has no 'shorter' .*'short'"),
    ],
)
def test_a_gold_function_that_fails_says_where(write, rules, function, reason):
    task = opened({"demonstrations": write("d.txt", DEMONSTRATIONS), "gold": f"my_rules_7:{function}"})
    assert task.gold is not None
    with pytest.raises(TaskError, match=reason):
        task.gold("hi", "x")


@pytest.mark.parametrize("gold", ["nowhere_7:f", "my_rules", "os:system", "os.path:join"])
def test_what_cannot_be_a_gold_function_is_refused_when_the_task_is_made(write, gold):
    with pytest.raises(TaskError, match=r"^gold: "):
        task_content("custom", {"demonstrations": write("d.txt", DEMONSTRATIONS), "gold": gold})


def test_a_session_opens_without_its_gold_function_and_says_so(write, rules, tmp_path, monkeypatch):
    content = task_content("custom", {"demonstrations": write("d.txt", DEMONSTRATIONS), "gold": "my_rules_7:short"})
    (tmp_path / "my_rules_7.py").unlink()
    task = load_task("custom", 1, content)
    assert task.gold is None
    assert "no gold reward: there is no module my_rules_7" in task.notes[-1]
