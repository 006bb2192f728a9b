"""``sentences``: Chinese sentences by character, learned from pairs alone, without any rule. Torch-free."""

from importlib import resources

from core.preferences.formats.files import read_file
from core.tasks.base import Demonstration, Task

HELD_OUT = ("春风", "老师", "每天散步", "语言模型")  # openings of four of the six topics


def sentences(_seed: int) -> Task:
    """61 sentences about weather, learning, work, health, friendship and AI, a third of them gloomy, and 40 pairs of
    a warm and a gloomy one; written for this project. The prompt is a sentence's opening.
    """
    with resources.as_file(resources.files("core.tasks").joinpath("data")) as folder:
        completions = read_file(folder / "sentences.jsonl").completions
        pairs = read_file(folder / "sentence_pairs.jsonl").pairs
    texts = [each.prompt + each.completion for each in completions]
    texts += [each.prompt + each.chosen + each.rejected for each in pairs]
    demonstrations = [Demonstration(each.prompt, each.completion) for each in completions]
    return Task(
        name="sentences",
        title="Chinese sentences",
        alphabet="".join(sorted(set("".join(texts)))),
        prompts=tuple(dict.fromkeys(each.prompt for each in completions if each.prompt not in HELD_OUT)),
        held_out_prompts=HELD_OUT,
        demonstrations=tuple(each for each in demonstrations if each.prompt not in HELD_OUT),
        held_out_demonstrations=tuple(each for each in demonstrations if each.prompt in HELD_OUT),
        pairs=pairs,
        max_new_tokens=24,
        guideline="Which sentence is warmer and more encouraging?",
    )
