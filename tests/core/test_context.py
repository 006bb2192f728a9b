"""Whether a task fits a transformer's context is known before a run starts."""

import pytest
import torch

from core.methods.sft import SFTConfig
from core.models.config import BackboneConfig, ContextError
from core.models.context import check_context
from core.preferences.pair import PreferencePair
from core.tasks.base import Demonstration, Task
from core.trainers.base import TrainerInputs
from core.trainers.sft import SFTTrainer


def toy(prompt: str = "ab", completion: str = "abc", most: int = 4) -> Task:
    return Task(
        name="toy", title="Toy", alphabet="abc", prompts=(prompt,), held_out_prompts=("a",), max_new_tokens=most,
        demonstrations=(Demonstration("a", completion),), held_out_demonstrations=(Demonstration("a", "b"),),
    )  # fmt: skip


def transformer(context: int) -> BackboneConfig:
    return BackboneConfig(kind="transformer", hidden=8, heads=2, layers=1, context=context)


@pytest.mark.parametrize(
    ("task", "pairs", "needed"),
    [
        (toy(), (), 8),  # two markers, ab, four letters
        (toy(completion="abcabcab"), (), 12),  # two markers, a, eight letters, EOS
        (toy(), (PreferencePair("ab", "c", "abcabcabc"),), 14),
    ],
)
def test_the_longest_text_must_fit(task, pairs, needed):
    check_context(task, transformer(needed), pairs)
    with pytest.raises(ContextError, match=rf"takes {needed} tokens, more than the context of {needed - 1}; .*lstm"):
        check_context(task, transformer(needed - 1), pairs)
    check_context(task, BackboneConfig(), pairs)


def test_a_run_that_cannot_fit_does_not_start():
    with pytest.raises(ValueError, match="more than the context of 7"):
        SFTTrainer(SFTConfig(steps=1), TrainerInputs(toy(), 0, torch.device("cpu"), transformer(7)))
    SFTTrainer(SFTConfig(steps=1), TrainerInputs(toy(), 0, torch.device("cpu"), transformer(8)))
