"""Best of n as a run: nothing learns, so that its figures stand beside those of runs that do."""

from collections.abc import Generator, Mapping

import torch
from torch import Tensor

from core.evaluation.best_of_n import KL_COMPLETIONS, BestOf, BestOfNPoint, best_of_n_point, probe_best_of_n
from core.methods.best_of_n import BestOfNConfig
from core.randomness import generator_for
from core.sampling import Rollout, generate
from core.trainers.base import Phase, TrainerInputs
from core.trainers.experience import Experience, Metrics
from core.trainers.groups import GroupTrainer


class BestOfNTrainer(GroupTrainer[BestOfNConfig]):
    """Draw n, keep the best, say how good it is and how far from the policy that drew."""

    config_class = BestOfNConfig

    def __init__(self, config: BestOfNConfig, inputs: TrainerInputs) -> None:
        super().__init__(config, inputs)
        self.point: BestOfNPoint | None = None  # reward and KL on the probe prompts, until the temperature is turned
        self.placed_at = 0.0  # the temperature that it was measured at

    def step(self) -> Generator[Phase, None, dict[str, float]]:
        """One batch of groups."""
        if self.point is None or self.placed_at != self.config.temperature:
            self.point, self.placed_at = (yield from self.place()), self.config.temperature
        scored, metrics = self.score(self.rollout())
        rewards = scored.scores.view(-1, self.group_size)
        rows = torch.arange(len(rewards), device=rewards.device) * self.group_size + rewards.argmax(1)
        best = scored.rollout.rows(rows)
        if self.gold is not None:
            metrics["gold_reward"] = self.gold(best).mean()
        if self.learned is not None:
            metrics["learned_reward"] = self.learned(best).mean()
        metrics |= {
            "objective/scores": scored.scores[rows].mean(),
            "objective/rlhf_reward": scored.scores[rows].mean() - self.kl_coef * self.point.kl,
            "objective/kl": self.point.kl,
            "objective/kl_bound": self.point.kl_bound,
            "completions/mean_length": (best.mask & (best.tokens >= 4)).sum(1).float().mean(),
            "completions/clipped_ratio": (~best.ended).float().mean(),
        }
        del metrics["kl"], metrics["val/num_eos_tokens"]
        yield "scoring"
        return self.close_step(metrics)

    def place(self) -> Generator[Phase, None, BestOfNPoint]:
        """Reward and KL on the probe prompts."""
        task, rewards = self.inputs.task, []
        for number, prompt in enumerate(task.probe_prompts):
            dice = generator_for(self.inputs.seed, "best of n", number)
            asked = [task.encode_prompt(prompt)] * max(KL_COMPLETIONS, 2 * self.group_size)
            drawn = generate(self.policy, asked, task.max_new_tokens, self.config.temperature, generator=dice)
            rewards.append(self.reward(drawn))
            yield "probe"
        return best_of_n_point(torch.stack(rewards), self.group_size)

    def probe(self, count: int, temperature: float) -> Rollout:
        """The best of n of each."""
        task = self.inputs.task
        return probe_best_of_n(
            self.policy, task, task.probe_prompts, count, 0, BestOf(self.group_size, self.reward), temperature
        )  # fmt: skip

    def probed_kls(self, rollout: Rollout, temperature: float) -> dict[str, float]:
        """Of the policy that picks; the one that draws is the reference."""
        assert self.point is not None
        return {"probe/objective/kl": self.point.kl}

    def advantages(self, rewards: Tensor) -> Tensor:
        return torch.zeros_like(rewards)

    def policy_loss(self, logits: Tensor, logprobs: Tensor, experience: Experience) -> tuple[Tensor, Metrics]:
        return logits.new_zeros(()), {}

    def optimizers(self) -> Mapping[str, torch.optim.Optimizer]:
        return {}
