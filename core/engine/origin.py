"""What a run started from, kept with the run: later labels, deleted parents or pruned checkpoints change nothing."""

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

import torch

from core.preferences.pair import PreferencePair, UnpairedExample
from core.store import tensors as encoding
from core.store.errors import CheckpointBrokenError
from core.trainers.base import TrainerInputs, Weights, under

KIND = "inputs"  # the kind of checkpoint that holds it, always at step 0


@dataclass(frozen=True)
class Origin:
    """The part of a trainer's inputs that comes from elsewhere in the session."""

    policy: Weights | None = None
    reference: Weights | None = None
    reward_model: Weights | None = None
    pairs: tuple[PreferencePair, ...] = ()
    unpaired: tuple[UnpairedExample, ...] = ()

    def complete(self, **others: Any) -> TrainerInputs:
        """The trainer's inputs: these and the ``others`` (task, seed, device, backbone)."""
        return TrainerInputs(**{field.name: getattr(self, field.name) for field in dataclasses.fields(self)}, **others)

    def to_bytes(self) -> bytes:
        """As the content of a checkpoint. Preferences travel as bytes of JSON in a tensor: metadata has a limit."""
        groups = {"policy": self.policy, "reference": self.reference, "reward_model": self.reward_model}
        found = {
            f"{group}.{name}": value for group, weights in groups.items() for name, value in (weights or {}).items()
        }
        preferences = {
            "pairs": [dataclasses.astuple(each) for each in self.pairs],
            "unpaired": [dataclasses.astuple(each) for each in self.unpaired],
        }
        found["preferences"] = torch.frombuffer(bytearray(json.dumps(preferences).encode()), dtype=torch.uint8)
        return encoding.to_bytes(found, {})

    @classmethod
    def from_bytes(cls, data: bytes) -> "Origin":
        """Read :meth:`to_bytes` back. Raises CheckpointBrokenError for anything else."""
        found, _ = encoding.from_bytes(data)
        try:
            preferences = json.loads(bytes(found["preferences"].numpy().tobytes()))
            return cls(
                policy=under(found, "policy") or None,
                reference=under(found, "reference") or None,
                reward_model=under(found, "reward_model") or None,
                pairs=tuple(PreferencePair(*each) for each in preferences["pairs"]),
                unpaired=tuple(UnpairedExample(*each) for each in preferences["unpaired"]),
            )
        except (KeyError, ValueError, TypeError, RecursionError) as error:
            raise CheckpointBrokenError("it does not say what the run was given") from error
