"""``rlhf-tui labels``: what is written, what is taken in, and what is refused as a whole."""

import json
from pathlib import Path

import pytest

from core.preferences.labels import Answer, LabelRecord, Side
from core.store import Session
from core.store.locations import create_session
from rlhf_tui import cli


@pytest.fixture
def saves(tmp_path: Path) -> Path:
    """Saves with one session: A preferred, B preferred (much), a tie, both bad, and one held out."""
    answers = [
        ("tree", "elm", "exx", Answer.LEFT),
        ("tree", "oak", "elf", Answer.RIGHT_MUCH),
        ("moss", "sun", "sea", Answer.TIE),
        ("moss", "sss", "szz", Answer.BOTH_BAD),
        ("moss", "=sum", "-sea", Answer.LEFT_SLIGHTLY),
    ]
    with create_session(tmp_path / "saves", "mine", task="words", seed=1) as session:
        for number, (prompt, left, right, answer) in enumerate(answers):
            session.labels.add(LabelRecord(
                id=str(number), time=float(number), annotator="ann", prompt=prompt, left=Side(left, "reference"),
                right=Side(right, "run 3"), answer=answer, latency=2.0, held_out=number == 4,
            ))  # fmt: skip
    return tmp_path / "saves"


def labels(saves: Path, *words: str) -> int:
    return cli.main(["labels", *words, "--session", "mine", "--saves", str(saves)])


def stored(saves: Path) -> list[LabelRecord]:
    with Session.open(saves / "mine", read_only=True) as session:
        return list(session.labels.current())


def rows(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_preference_rows_are_right_for_both_sides(saves: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    assert labels(saves, "export", str(out)) == 0
    assert rows(out) == [
        {"prompt": "tree", "chosen": "elm", "rejected": "exx"},
        {"prompt": "tree", "chosen": "elf", "rejected": "oak"},
        {"prompt": "moss", "chosen": "=sum", "rejected": "-sea"},
    ]
    assert labels(saves, "export", str(out), "--margin", "--without-held-out") == 0
    assert [each["margin"] for each in rows(out)] == [0.5, 1.0]


def test_both_bad_gives_two_unpaired_rows(saves: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    assert labels(saves, "export", str(out), "--format", "unpaired") == 0
    assert rows(out) == [
        {"prompt": "moss", "completion": "sss", "label": False},
        {"prompt": "moss", "completion": "szz", "label": False},
    ]


def test_csv_cells_that_a_spreadsheet_would_compute_are_escaped(
    saves: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert labels(saves, "export", "-", "--format", "csv") == 0
    written = capsys.readouterr().out
    assert '"\'=sum"' in written and '"\'-sea"' in written and '"=sum"' not in written


@pytest.mark.parametrize("format_", ["preference", "csv"])
def test_what_was_exported_is_imported_as_the_same_pairs(saves: Path, tmp_path: Path, format_: str) -> None:
    out = tmp_path / ("out.csv" if format_ == "csv" else "out.jsonl")
    with Session.open(saves / "mine") as session:
        session.labels.delete("4")  # its letters are outside the alphabet
    assert (
        labels(saves, "export", str(out), "--format", format_, *(["--margin"] if format_ == "preference" else [])) == 0
    )
    with create_session(saves, "theirs", task="words", seed=2):
        pass
    assert cli.main(["labels", "import", str(out), "--session", "theirs", "--saves", str(saves)]) == 0
    with Session.open(saves / "theirs", read_only=True) as session:
        taken = session.labels.current()

    def decided(records: list[LabelRecord]) -> list[tuple[object, ...]]:
        return [(e.prompt, e.chosen.text, e.rejected.text, e.strength) for e in records if e.chosen and e.rejected]

    assert decided(list(taken)) == decided(stored(saves))
    assert len(taken) == (4 if format_ == "csv" else 2)


def test_a_broken_file_is_refused_line_by_line_and_changes_nothing(
    saves: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = stored(saves)
    file = tmp_path / "bad.jsonl"
    file.write_bytes(
        b'{"prompt": "tree", "chosen": "elm", "rejected": "oak"}\n'
        b'{"prompt": "tree", "chosen": 3, "rejected": "oak"}\n'
        b"\xff\xfe\n"
        b'{"prompt": "tree", "chosen": "\x1b[2J", "rejected": "oak"}\n'
        b'{"prompt": "tree", "chosen": "same", "rejected": "same"}\n'
    )
    assert labels(saves, "import", str(file)) == 1
    told = capsys.readouterr().err.splitlines()
    assert [line.split(":")[2] for line in told] == ["2", "3", "4", "5"]
    assert all(line.startswith(f"rlhf-tui: {file}:") and line.isprintable() for line in told)
    assert stored(saves) == before


@pytest.mark.parametrize("content", [b"", b"\n\n", b'["prompt"]\n', b"[" * 5_000, b'{"prompt": "a"}\n'])
def test_other_hostile_files_exit_1_with_a_line(
    saves: Path, tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_bytes(content)
    assert labels(saves, "import", str(file)) == 1
    assert capsys.readouterr().err.startswith(f"rlhf-tui: {file}")
    assert len(stored(saves)) == 5


def test_a_missing_file_and_a_folder_that_cannot_be_written_are_said(
    saves: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert labels(saves, "import", str(tmp_path / "none.jsonl")) == 1
    assert "none.jsonl: no such file or directory" in capsys.readouterr().err
    with pytest.raises(SystemExit) as end:
        labels(saves, "export", str(tmp_path / "no" / "out.jsonl"))
    assert end.value.code == 1
    assert "out.jsonl: No such file or directory" in capsys.readouterr().err


def test_stats_tell_counts_quality_and_warnings(saves: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert labels(saves, "stats") == 0
    told = capsys.readouterr().out
    assert "mine: 5 labels (3 decided, 1 tie, 1 both bad, 1 held out), 5 changes in the history" in told
    assert "labels per minute         30.0" in told  # five answers of two seconds each
    assert "left preferred            67%" in told
    assert "! only 3 decided pairs" in told


def test_stats_of_a_file_warn_of_pairs_that_will_spoil_training(
    saves: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "one.jsonl"
    file.write_text('{"prompt": "tree", "chosen": "elm", "rejected": "oak"}\n' * 60)
    assert labels(saves, "stats", "--file", str(file)) == 0
    told = capsys.readouterr().out
    assert "60 preference rows: 60 decided pairs, 0 single judgements" in told
    assert "! all chosen texts are one answer ('elm')" in told
