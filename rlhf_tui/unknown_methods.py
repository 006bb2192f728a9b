"""What stands in for the method of a run that this process does not know: one from outside whose module is missing."""

import dataclasses
import functools
import keyword
from collections.abc import Iterable
from typing import cast

from core.config import Config, ConfigError, knob
from core.methods.alignment import GOLD_AND_LEARNED, POLICY_ENTROPY, SEQUENCE_KL
from core.methods.base import Chart, Method, TrainingConfig
from core.methods.table import find_method, known_method
from rlhf_tui.state import Run

MOST_CHARTS = 9
_SHARED = (GOLD_AND_LEARNED, SEQUENCE_KL, POLICY_ENTROPY)  # what the core itself measures, so it means the same here

Setting = tuple[str, bool | int | float | str]


def method_of(run: Run) -> Method:
    """The method of ``run``, or what can be said of it where there is no such method here: see :func:`is_unknown`."""
    return known_method(run.method) or _stand_in(run)


def is_unknown(method: Method) -> bool:
    """Is it what :func:`method_of` made up, so that no such run can be started or gone on with?"""
    return not method.trainer


def _stand_in(run: Run) -> Method:
    try:
        why = find_method(run.method).summary  # installed or allowed a moment ago
    except ConfigError as error:
        why = str(error)
    return Method(
        name=run.method, title=run.method, config=_recorded(tuple(filter(_can_be_shown, run.config.items()))),
        trainer="", trains="policy", starts_from=None,
        summary=f"Only to be looked at: {why}",
        when="When it can be imported and is allowed again, the run can go on.",
        pitfalls="What its own numbers mean, only the method itself can say.",
        charts=_charts(run.series.names), headline="gold_reward",
    )  # fmt: skip


def _charts(names: Iterable[str]) -> tuple[Chart, ...]:
    """What the core measures as always, then a chart for each number of the method's own."""
    measured = set(names)
    shared = [each for each in _SHARED if measured & set(each.metrics)]
    told = {name for each in shared for name in each.metrics}
    own = [
        Chart(name, (name,), f"What the method recorded as {name}.", "Its meaning is not known here.")
        for name in sorted(measured - told)
    ]
    return (*shared, *own)[:MOST_CHARTS]


def _can_be_shown(setting: tuple[str, object]) -> bool:
    name, value = setting
    usable = name.isidentifier() and not keyword.iskeyword(name) and not hasattr(Config, name)
    return usable and isinstance(value, bool | int | float | str)


@functools.lru_cache(maxsize=64)
def _recorded(settings: tuple[Setting, ...]) -> type[TrainingConfig]:
    """The values that the run was made with, as the form shows knobs; the form lets none of them be turned."""
    fields = [(name, type(value), knob(value, "as the run was made")) for name, value in settings]
    made = dataclasses.make_dataclass("Recorded", fields, bases=(Config,), frozen=True, kw_only=True)
    return cast(type[TrainingConfig], made)
