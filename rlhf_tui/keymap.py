"""Keys of one's own: a TOML file in the user's configuration folder says which key does what.

    # ~/.config/rlhf-tui/keys.toml
    [keys]
    "train.pin" = "P"
    "app.help" = ["question_mark", "f2"]

``rlhf-tui keys`` prints such a file with every action and its keys as they are.
"""

import importlib
import inspect
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import platformdirs
from textual.binding import Binding

from core.config import nearest

FILE = "keys.toml"
_MODULES = (
    "rlhf_tui.app", "rlhf_tui.screens.base", "rlhf_tui.screens.help", "rlhf_tui.screens.prompt",
    "rlhf_tui.screens.quit", "rlhf_tui.screens.choose", "rlhf_tui.screens.new_session", "rlhf_tui.widgets.knob_form",
    "rlhf_tui.widgets.chart", "rlhf_tui.widgets.line_list", "rlhf_tui.widgets.pipeline",
)  # fmt: skip


@dataclass(frozen=True)
class Keys:
    """What the file says: keys by action as Textual takes them, and what is wrong with it, a line each."""

    keymap: dict[str, str]
    problems: tuple[str, ...] = ()


def keys_file() -> Path:
    """Where the file is looked for."""
    return Path(platformdirs.user_config_dir("rlhf-tui", appauthor=False)) / FILE


def known_bindings() -> dict[str, Binding]:
    """Every binding that can be remapped, by its id (``train.pin``)."""
    from rlhf_tui.screens.table import SCREENS

    found: dict[str, Binding] = {}
    for name in (*_MODULES, *(entry.screen.partition(":")[0] for entry in SCREENS)):
        for cls in _classes(name):
            for base in reversed(cls.__mro__):
                for binding in base.__dict__.get("BINDINGS", ()):
                    if isinstance(binding, Binding) and binding.id:
                        found[binding.id] = binding
    return found


def _classes(module: str) -> Iterator[type]:
    for _, cls in inspect.getmembers(importlib.import_module(module), inspect.isclass):
        if cls.__module__.startswith("rlhf_tui."):
            yield cls


def read_keys(path: Path) -> Keys:
    """The keys in the file; none where there is no file. What is wrong is left out and said."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Keys({})
    except (OSError, ValueError) as error:
        return Keys({}, (f"{path} is not used: {error}",))
    chosen = table.get("keys", {})
    if not isinstance(chosen, dict):
        return Keys({}, (f"{path}: [keys] must be a table of actions",))
    return checked(chosen, known_bindings())


def checked(chosen: Mapping[str, object], known: Mapping[str, Binding]) -> Keys:
    """The chosen keys that can be, with those of their neighbours that Textual would otherwise forget."""
    keymap: dict[str, str] = {}
    problems = []
    for action, keys in chosen.items():
        if action not in known:
            problems.append(f"no action is called {action}{nearest(action, known)}")
        elif isinstance(keys, str) and keys.strip():
            keymap[action] = keys if keys == "," else ",".join(part.strip() for part in keys.split(","))
        elif isinstance(keys, list) and keys and all(isinstance(each, str) and each for each in keys):
            keymap[action] = ",".join(keys)
        else:
            problems.append(f"{action} needs a key or a list of keys, not {keys!r}")
    # Actions that share a key by design (start, pause, go on) lose it when one of them moves; so each keeps it by name.
    shared = {action: _parts(known[action].key) for action in keymap}
    for action, binding in known.items():
        if action not in keymap and any(
            _group(action) == _group(moved) and keys & _parts(binding.key) for moved, keys in shared.items()
        ):
            keymap[action] = binding.key
    problems += _clashes(keymap, known, set(shared))
    return Keys(keymap, tuple(problems))


def _clashes(keymap: Mapping[str, str], known: Mapping[str, Binding], moved: set[str]) -> list[str]:
    said = []
    for action in sorted(moved):
        for other, binding in known.items():
            if other == action or (other in moved and other < action):
                continue
            near = _group(other) in (_group(action), "app", "screen") or _group(action) in ("app", "screen")
            keys = _parts(keymap.get(other, binding.key)) & _parts(keymap[action])
            if near and keys and not _parts(binding.key) & _parts(known[action].key):
                said.append(f"{', '.join(sorted(keys))} means {action} and {other}: give one of them another key")
    return said


def _group(action: str) -> str:
    return action.partition(".")[0]


def _parts(keys: str) -> set[str]:
    return {"comma"} if keys == "," else {part.strip() for part in keys.split(",")}


def documented(path: Path) -> str:
    """A file with every action commented out, its keys as they are and what it does."""
    lines = [
        f"# Keys of rlhf-tui. Save this as {path},",
        "# take away the # before a line and change its keys; several keys stand in a list.",
        "# Names of keys: a, A, f5, ctrl+s, space, enter, escape, left, comma, question_mark …",
        "[keys]",
    ]
    group = ""
    for action, binding in sorted(known_bindings().items()):
        if _group(action) != group:
            group = _group(action)
            lines.append("")
        keys = [part.strip() for part in binding.key.split(",")]
        value = f'"{keys[0]}"' if len(keys) == 1 else "[" + ", ".join(f'"{key}"' for key in keys) + "]"
        lines.append(f'# "{action}" = {value}'.ljust(52) + f"# {binding.tooltip or binding.description}")
    return "\n".join(lines) + "\n"
