import subprocess
import sys
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.store import Session, SessionExistsError, SessionMissingError, SessionReadOnlyError, StoreError
from core.store.errors import CheckpointMissingError, RunInUseError, RunMissingError, SessionBusyError

anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture
def session(tmp_path):
    with Session.create(tmp_path / "s", task="words", seed=7, title="First", backbone={"hidden": 128}) as session:
        yield session


def test_what_a_session_is_about_survives_closing(tmp_path):
    Session.create(tmp_path / "s", task="sums", seed=-3, title="🎉 ' \"\n\0", backbone={"hidden": 128}).close()
    with Session.open(tmp_path / "s") as again:
        assert (again.task, again.seed, again.title) == ("sums", -3, "🎉 ' \"\n\0")
        assert again.backbone == {"hidden": 128}


def test_creating_over_a_session_is_refused(tmp_path, session):
    session.close()
    with pytest.raises(SessionExistsError, match="exists already"):
        Session.create(tmp_path / "s", title="Second")
    with Session.open(tmp_path / "s") as again:
        assert again.title == "First"


def test_opening_nothing_says_so_and_makes_nothing(tmp_path):
    with pytest.raises(SessionMissingError, match="no session in"):
        Session.open(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SessionMissingError):
        Session.open(tmp_path / "empty")
    assert list((tmp_path / "empty").iterdir()) == []


def test_a_closed_session_is_one_file(tmp_path, session):
    session.close()
    assert [each.name for each in (tmp_path / "s").iterdir() if not each.name.startswith(".")] == ["session.db"]


def test_runs_form_a_tree_and_keep_everything(session):
    first = session.runs.add("sft", "imitate", {"steps": 300, "rate": 1e-3}, seed=2**62, inputs={"pairs": "x"})
    second = session.runs.add("ppo", config={"steps": 5}, parent=first.id, parent_step=300)
    changed = session.runs.update(first.id, state="done", step=300, seconds=1, notes="good", pinned=True)
    assert session.runs.get(first.id) == changed
    assert changed.updated >= changed.created
    assert (first.steps, first.seed, first.inputs, first.config["rate"]) == (300, 2**62, {"pairs": "x"}, 1e-3)
    assert (changed.state, changed.step, changed.seconds, changed.pinned) == ("done", 300, 1.0, True)
    assert (second.parent, second.parent_step) == (first.id, 300)
    assert [each.id for each in session.runs.all()] == [first.id, second.id]
    assert [each.id for each in session.runs.children(first.id)] == [second.id]


def test_runs_that_are_not_there_are_named(session):
    for call in (session.runs.get, session.runs.delete, lambda run: session.runs.add("ppo", parent=run)):
        with pytest.raises(RunMissingError, match="no run 9"):
            call(9)
    with pytest.raises(TypeError, match="colour"):
        session.runs.update(session.runs.add("sft").id, colour="red")


def test_a_run_with_descendants_stays_and_its_number_is_never_given_again(session):
    parent, child = session.runs.add("sft").id, session.runs.add("ppo", parent=1).id
    session.metrics.append(child, [(1, 1, 1.0, {"loss": 1.0})])
    session.events.add(child, 1, "knob")
    session.samples.add(child, 1, [])
    session.checkpoints.save(child, 1, "snapshot", b"weights")
    with pytest.raises(RunInUseError, match=f"runs {child} started from it"):
        session.delete_run(parent)
    session.delete_run(child)
    assert session.checkpoints.list() == [] and not list((session.folder / "checkpoints").rglob("*.safetensors"))
    assert (session.events.read(), session.samples.read(child), len(session.metrics.read(child))) == ([], [], 0)
    session.delete_run(parent)
    assert session.runs.add("sft").id == child + 1


def test_events_and_samples_are_read_oldest_first_and_in_part(session):
    run, other = session.runs.add("sft").id, session.runs.add("sft").id
    for step in range(5):
        session.events.add(run, step, "knob", f"β {step}", {"value": step})
        session.samples.add(run, step, [{"text": str(step)}])
    session.events.add(other, 1, "alert")
    session.events.add(None, None, "note", "lunch")
    assert [each.step for each in session.events.read(run)] == [0, 1, 2, 3, 4]
    assert [each.message for each in session.events.read(run, last=2)] == ["β 3", "β 4"]
    assert [each.kind for each in session.events.read(after=5)] == ["alert", "note"]
    assert [each.run for each in session.events.read(kind="note")] == [None]
    assert [each.data for each in session.samples.read(run, after_step=2)] == [[{"text": "3"}], [{"text": "4"}]]
    assert session.samples.read(other) == []


def test_rewinding_forgets_what_came_after_but_keeps_what_was_named(session):
    run = session.runs.add("sft").id
    session.checkpoints.save(run, 0, "inputs", b"i")
    for step in (10, 20, 30):
        session.metrics.append(run, [(step, step, 1.0, {"loss": 1.0})])
        session.events.add(run, step, "knob")
        session.samples.add(run, step, step)
        session.checkpoints.save(run, step, "snapshot", b"w", name="mine" if step == 30 else "")
    session.rewind(run, 10)
    assert session.metrics.read(run).steps.tolist() == [10]
    assert [each.step for each in session.events.read(run)] == [10]
    assert [each.data for each in session.samples.read(run)] == [10]
    assert [each.step for each in session.checkpoints.list(run)] == [0, 10, 30]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=st.text(), value=anything)
def test_any_setting_comes_back(session, key, value):
    session.set_setting(key, "before")
    session.set_setting(key, value)
    assert session.get_setting(key) == value


def test_a_setting_never_set_is_the_default(session):
    assert session.get_setting("screen") is None
    assert session.get_setting("screen", "train") == "train"


def test_text_that_no_encoding_can_write_does_not_stop_a_save(session):
    run = session.runs.add("sft", title="bad \udcff byte")
    assert session.runs.get(run.id).title == "bad ? byte"


def test_several_changes_are_one(session):
    run = session.runs.add("sft").id
    with pytest.raises(ZeroDivisionError), session.transaction():
        session.runs.update(run, step=5)
        session.events.add(run, 5, "knob")
        1 / 0  # noqa: B018
    assert (session.runs.get(run).step, session.events.read()) == (0, [])


def test_a_part_that_failed_takes_the_whole_with_it(session):
    with pytest.raises(StoreError, match="nothing was changed"), session.transaction():
        session.set_setting("a", 1)
        with pytest.raises(RunMissingError):
            session.runs.update(9, step=1)
    assert session.get_setting("a") is None


def test_a_read_only_session_sees_what_the_writer_commits_and_refuses_to_write(session):
    with Session.open(session.folder, read_only=True) as looking:
        assert looking.read_only
        run = session.runs.add("sft", "new").id
        assert looking.runs.get(run).title == "new"
        for write in (
            lambda: looking.runs.add("sft"),
            lambda: looking.set_setting("a", 1),
            lambda: looking.checkpoints.save(run, 1, "resume", b"x"),
            lambda: looking.labels.undo(),
        ):
            with pytest.raises(SessionReadOnlyError, match="read-only"):
                write()
    assert not (session.folder / "checkpoints").exists()


def test_a_session_may_be_used_from_several_threads(session):
    run = session.runs.add("sft").id

    def write(name):
        for number in range(30):
            session.set_setting(f"{name}{number}", number)
            session.events.add(run, number, name)

    threads = [threading.Thread(target=write, args=(name,)) for name in "abc"]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(session.events.read(run)) == 90
    assert session.get_setting("c29") == 29


def test_a_database_kept_locked_is_a_clear_error(session, monkeypatch):
    other = Session.open(session.folder, read_only=True)
    session._database._connection.execute("PRAGMA busy_timeout = 50")
    blocker = __import__("sqlite3").connect(session.folder / "session.db", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(SessionBusyError, match="another program keeps it locked"):
        session.set_setting("a", 1)
    blocker.execute("ROLLBACK")
    blocker.close()
    session.set_setting("a", 1)
    assert other.get_setting("a") == 1
    other.close()


def test_a_run_without_checkpoints_says_so(session):
    run = session.runs.add("sft").id
    for call in (session.checkpoints.latest_good, lambda run: session.checkpoints.at(run, 5)):
        with pytest.raises(CheckpointMissingError, match=f"run {run} has no checkpoint yet"):
            call(run)


def test_the_store_needs_no_torch():
    code = "import sys, core.store, core.store.locations; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
