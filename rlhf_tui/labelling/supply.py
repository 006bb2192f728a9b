"""The supply of completions: which prompts to ask for next, and the engine's answer as candidates."""

import random
from typing import Any

from core.engine.protocol import Samples, Scores
from core.preferences.labels import Side
from core.preferences.selection import Candidate
from core.tasks.base import Task
from rlhf_tui.labelling.desk import Scored
from rlhf_tui.labelling.sources import Writer

PROMPTS = 24  # asked for at once
COMPLETIONS = 6  # of each prompt and source: 15 pairs
EVERY = 12  # labels between two askings, so that the pool follows a policy that trains


class Supply:
    """Walks through the task's prompts in a shuffled order, a new one each time round."""

    def __init__(self, task: Task, seed: int, already: int = 0) -> None:
        self.task = task
        self.seed = seed
        self.asked = already  # askings before this one: a session that is opened again gets new texts

    def fields(self, writer: Writer, temperature: float) -> dict[str, Any]:
        """What to ask the engine for, of one of the sources; the same prompts for all of them."""
        return {
            "run": writer.run, "step": writer.step, "prompts": self._prompts(), "count": COMPLETIONS,
            "seed": self.asked, "temperature": temperature,
        }  # fmt: skip

    def turn(self) -> None:
        """Other prompts and another seed from here on."""
        self.asked += 1

    def _prompts(self) -> list[str]:
        prompts = list(self.task.prompts)
        a_round = -(-len(prompts) // PROMPTS)  # askings in which each prompt comes once
        round_, place = divmod(self.asked, a_round)
        random.Random(f"{self.seed}/prompts/{round_}").shuffle(prompts)
        return prompts[place * PROMPTS : (place + 1) * PROMPTS]


def candidates_of(samples: Samples, writer: Writer, fields: dict[str, Any]) -> Scored:
    """The engine's answer to :meth:`Supply.fields`."""
    found = tuple(
        Candidate(
            each.prompt,
            Side(
                each.text, writer.name, run=samples.run, step=samples.step, temperature=fields["temperature"],
                seed=fields["seed"], score=each.learned_reward,
            ),
            tuple(each.member_rewards),
        )
        for each in samples.samples
    )  # fmt: skip
    reward = None
    if samples.reward_run is not None and samples.reward_step is not None:
        reward = samples.reward_run, samples.reward_step
    return Scored(found, reward)


def part_of(candidates: list[Candidate], turn: int, size: int) -> list[Candidate]:
    """The part number ``turn`` of a long list, from its beginning again after its end; all of a short one."""
    parts = max(1, -(-len(candidates) // size))
    return candidates[turn % parts * size :][:size]


def with_scores(candidates: list[Candidate], scores: Scores | None) -> Scored:
    """Candidates of a file with what a reward model says of them, if there is one."""
    if scores is None:
        return Scored(tuple(candidates))
    scored = []
    for each, members in zip(candidates, scores.scores, strict=True):
        if members is None:
            scored.append(each)
            continue
        side = Side(each.side.text, each.side.source, score=sum(members) / len(members))
        scored.append(Candidate(each.prompt, side, tuple(members)))
    return Scored(tuple(scored), (scores.reward_run, scores.reward_step))
