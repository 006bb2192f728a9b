"""How a person wants to label: knobs, kept in the session."""

import getpass
from dataclasses import dataclass
from typing import Any, ClassVar

from core.config import Config, ConfigError, find_knob, knob, make
from core.preferences.selection import SelectionConfig
from rlhf_tui.labelling.sources import parse_sources

SETTING = "labelling"


@dataclass(frozen=True, kw_only=True)
class LabelOptions(SelectionConfig):
    """Where pairs come from, how they are chosen and asked for, and what is trained on the answers."""

    sources: str = knob(
        "reference policy",
        "where completions come from, blanks between: reference, policy (the newest one that was aligned), a run's "
        "number, 3@120 for a snapshot of it, file:PATH",
    )
    temperature: float = knob(1.0, "of the sampling", minimum=0.05, maximum=10)
    guideline: str = knob("", "what better means here; it stands above each pair and is stored with each label")
    annotator: str = knob("", "who judges, stored with each label; empty: the name you are logged in with")
    ask: str = knob(
        "pairs", "what is asked: which of two, or the best and the worst of four", choices=("pairs", "fours")
    )
    ensemble: int = knob(
        3, "reward models that retraining trains; pairs on which they disagree are asked for", minimum=1, maximum=16
    )
    align: str = knob("ppo", "what aligns the policy after retraining", choices=("ppo", "dpo"))

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_sources(self.sources)


class LabellingForm:
    """What the form of knobs shows."""

    title: ClassVar[str] = "labelling"
    config: ClassVar[type[Config]] = LabelOptions


def read_options(stored: Any) -> LabelOptions:
    """The options as they were kept; whatever is not valid any more is as by default."""
    kept: dict[str, Any] = {}
    for name, value in stored.items() if isinstance(stored, dict) else ():
        try:
            find_knob(LabelOptions, str(name))
            make(LabelOptions, {str(name): value})
        except ConfigError:
            continue
        kept[str(name)] = value
    try:
        return make(LabelOptions, kept)
    except ConfigError:
        return LabelOptions()  # each is right alone, not all together


def login_name() -> str:
    """Who sits here, as the system knows them."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "someone"
