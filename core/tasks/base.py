"""What a task is: an alphabet, prompts, demonstrations and usually a gold reward. Torch-free."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from core.config import Config
from core.preferences.pair import PreferencePair
from core.tokenizer import CharTokenizer


class TaskError(ValueError):
    """Text that a task cannot take; one line that says which and why."""


@dataclass(frozen=True)
class Demonstration:
    """What a good answer looks like."""

    prompt: str
    completion: str


@dataclass(frozen=True)
class Task:
    """What a model is asked to do.

    ``gold_batched`` names a function "module:function" of (tokens[B,T], mask[B,T]) -> [B] that equals ``gold`` on
    the decoded texts, for tasks whose rule can be computed without a loop over texts; scores by ``gold`` otherwise.
    """

    name: str
    title: str
    alphabet: str
    prompts: tuple[str, ...]
    held_out_prompts: tuple[str, ...]
    demonstrations: tuple[Demonstration, ...]
    held_out_demonstrations: tuple[Demonstration, ...]
    gold: Callable[[str, str], float] | None = None  # (prompt, completion) -> reward
    gold_batched: str | None = None
    follows: Callable[[str, str], bool] | None = None  # does a completion heed its prompt?
    pairs: tuple[PreferencePair, ...] = ()
    max_new_tokens: int = 20
    guideline: str = ""  # what *better* means here, shown above the pair to label
    notes: tuple[str, ...] = ()  # what a person should know when the task is opened
    tokenizer: CharTokenizer = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokenizer", CharTokenizer(self.alphabet))

    def encode_prompt(self, prompt: str) -> list[int]:
        """BOS, the prompt, and BOS again as the marker behind which the completion begins.

        Raises TaskError for an empty prompt. A letter outside the alphabet becomes UNK; :meth:`unknown_letters`
        tells which, so that it can be said.
        """
        if not prompt:
            raise TaskError("the prompt is empty; give at least one letter")
        bos = self.tokenizer.bos_id
        return [bos, *self.tokenizer.encode(prompt), bos]

    def encode_completion(self, completion: str) -> list[int]:
        """The completion with its EOS. Raises TaskError when a letter is outside the alphabet."""
        unknown = self.unknown_letters(completion)
        if unknown:
            raise TaskError(f"'{completion}' has letters outside the alphabet: {' '.join(unknown)}")
        return [*self.tokenizer.encode(completion), self.tokenizer.eos_id]

    def unknown_letters(self, text: str) -> list[str]:
        """The letters of ``text`` that the alphabet lacks, each once, in order."""
        return [letter for letter in dict.fromkeys(text) if letter not in self.alphabet]

    @property
    def probe_prompts(self) -> tuple[str, ...]:
        """20 fixed prompts for measuring: ten trained, ten held out (fewer where the task has fewer)."""
        return self.prompts[:10] + self.held_out_prompts[:10]


Progress = Callable[[str], None]
"""Is told now and then, in one line, how far reading has come."""


@dataclass(frozen=True, kw_only=True)
class NoOptions(Config):
    """For tasks that leave nothing to choose."""


@dataclass(frozen=True)
class TaskKind:
    """An entry of the table of tasks; command line, form and help follow from it.

    A session keeps the options as JSON, and :attr:`build` makes the task of them. Where the options name files, the
    session keeps instead what :attr:`read` found there, and that is what ``build`` gets.
    """

    name: str  # as typed: ``--task NAME``
    title: str
    summary: str
    build: Callable[[int, Any], Task]  # from the session's seed and the options, or what was read
    options: type[Config] = NoOptions
    read: Callable[[Any, Progress, int | None], dict[str, Any]] | None = None  # the last: tokens of the context
