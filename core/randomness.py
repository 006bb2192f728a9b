"""Random numbers without global state: every draw is a function of a seed, a purpose and a step.

A run therefore keeps no generator between steps. Resuming at step n draws what an uninterrupted run would have
drawn, a fork shares its parent's draws, and one purpose (shuffling) never shifts another (sampling).
"""

import hashlib

import torch


def derived_seed(seed: int, purpose: str, step: int = 0) -> int:
    """A 63-bit seed that depends on all three arguments and on nothing else."""
    digest = hashlib.blake2b(f"{seed}/{purpose}/{step}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def generator_for(seed: int, purpose: str, step: int = 0) -> torch.Generator:
    """A CPU generator seeded by :func:`derived_seed`; the same numbers whatever device the model is on."""
    return torch.Generator().manual_seed(derived_seed(seed, purpose, step))
