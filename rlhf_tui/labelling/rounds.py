"""The round of online RLHF: label → retrain → align → sample again. Each stage is a key, each training a run."""

from collections.abc import Sequence
from dataclasses import dataclass

from core.methods.table import METHODS, trains_policy
from core.preferences.conversion import decided_pairs, for_measuring, for_training, pairs_with_ties
from core.preferences.labels import LabelRecord
from core.preferences.quality import ModelChange, Scores
from rlhf_tui.flow import StartPlan, plan_start
from rlhf_tui.labelling.options import LabelOptions
from rlhf_tui.state import AppState, Run

FEWEST_PAIRS = 4  # that a reward model trains on
FEWEST_MEASURED = 5  # held-out labels below which accuracy is measured on all
ENOUGH_NEW = 25  # labels after which retraining is worth its time


@dataclass(frozen=True)
class Stage:
    """A step of the round; ``state`` says how it stands, the current one is what a person would do now."""

    key: str
    name: str
    state: str
    current: bool = False


def label_count(labels: Sequence[LabelRecord]) -> int:
    """How many labels a reward model would learn from."""
    return len(pairs_with_ties(for_training(labels)))


def new_labels(state: AppState, labels: Sequence[LabelRecord]) -> int:
    """How many more labels there are than the newest reward model learned from."""
    return label_count(labels) - _learned_from(newest_reward(state))


def newest_reward(state: AppState) -> Run | None:
    """The newest reward model that learned from labels and did not fail."""
    trained = [run for run in state.runs.values() if run.method == "rm" and run.state != "failed"]
    return max((run for run in trained if _learned_from(run)), key=lambda run: run.run, default=None)


def _learned_from(run: Run | None) -> int:
    counts = run.inputs.get("pair_counts") if run is not None else None
    found = counts.get("labels", 0) if isinstance(counts, dict) else 0
    return found if isinstance(found, int) else 0


def round_number(state: AppState) -> int:
    """Counts the reward models that learned from labels; the first round is 1."""
    return 1 + sum(run.method == "rm" and bool(_learned_from(run)) for run in state.runs.values())


def stages(state: AppState, labels: Sequence[LabelRecord]) -> list[Stage]:
    """The stages of the round as they stand."""
    reward, policy, reference = newest_reward(state), _aligned(state), state.newest("sft")
    if reference is None or not reference.usable:
        training = reference is not None and reference.active
        return [
            Stage("t", "train SFT", _progress(reference) if training else "first of all", not training),
            Stage("", "label", "then"), Stage("", "retrain", ""), Stage("", "align", ""),
        ]  # fmt: skip
    fresh = new_labels(state, labels)
    behind = reward is not None and (policy is None or policy.run < reward.run)  # the policy, behind the reward model
    due = behind and reward is not None and not reward.active
    now = "retrain" if fresh >= ENOUGH_NEW else "align" if behind else "label"
    if (reward is not None and reward.active) or (policy is not None and policy.active):
        now = "label"  # while it trains
    return [
        Stage("1–7", "label", f"{fresh} new", now == "label"),
        Stage("t", "retrain", _progress(reward), now == "retrain"),
        Stage("p", "align", "due" if due else _progress(policy), now == "align"),
        Stage("c", "sample again", ""),
    ]


def _aligned(state: AppState) -> Run | None:
    runs = [run for run in state.runs.values() if trains_policy(run.method)]
    return max((run for run in runs if run.method != "sft"), key=lambda run: run.run, default=None)


def _progress(run: Run | None) -> str:
    if run is None:
        return ""
    return f"{run.step}/{run.steps}" if run.active else run.state


def plan_retrain(state: AppState, labels: Sequence[LabelRecord], options: LabelOptions) -> StartPlan:
    """SFT where there is none yet, else a reward model on the labels; no second one while the first still trains."""
    if state.newest_usable("sft") is None:
        return _unless_active(state.newest("sft")) or plan_start(state, METHODS["sft"], {})
    waiting = _unless_active(newest_reward(state))
    if waiting is not None:
        return waiting
    count = label_count(labels)
    if count < FEWEST_PAIRS:
        return StartPlan(obstacle=f"label at least {FEWEST_PAIRS} pairs first: there are {count} to learn from")
    plan = plan_start(state, METHODS["rm"], {"pairs": "labels", "ensemble": options.ensemble})
    if not plan.obstacle:
        plan.fields["title"] = f"Reward model, round {round_number(state)}"
    return plan


def _unless_active(run: Run | None) -> StartPlan | None:
    """The obstacle that a run which still trains is: a key pressed twice must not start two."""
    if run is None or not run.active:
        return None
    return StartPlan(obstacle=f"{run.name} is still training: {run.step} of {run.steps} steps")


def plan_align(state: AppState, labels: Sequence[LabelRecord], options: LabelOptions) -> StartPlan:
    """PPO on the newest reward model, or DPO straight on the labels; both from the reference."""
    waiting = _unless_active(_aligned(state))
    if waiting is not None:
        return waiting
    if options.align == "dpo":
        count = len(decided_pairs(for_training(labels)))
        if count < FEWEST_PAIRS:
            return StartPlan(obstacle=f"label at least {FEWEST_PAIRS} pairs first: there are {count} decided ones")
        plan = plan_start(state, METHODS["dpo"], {"pairs": "labels"})
    else:
        waiting = _unless_active(newest_reward(state))
        plan = waiting or plan_start(state, METHODS["ppo"], {"reward": "learned"})
    if not plan.obstacle:
        plan.fields["title"] = f"{METHODS[plan.fields['method']].title}, round {max(1, round_number(state) - 1)}"
    return plan


def measured_labels(labels: Sequence[LabelRecord], most: int) -> tuple[list[LabelRecord], bool]:
    """The newest decided labels that a reward model is measured on, and whether none of them was trained on."""
    decided = [each for each in labels if each.answer.decided]
    held_out = for_measuring(decided)
    honest = len(held_out) >= FEWEST_MEASURED
    return (held_out if honest else decided)[-most:], honest


def effect_line(change: ModelChange, honest: bool, after: Scores) -> str:
    """``accuracy 71% → 78% on 45 labels; 6 pairs flipped …: 'crane' now above 'drsk'``."""
    line = change.line()
    if not honest:
        line += " (it learned from them: too few are held out yet)"
    examples = []
    for each in change.flipped[:2]:
        left, right = after[each.id]
        if each.right is not None:
            better, worse = (each.left, each.right) if left > right else (each.right, each.left)
            examples.append(f"'{better.text[:20]}' now above '{worse.text[:20]}'")
    return f"{line}: {', '.join(examples)}" if examples else line


def first_accuracy(labels: Sequence[LabelRecord], honest: bool, after: Scores) -> str:
    """What the first reward model gets right, when there is none to compare it with."""
    decided = [each for each in labels if each.answer.decided and each.id in after]
    right = sum((after[each.id][0] > after[each.id][1]) == each.answer.prefers_left for each in decided)
    if not decided:
        return "no decided labels to measure the reward model on"
    which = "held-out labels" if honest else "labels (it learned from them: too few are held out yet)"
    return f"right on {right} of {len(decided)} {which}"
