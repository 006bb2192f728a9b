"""``words``: a word chain. The answer is word-like and begins with the prompt's last letter. Torch-free."""

import random
import string
from collections import Counter, defaultdict
from importlib import resources

from core.rewards.words import word_rule
from core.tasks.base import Demonstration, Task

FAMILIAR = [
    *("hello", "thank", "please", "world", "learn", "think", "write", "speak", "teach", "dream"),
    *("build", "plant", "water", "light", "stone", "bread", "house", "train", "ocean", "music"),
]
PROMPTS, HELD_OUT = 400, 60
ANSWERS_PER_PROMPT = 24
HELD_OUT_WORDS = 0.05
ENOUGH = 5  # trained prompts that must end in the last letter of a held-out one


def follows(prompt: str, completion: str) -> bool:
    """Does the completion begin with the prompt's last letter?"""
    return completion[:1] == prompt[-1:]


def word_list() -> list[str]:
    """3,303 common English words of 4 to 9 letters, in alphabetical order; origin in ``data/README.md``."""
    return resources.files("core.tasks").joinpath("data/english_words.txt").read_text("ascii").split()


def words(seed: int) -> Task:
    """The task; which prompts and words are held out, and who answers whom, depends on ``seed``."""
    dice = random.Random(seed)
    vocabulary = word_list()
    answers = defaultdict(list)
    for word in vocabulary:
        answers[word[0]].append(word)

    candidates = [word for word in vocabulary if word not in FAMILIAR and len(answers[word[-1]]) >= ANSWERS_PER_PROMPT]
    dice.shuffle(candidates)
    prompts = FAMILIAR + candidates[: PROMPTS - len(FAMILIAR)]
    endings = Counter(word[-1] for word in prompts)
    held_out_prompts = [word for word in candidates[len(prompts) :] if endings[word[-1]] >= ENOUGH][:HELD_OUT]
    held_out_words = set(dice.sample(vocabulary, int(HELD_OUT_WORDS * len(vocabulary))))

    def demonstrate(prompt: str, known: bool) -> list[Demonstration]:
        fitting = [word for word in answers[prompt[-1]] if (word not in held_out_words) == known and word != prompt]
        chosen = dice.sample(fitting, min(ANSWERS_PER_PROMPT, len(fitting)))
        return [Demonstration(prompt, word) for word in chosen]

    return Task(
        name="words",
        title="Word chain",
        alphabet=string.ascii_lowercase,
        prompts=tuple(prompts),
        held_out_prompts=tuple(held_out_prompts),
        demonstrations=tuple(each for prompt in prompts for each in demonstrate(prompt, known=True)),
        held_out_demonstrations=tuple(each for prompt in held_out_prompts for each in demonstrate(prompt, known=False)),
        gold=lambda _prompt, completion: word_rule(completion),
        gold_batched="core.rewards.words_batched:word_rule_batched",
        follows=follows,
        guideline="Which word is more pleasant to say?",
    )
