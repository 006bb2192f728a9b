"""The gold rule of the ``arithmetic`` task: an answer that anyone can check. Torch-free."""

import re

RIGHT, OFF_BY_ONE, SCALE = 10.0, 5.0, 10.0
_SUM = re.compile(r"(0|[1-9][0-9]?)\+(0|[1-9][0-9]?)=")
_FORM = re.compile(r"<([0-9+]*)>\[(0|[1-9][0-9]{0,3})\]")


def working(a: int, b: int) -> str:
    """The one right way to work out a + b: tens and ones apart, or by way of ten, as children learn it.

    47 + 38 is ``70+15``, 7 + 8 is ``7+3+5``, 2 + 3 is ``2+3``.
    """
    if a > 9 or b > 9:
        return f"{a // 10 * 10 + b // 10 * 10}+{a % 10 + b % 10}"
    return f"{a}+{10 - a}+{a + b - 10}" if a + b > 10 else f"{a}+{b}"


def numbers(prompt: str) -> tuple[int, int] | None:
    """The two numbers of a prompt like ``7+8=``, or None for any other text."""
    found = _SUM.fullmatch(prompt)
    return (int(found[1]), int(found[2])) if found else None


def is_right(prompt: str, completion: str) -> bool:
    """Does the completion give the sum in brackets, behind some working between markers?"""
    asked, form = numbers(prompt), _FORM.fullmatch(completion)
    return asked is not None and form is not None and int(form[2]) == sum(asked)


def arithmetic_rule(prompt: str, completion: str, working_reward: float = 2.0, scaled: bool = False) -> float:
    """10 for the right sum, 5 for one beside it, and ``working_reward`` for right working, whatever the sum.

    0 without the form ``<working>[answer]`` and nothing else. ``scaled`` divides by 10, so that rewards have the size
    that the default β expects.
    """
    asked, form = numbers(prompt), _FORM.fullmatch(completion)
    if asked is None or form is None:
        return 0.0
    reward = {0: RIGHT, 1: OFF_BY_ONE}.get(abs(int(form[2]) - sum(asked)), 0.0)
    if form[1] == working(*asked):
        reward += working_reward
    return reward / SCALE if scaled else reward
