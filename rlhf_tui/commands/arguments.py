"""Arguments shared by several commands, flags made from a method's knobs, and errors in one line."""

import argparse
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from core.config import Config, ConfigError, Knob, knobs, nearest, parse_short

FAILED, WRONG_USAGE, INTERRUPTED = 1, 2, 130


class CommandError(Exception):
    """What went wrong, in one line; ``status`` is the exit status."""

    def __init__(self, message: str, status: int = FAILED) -> None:
        super().__init__(message)
        self.status = status


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one line each, and which knows the nearest word to a wrong one."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        kwargs.setdefault("allow_abbrev", False)
        super().__init__(*args, **kwargs)

        self.find_choice: Callable[[str], None] | None = None
        """Called with a word that is none of the choices, before it is refused; it may add the word to them."""

    def error(self, message: str) -> NoReturn:
        fail(message, WRONG_USAGE)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        # argparse offers no other hook for a wrong choice; its own message lists them all and names none.
        if action.choices is not None and value not in action.choices and self.find_choice is not None:
            self.find_choice(value)
        if action.choices is not None and value not in action.choices:
            known = [str(each) for each in action.choices]
            what = action.metavar if isinstance(action.metavar, str) else action.dest
            raise argparse.ArgumentError(
                None, f"'{value}' is no {what.lower()}{nearest(str(value), known)}; there are {', '.join(known)}"
            )

    def options(self) -> list[str]:
        """Every option string of this parser."""
        return [option for action in self._actions for option in action.option_strings]


def fail(message: str, status: int) -> NoReturn:
    """End the program with one line on stderr."""
    line = " ".join(message.split())
    print(f"rlhf-tui: {line}", file=sys.stderr)
    raise SystemExit(status)


def unknown_arguments(extra: Sequence[str], parser: Parser) -> NoReturn:
    """Complain about the first argument that nothing takes, naming the nearest option."""
    word = next((each for each in extra if each.startswith("-")), extra[0])
    near = nearest(word.partition("=")[0], parser.options())
    fail(f"there is no option {word}{near}" if word.startswith("-") else f"unexpected argument '{word}'", WRONG_USAGE)


def add_knobs(parser: Parser, config: type[Config], actions: Mapping[str, type[argparse.Action]] | None = None) -> None:
    """A flag for each knob of a configuration, with its range and default in the help.

    ``actions``: of knobs whose flag also takes what is no value of the knob. They get the text as it was typed, and
    the knob as ``const``.
    """
    group = parser.add_argument_group("knobs of the method")
    for knob in knobs(config):
        unit = f" {knob.unit}" if knob.unit else ""
        shown = knob.default if not isinstance(knob.default, bool) else str(knob.default).lower()
        about = f"{knob.help} ({knob.range}{unit}; default {shown})".replace("%", "%%")
        how: dict[str, Any] = {"type": _parse_with(knob)}
        if knob.type is bool:
            how |= {"nargs": "?", "const": True}
        if actions and knob.name in actions:
            how = {"action": actions[knob.name], "const": knob}
        group.add_argument(
            f"--{knob.name.replace('_', '-')}", dest=f"knob_{knob.name}", metavar=_metavar(knob),
            default=argparse.SUPPRESS, help=about, **how,
        )  # fmt: skip


def given_knobs(args: argparse.Namespace) -> dict[str, Any]:
    """The knobs that were given as flags."""
    return {name.removeprefix("knob_"): value for name, value in vars(args).items() if name.startswith("knob_")}


def typed(config: type[Config], text: str) -> dict[str, Any]:
    """The knobs that are set in ``text``, as :func:`core.config.parse_short` reads it. Raises ConfigError."""
    made = parse_short(config, text)
    return {name: getattr(made, name) for name in (part.partition("=")[0] for part in shlex.split(text))}


def add_session(parser: Parser, about: str) -> None:
    """Which session is meant."""
    parser.add_argument("--session", metavar="NAME", help=about)


def add_shared(parser: Parser) -> None:
    """Where sessions lie and on what torch runs; may stand before the command as well as behind it."""
    parser.add_argument(
        "--saves", metavar="DIR", default=argparse.SUPPRESS,
        help="folder of the sessions (else RLHF_TUI_SAVES, else ./saves of a checkout)",
    )  # fmt: skip
    parser.add_argument(
        "--device", metavar="DEVICE", default=argparse.SUPPRESS, help="auto, cpu, cuda, cuda:N or mps (default auto)"
    )
    parser.add_argument(
        "--threads", type=whole(1, 256), metavar="N", default=argparse.SUPPRESS,
        help="CPU threads of torch (default: as measured)",
    )  # fmt: skip


SHARED: dict[str, Any] = {"saves": None, "device": "auto", "threads": None}


def whole(minimum: int, maximum: int) -> Callable[[str], int]:
    """A parser for a whole number within limits."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be a whole number, not '{text}'") from None
        if not minimum <= value <= maximum:
            raise argparse.ArgumentTypeError(f"must be from {minimum} to {maximum}, not {value}")
        return value

    return parse


def number(above: float, maximum: float) -> Callable[[str], float]:
    """A parser for a number greater than ``above`` and at most ``maximum``."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be a number, not '{text}'") from None
        if not above < value <= maximum:
            raise argparse.ArgumentTypeError(f"must be > {above:g} and ≤ {maximum:g}, not {text}")
        return value

    return parse


def _parse_with(knob: Knob) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        try:
            return knob.parse(text)
        except ConfigError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse


def _metavar(knob: Knob) -> str:
    return (
        "|".join(knob.choices) if knob.choices else {int: "N", float: "X", bool: "true|false", str: "TEXT"}[knob.type]
    )
