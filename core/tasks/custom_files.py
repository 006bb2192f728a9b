"""The data of a ``custom`` task: a TOML file, or files in TRL's JSON lines, CSV or plain text. Torch-free."""

import dataclasses
import tomllib
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.config import Config, find_knob, knob, knobs, make, nearest
from core.preferences.formats.files import FileRefusedError, Limits, Problem, read_file
from core.preferences.formats.reading import LineError, Problems, read_lines
from core.preferences.formats.rows import (
    Example,
    FilePair,
    JudgedPair,
    PlainText,
    Prompt,
    PromptCompletion,
    example_of,
)
from core.preferences.pair import PreferencePair
from core.tasks.base import Progress, TaskError
from core.tasks.custom import gold_problem

LIMITS = Limits(file_bytes=16 * 1024 * 1024)  # all of it is kept in the session
TOLD_EVERY = 2000  # rows between two reports of progress
LISTS = ("demonstrations", "prompts", "held_out_prompts", "pairs")
MARKERS = 3  # tokens beside the letters: before the prompt, behind it, and at the end
KINDS = ("prompt-completion", "prompt", "prompt", "preference")  # of rows, by list


@dataclass(frozen=True, kw_only=True)
class CustomOptions(Config):
    """Where a task's data is and how much of it there may be."""

    file: str = knob("", "TOML file that gives these options by name; paths in it are relative to it")
    demonstrations: str = knob("", "file of prompts with completions, or of texts: prompt, TAB, completion")
    prompts: str = knob("", "file of prompts to practise on; those of the demonstrations by default")
    held_out_prompts: str = knob("", "file of prompts to measure with; a share of the prompts by default")
    pairs: str = knob("", "file of preferences: prompt, chosen, rejected")
    gold: str = knob(
        "", "module:function of (prompt, completion) that gives the gold reward; none by default", code=True
    )
    title: str = knob("Your own data", "what the task is called")
    guideline: str = knob("Which answer is better?", "what stands above a pair to label")
    max_new_tokens: int = knob(
        0, "most letters of an answer, its end included; 0: the longest given", minimum=0, maximum=1021
    )
    held_out_share: float = knob(0.1, "share of the prompts that are held out", minimum=0.01, maximum=0.5)
    longest: int = knob(
        61, "most letters of a prompt with its completion; three more tokens make a context of 64", minimum=2,
        maximum=1021,
    )  # fmt: skip
    largest_alphabet: int = knob(2048, "most different characters", minimum=2, maximum=20_000)


def read_custom(options: CustomOptions, progress: Progress, context: int | None = None) -> dict[str, Any]:
    """The content of a task, as JSON, of texts that fit a context of so many tokens (None: however long).

    Raises FileRefusedError with file, line and reason, or TaskError.
    """
    inline: dict[str, list[Any]] = {}
    toml = _path(options.file)
    if options.file:
        options, inline = _from_toml(toml, options)
    reader = Reader(options, progress, context)
    for name in LISTS:
        if name in inline:
            reader.read_inline(name, inline[name], toml)
        elif path := getattr(options, name):
            reader.read(name, _path(path))
    return reader.content()


def _path(text: str) -> Path:
    """A file as a person types it where no shell reads along."""
    try:
        return Path(text).expanduser()
    except RuntimeError:  # nobody of that name has a home
        return Path(text)


class Reader:
    """Collects rows, and counts letters while it does."""

    def __init__(self, options: CustomOptions, progress: Progress, context: int | None) -> None:
        self.options = options
        self.context = context
        self.letters: set[str] = set()
        self.demonstrations: list[tuple[str, str]] = []
        self.prompts: dict[str, list[str]] = {"prompts": [], "held_out_prompts": []}
        self.pairs: list[PreferencePair] = []
        self.notes: list[str] = []
        self._progress = progress
        self._rows = 0

    def read(self, name: str, file: Path) -> None:
        """A file of demonstrations, prompts or pairs."""
        self._rows = 0

        def take(example: Example) -> None:
            self._take(name, example)
            self._rows += 1
            if self._rows % TOLD_EVERY == 0:
                self._progress(f"{file}: {self._rows:,} rows, {len(self.letters):,} different characters")

        self._progress(f"reading {file}")
        found = read_file(file, check=take, limits=LIMITS)
        if name == "pairs":
            self.pairs += found.pairs
        self.notes += found.notes
        self._progress(f"{file}: {found.count:,} rows")

    def read_inline(self, name: str, entries: list[Any], file: Path) -> None:
        """Entries that stand in the TOML file itself: tables with the fields of a row, or texts."""
        problems = []
        for number, entry in enumerate(entries, 1):
            try:
                if isinstance(entry, str):
                    example: Example = PlainText(unicodedata.normalize("NFC", entry))
                elif isinstance(entry, dict):
                    example = example_of(KINDS[LISTS.index(name)], entry)
                else:
                    raise LineError(f"must be text or a table, not {entry!r}"[:120])
                self._take(name, example)
                if isinstance(example, FilePair):
                    self.pairs.append(PreferencePair(example.prompt, example.chosen, example.rejected, source="file"))
            except LineError as error:
                problems.append(Problem(0, f"{name}, entry {number}: {error}"))
        if problems:
            raise FileRefusedError(file, problems[:20], len(problems[20:]))

    def _take(self, name: str, example: Example) -> None:
        if name == "demonstrations":
            prompt, completion = _demonstration(example)
            self._count(prompt, completion)
            self.demonstrations.append((prompt, completion))
        elif name == "pairs":
            if isinstance(example, FilePair):
                texts = (example.chosen, example.rejected)
            elif isinstance(example, JudgedPair):
                texts = (example.left, example.right)
            else:
                raise LineError("not a pair: it needs prompt, chosen and rejected")
            for text in texts:
                self._count(example.prompt, text)
        else:
            prompt = _prompt(example)
            self._count(prompt, "")
            self.prompts[name].append(prompt)

    def _count(self, prompt: str, completion: str) -> None:
        length, most = len(prompt) + len(completion), self.options.longest
        if length > most:
            raise LineError(f"prompt and completion have {length:,} letters, more than the {most:,} of 'longest'")
        if self.context is not None and length + MARKERS > self.context:
            raise LineError(
                f"prompt and completion have {length:,} letters; with {MARKERS} markers they exceed the context of "
                f"{self.context:,} tokens"
            )
        for letter in prompt + completion:
            if letter not in self.letters:
                if len(self.letters) == self.options.largest_alphabet:
                    raise LineError(
                        f"{letter!r} is one more than the {self.options.largest_alphabet:,} different characters of "
                        "'largest_alphabet'"
                    )
                self.letters.add(letter)

    def content(self) -> dict[str, Any]:
        """Everything, with what is missing filled from what is there. Raises TaskError when too little is there."""
        options = self.options
        self._progress(f"putting {len(self.demonstrations):,} demonstrations and {len(self.pairs):,} pairs together")
        demonstrations = list(dict.fromkeys(self.demonstrations))
        notes = list(self.notes)
        if not demonstrations and not self.pairs:
            raise TaskError("name a file of demonstrations, or of pairs, or a TOML file that does")
        if not demonstrations and self.pairs:
            demonstrations = list(dict.fromkeys((each.prompt, each.chosen) for each in self.pairs))
            notes.append("no demonstrations: the chosen texts of the pairs serve as such")
        if len(demonstrations) < 2:
            raise TaskError(f"{len(demonstrations)} demonstrations are too few; give at least 2, or pairs")
        if options.gold and (problem := gold_problem(options.gold)):
            raise TaskError(f"gold: {problem}")
        asked = self.prompts["prompts"] or [prompt for prompt, _ in demonstrations]
        held_out = list(dict.fromkeys(self.prompts["held_out_prompts"]))
        prompts = [each for each in dict.fromkeys(asked) if each not in set(held_out)]
        if not prompts:
            raise TaskError("every prompt is held out; give some to practise on")
        completions = [text for _, text in demonstrations]
        completions += [text for each in self.pairs for text in (each.chosen, each.rejected)]
        return {
            "title": options.title, "guideline": options.guideline, "gold": options.gold,
            "alphabet": "".join(sorted(self.letters)),
            "max_new_tokens": options.max_new_tokens or max(map(len, completions)) + 1,
            "held_out_share": options.held_out_share, "prompts": prompts, "held_out_prompts": held_out,
            "demonstrations": [list(each) for each in demonstrations],
            "pairs": [list(dataclasses.astuple(each)) for each in self.pairs],
            "notes": [*notes, f"alphabet of {len(self.letters):,} characters, {len(demonstrations):,} demonstrations, "
                              f"{len(self.pairs):,} pairs"],
        }  # fmt: skip


def _demonstration(example: Example) -> tuple[str, str]:
    if isinstance(example, PromptCompletion):
        return example.prompt, example.completion
    if not isinstance(example, PlainText):
        raise LineError("not a demonstration: it needs prompt and completion, or text")
    before, tab, behind = example.text.partition("\t")
    prompt, completion = (before, behind) if tab else (example.text[:1], example.text[1:])
    if not prompt or not completion:
        raise LineError("too short to be divided into a prompt and a completion")
    return prompt, completion


def _prompt(example: Example) -> str:
    if isinstance(example, Prompt | PromptCompletion):
        return example.prompt
    if not isinstance(example, PlainText):
        raise LineError("not a prompt: it needs the field prompt, or text")
    if not example.text:
        raise LineError("the prompt is empty")
    return example.text


def _from_toml(file: Path, given: CustomOptions) -> tuple[CustomOptions, dict[str, list[Any]]]:
    """The options that a TOML file gives, those that were given elsewhere put over them, and its own lists."""
    problems = Problems(file)
    lines = [line for _, line in read_lines(file, problems, LIMITS)]
    problems.raise_if_any()
    try:
        values = tomllib.loads("".join(lines))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise FileRefusedError(file, [Problem(0, f"not TOML: {error}")]) from None
    if not values:
        raise FileRefusedError(file, [Problem(0, "the file is empty")])
    known = [each.name for each in knobs(CustomOptions) if each.name != "file"]
    inline = {}
    for name, value in list(values.items()):
        if name not in known:
            raise FileRefusedError(file, [Problem(0, f"no option is called '{name}'{nearest(name, known)}")])
        if name in LISTS and isinstance(value, list):
            inline[name] = values.pop(name)
        elif name in LISTS and isinstance(value, str):
            values[name] = str(file.parent / _path(value))
        try:
            if name in values:
                find_knob(CustomOptions, name).check(values[name])
        except ValueError as error:
            raise FileRefusedError(file, [Problem(0, str(error))]) from None
    chosen = {name: value for name, value in given.to_dict().items() if value != find_knob(CustomOptions, name).default}
    inline = {name: entries for name, entries in inline.items() if name not in chosen}
    return make(CustomOptions, {**values, **chosen}), inline
