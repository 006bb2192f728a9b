"""The command that the learning benchmarks share."""

import json
from pathlib import Path

import pytest
from over_seeds import Figures, means, run

from core.models.config import BackboneConfig


def test_each_experiment_of_each_seed_is_a_line_and_the_means_come_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[tuple[int, str]] = []

    def bench(seed: int, backbone: BackboneConfig) -> int:
        made.append((seed, backbone.kind))
        return seed

    def twice(seed: int) -> Figures:
        return {"twice": 2.0 * seed, **({"only once": 7.0} if seed == 3 else {})}

    out = tmp_path / "out.jsonl"
    words = ["twice", "--seeds", "1", "3", "--backbone", "transformer", "--out", str(out)]
    run("about", {"twice": twice, "never": lambda _: {}}, bench, words)
    assert made == [(1, "transformer"), (3, "transformer")]
    lines = [{"experiment": "twice", "seed": 1, "twice": 2.0},
             {"experiment": "twice", "seed": 3, "twice": 6.0, "only once": 7.0}]  # fmt: skip
    assert [json.loads(line) for line in out.read_text().splitlines()] == lines
    printed = capsys.readouterr().out.splitlines()
    assert [json.loads(line) for line in printed[:2]] == lines
    assert printed[2].split() == ["twice", "twice", "4.000", "only", "once", "7.000"]


def test_an_experiment_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run("about", {"a": lambda _: {}}, lambda seed, _: seed, ["b"])
    assert "no experiment is called b" in capsys.readouterr().err


def test_a_mean_is_of_the_seeds_that_have_the_figure() -> None:
    assert means([{"a": 1.0}, {"a": 2.0, "b": 5.0}]) == {"a": 1.5, "b": 5.0}
