"""SFT: what is learned from a demonstration, and what is not."""

import itertools
import math

import pytest
import torch
from trainer_toys import inputs, micro_task, one_step, spy, steps

import core.trainers.sft as sft_module
from core.methods.sft import SFTConfig
from core.tasks.base import Demonstration, TaskError
from core.tasks.table import load_task
from core.trainers.sft import SFTTrainer


def config(**knobs) -> SFTConfig:
    settings = {"steps": 100, "batch_size": 16, "learning_rate": 1e-2, "evaluate_every": 1000}
    return SFTConfig(**settings | knobs)


def test_a_demonstrations_letters_and_its_eos_count_and_its_prompt_does_not(monkeypatch):
    calls = spy(monkeypatch, sft_module, "sft_loss")
    trainer = SFTTrainer(config(batch_size=30), inputs())
    one_step(trainer)
    (_, tokens, mask), _, _ = calls[0]
    found = sorted(row[kept].tolist() for row, kept in zip(tokens, mask, strict=True))
    task = trainer.inputs.task
    ids = {"a": 4, "b": 5, "c": 6}
    assert found == sorted([*(ids[letter] for letter in each.completion), 2] for each in task.demonstrations)


def test_loss_is_the_mean_over_letters_worked_out_one_by_one(monkeypatch):
    trainer = SFTTrainer(config(batch_size=30), inputs())
    task, model, logprobs, right = trainer.inputs.task, trainer.policy, [], 0
    with torch.no_grad():
        for each in task.demonstrations:
            prefix = task.encode_prompt(each.prompt)
            for token in task.encode_completion(each.completion):
                likely = torch.log_softmax(model(torch.tensor([prefix]))[0, -1], -1)
                logprobs.append(likely[token].item())
                right += likely.argmax().item() == token
                prefix.append(token)
    metrics = one_step(trainer)
    assert metrics["loss"] == pytest.approx(-sum(logprobs) / len(logprobs), rel=1e-5)
    assert metrics["mean_token_accuracy"] == pytest.approx(right / len(logprobs))
    assert 0 < metrics["entropy"] <= math.log(4)


def test_it_learns_to_stop_and_to_heed_prompts_it_never_saw():
    """Held-out prompts end in letters that trained prompts end in, too: heeding the last letter carries over."""
    every = ["".join(letters) for n in (1, 2, 3) for letters in itertools.product("abc", repeat=n)]
    held_out = micro_task(cap=8, prompts=tuple(every[3::4]))
    task = micro_task(cap=8, prompts=tuple(prompt for prompt in every if prompt not in held_out.prompts))
    trainer = SFTTrainer(config(steps=80, evaluate_every=80, learning_rate=3e-2), inputs(task=task))
    first, *_, last = steps(trainer, 80)
    assert last["loss"] < first["loss"] / 2
    assert last["validation_loss"] < 0.75
    rollout = sft_module.probe_rollout(trainer.policy, held_out, held_out.prompts, 400, 0)
    found = sft_module.measure(rollout, held_out, None, None, None)
    assert found.ended > 0.95
    assert found.follows_prompt > 0.9
    assert found.unique_fraction > 3 / 256, "and has not collapsed to one answer"


def test_without_eos_in_the_data_it_would_not_stop(monkeypatch):
    """The test above can fail: with EOS taken from the demonstrations, completions run to the limit."""
    task = micro_task(cap=8)
    object.__setattr__(task, "encode_completion", lambda text: task.tokenizer.encode(text))
    trainer = SFTTrainer(config(evaluate_every=60, steps=60), inputs(task=task))
    assert steps(trainer, 60)[-1]["completions/clipped_ratio"] > 0.9


def test_validation_loss_is_on_held_out_demonstrations_alone(monkeypatch):
    task = micro_task(held_out_demonstrations=(Demonstration("ac", "cab"),))
    trainer = SFTTrainer(config(steps=1, learning_rate=0.0, warmup=0.0), inputs(task=task))
    prefix, total = task.encode_prompt("ac"), 0.0
    for token in task.encode_completion("cab"):
        total -= torch.log_softmax(trainer.policy(torch.tensor([prefix]))[0, -1], -1)[token].item()
        prefix.append(token)
    assert one_step(trainer)["validation_loss"] == pytest.approx(total / 4, rel=1e-5)


def test_the_lowest_validation_loss_is_the_best():
    """From a good start with a learning rate that ruins it."""
    trainer = SFTTrainer(config(steps=40, evaluate_every=5, keep_best=True, schedule="constant"), inputs())
    losses = []
    for _ in range(8):
        losses.append(steps(trainer, 5)[-1]["validation_loss"])
        if len(losses) == 4:
            trainer.set_knob("learning_rate", 1.0)
    assert trainer.best.value == min(losses)
    assert trainer.best.step < 40
    assert trainer.validation_loss() == pytest.approx(min(losses), rel=1e-5)


def test_a_demonstration_with_a_letter_outside_the_alphabet_is_refused():
    task = micro_task(demonstrations=(Demonstration("a", "aß"),))
    with pytest.raises(TaskError, match="letters outside the alphabet: ß"):
        SFTTrainer(config(), inputs(task=task))


def test_runs_of_one_seed_are_alike_and_of_two_are_not():
    ends = [steps(SFTTrainer(config(), inputs(seed=seed)), 3)[-1]["loss"] for seed in (1, 1, 2)]
    assert ends[0] == ends[1] != ends[2]


@pytest.mark.parametrize("seed", [0, 42])
def test_held_out_prompts_and_words_of_the_word_chain_are_in_no_demonstration(seed):
    task = load_task("words", seed)
    assert task.held_out_prompts
    assert not set(task.held_out_prompts) & set(task.prompts)
    assert not set(task.held_out_prompts) & {each.prompt for each in task.demonstrations}
    trained = {each.completion for each in task.demonstrations}
    assert not trained & {each.completion for each in task.held_out_demonstrations}
    assert {each.prompt for each in task.held_out_demonstrations} <= set(task.held_out_prompts)
