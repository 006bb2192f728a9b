"""An app whose engine writes completions that a test can foresee, and scores them by a rule of its own."""

import itertools
from typing import Any

from app_helpers import DirectApp

from core.engine.protocol import Command, Event, RunState, Sample, Samples, SampleText, Score, Scores
from core.store import Session
from rlhf_tui.screens.label import LabelScreen

SYLLABLES = ("ba", "be", "di", "do", "fu", "ga", "ke", "li", "mo", "nu", "ra", "se")


def written(run: int | None, prompt: str, seed: int, number: int) -> str:
    """A text of its own for each run, prompt, seed and number; it says who wrote it by its length."""
    place = sum(map(ord, prompt)) * 7 + seed * 31 + number * 5
    parts = [SYLLABLES[(place // 12**power) % 12] for power in range(3)]
    return prompt[-1] + "".join(parts) + SYLLABLES[number % 12] + "x" * (run or 0)


class LabellingApp(DirectApp):
    """``policy_texts``: what run 2 writes, when that is to be told; ``reward``: run and step of a reward model."""

    def __init__(self, session: Session, **options: Any) -> None:
        super().__init__(session, screen="label", **options)
        self.only_text = ""  # every completion, of a model that has collapsed
        self.reward: tuple[int, int] | None = None
        self.members = 3

    def scores(self, text: str) -> list[float]:
        """Members agree that long words are good, and disagree about the letter a."""
        return [len(text) + member * text.count("a") * 0.5 for member in range(self.members)]

    async def ask(self, command: type[Command], **fields: Any) -> Event | None:
        if command is Sample and fields.get("prompts"):
            self.asked.append((command.__name__, fields))
            return self._samples(**fields)
        if command is Score:
            self.asked.append((command.__name__, fields))
            run = fields.get("reward_run") or (self.reward or (1, 0))[0]
            return Scores(id=1, reward_run=run, reward_step=0, scores=[self.scores(each) for each in fields["texts"]])
        return await super().ask(command, **fields)

    def _samples(self, run: int, prompts: list[str], count: int, seed: int, **_: Any) -> Samples:
        texts = []
        for prompt, number in itertools.product(prompts, range(count)):
            text = self.only_text or written(run, prompt, seed, number)
            members = self.scores(text) if self.reward else []
            learned = sum(members) / len(members) if members else None
            texts.append(
                SampleText(prompt=prompt, text=text, ended=True, learned_reward=learned, member_rewards=members)
            )
        reward_run, reward_step = self.reward or (None, None)
        return Samples(id=1, run=run, step=9, samples=texts, reward_run=reward_run, reward_step=reward_step)

    def with_run(self, number: int, method: str, **inputs: Any) -> None:
        """Let a run begin and end."""
        self.take(RunState(run=number, method=method, title="", state="running", step=8, steps=9))
        self.take(RunState(run=number, method=method, title="", state="done", step=9, steps=9))
        self.state.runs[number].inputs = inputs
        self.state.runs[number].seed = 1
        self.script.session_runs = max(self.script.session_runs, number)


def label_screen(app: LabellingApp) -> LabelScreen:
    assert isinstance(app.screen, LabelScreen)
    return app.screen
