"""The order of things: which run a method starts from, and the stages of the whole pipeline. Torch-free.

App and command line share it, so that both train the same thing under the same name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from core.config import ConfigError, find_knob, knobs, make, nearest
from core.methods.base import Method, TrainingConfig
from core.methods.table import METHODS, find_method

FEW_PAIRS = {"pairs": "automatic", "pair_count": 300, "beta": 0.01, "learning_rate": 1e-3, "steps": 300}
PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "full": {},
    "quick": {
        "sft": {"steps": 200},
        "rm": {"steps": 120, "pair_count": 1000},
        "ppo": {"steps": 40},
        "dpo": {"steps": 60},
    },
    "collapse": {"dpo": FEW_PAIRS},
    "diverse": {"dpo": {**FEW_PAIRS, "sft_weight": 0.1}},
}
"""Knobs to begin with: ``full`` is every method's default, ``quick`` a first look; ``collapse`` shows how DPO on a few
fixed pairs with a small β loses its diversity, ``diverse`` how SFT beside it keeps it."""

PIPELINE: dict[str, dict[str, Any]] = {
    "sft": {"steps": 320},
    "rm": {"steps": 150},
    "ppo": {"reward": "learned", "steps": 60},
    "dpo": {"pairs": "online", "judge": "learned", "steps": 45},
}
"""The stages of ``train all``, in order: PPO maximises the learned reward, so that the gold rule can audit it, and
online DPO stands beside it. Shorter than each method's default: the whole is to be seen in a minute and a half."""


@dataclass(frozen=True)
class Stage:
    """One run to do: a method with the knobs that differ from their defaults."""

    method: Method
    config: dict[str, Any] = field(default_factory=dict)

    @property
    def full_config(self) -> TrainingConfig:
        return make(self.method.config, self.config)


class RunLike(Protocol):
    """What is asked of a run here; the store's records and the engine's reports both have it."""

    @property
    def method(self) -> str: ...
    @property
    def state(self) -> str: ...


def stage(method: str, preset: str = "full", config: Mapping[str, Any] | None = None) -> Stage:
    """A method under a preset with knobs of one's own. Raises ConfigError for what cannot be."""
    if preset not in PRESETS:
        raise ConfigError(f"no preset is called '{preset}'{nearest(preset, PRESETS)}; there are {', '.join(PRESETS)}")
    found = find_method(method)
    made = Stage(found, {**PRESETS[preset].get(method, {}), **(config or {})})
    made.full_config  # noqa: B018 - checks the knobs
    return made


def pipeline(preset: str = "full", settings: Mapping[str, Mapping[str, Any]] | None = None) -> tuple[Stage, ...]:
    """The stages of ``train all``; ``settings`` are knobs by method. Raises ConfigError."""
    chosen = settings or {}
    for method in chosen:
        if method not in PIPELINE:
            raise ConfigError(f"'{method}' is no stage of the pipeline{nearest(method, PIPELINE)}")
    shorter = PRESETS.get(preset, {})
    return tuple(
        stage(name, preset, {**fixed, **shorter.get(name, {}), **chosen.get(name, {})})
        for name, fixed in PIPELINE.items()
    )


def parse_setting(text: str) -> tuple[str, str, Any]:
    """``ppo.learning_rate=1e-3`` as (method, knob, value). Raises ConfigError that names the nearest word."""
    path, equals, value = text.partition("=")
    method, dot, name = path.partition(".")
    if not equals or not dot:
        raise ConfigError(f"expected METHOD.KNOB=VALUE, as in ppo.learning_rate=1e-3, not '{text}'")
    return method, name, find_knob(find_method(method).config, name).parse(value)


def needs_reward_model(config: TrainingConfig) -> bool:
    """Does a run with this configuration ask a reward model for scores?"""
    if getattr(config, "reward", "gold") != "gold":
        return True
    return getattr(config, "pairs", None) == "online" and getattr(config, "judge", None) == "learned"


TRANSFORMER_PEAKS = {"sft": 1e-3, "reward model": 5e-4, "by reward": 2e-4, "by preference": 5e-5}
"""A transformer's highest peak learning rates: of SFT, a reward model, a policy that goes by a reward or by pairs.

The defaults are an LSTM's. At those, a transformer learns the demonstrations of ``words`` by heart (validation loss
1.66 instead of 1.53), its reward model forgets what SFT has taught (0.72 of fresh pairs ranked right instead of 0.80),
and PPO and DPO gain less at a higher KL (``tests/benchmarks/learning.py --backbone transformer``).
"""


def _kind(method: Method, names: set[str]) -> str:
    """The key of :data:`TRANSFORMER_PEAKS`."""
    if method.starts_from is None:
        return "sft"
    if method.trains != "policy":
        return "reward model"
    return "by reward" if "reward" in names else "by preference"


def fitting(method: Method, config: Mapping[str, Any], gold: bool, backbone: str = "lstm") -> dict[str, Any]:
    """Knobs over a method's defaults, as they can be in a session.

    Without a gold rule, the learned reward scores. A transformer learns slower than an LSTM.
    """
    names = {each.name for each in knobs(method.config)}
    fitted = dict(config)
    if not gold and "reward" in names and config.get("reward", "gold") == "gold":
        fitted["reward"] = "learned"
    if backbone == "transformer":
        peak, default = TRANSFORMER_PEAKS[_kind(method, names)], find_knob(method.config, "learning_rate").default
        if default > peak:
            fitted.setdefault("learning_rate", peak)
            if "critic_learning_rate" in names and config.get("critic", "policy") == "policy":
                fitted.setdefault("critic_learning_rate", default)  # its head begins from nothing, as an LSTM's does
    return fitted


R = TypeVar("R", bound=RunLike)


def newest_done(runs: Sequence[R], method: str) -> R | None:
    """The newest finished run of a method in ``runs`` (oldest first), or None."""
    return next((each for each in reversed(runs) if each.method == method and each.state in ("done", "stopped")), None)


def missing_before(wanted: Stage, runs: Sequence[RunLike], preset: str = "full") -> tuple[Stage, ...]:
    """What must be trained before ``wanted`` can start, in order, given the ``runs`` that there are."""
    first: list[Stage] = []
    needed = [wanted.method.starts_from] if wanted.method.starts_from else []
    if needs_reward_model(wanted.full_config):
        needed.append("rm")
    for name in needed:
        if newest_done(runs, name) is None and all(each.method.name != name for each in first):
            parent = stage(name, preset)
            first += [each for each in missing_before(parent, runs, preset) if each not in first]
            first.append(parent)
    return tuple(first)


__all__ = [
    "METHODS", "PIPELINE", "PRESETS", "RunLike", "Stage", "fitting", "missing_before", "needs_reward_model",
    "newest_done", "parse_setting", "pipeline", "stage",
]  # fmt: skip
