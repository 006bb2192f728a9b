"""Tensors as bytes: the safetensors format, with JSON values in its metadata. No pickle, so loading runs no code."""

import json
from collections.abc import Mapping
from typing import Any

import safetensors
from safetensors.torch import load, save
from torch import Tensor

from core.store.errors import CheckpointBrokenError

_VALUES = "values"


def to_bytes(tensors: Mapping[str, Tensor], values: Mapping[str, Any] | None = None) -> bytes:
    """``tensors`` (any shapes; stored contiguous, on the CPU) and JSON ``values`` as one safetensors file.

    Each tensor is written for itself: two names for the same storage come back as two equal tensors. The same input
    gives the same bytes. NaN and infinities in ``values`` survive.
    """
    owned = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    return save(owned, {_VALUES: json.dumps(dict(values or {}), ensure_ascii=True)})


def from_bytes(data: bytes) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What :func:`to_bytes` was given, tensors on the CPU. Raises CheckpointBrokenError for any other bytes."""
    try:
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])
        values = json.loads(header["__metadata__"][_VALUES])
        if not isinstance(values, dict):
            raise TypeError("values are not an object")
        return load(data), values
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise CheckpointBrokenError(f"not a checkpoint: {' '.join(str(error).split())[:200]}") from None
