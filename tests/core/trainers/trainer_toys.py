"""A three-letter task, models that train in milliseconds, and models whose every completion can be written down."""

import copy
import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from core.models.build import BackboneConfig
from core.models.language_model import LanguageModel
from core.preferences.pair import PreferencePair
from core.sampling import Completions, Rollout, completion_hidden, completions_of
from core.tasks.base import Demonstration, Task
from core.trainers.base import Trainer, TrainerInputs, Weights

TINY = BackboneConfig(embedding=8, hidden=16, layers=1)
CPU = torch.device("cpu")
EOS, LETTERS = 2, (4, 5, 6)
ANSWERS = {"a": ("ab", "acb", "abca"), "b": ("b", "bac", "bcab"), "c": ("cb", "cab", "cabc")}


def gold(prompt: str, text: str) -> float:
    """A point for heeding the prompt, half a point for each different letter, −1 for nothing at all."""
    return (text[:1] == prompt[-1:]) + 0.5 * len(set(text)) if text else -1.0


def micro_task(rule: Callable[[str, str], float] | None = gold, cap: int = 5, **changes: Any) -> Task:
    """Answer with a word that begins with the prompt's last letter; prompts of one to three letters."""
    prompts = changes.get("prompts", ("a", "ab", "c", "bc", "b", "ca", "aa", "cb", "cc", "bba"))
    held_out = ("ac", "bb", "ba", "acb")
    values: dict[str, Any] = {
        "name": "micro", "title": "Micro", "alphabet": "abc", "prompts": prompts, "held_out_prompts": held_out,
        "demonstrations": tuple(Demonstration(p, word) for p in prompts for word in ANSWERS[p[-1]]),
        "held_out_demonstrations": tuple(Demonstration(p, word) for p in held_out for word in ANSWERS[p[-1]]),
        "gold": rule, "follows": lambda prompt, text: text[:1] == prompt[-1:], "max_new_tokens": cap,
    }  # fmt: skip
    return Task(**values | changes)


def judged_pairs(count: int = 40) -> tuple[PreferencePair, ...]:
    """Different pairs judged by the gold rule, of different strengths, every fifth one a tie."""
    words = ["", "a", "ab", "abc", "b", "bca", "ca", "cab", "acb", "bb", "ccc"]
    asked = [(p, x, y) for p in ("a", "bc", "ab") for x, y in itertools.combinations(words, 2)]
    pairs = []
    for number, (prompt, x, y) in enumerate(asked[:: max(1, len(asked) // count)][:count]):
        better, worse = (x, y) if gold(prompt, x) >= gold(prompt, y) else (y, x)
        tie = number % 5 == 4
        pairs.append(
            PreferencePair(prompt, better, worse, (0.0, 0.5, 1.0)[number % 3], 0.5 if tie else 1.0, source="labels")
        )
    return tuple(pairs)


def inputs(**changes: Any) -> TrainerInputs:
    """Inputs for the micro task on the CPU."""
    values: dict[str, Any] = {"task": micro_task(), "seed": 7, "device": CPU, "backbone": TINY}
    return TrainerInputs(**values | changes)


def one_step(trainer: Trainer[Any]) -> dict[str, float]:
    """Run one step to its end; its metrics."""
    phases = trainer.step()
    while True:
        try:
            next(phases)
        except StopIteration as end:
            metrics: dict[str, float] = end.value
            return metrics


def steps(trainer: Trainer[Any], count: int) -> list[dict[str, float]]:
    """The metrics of ``count`` steps."""
    return [one_step(trainer) for _ in range(count)]


def copied(weights: Mapping[str, Tensor]) -> Weights:
    """Weights that no later training can reach."""
    return {name: value.detach().clone() for name, value in weights.items()}


def same(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> bool:
    """Are two states bit for bit the same?"""
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def with_bias(weights: Weights, **biases: float) -> Weights:
    """A language model's weights that write some tokens (eos, a, b, c) much more or less often."""
    ids = {"eos": EOS, "a": 4, "b": 5, "c": 6}
    changed = copied(weights)
    for name, value in biases.items():
        changed["head.bias"][ids[name]] += value
    return changed


def spy(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[tuple[tuple[Any, ...], dict[str, Any], Any]]:
    """Let ``owner.name`` work as it does and record (positional arguments, named arguments, result) of each call."""
    real, calls = getattr(owner, name), []

    @functools.wraps(real)
    def recording(*args: Any, **named: Any) -> Any:
        result = real(*args, **named)
        calls.append((args, named, result))
        return result

    monkeypatch.setattr(owner, name, recording)
    return calls


# --- models that can be enumerated: a table of logits for each prompt and each beginning of a completion ---

CAP = 3
PROMPTS = ("a", "b")
PREFIXES = [word for n in range(CAP) for word in itertools.product(LETTERS, repeat=n)]
COMPLETIONS = [(*w, EOS) for w in PREFIXES] + list(itertools.product(LETTERS, repeat=CAP))  # all that can be sampled
HISTORIES = [(prompt, prefix) for prompt in PROMPTS for prefix in PREFIXES]
EIGHTHS = list(set(itertools.permutations((1, 1, 2, 4))) | {(2, 2, 2, 2)})  # probabilities of EOS, a, b, c


class TabularModel(LanguageModel):
    """The logits after a prompt and a beginning are a row of a table; nothing is shared between rows."""

    def __init__(self, vocabulary: int = 7) -> None:
        super().__init__(vocabulary, vocabulary)
        self.table = torch.nn.Parameter(torch.zeros(1 + len(HISTORIES), vocabulary))
        with torch.no_grad():
            self.head.weight.copy_(torch.eye(vocabulary))
            self.head.bias.zero_()
        self.head.requires_grad_(False)
        lookup = torch.zeros(8**6, dtype=torch.long)
        task = enumerable_task()
        for number, (prompt, prefix) in enumerate(HISTORIES):
            code = 0
            for token in [*task.encode_prompt(prompt), *prefix]:
                code = self._read(code, token)
            lookup[code] = 1 + number
        self.lookup: Tensor
        self.register_buffer("lookup", lookup, persistent=False)

    @staticmethod
    def _read(code: Any, token: Any) -> Any:
        return (code * 8 + token + 1) % 8**6

    def hidden(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        code, codes = torch.zeros(len(tokens), dtype=torch.long), []
        for t in range(tokens.shape[1]):
            code = self._read(code, tokens[:, t])
            codes.append(code)
        return self.table[self.lookup[torch.stack(codes, 1)]]

    def begin(self, prompts: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        code = torch.zeros(len(prompts), dtype=torch.long)
        for t in range(prompts.shape[1]):
            code = torch.where(t < lengths, self._read(code, prompts[:, t]), code)
        return self.table[self.lookup[code]], code

    def advance(self, tokens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        code = self._read(state, tokens)
        return self.table[self.lookup[code]], code

    def select(self, state: Tensor, rows: Tensor) -> Tensor:
        return state[rows]


def enumerable_task(rule: Callable[[str, str], float] | None = gold) -> Task:
    """Two prompts, at most three letters."""
    return micro_task(rule, CAP, prompts=PROMPTS, held_out_prompts=())


def table_of_eighths(seed: int, temperature: float = 1.0) -> Weights:
    """A table in which every probability at ``temperature`` is 1/8, 1/4 or 1/2: completions have so many 512ths."""
    generator = torch.Generator().manual_seed(seed)
    picks = torch.randint(len(EIGHTHS), (len(HISTORIES),), generator=generator).tolist()
    weights = copied(TabularModel().state_dict())
    for number, pick in enumerate(picks):
        weights["table"][1 + number, [EOS, *LETTERS]] = temperature * torch.tensor(EIGHTHS[pick]).div(8).log()
    return weights


def completion_logprobs(table: Tensor, temperature: float = 1.0) -> Tensor:
    """log p of every completion of every prompt by the chain rule, [prompts, completions]; differentiable."""
    likely = torch.log_softmax(table[:, [EOS, *LETTERS]] / temperature, -1)
    column = {token: number for number, token in enumerate((EOS, *LETTERS))}
    row = {history: 1 + number for number, history in enumerate(HISTORIES)}
    found = [[sum(likely[row[p, y[:t]], column[y[t]]] for t in range(len(y))) for y in COMPLETIONS] for p in PROMPTS]
    return torch.stack([torch.stack(each) for each in found])  # type: ignore[arg-type]


def text_of(completion: tuple[int, ...]) -> str:
    """The letters of a completion."""
    return "".join("abc"[token - 4] for token in completion if token != EOS)


def all_rewards(rule: Callable[[str, str], float] = gold) -> Tensor:
    """Rewards of every completion, float64 [prompts, completions]."""
    return torch.tensor([[rule(p, text_of(y)) for y in COMPLETIONS] for p in PROMPTS], dtype=torch.float64)


def every_completion_in_proportion(model: TabularModel, temperature: float = 1.0) -> Rollout:
    """512 completions of each prompt, each as often as its probability says exactly: sampling without chance."""
    with torch.no_grad():
        counts = 512 * completion_logprobs(model.table.double(), temperature).exp()
        torch.testing.assert_close(counts, counts.round(), atol=1e-3, rtol=0)
        task = enumerable_task()
        rows = [
            (task.encode_prompt(prompt), completion)
            for prompt, row in zip(PROMPTS, counts.round().int().tolist(), strict=True)
            for completion, count in zip(COMPLETIONS, row, strict=True)
            for _ in range(count)
        ]
        batch = completions_of(*zip(*rows, strict=True))
        hidden = completion_hidden(model, batch)
        logits = model.logits(hidden) / temperature
        drawn = torch.log_softmax(logits, -1).gather(-1, batch.tokens.unsqueeze(-1)).squeeze(-1)
        logprobs = torch.where(batch.mask, drawn, 0.0)
    return Rollout(batch.prompts, batch.prompt_mask, batch.tokens, batch.mask, logprobs, logits, hidden)


def best_table(reference: Weights, rewards: Tensor, beta: float) -> Weights:
    """π* ∝ π_ref·exp(r/β) as a table: the share of each next token among the completions that begin alike."""
    optimal = torch.softmax(completion_logprobs(reference["table"].double()) + rewards / beta, 1)
    weights = copy.deepcopy(reference)
    for number, (prompt, prefix) in enumerate(HISTORIES):
        for token in (EOS, *LETTERS):
            begins = [y[: len(prefix) + 1] == (*prefix, token) for y in COMPLETIONS]
            share = optimal[PROMPTS.index(prompt)][torch.tensor(begins)].sum()
            weights["table"][1 + number, token] = share.log()
    return weights


def tabular_inputs(
    monkeypatch: pytest.MonkeyPatch, policy: Weights, reference: Weights, **changes: Any
) -> TrainerInputs:
    """Inputs of a trainer whose language models are tables."""
    for module in ("core.trainers.models", "core.trainers.ppo", "core.trainers.reward"):
        monkeypatch.setattr(f"{module}.build_language_model", lambda _backbone, size, _seed: TabularModel(size))
    values: dict[str, Any] = {"task": enumerable_task(), "policy": policy, "reference": reference}
    return inputs(**values | changes)


def texts(batch: Completions, task: Task) -> list[tuple[str, str]]:
    """(prompt, completion) of each row."""
    prompts = [task.tokenizer.decode(row) for row in batch.prompts.tolist()]
    return list(zip(prompts, batch.texts(task.tokenizer), strict=True))
