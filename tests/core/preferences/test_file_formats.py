"""TRL's rows: what each becomes, and what is wrong with a bad one."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.preferences.formats.files import ImportedFile, read_file
from core.preferences.formats.reading import FileRefusedError, LineError
from core.preferences.formats.rows import JudgedPair, PromptCompletion, example_of, kind_of
from core.preferences.importing import labels_from_file
from core.preferences.labels import Answer, Reason
from core.preferences.pair import PreferencePair, UnpairedExample


def _read(folder: Path, *rows: object, name: str = "data.jsonl", **options: object) -> ImportedFile:
    file = folder / name
    file.write_text("".join((each if isinstance(each, str) else json.dumps(each)) + "\n" for each in rows), "utf-8")
    return read_file(file, **options)  # type: ignore[arg-type]


def _pair(prompt: str, chosen: str, rejected: str, strength: float = 0.5) -> PreferencePair:
    return PreferencePair(prompt, chosen, rejected, strength=strength, source="file")


def _says(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


SKY = [_says("user", "sky?")]


@pytest.mark.parametrize(
    ("row", "pair"),
    [({"prompt": "he", "chosen": "llo", "rejected": "ap"}, _pair("he", "llo", "ap")),
     ({"prompt": "he", "chosen": "", "rejected": "ap"}, _pair("he", "", "ap")),
     ({"chosen": "The sky is blue.", "rejected": "The sky is green."}, _pair("The sky is", " blue.", " green.")),
     ({"chosen": "hello", "rejected": "heap"}, _pair("he", "llo", "ap")),
     ({"chosen": "hello", "rejected": "hell"}, _pair("hell", "o", "")),
     ({"prompt": SKY, "chosen": [_says("assistant", "blue")], "rejected": [_says("assistant", "green")]},
      _pair("sky?", "blue", "green")),
     ({"chosen": [*SKY, _says("assistant", "blue")], "rejected": [*SKY, _says("assistant", "bluer")]},
      _pair("sky?", "blue", "bluer")),
     ({"prompt": [_says("system", "be kind"), *SKY], "chosen": "blue", "rejected": "green", "source": "web"},
      _pair("be kind\nsky?", "blue", "green")),
     ({"prompt": "e", "chosen": "e\u0301", "rejected": "e"}, _pair("e", "é", "e"))],
)  # fmt: skip
def test_a_preference_row_in_each_of_its_forms(tmp_path: Path, row: dict, pair: PreferencePair) -> None:
    imported = _read(tmp_path, row)
    assert (imported.kind, imported.pairs, imported.count) == ("preference", (pair,), 1)


def test_the_other_kinds_of_rows(tmp_path: Path) -> None:
    good, bad = ({"prompt": "he", "completion": text, "label": label} for text, label in (("llo", True), ("", False)))
    assert _read(tmp_path, good, bad).unpaired == (
        UnpairedExample("he", "llo", True, "file"), UnpairedExample("he", "", False, "file"),
    )  # fmt: skip
    assert _read(tmp_path, {"prompt": "he", "completion": "llo"}).completions == (PromptCompletion("he", "llo"),)
    assert _read(tmp_path, {"text": "hello"}, {"text": "\u2028"}).texts == ("hello", "\u2028")
    assert _read(tmp_path, {"prompt": "he"}, {"prompt": "wo"}).prompts == ("he", "wo")


def test_margins_become_strengths(tmp_path: Path) -> None:
    rows = [{"prompt": "p", "chosen": "a", "rejected": "b", "margin": margin} for margin in (0, 0.5, 1)]
    assert [each.strength for each in _read(tmp_path, *rows).pairs] == [0.0, 0.5, 1.0]
    rows[0]["margin"] = 4
    scaled = _read(tmp_path, *rows)
    assert [each.strength for each in scaled.pairs] == [1.0, 0.125, 0.25]
    assert scaled.notes == ("margins up to 4 were divided by it to give strengths from 0 to 1",)


PAIR = {"prompt": "p", "chosen": "a", "rejected": "b"}
DONE = {"prompt": "p", "completion": "a", "label": True}


@pytest.mark.parametrize(
    ("row", "reason"),
    [(PAIR | {"chosen": 3}, "chosen must be text, not the number '3'"), (PAIR | {"prompt": None}, "prompt must be"),
     (PAIR | {"prompt": ""}, "prompt is empty"), (PAIR | {"rejected": "a"}, "chosen and rejected are the same text"),
     (PAIR | {"margin": "1"}, "margin must be a number"), (PAIR | {"margin": True}, "must be a number, not true"),
     (PAIR | {"margin": -1}, "margin must be from 0"), (PAIR | {"margin": 1e300}, "margin must be from 0"),
     (PAIR | {"chosen": []}, "chosen is an empty list"), (PAIR | {"chosen": ["a"]}, "chosen must be text or a list of"),
     (PAIR | {"chosen": [_says("user", "a")]}, "chosen has a message by 'user'"),
     (PAIR | {"chosen": [{"role": "assistant"}]}, "content in chosen must be text, not nothing"),
     (PAIR | {"chosen": "\ud800"}, "chosen has half of a surrogate pair"), (PAIR | {"id": 1.5}, "id must be text or"),
     ({"chosen": "a", "rejected": "b"}, "share no beginning"), ({"chosen": "a", "rejected": "a"}, "the same text"),
     ({"chosen": SKY, "rejected": [_says("user", "sea?")]}, "share no first message"),
     (DONE | {"label": 1}, "label must be true or false, not the number '1'"),
     (DONE | {"label": "true"}, "label must be true or false, not the text 'true'"),
     ({"prompt": "p", "completion": ""}, "completion is empty"), ({"text": ""}, "text is empty"),
     ({"prompt": "p", "chosen": "a", "rejectd": "b"}, r"row lacks 'rejected' \(is it 'rejectd'\?\)"),
     ({"completion": "a"}, "the prompt-completion row lacks 'prompt'"),
     ({"prompt": "p", "label": True}, "the unpaired row lacks 'completion'"),
     ({}, "none of the known fields"), ({"tXt": "a"}, "found 'tXt'")],
)  # fmt: skip
def test_a_bad_row_is_refused_with_its_line_and_field(tmp_path: Path, row: dict, reason: str) -> None:
    with pytest.raises(FileRefusedError, match=reason) as caught:
        _read(tmp_path, row)
    assert [each.line for each in caught.value.problems] == [1]
    assert "\n" not in str(caught.value)


def test_all_problems_are_told_by_line_and_nothing_is_taken(tmp_path: Path) -> None:
    rows = [PAIR, "", "{oops", PAIR | {"id": 7}, PAIR | {"id": 7}, {"text": "x"}, PAIR | {"margin": 1}, PAIR]
    with pytest.raises(FileRefusedError) as caught:
        _read(tmp_path, *rows)
    file = tmp_path / "data.jsonl"
    assert caught.value.lines() == [
        f"{file}:3: not JSON: Expecting property name enclosed in double quotes at position 2",
        f"{file}:5: id '7' stands in line 4 already",
        f"{file}:6: text row in a file that began with preference rows",
        f"{file}:7: a margin where line 1 has none: give it on every row or on none",
    ]
    assert str(caught.value).endswith("(and 3 more); nothing was taken from it")


def test_a_missing_margin_is_told_too(tmp_path: Path) -> None:
    with pytest.raises(FileRefusedError, match="no margin where line 1 has one"):
        _read(tmp_path, PAIR | {"margin": 1}, PAIR)


def test_beyond_twenty_problems_are_counted(tmp_path: Path) -> None:
    with pytest.raises(FileRefusedError) as caught:
        _read(tmp_path, *[{"text": number} for number in range(50)])
    assert len(caught.value.problems) == 20
    assert caught.value.lines()[-1].endswith("30 more")
    assert "(and 49 more)" in str(caught.value)


def test_letters_outside_the_alphabet_are_refused_in_completions_and_allowed_in_prompts(tmp_path: Path) -> None:
    def unknown(text: str) -> list[str]:
        return [letter for letter in text if letter not in "abc"]

    assert _read(tmp_path, PAIR, unknown_letters=unknown).count == 1
    for name in ("chosen", "rejected"):
        with pytest.raises(FileRefusedError, match=f"{name} has letters outside the alphabet: 'X' 'Y'"):
            _read(tmp_path, PAIR | {name: "aXY"}, unknown_letters=unknown)


# --- CSV and plain text --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "pairs"),
    [("prompt,chosen,rejected\np,a,b\n", [_pair("p", "a", "b")]),
     ("\ufeffPrompt, Chosen ,REJECTED,margin\r\np,a,b,1\r\n", [_pair("p", "a", "b", 1.0)]),
     ('prompt,chosen,rejected\np,"a,""x""\nz",b\n\nq,\'=1+1,b', [_pair("p", 'a,"x"\nz', "b"), _pair("q", "=1+1", "b")]),
     ("prompt,chosen,rejected,margin\np,a,b,\n", [_pair("p", "a", "b")])],
)  # fmt: skip
def test_csv_pairs(tmp_path: Path, text: str, pairs: list[PreferencePair]) -> None:
    file = tmp_path / "data.csv"
    file.write_bytes(text.encode())
    assert read_file(file).pairs == tuple(pairs)


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [("a,b\n1,2\n", 1, "the first line must name the columns: none of the known fields"),
     ("prompt;chosen;rejected\np;a;b\n", 1, "the first line must name the columns"),
     ("prompt,prompt,chosen,rejected\n", 1, "a column stands there twice"),
     ('prompt,chosen,rejected\np,"a\nb",c\np,a\n', 4, "2 cells where the first line names 3 columns"),
     ('prompt,chosen,rejected\np,a,"b\nmore\n', 2, "not CSV"), ('prompt,chosen,rejected\np,"a"x,b\n', 2, "not CSV"),
     ("prompt,chosen,rejected,margin\np,a,b,much\n", 2, "margin must be a number, not the text 'much'"),
     ("prompt,chosen,rejected,margin\np,a,b,nan\n", 2, "margin must be from 0"),
     ("prompt,completion,label\np,a,maybe\n", 2, "label must be true or false"),
     ("prompt,left,right,answer\np,a,b,better\n", 2, "answer must be one of left_much"),
     ("prompt,left,right,answer\np,a,a,tie\n", 2, "left and right are the same text"),
     ("prompt,chosen,rejected\n", 0, "the file is empty")],
)  # fmt: skip
def test_bad_csv_is_refused_with_its_line(tmp_path: Path, text: str, line: int, reason: str) -> None:
    file = tmp_path / "data.csv"
    file.write_text(text)
    with pytest.raises(FileRefusedError, match=reason) as caught:
        read_file(file)
    assert caught.value.problems[0].line == line


def test_csv_labels_and_truths(tmp_path: Path) -> None:
    file = tmp_path / "data.csv"
    file.write_text("prompt,completion,label\np,a,TRUE\np,b,0\np,,no\n")
    assert [(each.completion, each.label) for each in read_file(file).unpaired] == [
        ("a", True), ("b", False), ("", False),
    ]  # fmt: skip


def test_plain_text_is_a_text_a_line(tmp_path: Path) -> None:
    file = tmp_path / "words.txt"
    file.write_bytes("\ufeffhello\r\n\r\n wörld \n{not json}\n".encode())
    assert read_file(file).texts == ("hello", " wörld ", "{not json}")


@pytest.mark.parametrize(
    ("text", "kind"), [('{"text": "a"}\n', "text"), ("prompt,completion\np,a\n", "prompt-completion")]
)
def test_a_file_of_another_name_is_told_by_its_content(tmp_path: Path, text: str, kind: str) -> None:
    file = tmp_path / "data"
    file.write_text(text)
    assert read_file(file).kind == kind


# --- labels from files ---------------------------------------------------------------------------------------


def test_imported_pairs_become_labels_that_say_the_same_on_either_side(tmp_path: Path) -> None:
    rows = [{"prompt": "p", "chosen": f"a{n}", "rejected": f"b{n}", "margin": n % 3 / 2} for n in range(200)]
    imported = _read(tmp_path, *rows)
    labels = labels_from_file(imported, time=5.0, seed=1)
    for label, pair in zip(labels, imported.pairs, strict=True):
        assert label.chosen is not None and label.rejected is not None
        assert (label.chosen.text, label.rejected.text, label.strength) == (pair.chosen, pair.rejected, pair.strength)
        assert (label.reason, label.annotator, label.left.source, label.time) == (
            Reason.IMPORTED, "data.jsonl", "data.jsonl", 5.0,
        )  # fmt: skip
    left = sum(each.answer.prefers_left for each in labels)
    assert abs(left - 100) <= 3 * 50**0.5
    assert [each.texts for each in labels_from_file(imported, time=0.0, seed=1)] == [each.texts for each in labels]


def test_imported_unpaired_rows_become_labels_of_one_text(tmp_path: Path) -> None:
    imported = _read(tmp_path, DONE, DONE | {"label": False})
    labels = labels_from_file(imported, time=0.0, seed=1, annotator="ada")
    assert [(each.answer, each.right, each.annotator) for each in labels] == [
        (Answer.GOOD, None, "ada"), (Answer.BAD, None, "ada"),
    ]  # fmt: skip


def test_a_file_without_judgements_gives_no_labels(tmp_path: Path) -> None:
    with pytest.raises(FileRefusedError, match="text rows are no judgements"):
        labels_from_file(_read(tmp_path, {"text": "hello"}), time=0.0, seed=1)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.sampled_from(["role", "content"]), each, max_size=2),
    max_leaves=6,
)


@given(
    st.dictionaries(
        st.sampled_from(["prompt", "chosen", "rejected", "completion", "label", "text", "margin", "left", "answer"]),
        _json | st.just("a") | st.just("ab"),
    )
)
def test_any_row_gives_an_example_or_one_line(row: dict) -> None:
    try:
        example = example_of(kind_of(row), row)
    except LineError as error:
        assert str(error) and "\n" not in str(error) and len(str(error)) < 400
        return
    assert not isinstance(example, JudgedPair)
