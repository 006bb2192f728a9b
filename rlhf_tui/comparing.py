"""What the Compare screen compares: two sides, how they are sampled, which snapshots a run has. Draws nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from core.config import Config, ConfigError, knob, make
from core.methods.table import find_method, trains_policy
from core.tasks.base import Task
from rlhf_tui.state import AppState, Run

if TYPE_CHECKING:
    from core.store import Session

SHOWN = 8  # samples side by side, unless asked otherwise
MEASURED = 160  # completions a side behind averages and bars
FINAL_ROWS = 10  # the final reward and KL of a run are means over so many of its last measurements

REWARD, LEARNED, KL = "gold_reward", "learned_reward", "objective/kl"


@dataclass(frozen=True, kw_only=True)
class Sampling(Config):
    """How both sides write; typed as ``name=value``."""

    temperature: float = knob(0.8, "of the softmax over letters", above=0, maximum=10)
    top_k: int = knob(0, "only the k likeliest letters; 0: all", minimum=0, maximum=100_000)
    top_p: float = knob(1.0, "only the likeliest letters that have this mass together", above=0, maximum=1)
    seed: int = knob(0, "the same seed writes the same texts", minimum=0, maximum=2**53)
    count: int = knob(SHOWN, "samples shown", minimum=1, maximum=64)


@dataclass(frozen=True)
class Side:
    """A run at a step. ``run`` None is the untrained model; ``step`` None is where the run stands now."""

    run: int | None = None
    step: int | None = None


@dataclass(frozen=True)
class Question:
    """All that decides what both sides write. ``prompt`` empty: one sample of each of several prompts of the task."""

    left: Side = Side()
    right: Side = Side()
    prompt: str = ""
    sampling: Sampling = Sampling()

    def fields(self, task: Task) -> dict[str, Any]:
        """Of the Sample command for the completions shown."""
        if self.prompt:
            return self._fields([self.prompt], self.sampling.count)
        prompts = mixed_prompts(task, self.sampling.count)
        return self._fields(prompts, -(-self.sampling.count // len(prompts)))

    def measured_fields(self, task: Task) -> dict[str, Any]:
        """Of the Sample command for the completions that averages and bars are made of; those shown are among them."""
        prompts = [self.prompt] if self.prompt else mixed_prompts(task, 20)
        return self._fields(prompts, max(1, MEASURED // len(prompts)))

    def _fields(self, prompts: list[str], count: int) -> dict[str, Any]:
        how = self.sampling
        return {
            "run": self.right.run, "step": self.right.step, "reference": self.left.run or 0,
            "reference_step": self.left.step, "prompts": prompts, "count": count, "seed": how.seed,
            "temperature": how.temperature, "top_k": how.top_k, "top_p": how.top_p,
        }  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        return {
            "left": [self.left.run, self.left.step], "right": [self.right.run, self.right.step],
            "prompt": self.prompt, "sampling": self.sampling.to_dict(),
        }  # fmt: skip

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any], state: AppState) -> "Question | None":
        """What :meth:`to_dict` gave; None where it means nothing, or names runs that are gone."""
        try:
            sides = [Side(*saved[name]) for name in ("left", "right")]
            sampling = make(Sampling, saved["sampling"])
            prompt = saved["prompt"]
        except (KeyError, TypeError, ConfigError):
            return None
        known = all(
            (side.run is None or (type(side.run) is int and side.run in state.runs and writes(state.runs[side.run])))
            and (side.step is None or type(side.step) is int)
            for side in sides
        )
        return cls(sides[0], sides[1], prompt, sampling) if known and isinstance(prompt, str) else None


def mixed_prompts(task: Task, count: int) -> list[str]:
    """So many of the task's probe prompts (fewer where it has fewer): trained and held-out ones in turn."""
    half = [task.prompts[:10], task.held_out_prompts[:10]]
    turns = [prompt for pair in zip(*half, strict=False) for prompt in pair]
    rest = [prompt for prompt in task.probe_prompts if prompt not in turns]
    return [*turns, *rest][:count]


def writes(run: Run) -> bool:
    """Has the run a policy?"""
    return trains_policy(run.method)


def first_question(state: AppState) -> Question:
    """The newest aligned policy beside its reference; the newest policy beside the untrained model without one."""
    policies = sorted((run for run in state.runs.values() if writes(run)), key=lambda run: run.run)
    aligned = [run for run in policies if find_method(run.method).starts_from is not None]
    if aligned:
        return Question(Side(reference_of(state, aligned[-1])), Side(aligned[-1].run))
    return Question(Side(), Side(policies[-1].run if policies else None))


def reference_of(state: AppState, run: Run) -> int | None:
    """The run whose policy ``run`` is held to: its parent; of a fork, the parent of what was forked."""
    seen = {run.run}
    parent = state.runs.get(run.parent) if run.parent is not None else None
    while parent is not None and parent.method == run.method and parent.run not in seen:
        seen.add(parent.run)
        parent = state.runs.get(parent.parent) if parent.parent is not None else None
    return None if parent is None or parent.method == run.method else parent.run


def snapshot_steps(session: "Session", run: int | None) -> list[int]:
    """The steps of a run whose weights were kept, rising. Raises StoreError."""
    if run is None:
        return []
    return sorted({each.step for each in session.checkpoints.list(run, "snapshot")})


def scrubbed(side: Side, steps: list[int], now: int, distance: int) -> Side:
    """``side`` so many snapshots on; the last place is where the run stands ``now`` (step None)."""
    earlier = [step for step in steps if step < now]
    places: list[int | None] = [*earlier, None]
    wanted = side.step
    if wanted is None or wanted >= now:
        at = len(earlier)
    else:
        at = min(range(len(earlier)), key=lambda index: abs(earlier[index] - wanted), default=0)
    return replace(side, step=places[min(max(at + distance, 0), len(places) - 1)])


@dataclass(frozen=True)
class Outcome:
    """What a run came to, over its last measurements; None where it was not measured."""

    gold_reward: float | None = None
    learned_reward: float | None = None
    kl: float | None = None


def outcome(session: "Session", run: Run) -> Outcome:
    """Read the end of a run's metrics. Raises StoreError."""
    last = session.metrics.last_step(run.run)
    table = session.metrics.read(run.run, (REWARD, LEARNED, KL), after_step=last - 6 * FINAL_ROWS)

    def mean(name: str) -> float | None:
        column = table.values.get(name)
        known = [] if column is None else [float(value) for value in column if value == value][-FINAL_ROWS:]
        return sum(known) / len(known) if known else None

    return Outcome(mean(REWARD), mean(LEARNED), mean(KL))
