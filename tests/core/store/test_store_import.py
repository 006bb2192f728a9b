"""An exported session comes back whole; what is no exported session leaves nothing behind but one line."""

import random
import shutil
import sqlite3
import stat
import struct
import zipfile
from collections import namedtuple

import pytest

from core.store import Session, StoreError
from core.store import archive as archives
from core.store.archive import export_session, import_session
from core.store.errors import ArchiveError, StorageFullError
from core.store.locations import list_sessions

CHECKPOINT = "checkpoints/1/1-0123456789abcdef.safetensors"


@pytest.fixture
def exported(tmp_path):
    with Session.create(tmp_path / "theirs" / "greetings", title="Grüße", seed=5) as made:
        run = made.runs.add("sft", config={"steps": 3})
        made.metrics.append(run.id, [(1, 1, 0.1, {"loss": 2.0})])
        made.set_setting("ui", {"screen": "train"})
        made.checkpoints.save(run.id, 1, "resume", b"weights" * 100)
        made.checkpoints.save(run.id, 2, "resume", b"others" * 100, name="mine")
        return export_session(made.folder, tmp_path / "sent.zip")


@pytest.fixture
def saves(tmp_path):
    return tmp_path / "saves"


def members(file):
    with zipfile.ZipFile(file) as archive:
        return {entry.filename: archive.read(entry) for entry in archive.infolist()}


def packed(file, content, kind=zipfile.ZIP_DEFLATED):
    """A ZIP of (name or ZipInfo, bytes)."""
    with zipfile.ZipFile(file, "w", kind) as archive:
        for name, data in content:
            archive.writestr(name, data)
    return file


def refused(file, saves, match):
    """The one line; nothing may be left of it anywhere."""
    around = sorted(saves.parent.iterdir())
    with pytest.raises(StoreError, match=match) as caught:
        import_session(file, saves)
    assert "\n" not in str(caught.value) and ".new-" not in str(caught.value)
    assert not saves.exists() or not any(saves.iterdir())
    assert sorted(each for each in saves.parent.iterdir() if each != saves) == [e for e in around if e != saves]
    return caught.value


def test_it_is_the_session_that_was_exported(exported, saves):
    folder = import_session(exported, saves)
    assert folder == saves / "greetings"
    with Session.open(folder) as session:
        assert (session.title, session.seed, session.get_setting("ui")) == ("Grüße", 5, {"screen": "train"})
        assert session.metrics.read(1).values["loss"].tolist() == [2.0]
        assert session.checkpoints.latest_good(1).data == b"others" * 100
        assert [each.name for each in session.checkpoints.list(1)] == ["", "mine"]
    (listed,) = list_sessions(saves)
    assert (listed.title, listed.problem, listed.runs) == ("Grüße", "", 1)


def test_what_is_there_is_never_overwritten(exported, saves):
    first = import_session(exported, saves)
    (first / "engine.log").write_text("mine")
    assert import_session(exported, saves) == saves / "greetings-2"
    assert import_session(exported, saves) == saves / "greetings-3"
    assert (first / "engine.log").read_text() == "mine"
    assert len(list_sessions(saves)) == 3


def test_the_name_of_the_folder_inside_is_only_a_wish(exported, saves, tmp_path):
    content = members(exported)
    for top, name in (("..", "session"), ("CON", "con-session"), (".hidden", "hidden"), ("Ü b/\u202e", "b")):
        outer = top.split("/")[0]
        renamed = [(f"{outer}/{each.partition('/')[2]}", data) for each, data in content.items()]
        assert import_session(packed(tmp_path / "x.zip", renamed), saves) == saves / ("u-b" if outer == "Ü b" else name)


def test_a_checkpoint_that_is_not_what_its_row_says_is_left_out(exported, saves, tmp_path):
    content = members(exported)
    newest = max(name for name in content if "/2-" in name)
    content[newest] = b"weights of another one"
    stray = f"greetings/{CHECKPOINT}"
    folder = import_session(packed(tmp_path / "x.zip", [*content.items(), (stray, b"no row speaks of it")]), saves)
    with Session.open(folder) as session:
        assert session.checkpoints.latest_good(1).data == b"weights" * 100
    assert len(list((folder / "checkpoints" / "1").iterdir())) == 1


@pytest.mark.parametrize(
    "name",
    [
        "../evil.txt", "/tmp/evil.txt", "greetings/../../evil.txt", "greetings/../session.db/x", "session.db",
        "greetings/checkpoints/../../../evil", "greetings/checkpoints/1/../../../evil.safetensors",
        "greetings\\..\\..\\evil.txt", "C:/evil.txt", "greetings/session.db-wal", "greetings/session.db/x",
        "greetings/checkpoints/1/model.pkl", f"greetings/checkpoints/{CHECKPOINT}", "greetings/.lock", "evil.py",
        "greetings/checkpoints/١/1-0123456789abcdef.safetensors",
        "greetings/checkpoints/1/1-0123456789ABCDEF.safetensors",
        "greetings/\x1b[31m", "a" * 5000,
    ],
)  # fmt: skip
def test_any_other_name_is_refused_before_anything_is_written(exported, saves, tmp_path, name):
    file = packed(tmp_path / "x.zip", [*members(exported).items(), (name, b"evil")])
    said = refused(file, saves, "is no exported session: it holds")
    assert isinstance(said, ArchiveError) and len(str(said)) < 300 and "\x1b" not in str(said)


def test_an_entry_without_a_name_is_refused(exported, saves, tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for name, data in members(exported).items():
            archive.writestr(name, data)
        archive.infolist()[-1].filename = ""
    refused(tmp_path / "x.zip", saves, "it holds ''")


@pytest.mark.parametrize("name", ["greetings/session.db", f"greetings/{CHECKPOINT}"])
@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFDIR])
def test_only_plain_files_are_unpacked(exported, saves, tmp_path, name, kind):
    content = {each: data for each, data in members(exported).items() if each != name}
    link = zipfile.ZipInfo(name)
    link.external_attr = (kind | 0o777) << 16
    refused(packed(tmp_path / "x.zip", [*content.items(), (link, b"/etc/passwd")]), saves, "it holds 'greetings/")


def test_a_name_twice_and_two_sessions_are_refused(exported, saves, tmp_path):
    content = members(exported)
    with pytest.warns(UserWarning, match="Duplicate name"):
        twice = packed(
            tmp_path / "x.zip", [*content.items(), ("greetings/session.db", content["greetings/session.db"])]
        )
    refused(twice, saves, "it holds 'greetings/session.db'")
    both = [(f"other/{CHECKPOINT}", b"weights")]
    refused(packed(tmp_path / "y.zip", [*content.items(), *both]), saves, "it holds not one session")
    refused(packed(tmp_path / "z.zip", both), saves, "it holds not one session")
    refused(packed(tmp_path / "empty.zip", []), saves, "it holds not one session")


def test_a_bomb_is_not_unpacked(exported, saves, tmp_path, monkeypatch):
    bomb = packed(tmp_path / "bomb.zip", [*members(exported).items(), (f"greetings/{CHECKPOINT}", bytes(64 * 1024**2))])
    assert bomb.stat().st_size < 200_000
    refused(bomb, saves, "3 files|4 files of 0.1 GB are too many, or too much")
    monkeypatch.setattr(archives, "MOST_BYTES", 1000)
    refused(exported, saves, "too much for an archive")
    monkeypatch.undo()
    monkeypatch.setattr(archives, "MOST_FILES", 2)
    refused(exported, saves, "3 files of .* are too many")


def test_more_bytes_than_the_list_says_are_not_written(exported, saves, tmp_path):
    """The list at the end of the archive tells a small size for what unpacks to a large one."""
    data = exported.read_bytes()
    with zipfile.ZipFile(exported) as archive:
        entry = archive.getinfo("greetings/session.db")
        size = struct.pack("<L", entry.file_size)
    at = data.index(b"PK\x01\x02")
    cut = data[:at] + data[at:].replace(size, struct.pack("<L", 4096), 1)
    assert cut != data
    lying = tmp_path / "lying.zip"
    lying.write_bytes(cut)
    refused(lying, saves, "is no whole ZIP: .*CRC|is no whole ZIP")


def test_no_room_is_said_before_anything_is_written(exported, saves, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9, 500))
    assert isinstance(refused(exported, saves, "no room in"), StorageFullError)


@pytest.mark.parametrize(
    "content", [b"", b"PK", b"not a zip at all", b"\x89PNG" + bytes(5000), b"PK\x05\x06" + bytes(17)]
)
def test_what_is_no_zip_is_said(saves, tmp_path, content):
    (tmp_path / "x.zip").write_bytes(content)
    refused(tmp_path / "x.zip", saves, r"x\.zip is no whole ZIP: ")


def test_there_must_be_a_file(saves, tmp_path):
    refused(tmp_path / "none.zip", saves, "there is no file")
    refused(tmp_path, saves, "there is no file")


def test_no_part_of_an_archive_passes_for_the_whole(exported, saves, tmp_path):
    data = exported.read_bytes()
    cut = tmp_path / "cut.zip"
    for length in range(0, len(data), max(1, len(data) // 60)):
        cut.write_bytes(data[:length])
        refused(cut, saves, "is no whole ZIP")


def test_flipped_bytes_are_noticed_or_change_nothing(exported, saves, tmp_path):
    """A byte of what ZIP itself does not need (a date) may be another one."""
    data, dice, good = exported.read_bytes(), random.Random(3), 0
    flipped = tmp_path / "flipped.zip"
    for _ in range(120):
        at = dice.randrange(len(data))
        flipped.write_bytes(data[:at] + bytes([data[at] ^ (1 << dice.randrange(8))]) + data[at + 1 :])
        try:
            folder = import_session(flipped, saves)
        except StoreError as error:
            assert "\n" not in str(error)
            assert not any(saves.iterdir())
            continue
        good += 1
        with Session.open(folder) as session:
            assert session.title == "Grüße" and session.metrics.read(1).values["loss"].tolist() == [2.0]
            assert session.checkpoints.latest_good(1).data in (b"others" * 100, b"weights" * 100)
        shutil.rmtree(saves)
        saves.mkdir()
    assert good < 60


def test_other_ways_of_packing_are_refused(exported, saves, tmp_path):
    refused(
        packed(tmp_path / "x.zip", members(exported).items(), zipfile.ZIP_LZMA), saves, "packed in a way of its own"
    )
    locked = bytearray(exported.read_bytes())
    for mark, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        locked[locked.index(mark) + flags] |= 1
    (tmp_path / "locked.zip").write_bytes(locked)
    refused(tmp_path / "locked.zip", saves, "is no whole ZIP: .*encrypted")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda data: b"no database", "session.db is damaged: not a SQLite database"),
        (lambda data: data[:4096], "the session in the archive cannot be used: session.db is damaged"),
        (lambda data: data[:60] + (99).to_bytes(4, "big") + data[64:], "session.db has format 99, .* a newer version"),
    ],
)  # fmt: skip
def test_a_database_that_cannot_be_used_is_not_taken_in(exported, saves, tmp_path, damage, said):
    content = members(exported)
    content["greetings/session.db"] = damage(content["greetings/session.db"])
    refused(packed(tmp_path / "x.zip", content.items()), saves, said)


def test_a_database_with_a_trigger_of_theirs_is_not_taken_in(exported, saves, tmp_path):
    content = members(exported)
    database = tmp_path / "session.db"
    database.write_bytes(content["greetings/session.db"])
    connection = sqlite3.connect(database)
    connection.execute("CREATE TRIGGER evil AFTER INSERT ON runs BEGIN DELETE FROM runs; END")
    connection.commit()
    connection.close()
    content["greetings/session.db"] = database.read_bytes()
    database.unlink()
    refused(packed(tmp_path / "x.zip", content.items()), saves, "its tables are not those of a session")
