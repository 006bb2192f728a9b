"""``arithmetic``: sums with their working. SFT teaches the form of an answer, RL that it be true. Torch-free."""

import random
from dataclasses import dataclass
from itertools import product

from core.config import Config, knob
from core.rewards.arithmetic import arithmetic_rule, is_right, working
from core.tasks.base import Demonstration, Task

TWO_DIGIT_SUMS = 2000  # of the 8,100 there are
DEMONSTRATIONS = {1: 20, 2: 4}  # of each sum, by digits


@dataclass(frozen=True, kw_only=True)
class ArithmeticOptions(Config):
    """What the sums are like and what counts."""

    digits: int = knob(1, "digits of the numbers", minimum=1, maximum=2)
    wrong_share: float = knob(0.3, "share of the demonstrations whose answer is wrong", minimum=0, maximum=1)
    undemonstrated: int = knob(
        20, "of a hundred sums, those that are never demonstrated, only practised by RL", minimum=1, maximum=90
    )
    working_reward: float = knob(2.0, "reward for right working, beside 10 for a right answer", minimum=0, maximum=10)
    scaled: bool = knob(False, "divide every reward by 10")


def arithmetic(seed: int, options: ArithmeticOptions) -> Task:
    """The task. Its held-out prompts lack demonstrations only: they stand among the prompts that RL practises on."""
    dice = random.Random(seed)
    if options.digits == 1:
        sums = list(product(range(10), repeat=2))
    else:
        sums = dice.sample(list(product(range(10, 100), repeat=2)), TWO_DIGIT_SUMS)
    dice.shuffle(sums)
    secret = round(options.undemonstrated / 100 * len(sums))
    shown = sums[secret:] * DEMONSTRATIONS[options.digits]
    wrong = set(dice.sample(range(len(shown)), round(options.wrong_share * len(shown))))
    prompts = [f"{a}+{b}=" for a, b in sums]
    return Task(
        name="arithmetic",
        title="Sums with working",
        alphabet="0123456789+=<>[]",
        prompts=tuple(prompts[secret:] + prompts[:secret]),
        held_out_prompts=tuple(prompts[:secret]),
        demonstrations=tuple(
            _wrong(a, b, dice) if number in wrong else _right(a, b) for number, (a, b) in enumerate(shown)
        ),
        held_out_demonstrations=tuple(_right(*each) for each in sums[:secret]),
        gold=lambda prompt, completion: arithmetic_rule(prompt, completion, options.working_reward, options.scaled),
        follows=is_right,
        max_new_tokens=16,
        guideline="Which answer is right? With both right or both wrong: whose working is right?",
    )


def _right(a: int, b: int) -> Demonstration:
    return Demonstration(f"{a}+{b}=", f"<{working(a, b)}>[{a + b}]")


def _wrong(a: int, b: int, dice: random.Random) -> Demonstration:
    """A slip of up to three, as often in the working (which the answer then follows) as in the answer alone."""
    slip = dice.choice([each for each in (-3, -2, -1, 1, 2, 3) if a + b + each >= 0])
    *first, last = map(int, working(a, b).split("+"))
    if dice.random() < 0.5 and last + slip >= 0:
        last += slip
    return Demonstration(f"{a}+{b}=", f"<{'+'.join(map(str, [*first, last]))}>[{a + b + slip}]")
