"""How fast this machine trains and samples, against what its matrix product can do.

Rates are of whole steps as the trainers run them. Shares count the model's arithmetic (multiply and add are two, the
backward pass is twice the forward one) for the tokens that must be read: no padding, and no last token that nothing is
predicted from, but by a reward model. Look-ups, losses and optimizers count nothing, so a share says how much of the
peak goes into the model itself.
"""

import dataclasses
import resource
import sys
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from core.methods.dpo import DPOConfig
from core.methods.grpo import GRPOConfig
from core.methods.ppo import PPOConfig
from core.methods.reward import RewardConfig
from core.methods.sft import SFTConfig
from core.models.build import build_language_model
from core.models.config import FEED_FORWARD, BackboneConfig
from core.models.language_model import LanguageModel
from core.preferences.pair import PreferencePair
from core.randomness import generator_for
from core.sampling import generate
from core.tasks.base import Demonstration, Task
from core.tasks.table import load_task
from core.tokenizer import CharTokenizer
from core.trainers.base import Trainer, TrainerInputs, Weights
from core.trainers.dpo import DPOTrainer
from core.trainers.grpo import GRPOTrainer
from core.trainers.ppo import PPOTrainer
from core.trainers.reward import RewardTrainer
from core.trainers.sft import SFTTrainer

LETTERS = 20
WORD_LETTERS, WORD_STEPS = 8, 30  # the least of a word in real use, and updates after which words end about as they do
PROMPT_LETTERS = 4
PROMPT_TOKENS = PROMPT_LETTERS + 2  # with the marks around them
BATCH = 256
PAIR_BATCH = 64
GROUP = 8
MATMUL_SIZE = 1024
ROUNDS, PATIENCE = 8, 2.0  # the least number of rounds, and of seconds of them


@dataclass(frozen=True)
class Speed:
    """One line of the bench. ``share`` is that of the matmul peak, None where it would say nothing."""

    name: str
    rate: float  # items a second, the best of a few rounds
    unit: str
    share: float | None = None


def seconds(works: Sequence[Callable[[], object]], device: torch.device, rounds: int = ROUNDS) -> list[float]:
    """Least seconds of each of ``works``, done in turns, after a round that does not count; brief ones get more rounds.

    The least, since what other programs take away on a shared machine is no property of this one; in turns, so that
    what is compared has met the same minutes of it.
    """
    taken: list[list[float]] = []
    while len(taken) <= rounds or sum(map(sum, taken)) < PATIENCE * len(works):
        taken.append([_seconds(work, device) for work in works])
    return [min(each) for each in zip(*taken[1:], strict=True)]


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    start = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
    return time.perf_counter() - start


def matrix_product(device: torch.device) -> Callable[[], object]:
    """A square float32 matrix product of :data:`MATMUL_SIZE`, ready to be timed."""
    left = torch.randn(MATMUL_SIZE, MATMUL_SIZE, generator=generator_for(0, "matmul")).to(device)
    return lambda: left @ left


def reading_flops(backbone: BackboneConfig, vocabulary: int, length: float) -> float:
    """Arithmetic of a language model that reads a row of ``length`` tokens and predicts after each: two operations a
    weight of its matrices, and what attention multiplies with the tokens before.
    """
    embedding, hidden, layers = backbone.embedding, backbone.hidden, backbone.layers
    weights, attention = hidden * vocabulary, 0.0
    if backbone.kind == "lstm":
        weights += sum(4 * hidden * (below + hidden) for below in [embedding] + [hidden] * (layers - 1))
    else:
        weights += layers * (4 + 2 * FEED_FORWARD) * hidden**2 + (embedding * hidden if embedding != hidden else 0)
        attention = layers * 4.0 * hidden * length * (length + 1) / 2  # each token with itself and those before it
    return 2.0 * weights * length + attention


def letters_task(letters: int = LETTERS) -> Task:
    """Random letters, each completion of ``letters``: the cost is the point, not what is learned."""
    words = load_task("words", 0)
    dice = generator_for(0, "letters")
    rows = torch.randint(26, (4 * BATCH, PROMPT_LETTERS + letters), generator=dice).tolist()
    texts = ["".join(words.alphabet[letter] for letter in row) for row in rows]
    demonstrations = tuple(Demonstration(text[:PROMPT_LETTERS], text[PROMPT_LETTERS:]) for text in texts)
    return dataclasses.replace(
        words, prompts=tuple(each.prompt for each in demonstrations), demonstrations=demonstrations,
        held_out_demonstrations=demonstrations[:BATCH], max_new_tokens=letters,
    )  # fmt: skip


def endless(backbone: BackboneConfig, vocabulary: int) -> Weights:
    """Weights of a model that never writes EOS, so that every completion has all its letters."""
    model = build_language_model(backbone, vocabulary, seed=0)
    with torch.no_grad():
        model.head.bias[CharTokenizer.eos_id] = -1e4
    return model.state_dict()


class Workbench:
    """Trainers on random letters, ready to be timed."""

    def __init__(self, device: torch.device, backbone: BackboneConfig | None = None) -> None:
        self.device = device
        self.backbone = backbone or BackboneConfig()
        self.task = letters_task()
        self.weights = endless(self.backbone, len(self.task.tokenizer))

    def inputs(self, task: Task | None = None, pairs: tuple[PreferencePair, ...] = ()) -> TrainerInputs:
        return TrainerInputs(task or self.task, 0, self.device, self.backbone, policy=self.weights, pairs=pairs)

    def pairs(self, count: int = 1024) -> tuple[PreferencePair, ...]:
        """Pairs of random letters, each completion of full length."""
        shown = self.task.demonstrations
        others = [shown[index * 7 % len(shown) - 1].completion for index in range(count)]
        asked = [shown[index % len(shown)] for index in range(count)]
        return tuple(PreferencePair(a.prompt, a.completion, b) for a, b in zip(asked, others, strict=True))

    def sft(self, batch: int = BATCH) -> Trainer[Any]:
        return SFTTrainer(SFTConfig(batch_size=batch, **NEVER_VALIDATE), self.inputs())

    def ppo(self, epochs: int = 1, batch: int = BATCH) -> Trainer[Any]:
        config = PPOConfig(batch_size=batch, minibatch_size=min(batch, BATCH), epochs=epochs, **NEVER_VALIDATE)
        return PPOTrainer(config, self.inputs())

    def grpo(self, batch: int = BATCH) -> Trainer[Any]:
        """One update a batch, the KL in the loss."""
        config = GRPOConfig(batch_size=batch, minibatch_size=batch, group_size=min(GROUP, batch), **NEVER_VALIDATE)
        return GRPOTrainer(config, self.inputs())

    def dpo(self, batch: int = PAIR_BATCH) -> Trainer[Any]:
        return DPOTrainer(DPOConfig(pairs="file", batch_size=batch, **NEVER_VALIDATE), self.inputs(pairs=self.pairs()))

    def reward(self, batch: int = PAIR_BATCH) -> Trainer[Any]:
        return RewardTrainer(
            RewardConfig(pairs="file", batch_size=batch, **NEVER_VALIDATE), self.inputs(pairs=self.pairs())
        )

    def policy(self) -> LanguageModel:
        model = build_language_model(self.backbone, len(self.task.tokenizer), seed=0)
        model.load_state_dict(self.weights)
        return model.to(self.device)

    def words_policy(self, batch: int = BATCH) -> LanguageModel:
        """A model that has seen long words for a moment: what it writes ends as in real use, after about 9 tokens."""
        shown = self.task.demonstrations
        words = [each.completion for each in load_task("words", 0).demonstrations]
        words = [each for each in words if len(each) >= WORD_LETTERS][: len(shown)]
        demonstrations = tuple(Demonstration(one.prompt, word) for one, word in zip(shown, words, strict=True))
        task = dataclasses.replace(self.task, demonstrations=demonstrations)
        config = SFTConfig(batch_size=batch, **(NEVER_VALIDATE | {"steps": WORD_STEPS}))
        trainer = SFTTrainer(config, TrainerInputs(task, 0, self.device, self.backbone))
        while not trainer.finished:
            one_step(trainer)
        return trainer.policy

    def asked(self, count: int) -> list[list[int]]:
        """So many prompts."""
        prompts = [self.task.encode_prompt(each) for each in self.task.prompts]
        return [prompts[row % len(prompts)] for row in range(count)]

    def tokens_written(self, model: LanguageModel, count: int) -> int:
        """What ``count`` completions have together, EOS included."""
        return int(generate(model, self.asked(count), LETTERS, generator=generator_for(0, "bench")).mask.sum())

    def sampling(self, model: LanguageModel, count: int = BATCH) -> Callable[[], object]:
        """So many completions to be written, ready to be timed."""
        asked, dice = self.asked(count), generator_for(0, "bench")
        return lambda: generate(model, asked, LETTERS, generator=dice)


NEVER_VALIDATE: dict[str, Any] = {"steps": 100_000, "evaluate_every": 100_000}


def one_step(trainer: Trainer[Any]) -> None:
    """A whole step of a trainer."""
    for _ in trainer.step():
        pass


def step_seconds(trainer: Trainer[Any], device: torch.device, rounds: int = ROUNDS) -> float:
    """Least seconds of a training step."""
    return seconds([lambda: one_step(trainer)], device, rounds)[0]


def speeds(
    device: torch.device, backbone: BackboneConfig | None = None, batch: int = BATCH, pair_batch: int = PAIR_BATCH
) -> Generator[Speed, None, None]:
    """The bench's lines, each as soon as it is measured."""
    bench = Workbench(device, backbone)
    product, product_flops = matrix_product(device), 2 * MATMUL_SIZE**3
    yield Speed("matrix product", product_flops / seconds([product], device)[0] / 1e9, "GFLOP/s")
    tokens = PROMPT_TOKENS + LETTERS - 1  # read for one completion: its last letter (or EOS) is only predicted

    def reading(rows: int, length: float) -> float:
        return rows * reading_flops(bench.backbone, len(bench.task.tokenizer), length)

    def speed(name: str, unit: str, items: float, flops: float, taken: float, product_taken: float) -> Speed:
        return Speed(name, items / taken, unit, flops / taken * product_taken / product_flops)

    def of_steps(name: str, unit: str, items: int, trainer: Trainer[Any], flops: float) -> Speed:
        taken, product_taken = seconds([lambda: one_step(trainer), product], device)
        return speed(name, unit, items, flops, taken, product_taken)

    yield of_steps("SFT", "tokens/s", batch * (tokens + 1), bench.sft(batch), 3 * reading(batch, tokens + 1))
    endless_ones, words = bench.policy(), bench.words_policy(batch)
    written = bench.tokens_written(words, batch) / batch
    works = [bench.sampling(endless_ones, batch), bench.sampling(words, batch), product]
    whole, brief, product_taken = seconds(works, device)
    yield speed("sampling", "completions/s", batch, reading(batch, tokens), whole, product_taken)
    name, brief_tokens = f"sampling, {written:.1f} tokens", PROMPT_TOKENS + written - 1
    yield speed(name, "completions/s", batch, reading(batch, brief_tokens), brief, product_taken)
    flops = 3 * reading(2 * pair_batch, tokens + 2)
    yield of_steps("reward model", "pairs/s", pair_batch, bench.reward(pair_batch), flops)
    flops = 3 * reading(2 * pair_batch, tokens + 1)
    yield of_steps("DPO, offline", "pairs/s", pair_batch, bench.dpo(pair_batch), flops)
    for epochs in (1, 4):
        name, flops = f"PPO, {epochs} epoch{'s' if epochs > 1 else ''}", (2 + 3 * epochs) * reading(batch, tokens)
        yield of_steps(name, "completions/s", batch, bench.ppo(epochs, batch), flops)
    name, flops = f"GRPO, groups of {min(GROUP, batch)}", (2 + 3) * reading(batch, tokens)
    yield of_steps(name, "completions/s", batch, bench.grpo(batch), flops)
    yield Speed("memory of the engine", peak_memory() / 1e6, "MB")


def peak_memory() -> float:
    """The most memory that this process has had, bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)


def growth(device: torch.device, kind: str = "lstm") -> Generator[Speed, None, None]:
    """How cost grows with size, per item: microseconds that one item of a batch takes."""
    bench = Workbench(device, BackboneConfig(kind=kind))
    for batch in (16, 64, 256, 1024, 4096):
        taken = step_seconds(bench.ppo(1, batch), device, rounds=3)
        yield Speed(f"PPO, batch {batch}", 1e6 * taken / batch, "µs/completion")
    for hidden in (64, 128, 256, 512):
        wide = Workbench(device, BackboneConfig(kind=kind, hidden=hidden))
        flops = 3 * BATCH * reading_flops(wide.backbone, len(wide.task.tokenizer), PROMPT_TOKENS + LETTERS)
        yield Speed(f"SFT, hidden {hidden}", 1e12 * step_seconds(wide.sft(), device, rounds=3) / flops, "ps/FLOP")
