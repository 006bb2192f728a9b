"""What is exported: TRL's fields, sides right, formulas disarmed, and the same pairs when it is read again."""

import csv
import importlib.util
import io
import json
import stat
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from label_makers import label

from core.preferences.conversion import decided_pairs, unpaired_examples
from core.preferences.formats.files import read_file
from core.preferences.formats.writing import (
    CSV_COLUMNS,
    csv_lines,
    escape_cell,
    preference_lines,
    unescape_cell,
    unpaired_lines,
    write_file,
)
from core.preferences.importing import labels_from_file
from core.preferences.labels import Answer, LabelRecord
from core.preferences.pair import PreferencePair

ALL_ANSWERS = [label(f"left{n}", f"right{n}", answer) for n, answer in enumerate(list(Answer)[:9])]

_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12).map(
    lambda text: unicodedata.normalize("NFC", text)
)
_labels = st.builds(
    lambda prompt, left, right, answer: label(left, right if right != left else right + "x", answer, prompt),
    _texts.filter(bool), _texts, _texts, st.sampled_from(list(Answer)[:9]),
)  # fmt: skip


def _sorted_pairs(pairs: object) -> list[tuple]:
    return [(each.prompt, each.chosen, each.rejected, each.strength) for each in pairs]  # type: ignore[attr-defined]


def test_a_preference_export_has_trl_fields_and_is_right_for_both_orders() -> None:
    rows = [json.loads(line) for line in preference_lines(decided_pairs(ALL_ANSWERS))]
    assert rows == [
        {"prompt": "p", "chosen": f"{better}{n}", "rejected": f"{worse}{n}"}
        for n, better, worse in (
            (0, "left", "right"), (1, "left", "right"), (2, "left", "right"),
            (4, "right", "left"), (5, "right", "left"), (6, "right", "left"),
        )
    ]  # fmt: skip


def test_margin_is_on_every_row_or_on_none() -> None:
    pairs = decided_pairs(ALL_ANSWERS)
    assert [json.loads(line)["margin"] for line in preference_lines(pairs, margin=True)] == [1, 0.5, 0, 0, 0.5, 1]
    assert not any("margin" in json.loads(line) for line in preference_lines(pairs))


def test_ties_are_left_out_of_a_preference_export() -> None:
    assert list(preference_lines([PreferencePair("p", "a", "b", target=0.5)])) == []


def test_an_unpaired_export_has_two_false_rows_for_both_bad() -> None:
    rows = [json.loads(line) for line in unpaired_lines(unpaired_examples(ALL_ANSWERS))]
    assert rows == [
        {"prompt": "p", "completion": "left7", "label": False}, {"prompt": "p", "completion": "right7", "label": False},
    ]  # fmt: skip


@given(st.lists(_labels, min_size=1, max_size=6), st.booleans())
def test_a_preference_export_reads_back_as_the_same_pairs(
    tmp_path_factory: pytest.TempPathFactory, labels: list[LabelRecord], margin: bool
) -> None:
    pairs = decided_pairs(labels)
    file = tmp_path_factory.getbasetemp() / "round.jsonl"
    if write_file(file, preference_lines(pairs, margin=margin)) == 0:
        return
    imported = read_file(file)
    again = decided_pairs(labels_from_file(imported, time=0.0, seed=1))
    expected = [(p, c, r, s if margin else 0.5) for p, c, r, s in _sorted_pairs(pairs)]
    assert _sorted_pairs(imported.pairs) == expected
    assert _sorted_pairs(again) == expected


@given(st.lists(_labels, min_size=1, max_size=6))
def test_an_unpaired_export_reads_back_as_the_same_examples(
    tmp_path_factory: pytest.TempPathFactory, labels: list[LabelRecord]
) -> None:
    examples = unpaired_examples(labels)
    file = tmp_path_factory.getbasetemp() / "round-unpaired.jsonl"
    if write_file(file, unpaired_lines(examples)) == 0:
        return
    assert unpaired_examples(labels_from_file(read_file(file), time=0.0, seed=1)) == examples


@given(st.lists(_labels, min_size=1, max_size=6))
def test_a_csv_export_reads_back_as_the_same_judgements(
    tmp_path_factory: pytest.TempPathFactory, labels: list[LabelRecord]
) -> None:
    file = tmp_path_factory.getbasetemp() / "round.csv"
    write_file(file, csv_lines(labels))
    again = labels_from_file(read_file(file), time=0.0, seed=1)
    seen = [[(each.prompt, each.texts, each.answer, each.annotator) for each in some] for some in (labels, again)]
    assert seen[0] == seen[1]
    assert decided_pairs(again) == decided_pairs(labels)


def test_a_csv_row_tells_all_of_a_label() -> None:
    full = label("=1+1", "b", Answer.RIGHT, note="-note", latency=1.5, held_out=True, left_score=-0.25)
    header, row = csv.reader(io.StringIO("".join(csv_lines([full]))))
    assert tuple(header) == CSV_COLUMNS
    cells = dict(zip(header, row, strict=True))
    assert cells["left"] == cells["rejected"] == "'=1+1" and cells["chosen"] == "b"
    assert (cells["note"], cells["latency"], cells["held_out"], cells["flagged"]) == ("'-note", "1.5", "true", "false")
    assert (cells["left_score"], cells["right_score"], cells["repeats"]) == ("-0.25", "", "")


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n", "−", "＝", "＋", "－", "＠"])
def test_a_cell_that_a_spreadsheet_would_compute_is_escaped(start: str) -> None:
    for cell in (start, f"{start}1+1", f"'{start}x", f"''{start}"):
        assert escape_cell(cell) == f"'{cell}"
        assert unescape_cell(escape_cell(cell)) == cell


@pytest.mark.parametrize("cell", ["", "a=b", "it's", "'tis", "''", "'", " =x", "1-2"])
def test_other_cells_stay_as_they_are(cell: str) -> None:
    assert escape_cell(cell) == cell == unescape_cell(cell)


@given(st.text("'=-a\t", max_size=6))
def test_escaping_can_always_be_taken_back(cell: str) -> None:
    escaped = escape_cell(cell)
    assert unescape_cell(escaped) == cell
    assert escaped[:1] not in ("=", "-", "\t")


def test_a_file_is_written_whole_or_stays_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    file.write_text("before")
    file.chmod(0o640)

    def broken():  # type: ignore[no-untyped-def]
        yield "first\n"
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        write_file(file, broken())
    assert file.read_text() == "before"
    assert write_file(file, ["one\n", "two\n"]) == 2
    assert file.read_text() == "one\ntwo\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert [each.name for each in tmp_path.iterdir()] == ["out.jsonl"]


def test_a_folder_that_is_missing_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        write_file(tmp_path / "none" / "out.jsonl", ["x\n"])


def test_other_readers_see_trl_columns(tmp_path: Path) -> None:
    labels = [*ALL_ANSWERS, label("\u2028left", 'r"\n', Answer.LEFT, prompt="天气")]
    pairs, unpaired = tmp_path / "pairs.jsonl", tmp_path / "unpaired.jsonl"
    write_file(pairs, preference_lines(decided_pairs(labels), margin=True))
    write_file(unpaired, unpaired_lines(unpaired_examples(labels)))
    if importlib.util.find_spec("datasets") is not None:
        from datasets import load_dataset

        loaded = load_dataset("json", data_files=str(pairs), split="train", cache_dir=str(tmp_path / "cache"))
        kinds = {name: feature.dtype for name, feature in loaded.features.items()}
        assert kinds == {"prompt": "string", "chosen": "string", "rejected": "string", "margin": "float64"}
        rows = loaded.to_list()
        single = load_dataset("json", data_files=str(unpaired), split="train", cache_dir=str(tmp_path / "cache"))
        assert {name: feature.dtype for name, feature in single.features.items()} == {
            "prompt": "string", "completion": "string", "label": "bool",
        }  # fmt: skip
    else:
        rows = [json.loads(line) for line in pairs.read_text("utf-8").split("\n") if line]
        for row in rows:
            assert {name: type(value) for name, value in row.items()} == {
                "prompt": str, "chosen": str, "rejected": str, "margin": float,
            }  # fmt: skip
    assert rows[-1] == {"prompt": "天气", "chosen": "\u2028left", "rejected": 'r"\n', "margin": 0.5}
    assert len(rows) == 7
