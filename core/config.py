"""The knobs of every method: one typed definition makes the form, the flags, the checks, the help and what is saved.

Torch-free. A knob is a dataclass field made by :func:`knob`; everything else about it is derived here.
"""

import dataclasses
import difflib
import math
import shlex
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

LARGEST = 10**300  # whole numbers beyond it do not fit a float


class ConfigError(ValueError):
    """A knob that cannot be: its message is one line that names the knob and says what would be right."""


@dataclass(frozen=True)
class Knob:
    """What a person may turn: the type, the range and the one line that explains it."""

    name: str
    type: type  # int, float, bool or str
    default: Any
    help: str
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None  # exclusive lower bound
    unit: str = ""
    choices: tuple[str, ...] = ()
    live: bool = False  # may be changed while the run trains; takes effect at the next step
    code: bool = False  # text that names code, module:name, which is imported (see core.trust)

    @property
    def range(self) -> str:
        """The admissible values in words, as the form, ``--help`` and error messages show them."""
        if self.choices:
            return " | ".join(self.choices)
        if self.type is bool:
            return "true | false"
        low = ""
        if self.minimum is not None:
            low = f"≥ {_bound(self.minimum)}"
        if self.above is not None:
            low = f"> {_bound(self.above)}"
        high = f"≤ {_bound(self.maximum)}" if self.maximum is not None else ""
        return ", ".join(part for part in (low, high) if part) or ("any number" if self.type is not str else "any text")

    def parse(self, text: str) -> Any:
        """The value that ``text`` stands for. Raises ConfigError with one line when it stands for none."""
        if self.choices or self.type is not str:
            text = text.strip()
        try:
            if self.type is bool:
                value: Any = {"true": True, "yes": True, "on": True, "1": True}.get(text.lower())
                if value is None:
                    value = {"false": False, "no": False, "off": False, "0": False}[text.lower()]
            elif self.type is int:
                value = int(text)
            elif self.type is float:
                value = float(text)
            else:
                value = text
        except (ValueError, KeyError):
            raise ConfigError(f"{self.name} must be {_kind(self.type)} ({self.range}), not {text!r}") from None
        return self.check(value)

    def check(self, value: Any) -> Any:
        """``value`` as this knob keeps it (an int given for a float becomes one). Raises ConfigError."""
        if self.type is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value) if abs(value) < LARGEST else math.inf
        if not isinstance(value, self.type) or (self.type is int and isinstance(value, bool)):
            raise ConfigError(f"{self.name} must be {_kind(self.type)} ({self.range}), not {value!r}")
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{self.name} must be a finite number, not {value!r}")
        if self.choices and value not in self.choices:
            near = nearest(str(value), self.choices)
            raise ConfigError(f"{self.name} must be one of {', '.join(self.choices)}, not {value!r}{near}")
        self._check_range(value)
        return value

    def _check_range(self, number: Any) -> None:
        outside = (
            (self.above is not None and number <= self.above)
            or (self.minimum is not None and number < self.minimum)
            or (self.maximum is not None and number > self.maximum)
        )
        if outside:
            shown = f"{number:g}" if abs(number) < LARGEST else f"a number of {len(str(abs(number)))} digits"
            raise ConfigError(f"{self.name} must be {self.range}, not {shown}")


def _bound(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) and abs(value) < 1e12 else f"{value:g}"


def _kind(type_: type) -> str:
    return {int: "a whole number", float: "a number", bool: "true or false", str: "text"}[type_]


def nearest(word: str, known: typing.Iterable[str]) -> str:
    """`` (did you mean 'x'?)``, or nothing when no known word is near."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean '{close[0]}'?)" if close else ""


def knob(
    default: Any,
    help: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    above: float | None = None,
    unit: str = "",
    choices: tuple[str, ...] = (),
    live: bool = False,
    code: bool = False,
) -> Any:
    """A dataclass field that a person may set; see :class:`Knob` for the meaning of the arguments."""
    about = {
        "help": help, "minimum": minimum, "maximum": maximum, "above": above,
        "unit": unit, "choices": choices, "live": live, "code": code,
    }  # fmt: skip
    return field(default=default, metadata={"knob": about})


@dataclass(frozen=True, kw_only=True)
class Config:
    """Base of every method's configuration: frozen, checked when it is made, plain JSON when it is saved."""

    def __post_init__(self) -> None:
        for each in knobs(type(self)):
            object.__setattr__(self, each.name, each.check(getattr(self, each.name)))

    def to_dict(self) -> dict[str, Any]:
        """The knobs as JSON values, defaults included, so that a later change of a default changes no saved run."""
        return dataclasses.asdict(self)

    def short(self) -> str:
        """The knobs that differ from their defaults, ``name=value`` by blanks, text quoted as in a shell.

        :func:`parse_short` reads it back.
        """
        changed = (each for each in knobs(type(self)) if getattr(self, each.name) != each.default)
        return " ".join(f"{each.name}={_text(getattr(self, each.name))}" for each in changed)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, float) else shlex.quote(str(value))


C = TypeVar("C", bound=Config)


_KNOBS: dict[type[Config], tuple[Knob, ...]] = {}  # to find out the types of fields takes longest


def knobs(config: type[Config]) -> tuple[Knob, ...]:
    """Every knob of a configuration class in the order of its fields."""
    if config not in _KNOBS:
        hints = typing.get_type_hints(config)
        _KNOBS[config] = tuple(
            Knob(name=each.name, type=hints[each.name], default=each.default, **each.metadata["knob"])
            for each in dataclasses.fields(config)
        )
    return _KNOBS[config]


def find_knob(config: type[Config], name: str) -> Knob:
    """The knob called ``name``. Raises ConfigError that names the nearest one."""
    known = {each.name: each for each in knobs(config)}
    if name not in known:
        raise ConfigError(f"no knob is called {name!r}{nearest(name, known)}")
    return known[name]


def make(config: type[C], values: Mapping[str, Any]) -> C:
    """A configuration from JSON values. Raises ConfigError for an unknown name or a value out of range."""
    for name in values:
        find_knob(config, name)
    return config(**values)


def change(config: C, name: str, value: Any) -> C:
    """``config`` with one knob turned; ``value`` may be text as typed. Raises ConfigError."""
    found = find_knob(type(config), name)
    return dataclasses.replace(config, **{name: found.parse(value) if isinstance(value, str) else found.check(value)})


def parse_short(config: type[C], text: str) -> C:
    """The configuration that :meth:`Config.short` wrote. Raises ConfigError."""
    try:
        parts = shlex.split(text)
    except ValueError:
        raise ConfigError(f"a quotation mark stands alone in {text!r}") from None
    values = {}
    for part in parts:
        name, equals, value = part.partition("=")
        if not equals:
            raise ConfigError(f"expected name=value, not {part!r}")
        values[name] = find_knob(config, name).parse(value)
    return make(config, values)
