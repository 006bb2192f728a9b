"""Direct preference optimisation (arXiv 2305.18290), from fixed pairs or from candidates judged as they come."""

from collections.abc import Generator, Mapping

import torch
from torch import Tensor

from core.evaluation.probe import sequence_kl
from core.logprobs import entropy, masked_mean, masked_sum
from core.losses import dpo_loss
from core.methods.dpo import DPOConfig
from core.models.language_model import LanguageModel
from core.randomness import generator_for
from core.rewards.sources import RewardSource
from core.sampling import Completions, Rollout, completion_logits, generate
from core.trainers.base import Phase, TrainerAlert, TrainerInputs, TrainerState
from core.trainers.pairs import PairBatch, automatic_judge, automatic_pairs, encode_pairs, together
from core.trainers.policy import PolicyTrainer
from core.trainers.updates import example_order, learning_rate, make_optimizer, to_floats, update

FEWEST_PAIRS = 2
CHUNK = 512  # completions whose reference log-probs are computed between two returns of control


class DPOTrainer(PolicyTrainer[DPOConfig]):
    """Widen the gap between chosen and rejected log-ratios to the reference."""

    config_class = DPOConfig

    def __init__(self, config: DPOConfig, inputs: TrainerInputs) -> None:
        super().__init__(config, inputs)
        self.optimizer = make_optimizer(self.policy.parameters(), config)
        self.fixed: PairBatch | None = None  # offline pairs and their reference log-probs, made in the first step
        self.fixed_reference: Tensor | None = None  # [2, N]
        if config.pairs == "online":
            self.judge = self._judge()

    def _judge(self) -> RewardSource:
        judge = {"gold": self.gold, "learned": self.learned}[self.config.judge]
        if judge is None:
            raise ValueError(f"judge={self.config.judge} needs a {self.config.judge} reward, and there is none")
        return judge

    def step(self) -> Generator[Phase, None, dict[str, float]]:
        """One batch of pairs."""
        config = self.config
        metrics: dict[str, Tensor | float] = {}
        if config.pairs == "online":
            pairs, reference = yield from self.judged_candidates(metrics)
        else:
            if self.fixed is None:
                self.fixed = yield from self.prepare()
            if self.fixed_reference is None:
                self.fixed_reference = yield from self.reference_logprobs(self.fixed)
            pairs, reference = self.next_fixed_pairs()
        if len(pairs):
            metrics |= self.update(pairs, reference)
        else:
            self.alerts.append(TrainerAlert("pairs", "no two candidates differ in score: nothing to learn from"))
        yield "update"
        found = to_floats(metrics)
        if "objective/kl" in found:
            self.watch_kl(found["objective/kl"])
        validation = None
        if self.validates:
            probed, validation = self.validate(config.beta)
            found |= probed
            if config.pairs != "online":
                named = ("gold_reward", "learned_reward", "objective/kl")
                found |= {name: probed[f"probe/{name}"] for name in named if f"probe/{name}" in probed}
                self.watch_kl(found["objective/kl"])
        return self.end_step(found, validation)

    def update(self, pairs: PairBatch, reference: Tensor) -> dict[str, Tensor | float]:
        """One step on pairs with their reference log-probs [2, N] (Eq 7)."""
        config = self.config
        chosen, rejected = self.sequence_logprobs(self.policy, pairs.both()).chunk(2)
        losses = dpo_loss(chosen, rejected, reference[0], reference[1], config.beta, config.label_smoothing)
        rate = learning_rate(config, self.step_number)
        norm = update(losses.mean(), [self.optimizer], rate, config.max_grad_norm)
        rewards = config.beta * (torch.stack([chosen, rejected]).detach() - reference)
        return {
            "loss": losses.detach().mean(),
            "rewards/chosen": rewards[0].mean(),
            "rewards/rejected": rewards[1].mean(),
            "rewards/accuracies": (rewards[0] > rewards[1]).float().mean(),
            "rewards/margins": (rewards[0] - rewards[1]).mean(),
            "logps/chosen": chosen.detach().mean(),
            "logps/rejected": rejected.detach().mean(),
            "grad_norm": norm,
            "lr": rate,
        }

    def sequence_logprobs(self, model: LanguageModel, batch: Completions) -> Tensor:
        """log p(completion | prompt) at the training temperature, summed over its tokens, [B]."""
        logits = completion_logits(model, batch, self.config.temperature)
        drawn = torch.log_softmax(logits, -1).gather(-1, batch.tokens.unsqueeze(-1)).squeeze(-1)
        return masked_sum(drawn, batch.mask, 1)

    def judged_candidates(self, metrics: dict[str, Tensor | float]) -> Generator[Phase, None, tuple[PairBatch, Tensor]]:
        """Best and worst of each prompt's candidates, with reference log-probs; ties are left out."""
        config, task = self.config, self.inputs.task
        order = example_order(len(task.prompts), config.batch_size, self.inputs.seed, self.step_number)
        prompts = [
            task.encode_prompt(task.prompts[index]) for index in order.tolist() for _ in range(config.candidates)
        ]
        dice = generator_for(self.inputs.seed, "rollout", self.step_number)
        candidates = self.checked(
            generate(self.policy, prompts, task.max_new_tokens, config.temperature, generator=dice, keep=True)
        )
        self.completions += len(prompts)
        yield "rollout"
        scores = self.judge(candidates).view(-1, config.candidates)
        first = torch.arange(len(scores), device=scores.device) * config.candidates
        best, worst = first + scores.argmax(1), first + scores.argmin(1)
        differs = (scores.amax(1) > scores.amin(1)).nonzero().squeeze(1)
        metrics |= self.describe(candidates, first)
        yield "scoring"
        if not len(differs):
            return empty_pairs(candidates), torch.zeros(2, 0, device=scores.device)
        batch = together(candidates.rows(best[differs]), candidates.rows(worst[differs]))
        with torch.no_grad():
            reference = torch.stack(self.sequence_logprobs(self.reference, batch).chunk(2))
        return split_pairs(batch), reference

    @torch.no_grad()
    def describe(self, candidates: Rollout, first: Tensor) -> dict[str, Tensor | float]:
        """Reward of all candidates; entropy and KL of the first of each prompt, a fair sample of the policy."""
        assert candidates.logits is not None
        fair = candidates.rows(first)
        width = fair.tokens.shape[1]
        logits = candidates.logits[first, :width]
        sample = Rollout(
            fair.prompts, fair.prompt_mask, fair.tokens, fair.mask, candidates.logprobs[first, :width], logits
        )
        metrics: dict[str, Tensor | float] = {
            "objective/kl": sequence_kl(sample, self.reference, self.config.temperature).mean(),
            "objective/entropy": masked_mean(entropy(logits), fair.mask),
            "completions/mean_length": (candidates.mask & (candidates.tokens >= 4)).sum(1).float().mean(),
        }
        if self.gold is not None:
            metrics["gold_reward"] = self.gold(candidates).mean()
        if self.learned is not None:
            metrics["learned_reward"] = self.learned(candidates).mean()
        return metrics

    def prepare(self) -> Generator[Phase, None, PairBatch]:
        """Collect the fixed pairs."""
        config, inputs = self.config, self.inputs
        pairs = [pair for pair in inputs.pairs if pair.target != 0.5] if config.pairs != "automatic" else []
        if config.pairs in ("automatic", "mixed"):
            judge = automatic_judge(inputs.task, config.taste)
            pairs += yield from automatic_pairs(
                self.reference, inputs.task, judge, config.pair_count, config.label_noise, inputs.seed
            )
        if len(pairs) < FEWEST_PAIRS:
            raise ValueError(f"{len(pairs)} decided pairs are too few to train on; give at least {FEWEST_PAIRS}")
        return encode_pairs(inputs.task, pairs, inputs.device)

    def reference_logprobs(self, pairs: PairBatch) -> Generator[Phase, None, Tensor]:
        """Log-probs of chosen and rejected under the reference at the training temperature, [2, N]."""
        both, parts = pairs.both(), []
        for rows in torch.arange(len(both), device=self.inputs.device).split(CHUNK):
            with torch.no_grad():
                parts.append(self.sequence_logprobs(self.reference, both.rows(rows)))
            yield "reference"
        return torch.cat(parts).view(2, -1)

    def set_knob(self, name: str, value: object) -> None:
        super().set_knob(name, value)
        if name == "temperature":
            self.fixed_reference = None  # it divides the logits of policy and reference alike

    def next_fixed_pairs(self) -> tuple[PairBatch, Tensor]:
        """This step's pairs with their reference log-probs."""
        assert self.fixed is not None and self.fixed_reference is not None
        order = example_order(len(self.fixed), self.config.batch_size, self.inputs.seed, self.step_number)
        self.completions += len(order)
        order = order.to(self.inputs.device)
        return self.fixed.rows(order), self.fixed_reference[:, order]

    def optimizers(self) -> Mapping[str, torch.optim.Optimizer]:
        return {"policy": self.optimizer}

    def extra_state(self) -> TrainerState:
        return TrainerState({}, {"alarmed": self.alarmed})

    def load_extra_state(self, state: TrainerState) -> None:
        self.alarmed = state.values["alarmed"]


def split_pairs(both: Completions) -> PairBatch:
    """Chosen rows followed by rejected rows as decided pairs."""
    count = len(both) // 2
    index = torch.arange(len(both), device=both.tokens.device)
    ones = torch.ones(count, device=both.tokens.device)
    return PairBatch(both.rows(index[:count]), both.rows(index[count:]), ones / 2, ones)


def empty_pairs(like: Completions) -> PairBatch:
    """No pairs at all."""
    none = Completions(like.prompts[:0], like.prompt_mask[:0], like.tokens[:0], like.mask[:0])
    nothing = torch.zeros(0, device=like.tokens.device)
    return PairBatch(none, none, nothing, nothing)
