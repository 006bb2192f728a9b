"""Which code outside the program may be imported: what this person has named on this machine. Torch-free.

A session says ``module:function`` where its gold reward, its method, an advantage or a loss is somebody's own code.
Such a name may come from a stranger, and to import a module is to run it. So a name is followed only if it stands in
a file of the user's own – never in the session –, where it comes to stand when that person types it: on the command
line, into a form, or behind ``rlhf-tui sessions trust``.
"""

import functools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import platformdirs

from core.config import Config, ConfigError, knobs

FILE = "trusted.txt"
OWN = ("core.advantages", "core.losses", "core.rewards")  # nothing in them does more than compute
_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


class UntrustedError(ConfigError):
    """A name that would be imported and was never allowed."""

    def __init__(self, name: str) -> None:
        shown = name if _NAME.fullmatch(name) and len(name) <= 200 else repr(name[:200])
        super().__init__(f"{shown} is code that you have not allowed; if you know it: rlhf-tui sessions trust {shown}")


def trust_file() -> Path:
    """One name a line, of this user on this machine."""
    return Path(platformdirs.user_state_dir("rlhf-tui", appauthor=False)) / FILE


def trusted() -> tuple[str, ...]:
    """What has been allowed, in the order of the alphabet; nothing where the file cannot be read."""
    file = trust_file()
    try:
        changed = file.stat().st_mtime_ns
    except OSError:
        return ()
    return _read(file, changed)


@functools.lru_cache(maxsize=8)
def _read(file: Path, changed: int) -> tuple[str, ...]:
    """Asked again and again while a list of runs is drawn; read when the file is another."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return ()
    return tuple(sorted({line for line in lines if _NAME.fullmatch(line)}))


def is_trusted(name: str) -> bool:
    """May ``module:function`` be imported?"""
    return name.partition(":")[0] in OWN or name in trusted()


def check(name: str) -> None:
    """Raises UntrustedError where ``module:function`` may not be imported."""
    if not is_trusted(name):
        raise UntrustedError(name)


def trust(name: str) -> None:
    """Allow ``module:function`` from now on. Raises ConfigError for what is no such name, or where nothing is kept."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"expected module:name, as in my_rules:politeness, not {name!r}")
    if not is_trusted(name):
        _write({*trusted(), name})


def distrust(name: str) -> bool:
    """Take that back. False where it was not allowed."""
    names = set(trusted())
    if name not in names:
        return False
    _write(names - {name})
    return True


def trust_named(config: type[Config], values: Mapping[str, Any]) -> None:
    """Allow what a person has just typed for those knobs of ``config`` that name code. Raises ConfigError."""
    for knob in knobs(config):
        if knob.code and values.get(knob.name):
            trust(values[knob.name])


def _write(names: Iterable[str]) -> None:
    file = trust_file()
    fresh = file.with_name(f"{FILE}.new")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text("".join(f"{each}\n" for each in sorted(names)), encoding="utf-8")
        fresh.replace(file)
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}") from error
    _read.cache_clear()
