"""What every trainer shares: its inputs, one step at a time, and a state that resumes bit for bit.

Every random number of a run is a function of (run seed, purpose, step) – see :mod:`core.randomness` – so a state
holds no generator: to know the step is to know what will be drawn next.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor, nn

from core import config as knobs
from core.methods.base import TrainingConfig
from core.models.build import BackboneConfig
from core.models.context import check_context
from core.models.language_model import LanguageModel
from core.preferences.pair import PreferencePair, UnpairedExample
from core.tasks.base import Task

Weights = dict[str, Tensor]
Phase = str
C = TypeVar("C", bound=TrainingConfig)


class TrainingDivergedError(RuntimeError):
    """Loss or gradient is NaN or infinite; raised before it touches the weights, which are the last good ones."""


@dataclass(frozen=True)
class TrainerInputs:
    """All that a trainer gets from outside. It never writes to what it is given."""

    task: Task
    seed: int
    device: torch.device
    backbone: BackboneConfig
    policy: Weights | None = None  # weights to start from; None: fresh ones from the seed
    reference: Weights | None = None  # the frozen reference; None: the same as policy
    reward_model: Weights | None = None  # of a reward-model run (an ensemble's members are numbered in the names)
    pairs: tuple[PreferencePair, ...] = ()  # from labels and files, for pairs = labels | file | mixed
    unpaired: tuple[UnpairedExample, ...] = ()


@dataclass(frozen=True)
class TrainerState:
    """Everything that exact resume needs, in two parts: tensors (a safetensors file) and JSON values."""

    tensors: Weights
    values: dict[str, Any]


@dataclass(frozen=True)
class TrainerAlert:
    """Something that a person should see: ``kind`` is kl_alarm, early_stop or pairs."""

    kind: str
    message: str


@dataclass
class Best:
    """The best validation so far and the weights it was measured with."""

    value: float
    step: int
    weights: Weights = field(repr=False)


class Trainer(ABC, Generic[C]):
    """One run of one algorithm.

    A driver calls :meth:`step` until :attr:`finished` and may leave at any yield; between two steps it may read
    :meth:`state`, turn knobs and sample from :meth:`sampler`.
    """

    config_class: ClassVar[type[TrainingConfig]]
    higher_is_better: ClassVar[bool] = True

    def __init__(self, config: C, inputs: TrainerInputs) -> None:
        """Raises ValueError, with what would help, when the method cannot start from its inputs."""
        check_context(inputs.task, inputs.backbone, inputs.pairs)
        self.config = config
        self.inputs = inputs
        self.step_number = 0  # steps done
        self.reference_step = 0  # where the reference stood when it was taken: 0 is what the run began with
        self.completions = 0  # sampled so far; examples seen where nothing is sampled
        self.stop_reason = ""  # why the run ended before its last step
        self.alerts: list[TrainerAlert] = []  # emptied by whoever shows them
        self.best: Best | None = None
        self.stale_validations = 0

    @abstractmethod
    def step(self) -> Generator[Phase, None, dict[str, float]]:
        """One update from the paper; yields the name of each phase done and returns the metrics of the step."""

    @abstractmethod
    def modules(self) -> Mapping[str, nn.Module]:
        """The modules that learn or average, by the prefix of their names in a state."""

    @abstractmethod
    def optimizers(self) -> Mapping[str, torch.optim.Optimizer]:
        """The optimizers, by the prefix of their names in a state."""

    @abstractmethod
    def weights(self) -> Weights:
        """What the run has made so far (the averaged policy, the reward model): the content of a snapshot."""

    @abstractmethod
    def use_weights(self, weights: Weights) -> None:
        """Take ``weights``, as :meth:`weights` gave them, for the run's own."""

    def sampler(self) -> LanguageModel | None:
        """The policy to sample from between steps; None for a run that has none."""
        return None

    def reference_sampler(self) -> LanguageModel | None:
        """The frozen reference, to compare samples with; None for a run that has none."""
        return None

    @property
    def finished(self) -> bool:
        return self.step_number >= self.config.steps or bool(self.stop_reason)

    @property
    def validates(self) -> bool:
        """Is the step in progress one that ends with a validation?"""
        done = self.step_number + 1
        return done % self.config.evaluate_every == 0 or done >= self.config.steps

    def set_knob(self, name: str, value: Any) -> None:
        """Turn a live knob; felt from the next step on. Raises ConfigError."""
        if not knobs.find_knob(type(self.config), name).live:
            raise knobs.ConfigError(f"{name} is fixed once a run has started; fork the run to change it")
        self.config = knobs.change(self.config, name, value)

    def state(self) -> TrainerState:
        """The state after the last whole step; tensors are copies on the CPU."""
        tensors: Weights = {}
        for prefix, module in self.modules().items():
            tensors |= {f"{prefix}.{name}": value for name, value in module.state_dict().items()}
        for prefix, optimizer in self.optimizers().items():
            for index, moments in optimizer.state_dict()["state"].items():
                tensors |= {f"optimizer.{prefix}.{index}.{name}": value for name, value in moments.items()}
        values: dict[str, Any] = {
            "step": self.step_number,
            "completions": self.completions,
            "config": self.config.to_dict(),
            "stop_reason": self.stop_reason,
            "stale_validations": self.stale_validations,
        }
        if self.best is not None:
            tensors |= {f"best.{name}": value for name, value in self.best.weights.items()}
            values |= {"best_value": self.best.value, "best_step": self.best.step}
        extra = self.extra_state()
        tensors |= extra.tensors
        return TrainerState(
            {name: value.detach().cpu().clone() for name, value in tensors.items()}, values | extra.values
        )

    def load_state(self, state: TrainerState) -> None:
        """Stand where ``state`` was taken. Raises KeyError or RuntimeError when it is not of this kind of run."""
        self.config = knobs.make(type(self.config), state.values["config"])
        self.step_number = state.values["step"]
        self.completions = state.values["completions"]
        self.stop_reason = state.values["stop_reason"]
        self.stale_validations = state.values["stale_validations"]
        for prefix, module in self.modules().items():
            module.load_state_dict(under(state.tensors, prefix))
        for prefix, optimizer in self.optimizers().items():
            moments = optimizer_moments(under(state.tensors, f"optimizer.{prefix}"), optimizer)
            optimizer.load_state_dict({**optimizer.state_dict(), "state": moments})
        self.best = None
        if "best_value" in state.values:
            best = {name: value.clone() for name, value in under(state.tensors, "best").items()}
            if shapes(best) != shapes(self.weights()):
                raise KeyError("the best weights are not those of this model")
            self.best = Best(state.values["best_value"], state.values["best_step"], best)
        self.load_extra_state(state)

    def extra_state(self) -> TrainerState:
        """What a trainer keeps beside modules and optimizers (KL coefficient, normaliser, cached pairs)."""
        return TrainerState({}, {})

    def load_extra_state(self, state: TrainerState) -> None:
        """Read back what :meth:`extra_state` gave."""

    def end_step(self, metrics: dict[str, float], validation: float | None = None) -> dict[str, float]:
        """Count the step, remember the best validation, stop early where the knobs say so. Returns ``metrics``."""
        self.step_number += 1
        if validation is not None and not self.stop_reason:  # what stopped a run is not its best
            self._remember(validation)
        if self.finished and self.best is not None and (self.config.keep_best or self.stop_reason):
            self.use_weights(self.best.weights)
        return metrics

    def _remember(self, validation: float) -> None:
        if self.best is None:
            better = not math.isnan(validation)
        else:
            better = validation > self.best.value if self.higher_is_better else validation < self.best.value
        if better:
            self.best = Best(validation, self.step_number, {n: w.detach().clone() for n, w in self.weights().items()})
            self.stale_validations = 0
            return
        self.stale_validations += 1
        if self.config.patience and self.stale_validations >= self.config.patience:
            back = f"; back to the weights of step {self.best.step}" if self.best is not None else ""
            self.stop("early_stop", f"no better validation in {self.stale_validations}{back}")

    def stop(self, kind: str, reason: str) -> None:
        """End the run after this step, back at its best weights, and say why."""
        self.stop_reason = reason
        self.alerts.append(TrainerAlert(kind, reason))


def under(tensors: Weights, prefix: str) -> Weights:
    """The tensors whose names begin with ``prefix.``, without it."""
    return {name[len(prefix) + 1 :]: value for name, value in tensors.items() if name.startswith(f"{prefix}.")}


def shapes(tensors: Weights) -> dict[str, torch.Size]:
    """The shape of each tensor."""
    return {name: value.shape for name, value in tensors.items()}


def optimizer_moments(tensors: Weights, optimizer: torch.optim.Optimizer) -> dict[int, Weights]:
    """AdamW's state by number of the parameter, from ``number.moment`` names.

    Raises KeyError for a parameter that the optimizer has not, or whose moments are not there as they must be: torch
    itself takes anything here, and fails at the next step.
    """
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    moments: dict[int, Weights] = {}
    for name, value in tensors.items():
        index, _, moment = name.partition(".")
        moments.setdefault(int(index), {})[moment] = value.clone()
    for number, found in moments.items():
        if number not in range(len(parameters)):
            raise KeyError(f"the optimizer has no parameter {number}")
        shape = parameters[number].shape
        if shapes(found) != {"step": torch.Size([]), "exp_avg": shape, "exp_avg_sq": shape}:
            raise KeyError(f"the optimizer's moments of parameter {number} are not whole")
    return moments
