"""A folder that is deleted while an app and its engine have the session open."""

import os
import shutil
from pathlib import Path

import pytest
from children import run_in_child

from core.store import Session, SessionExistsError, SessionLockedError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "s"


def test_nothing_is_done_to_a_session_that_is_there(folder: Path) -> None:
    with Session.create(folder) as session:
        assert session.recover() == ""
    with Session.open(folder, read_only=True) as session:
        shutil.rmtree(folder)
        assert session.recover() == ""
        assert not folder.exists()


def test_the_first_puts_it_back_and_the_second_takes_it_up(folder: Path) -> None:
    """The second is a child of the first, as the engine is of the app."""
    with Session.create(folder, title="kept") as app:
        app.runs.add("sft")
        app.checkpoints.save(1, 1, "resume", b"old")
        reading, writing = os.pipe()

        def engine() -> list[object]:
            with Session.open(folder) as session:
                session.set_setting("engine", "before")
                os.write(writing, b"x")
                while not folder.exists() or not session._database.displaced:
                    pass
                while not (folder / "session.db").exists():
                    pass
                said = session.recover()
                session.set_setting("engine", "after")
                return [said, session.get_setting("app"), len(session.runs.all())]

        def delete_and_recover() -> None:
            os.read(reading, 1)
            shutil.rmtree(folder)
            said = app.recover()
            assert "was put back" in said and "1 saved checkpoints are gone" in said
            app.set_setting("app", "after")

        import threading

        thread = threading.Thread(target=delete_and_recover)
        thread.start()
        said, seen, runs = run_in_child(engine)
        thread.join()
        assert "took up" in str(said) and runs == 1
        assert seen in (None, "after")
        assert app.get_setting("engine") == "after"
        assert app.checkpoints.list() == []
        # Nobody else gets in, for the lock is held in the new folder too.
        foreign = f"import sys; sys.path.insert(0, {str(Path.cwd())!r})\nfrom core.store import Session\n"
        foreign += f"Session.open({str(folder)!r})"
        import subprocess
        import sys

        tried = subprocess.run(["sh", "-c", f'{sys.executable} -c "{foreign}"; true'], capture_output=True, text=True)
        assert SessionLockedError.__name__ in tried.stderr


def test_another_session_at_its_place_is_left_alone(folder: Path, tmp_path: Path) -> None:
    Session.create(tmp_path / "other", title="theirs").close()
    with Session.create(folder, title="mine") as session:
        shutil.rmtree(folder)
        (tmp_path / "other").rename(folder)
        with pytest.raises(SessionExistsError, match="another session"):
            session.recover()
    with Session.open(folder) as found:
        assert found.title == "theirs"
