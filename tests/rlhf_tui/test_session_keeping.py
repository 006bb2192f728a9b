"""When the app cannot save: a banner, everything goes on, and a later save succeeds."""

import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from app_helpers import DirectApp, screen_lines

from core.store import Session


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with Session.create(tmp_path / "s", title="first steps") as made:
        yield made


async def test_a_full_disk_is_said_and_passes(session: Session) -> None:
    app = DirectApp(session)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("space")
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
        try:
            await pilot.press("o")
            app.save_ui()
            await pilot.pause()
            assert any("Saving failed" in line for line in screen_lines(app))
            assert "saving is tried again" in " ".join(" ".join(screen_lines(app)).split())
            assert app.would_be_lost()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        app.save_ui()
        await pilot.pause()
        assert not any("Saving failed" in line for line in screen_lines(app))
        assert session.get_setting("ui")["screens"]["train"]["smoothing"] == 0.9
        assert app.would_be_lost() == []


async def test_a_folder_deleted_underneath_is_put_back(session: Session) -> None:
    app = DirectApp(session)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("space")
        shutil.rmtree(session.folder)
        app.look_after_the_folder()
        await pilot.pause()
        assert (session.folder / "session.db").exists()
        assert any("was put back" in entry.text for entry in app.state.log)
        assert app.state.own_trouble == ""
    with Session.open(session.folder, read_only=True) as found:
        assert found.title == "first steps"


async def test_a_folder_that_cannot_be_put_back_is_a_banner(session: Session) -> None:
    app = DirectApp(session)
    async with app.run_test(size=(120, 40)) as pilot:
        shutil.rmtree(session.folder)
        session.folder.write_text("a file in its place")
        app.look_after_the_folder()
        await pilot.pause()
        assert any("Saving failed" in line for line in screen_lines(app))
        session.folder.unlink()
        app.look_after_the_folder()
        await pilot.pause()
        assert not any("Saving failed" in line for line in screen_lines(app))


async def test_a_session_open_to_look_only_is_never_written(session: Session) -> None:
    session.set_setting("ui", {"screen": "train"})
    before = (session.folder / "session.db").stat().st_mtime_ns
    with Session.open(session.folder, read_only=True) as looking:
        app = DirectApp(looking)
        async with app.run_test(size=(120, 40)) as pilot:
            await pilot.press("o", "p")
            app.save_ui()
            app.look_after_the_folder()
            assert any("Read-only" in line for line in screen_lines(app))
            await pilot.press("q")
            await pilot.pause()
        assert app.return_code == 0
    assert (session.folder / "session.db").stat().st_mtime_ns == before
