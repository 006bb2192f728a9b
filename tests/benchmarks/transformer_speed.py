"""Processor time of the transformer's loss and gradient in SFT, as a share of the machine's matrix-product peak.

    OMP_NUM_THREADS=1 python tests/benchmarks/transformer_speed.py

Counted are the multiplications of real tokens with weights alone, three passes of them: neither attention, nor padding.
"""

import random
import time
from collections.abc import Callable

import torch

from core.device import choose_device
from core.losses import sft_loss
from core.models.build import BackboneConfig, build_language_model
from core.sampling import completion_logits, completions_of
from core.tasks.table import load_task

BATCH, REPEATS, TRIES = 256, 5, 12


def seconds(work: Callable[[], object]) -> float:
    """The least processor time of several tries, which other programs disturb least."""
    work()
    best = float("inf")
    for _ in range(TRIES):
        begin = time.process_time()
        for _ in range(REPEATS):
            work()
        best = min(best, (time.process_time() - begin) / REPEATS)
    return best


def main() -> None:
    """Print peak, time and share."""
    choose_device("cpu", threads=1)
    square = torch.randn(1024, 1024)
    peak = 2 * 1024**3 / seconds(lambda: square @ square)
    task = load_task("words", 42)
    shown = random.Random(0).sample(task.demonstrations, BATCH)
    batch = completions_of(
        [task.encode_prompt(each.prompt) for each in shown], [task.encode_completion(each.completion) for each in shown]
    )
    tokens = int(batch.sequences()[1].sum())
    for kind in ("transformer", "lstm"):
        model = build_language_model(BackboneConfig(kind=kind), len(task.tokenizer), 0)
        weights = list(model.parameters())

        def loss_and_gradient(model: torch.nn.Module = model, weights: list[torch.nn.Parameter] = weights) -> None:
            torch.autograd.grad(sft_loss(completion_logits(model, batch), batch.tokens, batch.mask), weights)  # type: ignore[arg-type]

        products = sum(w.numel() for name, w in model.named_parameters() if w.ndim == 2 and "positions" not in name)
        products -= model.embedding.weight.numel()  # type: ignore[union-attr,operator]
        taken = seconds(loss_and_gradient)
        share = 6 * tokens * products / taken / peak
        print(f"{kind:12} {taken * 1e3:.0f} ms, {share:.0%} of a peak of {peak / 1e9:.0f} GFLOP/s on {tokens} tokens")


if __name__ == "__main__":
    main()
