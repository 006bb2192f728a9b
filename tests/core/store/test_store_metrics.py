import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.store import Session
from core.store.metrics import CHUNK_STEPS


@pytest.fixture
def session(tmp_path):
    with Session.create(tmp_path / "s") as session:
        session.runs.add("sft")
        session.runs.add("ppo")
        yield session


def rows(first, last, **values):
    return [(step, step * 4, step / 2, values or {"loss": 1.0 / step}) for step in range(first, last + 1)]


def test_rows_come_back_as_columns(session):
    session.metrics.append(1, [(1, 64, 0.5, {"loss": 2.5, "kl": 0.0}), (2, 128, 1.25, {"loss": math.inf})])
    table = session.metrics.read(1)
    assert table.steps.tolist() == [1, 2]
    assert table.completions.tolist() == [64, 128]
    assert table.seconds.tolist() == [0.5, 1.25]
    assert table.values["loss"].tolist() == [2.5, math.inf]
    np.testing.assert_array_equal(table.values["kl"], [0.0, math.nan])


def test_a_run_without_metrics_is_an_empty_table(session):
    assert len(session.metrics.read(1)) == 0
    assert session.metrics.last_step(1) == -1


def test_runs_do_not_mix(session):
    session.metrics.append(1, rows(1, 3))
    session.metrics.append(2, rows(1, 5))
    assert (len(session.metrics.read(1)), len(session.metrics.read(2))) == (3, 5)


def test_only_what_is_asked_for_is_read(session):
    session.metrics.append(1, [(step, 0, 0.0, {"a": 1.0, "b": 2.0}) for step in range(1, CHUNK_STEPS + 50)])
    table = session.metrics.read(1, names=["b", "never measured"], after_step=CHUNK_STEPS - 2)
    assert list(table.values) == ["b"]
    assert table.steps[0] == CHUNK_STEPS - 1
    assert len(table) == 51


def test_steps_that_do_not_rise_are_refused(session):
    with pytest.raises(ValueError, match="rise"):
        session.metrics.append(1, [(2, 0, 0.0, {}), (2, 0, 0.0, {})])


def test_a_run_that_went_back_replaces_what_it_does_again(session):
    session.metrics.append(1, rows(1, CHUNK_STEPS + 20, loss=1.0))
    session.metrics.append(1, [(CHUNK_STEPS - 10, 0, 0.0, {"loss": 9.0})])
    table = session.metrics.read(1)
    assert table.steps.tolist() == list(range(1, CHUNK_STEPS - 9))
    assert table.values["loss"][-2:].tolist() == [1.0, 9.0]


class Model:
    """What the store should hold, as a dictionary from step to row."""

    def __init__(self):
        self.rows = {}

    def append(self, new):
        self.rows = {step: row for step, row in self.rows.items() if step < new[0][0]} | {row[0]: row for row in new}

    def truncate(self, after):
        self.rows = {step: row for step, row in self.rows.items() if step <= after}


values = st.dictionaries(st.sampled_from(["loss", "kl", "é", ""]), st.floats(allow_nan=False), max_size=3)
appends = st.tuples(st.just("append"), st.integers(-30, 20), st.lists(values, min_size=1, max_size=30))
truncates = st.tuples(st.just("truncate"), st.integers(-5, 90), st.just([]))
packs = st.tuples(st.just("pack"), st.just(0), st.just([]))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations=st.lists(st.one_of(appends, truncates, packs), max_size=12))
def test_any_history_of_appends_truncations_and_packing_reads_like_a_dictionary(session, monkeypatch, operations):
    monkeypatch.setattr("core.store.metrics.CHUNK_STEPS", 16)
    run = session.runs.add("dpo").id
    model = Model()
    for kind, number, batch in operations:
        before = session.metrics.newest(run)
        if kind == "truncate":
            session.metrics.truncate(run, number)
            model.truncate(number)
        elif kind == "pack":
            session.metrics.pack(run)
            assert len(session.metrics.newest(run)) == 0
        else:
            first = max(0, max(model.rows, default=0) + number)
            new = [(first + index, index * 3, index / 8, each) for index, each in enumerate(batch)]
            session.metrics.append(run, new)
            model.append(new)
        table = session.metrics.read(run, after_step=-1)
        if kind == "pack":  # what was read before goes with what has been packed since
            once = session.metrics.read(run, newest=before)
            assert once.steps.tolist() == table.steps.tolist() and once.values.keys() == table.values.keys()
        expected = [model.rows[step] for step in sorted(model.rows)]
        assert table.steps.tolist() == [row[0] for row in expected]
        assert table.completions.tolist() == [row[1] for row in expected]
        assert table.seconds.tolist() == [row[2] for row in expected]
        for name in {name for row in expected for name in row[3]}:
            np.testing.assert_array_equal(table.values[name], [row[3].get(name, math.nan) for row in expected])
        assert session.metrics.last_step(run) == max(model.rows, default=-1)


def test_the_metrics_of_a_run_are_named_whether_packed_or_not(session):
    session.metrics.append(1, rows(1, CHUNK_STEPS, loss=1.0, kl=2.0))
    session.metrics.append(1, [(CHUNK_STEPS + 1, 1, 1.0, {"loss": 1.0, "reward": 3.0})])
    session.metrics.append(2, rows(1, 3, other=1.0))
    assert session.metrics.names(1) == ["loss", "kl", "reward"]
    assert session.metrics.names(2) == ["other"] and session.metrics.names(3) == []


def test_the_newest_rows_are_read_once_for_all_metrics(session):
    session.metrics.append(1, rows(1, CHUNK_STEPS + 20, loss=1.0, kl=2.0))
    newest = session.metrics.newest(1)
    assert newest.steps.tolist() == list(range(CHUNK_STEPS + 1, CHUNK_STEPS + 21))
    for names, after in ((None, -1), (["kl"], -1), ([], 7), (["loss"], CHUNK_STEPS + 5), (["none"], 10**6)):
        once, again = session.metrics.read(1, names, after, newest), session.metrics.read(1, names, after)
        assert once.steps.tolist() == again.steps.tolist() and once.seconds.tolist() == again.seconds.tolist()
        assert {name: each.tolist() for name, each in once.values.items()} == {
            name: each.tolist() for name, each in again.values.items()
        }


def test_a_run_that_goes_on_after_it_was_packed_loses_nothing(session):
    session.metrics.append(1, rows(1, 10, loss=1.0))
    session.metrics.pack(1)
    session.metrics.pack(1)
    session.metrics.append(1, rows(11, CHUNK_STEPS + 40, loss=2.0))
    session.metrics.pack(1)
    table = session.metrics.read(1)
    assert table.steps.tolist() == list(range(1, CHUNK_STEPS + 41))
    assert table.values["loss"].tolist() == [1.0] * 10 + [2.0] * (CHUNK_STEPS + 30)
