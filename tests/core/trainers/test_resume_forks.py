"""A fork is saved in its middle and goes on in a new process bit for bit – of every method in the table, its knobs
turned on both sides of the save."""

import json
import os
import subprocess
import sys
from pathlib import Path

import fork_variants
import pytest
from fork_variants import END, FORKED_AT, SAVED_AT, fork, go_on, place_of, saver, start
from trainer_toys import same

import core
from core.methods.table import METHODS
from core.store import Session
from core.trainers.base import TrainerState, Weights

pytestmark = pytest.mark.long  # a quarter of a minute; test_resume.py resumes every method without a fork

Ended = tuple[TrainerState, list[dict[str, float]]]


@pytest.fixture(scope="module")
def ends(tmp_path_factory, sft_weights: Weights, reward_weights: Weights) -> dict[str, Ended]:
    """Of each method, where its parent, its fork without a break, and those of another process came to."""
    folder: Path = tmp_path_factory.mktemp("forks")
    ends: dict[str, Ended] = {}
    runs: dict[str, tuple[int, int]] = {}
    with Session.create(folder / "session") as session:
        place = place_of(session)
        for name in METHODS:
            parent, trainer = start(name, place, sft_weights, reward_weights)
            go_on(trainer, FORKED_AT)
            saver(session, parent.id).save_resume_point(trainer, 1.0)
            metrics = go_on(trainer, END)
            ends[f"{name} parent"] = (trainer.state(), metrics)
            forked, trainer = fork(parent, place)
            before = go_on(trainer, SAVED_AT)
            saver(session, forked.id).save_resume_point(trainer, 2.0)
            after = go_on(trainer, END)
            ends[f"{name} whole"] = (trainer.state(), [*before, *after])
            runs[name] = (parent.id, forked.id)
    paths = [str(Path(core.__file__).parents[1]), str(Path(fork_variants.__file__).parent)]
    child = subprocess.run(
        [sys.executable, fork_variants.__file__, str(folder), json.dumps(runs)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert child.returncode == 0, child.stderr
    for name in METHODS:
        for how in ("resumed", "forked again"):
            ends[f"{name} {how}"] = fork_variants.read(folder, f"{name} {how}")
    return ends


@pytest.mark.parametrize("name", METHODS)
def test_a_fork_resumed_in_a_new_process_is_exact(ends, name):
    whole, metrics = ends[f"{name} whole"]
    resumed, resumed_metrics = ends[f"{name} resumed"]
    assert resumed_metrics == metrics[SAVED_AT - FORKED_AT :]
    assert resumed.values == json.loads(json.dumps(whole.values))
    assert same(resumed.tensors, whole.tensors)


@pytest.mark.parametrize("name", METHODS)
def test_forking_again_in_a_new_process_is_exact(ends, name):
    whole, metrics = ends[f"{name} whole"]
    again, metrics_again = ends[f"{name} forked again"]
    assert metrics_again == metrics
    assert same(again.tensors, whole.tensors)


@pytest.mark.parametrize("name", METHODS)
def test_a_fork_goes_on_from_its_parent_and_learns_otherwise(ends, name):
    whole, metrics = ends[f"{name} whole"]
    parent, parent_metrics = ends[f"{name} parent"]
    assert (whole.values["step"], len(metrics)) == (END, END - FORKED_AT)
    if any(each.startswith("optimizer.") for each in whole.tensors):  # best of n trains nothing
        assert not same(whole.tensors, parent.tensors)
        assert metrics[-1] != parent_metrics[-1]
    else:
        assert name == "best-of-n"


@pytest.mark.parametrize("name", METHODS)
def test_live_knobs_were_turned_before_the_save_and_behind_it(ends, name):
    """×½ and then ×1½, of what the fork had: none of them as at the start."""
    values = ends[f"{name} whole"][0].values["config"]
    begun = fork_variants.first_config(name)
    turned = dict(fork_variants.live_turns(begun, 0.5))
    assert "learning_rate" in turned
    assert values["learning_rate"] == pytest.approx(fork_variants.CHANGED["learning_rate"] * 0.5 * 1.5)
    assert all(values[knob] != getattr(begun, knob) for knob in turned)
