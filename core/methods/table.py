"""The one table of methods."""

from core.config import ConfigError, nearest
from core.methods.base import Method
from core.methods.dpo import DPO
from core.methods.ppo import PPO
from core.methods.reward import REWARD
from core.methods.sft import SFT

METHODS: dict[str, Method] = {each.name: each for each in (SFT, REWARD, PPO, DPO)}


def find_method(name: str) -> Method:
    """The method called ``name``. Raises ConfigError that names the nearest one."""
    if name not in METHODS:
        raise ConfigError(f"no method is called '{name}'{nearest(name, METHODS)}; there are {', '.join(METHODS)}")
    return METHODS[name]
