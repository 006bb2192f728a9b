"""``custom``: a task of your own data, as :mod:`core.tasks.custom_files` read it. Torch-free."""

import functools
import importlib.util
import math
import random
import sys
from collections.abc import Mapping
from typing import Any

from core import trust
from core.config import ConfigError
from core.extension import load_function
from core.preferences.pair import PreferencePair
from core.tasks.base import Demonstration, Task, TaskError


class GoldFunction:
    """A reward ``module:function`` of (prompt, completion); its module is imported when it is first asked."""

    def __init__(self, path: str) -> None:
        self.path = path

    @functools.cached_property
    def function(self) -> Any:
        """Raises ConfigError, also where it is not allowed."""
        return load_function(self.path)

    def __call__(self, prompt: str, completion: str) -> float:
        """Raises TaskError when the function is missing, fails, or gives anything but a finite number."""
        try:
            value = float(self.function(prompt, completion))
        except ConfigError as error:
            raise TaskError(f"gold reward: {error}") from error
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            raise TaskError(f"{self.path} failed on '{prompt[:40]}', '{completion[:40]}': {what}") from error
        if not math.isfinite(value):
            raise TaskError(f"{self.path} gave {value} for '{prompt[:40]}', '{completion[:40]}'")
        return value


def gold_problem(path: str) -> str:
    """Why ``module:function`` cannot be a gold reward, as far as can be told without any import; '' if it can."""
    module, colon, name = path.partition(":")
    if not (colon and module and name):
        return f"expected module:function, as in my_rules:politeness, not '{path}'"
    package = module.partition(".")[0]  # to look for a.b would import a
    if package in sys.stdlib_module_names:
        return f"{module} is a part of Python; name a function of your own"
    try:
        found = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        found = None
    return "" if found else f"there is no module {package}; is its folder in PYTHONPATH?"


def absence(path: str) -> str:
    """Why a session's gold function is not used; '' where it is, or where there is none."""
    if not path:
        return ""
    return gold_problem(path) or ("" if trust.is_trusted(path) else str(trust.UntrustedError(path)))


def custom(seed: int, content: Mapping[str, Any]) -> Task:
    """The task; which prompts are held out depends on ``seed`` unless the data names them.

    Without its gold function it opens all the same, and a note says so.
    """
    dice = random.Random(seed)
    demonstrations = [Demonstration(*each) for each in content["demonstrations"]]
    prompts, share = content["prompts"], content["held_out_share"]
    held_out = set(content["held_out_prompts"])
    if not held_out and len(prompts) > 1:
        held_out = set(dice.sample(prompts, max(1, min(len(prompts) - 1, round(share * len(prompts))))))
    known = [each for each in demonstrations if each.prompt not in held_out]
    if not 0 < len(known) < len(demonstrations):  # prompts do not divide them
        dice.shuffle(demonstrations)
        known = demonstrations[max(1, round(share * len(demonstrations))) :]
    kept = set(known)
    problem = absence(str(content["gold"] or ""))
    return Task(
        name="custom", title=content["title"], alphabet=content["alphabet"],
        prompts=tuple(each for each in prompts if each not in held_out), held_out_prompts=tuple(sorted(held_out)),
        demonstrations=tuple(known),
        held_out_demonstrations=tuple(each for each in demonstrations if each not in kept),
        gold=GoldFunction(content["gold"]) if content["gold"] and not problem else None,
        pairs=tuple(PreferencePair(*each) for each in content["pairs"]),
        max_new_tokens=content["max_new_tokens"], guideline=content["guideline"],
        notes=(*content["notes"], *([f"no gold reward: {problem}"] if problem else [])),
    )  # fmt: skip
