"""Files that are broken or meant to harm: one reason a line, in little time and memory, and nothing taken."""

import os
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.preferences.formats.files import parse_object, read_file
from core.preferences.formats.reading import FileRefusedError, Limits, LineError

ROW = b'{"prompt": "p", "chosen": "a", "rejected": "b"}'


def _problems(file: Path, content: bytes, **limits: int) -> list[tuple[int, str]]:
    file.write_bytes(content)
    with pytest.raises(FileRefusedError) as caught:
        read_file(file, limits=Limits(**limits))
    return [(each.line, each.reason) for each in caught.value.problems]


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.txt", "a"])
@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\r\n"])
def test_an_empty_file(tmp_path: Path, name: str, content: bytes) -> None:
    assert _problems(tmp_path / name, content) == [(0, "the file is empty")]


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.txt", "a"])
def test_a_line_of_a_gigabyte_is_refused_without_reading_it(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    with file.open("wb") as stream:
        stream.truncate(1024**3)  # sparse: takes no room
    tracemalloc.start()
    started = time.process_time()
    with pytest.raises(FileRefusedError, match="the file has 1 GB, more than 64 MB"):
        read_file(file)
    assert time.process_time() - started < 1
    assert tracemalloc.get_traced_memory()[1] < 10 * 1024**2
    tracemalloc.stop()


def test_a_line_that_is_too_long_is_refused_where_it_is(tmp_path: Path) -> None:
    long = b'{"text": "' + b"a" * 2_000_000 + b'"}\n'
    assert _problems(tmp_path / "a.jsonl", b'{"text": "a"}\n' + long) == [(2, "the line is longer than 1 MB")]
    assert _problems(tmp_path / "a.csv", b"text\n" + b"a" * 2_000_000) == [(2, "the line is longer than 1 MB")]


def test_a_csv_cell_larger_than_the_parser_takes(tmp_path: Path) -> None:
    found = _problems(tmp_path / "a.csv", b"text\n" + b"a" * 200_000)
    assert found == [(2, "not CSV: field larger than field limit (131072)")]


def test_invalid_utf8_is_told_by_line_and_byte(tmp_path: Path) -> None:
    found = _problems(tmp_path / "a.jsonl", ROW + b"\n" + b'{"prompt": "\xff"}\n' + ROW + b"\n\xc3")
    assert found == [(2, "not UTF-8: byte 0xff at position 13"), (4, "not UTF-8: byte 0xc3 at position 1")]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32"])
def test_other_encodings_are_refused(tmp_path: Path, encoding: str) -> None:
    found = _problems(tmp_path / "a.jsonl", ROW.decode().encode(encoding))
    assert len(found) == 1
    if encoding == "utf-16":
        assert found == [(0, "the file is UTF-16; save it as UTF-8")]


@pytest.mark.parametrize(
    ("line", "reason"),
    [("[" * 100_000, "nested deeper than 16"), ('{"a":' * 1_000, "nested deeper than 16"),
     ('{"prompt": ' + "[" * 17 + "]" * 17 + "}", "nested deeper than 16"), ("[1, 2]", "each line must be an object"),
     ("3", "each line must be a JSON object"), ("null", "each line must be a JSON object"), ("{", "not JSON"),
     ('{"text": NaN}', "NaN is no number"), ('{"text": Infinity}', "Infinity is no number"),
     ('{"text": "a", "text": "b"}', "the field 'text' stands there twice"), ('{"text": "a"} x', "not JSON: Extra data"),
     ('{"margin": ' + "9" * 5_000 + "}", "a number is too long"), ("\x00", "not JSON"),
     ('{"text": "a\tb"}', "not JSON"),
     ("{'text': 'a'}", "not JSON")],
)  # fmt: skip
def test_lines_that_are_no_json_object(line: str, reason: str) -> None:
    with pytest.raises(LineError, match=reason) as caught:
        parse_object(line)
    assert len(str(caught.value)) < 200 and "\n" not in str(caught.value)


def test_brackets_inside_texts_do_not_count_as_nesting() -> None:
    text = '\\"[{[{' * 50
    assert parse_object('{"text": "' + text + '"}') == {"text": '"[{[{' * 50}
    assert parse_object('{"a": [[[1]]], "b": {"c": {}}}', nesting=4) == {"a": [[[1]]], "b": {"c": {}}}
    with pytest.raises(LineError):
        parse_object('{"a": [[[1]]], "b": {"c": {}}}', nesting=3)


def test_many_brackets_in_a_megabyte_take_little_time() -> None:
    started = time.process_time()
    for line in ("[" * 1_000_000, '"' + "\\" * 999_999, '{"' + "[\\" * 400_000, "{}" * 200_000):
        with pytest.raises(LineError):
            parse_object(line)
    assert time.process_time() - started < 5


def test_crlf_bom_and_blank_lines_are_taken_as_they_are_meant(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b"\xef\xbb\xbf" + ROW + b"\r\n\r\n" + ROW.replace(b'"a"', b'"\xe2\x80\xa8"'))
    assert [each.chosen for each in read_file(file).pairs] == ["a", "\u2028"]
    assert _problems(file, ROW + b"\n\xef\xbb\xbf" + ROW)[0][0] == 2


def test_what_is_no_file(tmp_path: Path) -> None:
    for name, reason in (("none.jsonl", "no such file"), ("", "this is a folder"), ("a\0b", "no file can have")):
        with pytest.raises(FileRefusedError, match=reason):
            read_file(tmp_path / name if name else tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_or_a_device_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    for file in (tmp_path / "pipe.jsonl", Path("/dev/zero")):
        with pytest.raises(FileRefusedError, match="this is not a file"):
            read_file(file)


def test_ids_of_different_types_are_different(tmp_path: Path) -> None:
    rows = [b'{"id": 1, "text": "a"}', b'{"id": "1", "text": "b"}', b'{"id": null, "text": "c"}', b'{"text": "d"}']
    file = tmp_path / "a.jsonl"
    file.write_bytes(b"\n".join(rows))
    assert read_file(file).texts == ("a", "b", "c", "d")
    assert _problems(file, b"\n".join([*rows, b'{"id": "1", "text": "e"}'])) == [(5, "id '1' stands in line 2 already")]


@settings(max_examples=120)
@given(content=st.binary(max_size=200), name=st.sampled_from(["a.jsonl", "a.csv", "a.txt", "a"]))
@example(content=b'prompt,completion\n"\x00","\r\r"\n', name="a.csv")
@example(content=b"text\n\ra\r\n", name="a.csv")
@example(content=b'{"text": "\\ud800"}', name="a")
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes, name: str) -> None:
    file = tmp_path_factory.getbasetemp() / name
    file.write_bytes(content)
    try:
        assert read_file(file).count > 0
    except FileRefusedError as error:
        assert error.lines() and not any("\n" in line for line in error.lines())


_pieces = st.lists(
    st.sampled_from([b'"', b"{", b"}", b"[", b"]", b":", b",", b"\n", b"\r", b"\\", b"prompt", b"chosen", b"rejected",
                     b"label", b"true", b"text", b"id", b"1", b"'", b"=", b"\xff", b"\x00", b" "]), max_size=40,
)  # fmt: skip


@settings(max_examples=120)
@given(pieces=_pieces, name=st.sampled_from(["a.jsonl", "a.csv"]))
def test_nearly_right_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], name: str
) -> None:
    file = tmp_path_factory.getbasetemp() / f"near-{name}"
    file.write_bytes((b"prompt,chosen,rejected\n" if name == "a.csv" else b'{"text": "a"}\n') + b"".join(pieces))
    try:
        assert read_file(file).count > 0
    except FileRefusedError as error:
        assert error.lines()
