"""How a run writes: with its model, or – best of n – by picking from what the model draws."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.config import make
from core.engine.launching import RefusedError, stored_origin
from core.engine.looking import Wanted, write, write_best
from core.evaluation.best_of_n import BestOf, probe_best_of_n
from core.evaluation.probe import probe_rollout
from core.methods.best_of_n import BestOfNConfig
from core.methods.table import find_method
from core.models.language_model import LanguageModel
from core.rewards.sources import LearnedReward, chosen_reward
from core.sampling import Rollout
from core.store.runs import RunRecord
from core.tasks.base import Task

if TYPE_CHECKING:
    from core.engine.workspace import Workspace


@dataclass(frozen=True)
class Policy:
    """A run's policy at a step."""

    step: int
    model: LanguageModel
    best_of: BestOf | None = None

    @property
    def likely(self) -> LanguageModel | None:
        """The model, where it says how likely a text of the policy is; for best of n nothing does."""
        return self.model if self.best_of is None else None

    def write(self, task: Task, wanted: Wanted) -> Generator[None, None, Rollout]:
        """The completions that ``wanted`` asks for; best of n yields between draws."""
        if self.best_of is None:
            return write(self.model, task, wanted)
        return (yield from write_best(self.model, task, wanted, self.best_of))

    def probe(self, task: Task, prompts: tuple[str, ...], count: int, seed: int) -> Rollout:
        """``count`` completions of ``prompts`` in turn at temperature 1."""
        if self.best_of is None:
            return probe_rollout(self.model, task, prompts, count, seed)
        return probe_best_of_n(self.model, task, prompts, count, seed, self.best_of)

    def note(self, whose: str) -> list[str]:
        """What to say of figures that best of n lacks."""
        if self.best_of is None:
            return []
        return [
            f"{whose} is best of {self.best_of.n}, at most {self.best_of.kl_bound:.2f} nats from what it draws from"
        ]


def policy_of(workspace: "Workspace", run: int | None, step: int | None) -> Policy:
    """The policy of a run at a step (None: its latest), of the untrained model for None. Raises RefusedError."""
    if run is None:
        return Policy(0, workspace.models.untrained())
    record = workspace.session.runs.get(run)
    if find_method(record.method).trains != "policy":
        raise RefusedError(f"run {run} trained a reward model, which writes nothing")
    at, weights = workspace.weights(run, step)
    return Policy(at, workspace.models.policy((run, at), weights), best_of(workspace, record))


def reference_of(workspace: "Workspace", run: int) -> LanguageModel | None:
    """The reference that a run began with; None for one that began from nothing."""
    weights = workspace.reference_weights(run)
    return None if weights is None else workspace.models.policy((run, -1), weights)


def best_of(workspace: "Workspace", record: RunRecord) -> BestOf | None:
    """How a best-of-n run picks; None for a run whose policy is its model."""
    config = make(find_method(record.method).config, record.config)
    if not isinstance(config, BestOfNConfig):
        return None
    weights = stored_origin(record.id, workspace.place).reward_model
    learned = None
    if weights is not None:
        learned = LearnedReward(workspace.models.reward((record.id, -1), weights).model, config.ensemble)
    reward = chosen_reward(config.reward, workspace.models.gold, learned, config.learned_weight)
    return BestOf(config.group_size, reward)
