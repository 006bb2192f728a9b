"""The one table of methods: a new one is an entry here, or ``module:attribute`` from outside."""

import dataclasses
import functools

from core import trust
from core.config import ConfigError, nearest
from core.extension import load_allowed
from core.methods.a2c import A2C
from core.methods.base import Method
from core.methods.best_of_n import BEST_OF_N
from core.methods.custom import CUSTOM
from core.methods.dpo import DPO
from core.methods.grpo import GRPO, GSPO
from core.methods.kto import KTO
from core.methods.ppo import PPO
from core.methods.raft import RAFT
from core.methods.reinforce import REINFORCE
from core.methods.reward import REWARD
from core.methods.rloo import RLOO
from core.methods.sft import SFT
from core.methods.trpo import TRPO

METHODS: dict[str, Method] = {
    each.name: each
    for each in (SFT, REWARD, PPO, DPO, GRPO, RLOO, KTO, REINFORCE, A2C, TRPO, GSPO, RAFT, BEST_OF_N, CUSTOM)
}


def find_method(name: str) -> Method:
    """The method called ``name``, or the one that a name of the form ``module:attribute`` stands for.

    A method from outside keeps that form as its name, so that a saved run finds it again. Raises ConfigError, and
    UntrustedError for a method from outside that this person has not allowed.
    """
    if ":" in name:
        found = load_allowed(name)
        if not isinstance(found, Method):
            raise ConfigError(f"{name} is no Method but {type(found).__name__}")
        return dataclasses.replace(found, name=name)
    if name not in METHODS:
        raise ConfigError(f"no method is called '{name}'{nearest(name, METHODS)}; there are {', '.join(METHODS)}")
    return METHODS[name]


def known_method(name: str) -> Method | None:
    """:func:`find_method` for the run of a session; None where its method is not to be found any more."""
    if ":" not in name:
        return METHODS.get(name)
    return _from_outside(name) if trust.is_trusted(name) else None


@functools.cache
def _from_outside(name: str) -> Method | None:
    """Looked up once: who draws a list of runs asks often."""
    try:
        return find_method(name)
    except ConfigError:
        return None


def trains_policy(name: str) -> bool:
    """Has a run of this method a policy, as far as the method is known?"""
    found = known_method(name)
    return found is not None and found.trains == "policy"


def method_title(name: str) -> str:
    """What a person reads instead of a method's name."""
    found = known_method(name)
    return name if found is None else found.title
