"""The plane of reward against KL: the best that is possible at each price β, and best of n."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass

from torch import Tensor

from core.evaluation.best_of_n import BestOfNPoint, best_of_n_point
from core.evaluation.optimal import LEAST_EFFECTIVE, OptimalPoint, optimal_point, reference_sample
from core.models.language_model import LanguageModel
from core.rewards.sources import RewardSource
from core.tasks.base import Task

BETAS = (5.0, 3.0, 2.0, 1.5, 1.0, 0.8, 0.65, 0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.12, 0.1, 0.08, 0.06, 0.05)
SIZES = (2, 4, 8, 16, 32, 64, 128)
DRAWS_PER_SIZE = 16  # completions of a prompt, as multiples of n, that an estimate of best of n wants


@dataclass(frozen=True)
class Frontier:
    """What runs are held against; a run's own path is its metrics ``objective/kl`` and ``gold_reward``.

    No policy lies above the curve through the optimal points. Those of small effective sample size are estimated from
    few completions and lie too low: draw them faint, or not at all.
    """

    reference_reward: float  # at KL 0
    optimal: tuple[OptimalPoint, ...]  # by falling β, hence rising KL
    best_of_n: tuple[BestOfNPoint, ...]  # by rising n

    @property
    def trusted(self) -> tuple[OptimalPoint, ...]:
        """The optimal points whose effective sample size is large enough."""
        return tuple(each for each in self.optimal if each.effective_sample_size >= LEAST_EFFECTIVE)


def frontier(
    rewards: Tensor, betas: Sequence[float] = BETAS, sizes: Sequence[int] = SIZES, log_weights: Tensor | None = None
) -> Frontier:
    """The plane from rewards [P, N] of N completions of each of P prompts.

    They are the reference's own, or – with ``log_weights``, as :func:`optimal_point` takes them – of a mixture. Sizes
    beyond N / 16 are left out, for which the draws are too few, as is best of n for weighted completions: it is a
    matter of ranks among draws.
    """
    plain = log_weights is None
    weights = None if log_weights is None else log_weights.double().softmax(1)
    reference = rewards.double().mean(1) if weights is None else (weights * rewards.double()).sum(1)
    return Frontier(
        reference_reward=reference.mean().item(),
        optimal=tuple(optimal_point(rewards, beta, log_weights) for beta in sorted(betas, reverse=True)),
        best_of_n=tuple(
            best_of_n_point(rewards, n) for n in sorted(sizes) if plain and DRAWS_PER_SIZE * n <= rewards.shape[1]
        ),
    )


def sampled_frontier(
    reference: LanguageModel, task: Task, reward: RewardSource, per_prompt: int = 4096, seed: int = 0,
    betas: Sequence[float] = BETAS, sizes: Sequence[int] = SIZES,
) -> Generator[None, None, Frontier]:  # fmt: skip
    """The plane of a reference for any reward, gold or learned, from fresh completions of the probe prompts."""
    sample = yield from reference_sample(reference, task, reward, per_prompt, seed)
    return frontier(sample.rewards, betas, sizes)
