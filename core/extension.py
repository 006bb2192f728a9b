"""Code from outside, named ``module:attribute``: a method, a loss, an advantage function. Torch-free by itself.

The module must be importable: installed, or in a folder named by PYTHONPATH (which the engine inherits). A name that
may come from a session goes through :func:`load_allowed`; :func:`load_attribute` is for names that code gives.
"""

import importlib
from typing import Any

from core import trust
from core.config import ConfigError, nearest


def load_attribute(path: str) -> Any:
    """What ``module:attribute`` names. Raises ConfigError that says what is missing."""
    module_name, name = _parts(path)
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(f"{module_name} cannot be imported: {error}; is its folder in PYTHONPATH?") from error
    except Exception as error:  # whatever a person's own code does while it is read
        raise ConfigError(f"{module_name} cannot be imported: {type(error).__name__}: {error}") from error
    if not hasattr(module, name):
        raise ConfigError(f"{module_name} has no '{name}'{nearest(name, vars(module))}")
    return getattr(module, name)


def load_allowed(path: str) -> Any:
    """:func:`load_attribute` of a name that this person has allowed. Raises UntrustedError of any other one."""
    _parts(path)
    trust.check(path)
    return load_attribute(path)


def _parts(path: str) -> tuple[str, str]:
    """Module and attribute. Raises ConfigError where they are not both there."""
    module_name, _, name = path.partition(":")
    if not (module_name and name):
        raise ConfigError(f"expected module:name, as in my_losses:focal_loss, not '{path}'")
    return module_name, name


def load_function(path: str) -> Any:
    """The function that an allowed ``module:function`` names. Raises ConfigError also where it cannot be called."""
    found = load_allowed(path)
    if not callable(found):
        raise ConfigError(f"{path} is no function but {type(found).__name__}")
    return found
