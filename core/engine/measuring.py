"""How near a run has come to the best that is possible, and the plane on which that is seen."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.engine.launching import RefusedError
from core.engine.protocol import BestOfNPlace, Evaluate, Event, Frontier, OptimalPlace, Plane
from core.engine.references import digest
from core.evaluation.best_of_n import KL_COMPLETIONS, BestOf, BestOfNPoint, best_of_n_optimality, best_of_n_point
from core.evaluation.frontier import frontier
from core.evaluation.optimal import LEAST_EFFECTIVE, Optimality, optimality, reference_sample
from core.methods.table import find_method
from core.models.language_model import LanguageModel
from core.rewards.sources import RewardSource

if TYPE_CHECKING:
    from core.engine.policies import Policy
    from core.engine.workspace import Workspace

DEFAULT_BETA = 0.2
MOST_PER_PROMPT = 16_384


@dataclass(frozen=True)
class Judge:
    """The reward that is to be maximised; ``name`` tells its scores from any other's."""

    name: str
    reward: RewardSource
    run: int | None = None
    step: int | None = None

    @property
    def kind(self) -> str:
        return "gold" if self.run is None else "learned"


def judge(workspace: "Workspace", reward_run: int | None) -> Judge:
    """The reward model of ``reward_run``; without, the gold rule, else the newest reward model. Raises RefusedError."""
    gold = workspace.models.gold
    if reward_run is None and gold is not None:
        return Judge("gold", gold)
    found = workspace.reward_model(reward_run)
    if found is None:
        raise RefusedError(f"the task {workspace.task.name} has no gold reward; train a reward model first (rm)")
    (run, step), learned = found
    return Judge(digest(learned.model.state_dict()), learned, run, step)


def measure_optimality(
    workspace: "Workspace", command: Evaluate, policy: "Policy"
) -> Generator[None, None, tuple[dict[str, float], list[str]]]:
    """Values, and notes on what they lack; yields between slices. Raises RefusedError."""
    _check_count("per_prompt", command.per_prompt)
    _check_count("reference_per_prompt", command.reference_per_prompt)
    beta = chosen_beta(workspace, command)
    weights = workspace.reference_weights(command.run)
    if weights is None:
        return {}, [f"run {command.run} began from nothing: there is no reference that its optimality could start at"]
    reference = workspace.models.policy((command.run, -1), weights)
    judged = judge(workspace, command.reward_run)
    samples = workspace.models.reference_samples
    sample = yield from samples.sample(reference, judged.name, judged.reward, command.reference_per_prompt)
    if policy.best_of is None:
        found = yield from optimality(
            policy.model, reference, workspace.task, judged.reward, beta, sample, command.per_prompt
        )  # fmt: skip
    else:
        try:
            found = yield from best_of_n_optimality(policy.best_of, beta, sample)
        except ValueError as error:
            raise RefusedError(str(error)) from error
    return _values(found), _notes(found, judged)


def best_of_n_estimate(
    workspace: "Workspace", model: LanguageModel, best_of: BestOf
) -> Generator[None, None, BestOfNPoint]:
    """Where best of n of a model stands on the probe prompts; yields between draws."""
    per_prompt = max(KL_COMPLETIONS, 2 * best_of.n)
    sample = yield from reference_sample(model, workspace.task, best_of.reward, per_prompt)
    return best_of_n_point(sample.rewards, best_of.n)


def chosen_beta(workspace: "Workspace", command: Evaluate) -> float:
    """The price that is asked for, else the run's own, else 0.2. Raises RefusedError unless it is positive."""
    if command.beta is not None:
        if not 0 < command.beta < float("inf"):
            raise RefusedError(f"β must be a number above 0, not {command.beta:g}")
        return command.beta
    own = workspace.session.runs.get(command.run).config.get("beta")
    return float(own) if own else DEFAULT_BETA


def plane(workspace: "Workspace", command: Frontier) -> Generator[None, None, Event]:
    """What is possible from a run's reference; yields between slices. Raises RefusedError."""
    _check_count("reference_per_prompt", command.reference_per_prompt)
    judged = judge(workspace, command.reward_run)
    reference = _reference(workspace, command.run)
    samples = workspace.models.reference_samples
    sample = yield from samples.sample(reference, judged.name, judged.reward, command.reference_per_prompt)
    found = frontier(sample.rewards)
    return Plane(
        id=command.id, run=command.run, reward=judged.kind, reward_run=judged.run, reward_step=judged.step,
        reference_reward=found.reference_reward, least_effective=LEAST_EFFECTIVE, completions=sample.rewards.numel(),
        optimal=[
            OptimalPlace(
                beta=each.beta, reward=each.reward, kl=each.kl, effective_sample_size=each.effective_sample_size
            )
            for each in found.optimal
        ],
        best_of_n=[
            BestOfNPlace(n=each.n, reward=each.reward, kl=each.kl, kl_bound=each.kl_bound) for each in found.best_of_n
        ],
    )  # fmt: skip


def _reference(workspace: "Workspace", run: int) -> LanguageModel:
    """A run's reference, or its own policy where it began from nothing."""
    if find_method(workspace.session.runs.get(run).method).trains != "policy":
        raise RefusedError(f"run {run} trained a reward model, which writes nothing")
    weights = workspace.reference_weights(run)
    if weights is not None:
        return workspace.models.policy((run, -1), weights)
    step, weights = workspace.weights(run, None)
    return workspace.models.policy((run, step), weights)


def _values(found: Optimality) -> dict[str, float]:
    values = {
        "objective": found.objective, "objective_error": found.objective_error,
        "best_objective": found.best.objective, "best_reward": found.best.reward, "best_kl": found.best.kl,
        "reference_reward": found.reference_reward,
        "effective_sample_size": found.best.effective_sample_size, "beta": found.best.beta,
    }  # fmt: skip
    if found.value is not None:
        values |= {"optimality": found.value, "optimality_error": found.standard_error}
    return values


def _notes(found: Optimality, judged: Judge) -> list[str]:
    by = "the gold rule" if judged.run is None else f"the reward model of run {judged.run}, step {judged.step}"
    notes = [f"optimality at β {found.best.beta:g} by {by}"]
    size = found.best.effective_sample_size
    if size < LEAST_EFFECTIVE:
        notes[0] = (
            f"no optimality at β {found.best.beta:g} by {by}: for one prompt the effective sample size is {size:.1f}, "
            f"and below {LEAST_EFFECTIVE:g} these completions do not tell what the best policy reaches; "
            "a larger β asks for less"
        )
    elif found.value is None:
        notes[0] = f"no optimality at β {found.best.beta:g} by {by}: no policy is better than the reference"
    return notes


def _check_count(name: str, count: int) -> None:
    if not 2 <= count <= MOST_PER_PROMPT:
        raise RefusedError(f"{name} must be from 2 to {MOST_PER_PROMPT}, not {count}")
