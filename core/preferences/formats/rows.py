"""One row of a file as an example to learn from, under TRL's field names. Torch-free.

==================  ===================================  ========================
kind                fields                               becomes
==================  ===================================  ========================
preference          prompt?, chosen, rejected, margin?   PreferencePair
unpaired            prompt, completion, label            UnpairedExample
prompt-completion   prompt, completion                   PromptCompletion
text                text                                 PlainText
prompt              prompt                               Prompt
judged pair         prompt, left, right, answer          JudgedPair (our own CSV)
==================  ===================================  ========================

A text may be a list of ``{"role", "content"}`` messages. Further fields are ignored.
"""

import math
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from core.preferences.formats.reading import LineError
from core.preferences.labels import Answer, has_half_surrogate
from core.preferences.pair import UnpairedExample


@dataclass(frozen=True)
class FilePair:
    """A preference as the file has it; its margin becomes a strength when the whole file is known."""

    prompt: str
    chosen: str
    rejected: str
    margin: float | None


@dataclass(frozen=True)
class PromptCompletion:
    prompt: str
    completion: str


@dataclass(frozen=True)
class PlainText:
    text: str


@dataclass(frozen=True)
class Prompt:
    prompt: str


@dataclass(frozen=True)
class JudgedPair:
    """Two texts as they were displayed and the answer, as the CSV of labels has them."""

    prompt: str
    left: str
    right: str
    answer: Answer
    annotator: str = ""
    note: str = ""
    guideline: str = ""
    held_out: bool = False


Example = FilePair | UnpairedExample | PromptCompletion | PlainText | Prompt | JudgedPair

KINDS: dict[str, tuple[str, ...]] = {
    "judged pair": ("prompt", "left", "right", "answer"),
    "preference": ("chosen", "rejected"),
    "unpaired": ("prompt", "completion", "label"),
    "prompt-completion": ("prompt", "completion"),
    "text": ("text",),
    "prompt": ("prompt",),
}
"""The fields that each kind of row needs."""

# What tells the kinds apart: any of these fields, the first kind that has one. So a row without 'rejected' is a
# preference that lacks it, not a prompt with something to ignore.
_TELLING: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("preference", ("chosen", "rejected")),
    ("unpaired", ("label",)),
    ("prompt-completion", ("completion",)),
    ("text", ("text",)),
    ("prompt", ("prompt",)),
)


def kind_of(fields: Mapping[str, Any]) -> str:
    """The kind of a row by its fields. Raises LineError when it has none that is known, or not all of its kind."""
    if all(name in fields for name in KINDS["judged pair"]):
        return "judged pair"
    kind = next((kind for kind, names in _TELLING if any(name in fields for name in names)), None)
    if kind is None:
        known = sorted({name for needed in KINDS.values() for name in needed})
        given = _list(list(fields)[:5]) if fields else "none"
        raise LineError(f"none of the known fields ({', '.join(known)}) is there; found {given}"[:300])
    _require(kind, fields)
    return kind


def _require(kind: str, fields: Mapping[str, Any]) -> None:
    lacking = [name for name in KINDS[kind] if name not in fields]
    if lacking:
        others = [str(name) for name in fields if name not in KINDS[kind]]
        hint = next((f" (is it '{near[0]}'?)" for name in lacking if (near := get_close_matches(name, others, 1))), "")
        raise LineError(f"the {kind} row lacks {_list(lacking)}{hint}"[:300])


def example_of(kind: str, fields: Mapping[str, Any]) -> Example:
    """The example in a row of this kind. Raises LineError with one line that names the field."""
    _require(kind, fields)
    if kind == "preference":
        return _preference(fields)
    if kind == "unpaired":
        return UnpairedExample(_prompt(fields), _completion(fields, "completion"), _truth(fields, "label"), "file")
    if kind == "prompt-completion":
        return PromptCompletion(_prompt(fields), _filled(_completion(fields, "completion"), "completion"))
    if kind == "text":
        return PlainText(_filled(_plain_text(fields, "text"), "text"))
    if kind == "prompt":
        return Prompt(_prompt(fields))
    return _judged_pair(fields)


def _preference(fields: Mapping[str, Any]) -> FilePair:
    if "prompt" in fields:
        prompt, chosen, rejected = _prompt(fields), _completion(fields, "chosen"), _completion(fields, "rejected")
    else:
        prompt, chosen, rejected = _implicit_prompt(fields)
    if chosen == rejected:
        raise LineError("chosen and rejected are the same text")
    return FilePair(prompt, chosen, rejected, _margin(fields))


def _judged_pair(fields: Mapping[str, Any]) -> JudgedPair:
    answer = _plain_text(fields, "answer")
    two_sided = [each.value for each in Answer if each not in (Answer.GOOD, Answer.BAD)]
    if answer not in two_sided:
        raise LineError(f"answer must be one of {', '.join(two_sided)}, not '{answer[:40]}'")
    left, right = _plain_text(fields, "left"), _plain_text(fields, "right")
    if left == right:
        raise LineError("left and right are the same text")
    more = {name: _plain_text(fields, name) for name in ("annotator", "note", "guideline") if fields.get(name)}
    held_out = _truth(fields, "held_out") if fields.get("held_out") not in (None, "") else False
    return JudgedPair(_prompt(fields), left, right, Answer(answer), held_out=held_out, **more)


def _implicit_prompt(fields: Mapping[str, Any]) -> tuple[str, str, str]:
    """Prompt, chosen and rejected where both begin with the prompt: the longest beginning that they share.

    A blank at its end goes to the completions, as TRL divides it; of messages, only whole ones are shared.
    """
    chosen, rejected = fields["chosen"], fields["rejected"]
    if isinstance(chosen, list) and isinstance(rejected, list):
        ours, theirs = _messages(chosen, "chosen"), _messages(rejected, "rejected")
        shared = _shared(ours, theirs)
        if not shared:
            raise LineError("there is no prompt, and chosen and rejected share no first message")
        return (
            "\n".join(content for _, content in ours[:shared]),
            _answer(ours[shared:], "chosen"),
            _answer(theirs[shared:], "rejected"),
        )
    first, second = _plain_text(fields, "chosen"), _plain_text(fields, "rejected")
    if first == second:
        raise LineError("chosen and rejected are the same text")
    shared = _shared(first, second)
    if shared > 1 and first[shared - 1] == " ":
        shared -= 1
    if not shared:
        raise LineError("there is no prompt, and chosen and rejected share no beginning")
    return first[:shared], first[shared:], second[shared:]


def _shared(one: Any, other: Any) -> int:
    length = 0
    while length < min(len(one), len(other)) and one[length] == other[length]:
        length += 1
    return length


def _prompt(fields: Mapping[str, Any]) -> str:
    value = fields["prompt"]
    if isinstance(value, list):
        value = "\n".join(content for _, content in _messages(value, "prompt"))
        return _filled(value, "prompt")
    return _filled(_plain_text(fields, "prompt"), "prompt")


def _completion(fields: Mapping[str, Any], name: str) -> str:
    value = fields[name]
    return _answer(_messages(value, name), name) if isinstance(value, list) else _plain_text(fields, name)


def _answer(messages: list[tuple[str, str]], name: str) -> str:
    for role, _ in messages:
        if role != "assistant":
            raise LineError(f"{name} has a message by '{role[:40]}' where only the assistant's can stand")
    return "\n".join(content for _, content in messages)


def _messages(value: list[Any], name: str) -> list[tuple[str, str]]:
    """Role and content of each message."""
    if not value:
        raise LineError(f"{name} is an empty list of messages")
    for each in value:
        if not isinstance(each, Mapping) or not isinstance(each.get("role"), str):
            raise LineError(f'{name} must be text or a list of {{"role", "content"}} messages')
    return [(each["role"], _plain_text(each, "content", f"content in {name}")) for each in value]


def _plain_text(fields: Mapping[str, Any], name: str, called: str = "") -> str:
    """A text, Unicode-normalised (NFC), so that a letter is one character wherever it came from."""
    value = fields.get(name)
    if not isinstance(value, str):
        raise LineError(f"{called or name} must be text, not {_kind(value)}")
    if has_half_surrogate(value):
        raise LineError(f"{called or name} has half of a surrogate pair, which is no character")
    return unicodedata.normalize("NFC", value)


def _filled(text: str, name: str) -> str:
    if not text:
        raise LineError(f"{name} is empty")
    return text


def _truth(fields: Mapping[str, Any], name: str) -> bool:
    value = fields[name]
    if not isinstance(value, bool):
        raise LineError(f"{name} must be true or false, not {_kind(value)}")
    return value


def _margin(fields: Mapping[str, Any]) -> float | None:
    value = fields.get("margin")
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise LineError(f"margin must be a number, not {_kind(value)}")
    if not 0 <= value <= 1e6 or math.isnan(value):
        raise LineError(f"margin must be from 0 to 1,000,000, not {value:.6g}"[:200])
    return float(value)


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    names = {str: "the text", int: "the number", float: "the number", list: "a list", dict: "an object"}
    name = names.get(type(value), type(value).__name__)
    return f"{name} {str(value)[:40]!r}" if isinstance(value, str | int | float) else name


def _list(names: list[str]) -> str:
    return " and ".join(f"'{str(name)[:40]}'" for name in names)
