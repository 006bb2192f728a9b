"""The way through RLHF: what a method needs before it can start, and the key that a newcomer should press next."""

from dataclasses import dataclass, field
from typing import Any

from core.config import make
from core.methods.base import Method
from core.methods.table import METHODS, method_title
from core.pipeline import fitting, needs_reward_model
from rlhf_tui.state import AppState, Run
from rlhf_tui.unknown_methods import is_unknown


@dataclass(frozen=True)
class StartPlan:
    """A run that could start now, or the ``obstacle`` that keeps it from starting."""

    fields: dict[str, Any] = field(default_factory=dict)  # of the Start command
    obstacle: str = ""


def key_of(method: str) -> str:
    """The digit that selects a method on the Train screen; empty from the tenth on."""
    digits = dict(zip(METHODS, "123456789", strict=False))
    return digits.get(method, "")


def changed(method: Method, values: dict[str, Any]) -> dict[str, Any]:
    """The knobs in ``values`` that differ from the method's defaults."""
    defaults = method.config().to_dict()
    return {name: value for name, value in values.items() if name in defaults and defaults[name] != value}


def plan_start(state: AppState, method: Method, draft: dict[str, Any], seed: int | None = None) -> StartPlan:
    """How ``method`` would start now with the knobs of ``draft`` over its defaults."""
    draft = fitting(method, draft, state.gold, state.backbone)
    fields: dict[str, Any] = {"method": method.name, "config": changed(method, draft)}
    if seed is not None:
        fields["seed"] = seed
    if method.starts_from is not None:
        parent = state.parent_for(method)
        if parent is None:
            return StartPlan(obstacle=_missing(state, method, method.starts_from, "starts from"))
        fields["parent"] = parent.run
    if needs_reward_model(make(method.config, changed(method, draft))):
        scorer = state.newest_usable("rm")
        if scorer is None:
            knob = "reward" if "reward" in method.config().to_dict() else "judge"
            instead = f" – or set {knob} to gold" if state.gold else ""
            return StartPlan(obstacle=f"{_missing(state, method, 'rm', 'is scored by')}{instead}")
        fields["reward_run"] = scorer.run
    return StartPlan(fields)


def _missing(state: AppState, method: Method, needed: str, how: str) -> str:
    newest = state.newest(needed)
    title = method_title(needed)
    if newest is not None and newest.active:
        return f"{method.title} {how} {title}, which is still training"
    return f"{method.title} {how} {title}: press {key_of(needed)}, then space, to train that first"


def plan_race(state: AppState, drafts: dict[str, dict[str, Any]]) -> tuple[StartPlan, StartPlan]:
    """PPO and DPO from one reference, judged by the same score: the reward model where there is one, else gold."""
    score = "gold" if state.gold and state.newest_usable("rm") is None else "learned"
    return (
        plan_start(state, METHODS["ppo"], {**drafts.get("ppo", {}), "reward": score}),
        plan_start(state, METHODS["dpo"], {**drafts.get("dpo", {}), "judge": score, "pairs": "online"}),
    )


def next_step(state: AppState, method: Method, draft: dict[str, Any], run: Run | None) -> str:
    """One line: what the person can do now."""
    if state.engine == "none":
        return "Another instance has this session open: here it can be looked at, not changed."
    if state.engine == "dead":
        return "The engine is not running. Press e to start it."
    if run is None:
        plan = plan_start(state, method, draft)
        if plan.obstacle:
            return f"{plan.obstacle}."
        return f"Press space to start {method.title}. {method.summary}"
    if is_unknown(method):
        return method.summary
    match run.state:
        case "running" | "waiting":
            return f"{run.name} is learning. space pauses · arrows on a chart read values · 1–9 look at another method"
        case "pausing":
            return f"{run.name} pauses at the end of this step …"
        case "paused":
            return f"{run.name} is paused. space goes on · s does one step · f forks it here"
        case "interrupted":
            return f"{run.name} was interrupted at step {run.step}. space goes on from its last resume point"
        case "failed":
            return f"{run.name} failed: {run.message or 'see the log'}. r starts it again"
    after = _what_comes_after(state, method)
    others = [each.name for each in state.runs.values() if each.active and each is not run]
    if others:
        return f"{run.name} is {run.state}; {', '.join(others)} still trains: , and . go to other runs"
    return f"{run.name} is {run.state}. {after}r runs it again · R with a new seed · f forks it"


def _what_comes_after(state: AppState, method: Method) -> str:
    """The first method never tried yet, those that continue this one before the others."""
    untried = [
        other for other in METHODS.values() if other.starts_from is not None and state.newest(other.name) is None
    ]
    untried.sort(key=lambda other: other.starts_from != method.name)
    return f"Press {key_of(untried[0].name)} for {untried[0].title} · " if untried else ""
