"""Every entry of the table of methods is whole; methods and functions come from outside as well."""

import dataclasses
import importlib
import sys

import pytest
from trainer_toys import inputs, judged_pairs, one_step

from core.config import ConfigError, knobs
from core.methods.grpo import GRPO
from core.methods.table import METHODS, find_method
from core.trust import trust

SMALL = {"steps": 4, "batch_size": 16, "evaluate_every": 1}
OWN = {
    "sft": {}, "rm": {"pairs": "labels"}, "kto": {"pairs": "labels", "probe_completions": 16},
    "dpo": {"judge": "gold", "probe_completions": 16}, "best-of-n": {"probe_completions": 16},
}  # fmt: skip
NOT_EVERY_STEP = {"kto": {"objective/entropy"}}  # it samples at validations only


def trainer_class(method):
    module, _, name = method.trainer.partition(":")
    return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("name", METHODS)
def test_an_entry_names_its_trainer_and_explains_itself(name):
    method = METHODS[name]
    assert method.name == name
    assert trainer_class(method).config_class is method.config
    assert method.starts_from is None or method.starts_from in METHODS
    for text in (method.summary, method.when, method.pitfalls):
        assert len(text) > 40 and text.endswith(".")
    for chart in method.charts:
        assert chart.metrics and chart.meaning.endswith(".") and chart.misreading.endswith(".")
    for knob in knobs(method.config):
        assert knob.help and knob.default is not None


@pytest.mark.parametrize("name", METHODS)
def test_what_its_charts_draw_is_measured(name, sft_weights, reward_weights):
    """A chart of a metric that no step gives would stay empty."""
    method = METHODS[name]
    given = inputs(policy=sft_weights, reward_model=reward_weights, pairs=judged_pairs())
    if name == "sft":
        given = inputs()
    config = method.config(**SMALL | OWN.get(name, {"probe_completions": 16}))
    if method.trains == "policy" and name != "sft":
        config = dataclasses.replace(config, reference_refresh=2)  # a chart of KL shows more with it
    found = one_step(trainer_class(method)(config, given))
    drawn = {metric for chart in method.charts for metric in chart.metrics} | {method.headline}
    assert drawn - found.keys() == NOT_EVERY_STEP.get(name, set())


RANKS = """
from dataclasses import replace

from core.methods.grpo import GRPO

METHOD = replace(GRPO, title="Ranks", trainer="rank_method:trainer", summary="GRPO on ranks instead of rewards.")


def trainer(config, inputs):
    from core.trainers.grpo import GRPOTrainer

    class RankTrainer(GRPOTrainer):
        def advantages(self, rewards):
            ranks = rewards.argsort(1).argsort(1).float()
            return ranks - ranks.mean(1, keepdim=True)

    return RankTrainer(config, inputs)
"""


@pytest.fixture
def rank_method(tmp_path, monkeypatch):
    (tmp_path / "rank_method.py").write_text(RANKS)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("rank_method:METHOD", "rank_method:trainer", "rank_method:METHODS", "no_such_module:METHOD"):
        trust(name)
    yield
    sys.modules.pop("rank_method", None)


def test_a_method_of_twenty_lines_from_outside(rank_method, sft_weights):
    assert len(RANKS.strip().splitlines()) <= 20
    method = find_method("rank_method:METHOD")
    assert (method.name, method.title, method.config) == ("rank_method:METHOD", "Ranks", GRPO.config)
    trainer = trainer_class(method)(method.config(**SMALL, group_size=4), inputs(policy=sft_weights))
    one_step(trainer)
    import torch

    ranks = trainer.advantages(torch.tensor([[0.5, -1.0, 7.0, 2.0]]))
    assert ranks.tolist() == [[-0.5, -1.5, 1.5, 0.5]]


def test_what_is_no_method_is_named(rank_method):
    for name, message in (
        ("rank_method:trainer", "rank_method:trainer is no Method but function"),
        ("rank_method:METHODS", "rank_method has no 'METHODS' (did you mean 'METHOD'?)"),
        (
            "no_such_module:METHOD",
            "no_such_module cannot be imported: No module named 'no_such_module'; is its folder in PYTHONPATH?",
        ),
    ):  # fmt: skip
        with pytest.raises(ConfigError) as caught:
            find_method(name)
        assert str(caught.value) == message


def test_an_advantage_function_from_outside(sft_weights, tmp_path, monkeypatch):
    (tmp_path / "my_advantages.py").write_text(
        "def best_only(rewards):\n    return (rewards == rewards.amax(1, keepdim=True)).float()\n\n\n"
        "def total(rewards):\n    return rewards.sum()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("best_only", "total"):
        trust(f"my_advantages:{name}")
    method = METHODS["custom"]
    config = method.config(**SMALL, group_size=4, function="my_advantages:best_only")
    trainer = trainer_class(method)(config, inputs(policy=sft_weights))
    scored, _ = trainer.score(trainer.rollout())
    experience, _ = trainer.estimate(scored)
    groups = scored.scores.view(-1, 4)
    expected = (groups == groups.amax(1, keepdim=True)).float().view(-1, 1)
    assert (experience.advantages == expected).all()
    wrong = dataclasses.replace(config, function="my_advantages:total")
    with pytest.raises(ValueError, match=r"my_advantages:total must return a tensor of shape \(4, 4\), not \(\)"):
        one_step(trainer_class(method)(wrong, inputs(policy=sft_weights)))
    sys.modules.pop("my_advantages", None)
