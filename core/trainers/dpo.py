"""Direct preference optimisation (arXiv 2305.18290), from fixed pairs or from candidates judged as they come."""

from collections.abc import Generator

import torch
from torch import Tensor

from core.evaluation.probe import sequence_kl
from core.extension import load_function
from core.logprobs import entropy, masked_mean
from core.losses import dpo_loss, hinge_loss, ipo_loss, robust_dpo_loss, simpo_loss
from core.methods.dpo import DPOConfig
from core.randomness import generator_for
from core.rewards.sources import RewardSource
from core.sampling import Completions, Rollout, generate
from core.trainers.base import Phase, TrainerAlert, TrainerInputs
from core.trainers.pairs import PairBatch, encode_pairs, pairs_of_task, together
from core.trainers.preferences import PreferenceTrainer
from core.trainers.updates import example_order, learning_rate, to_floats, update

FEWEST_PAIRS = 2


class DPOTrainer(PreferenceTrainer[DPOConfig]):
    """Widen the gap between chosen and rejected log-ratios to the reference."""

    config_class = DPOConfig

    def __init__(self, config: DPOConfig, inputs: TrainerInputs) -> None:
        super().__init__(config, inputs)
        self.fixed: PairBatch | None = None  # offline pairs, made in the first step
        self.custom_loss = load_function(config.custom_loss) if config.custom_loss else None
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
                self.fixed_reference = (yield from self.reference_logprobs(self.fixed.both())).view(2, -1)
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
        if self.validates and config.pairs == "online":
            probed, validation = self.validate(self.beta)
            found |= probed
        elif self.validates:
            probed, validation = self.measured_by_sampling()
            found |= probed
            self.watch_kl(found["objective/kl"])
        return self.end_step(found, validation)

    def update(self, pairs: PairBatch, reference: Tensor) -> dict[str, Tensor | float]:
        """One step on pairs with their reference log-probs [2, N]."""
        config = self.config
        policy = self.sequence_logprobs(self.policy, pairs.both()).view(2, -1)
        lengths = torch.stack([pairs.chosen.mask.sum(1), pairs.rejected.mask.sum(1)]).clamp(min=1)
        losses, rewards = self.losses(policy, reference, lengths)
        loss, more = self.with_sft(losses.mean(), policy[0], lengths[0])
        rate = learning_rate(config, self.step_number)
        norm = update(loss, {self.optimizer: rate}, config.max_grad_norm)
        return more | {
            "loss": losses.detach().mean(),
            "rewards/chosen": rewards[0].mean(),
            "rewards/rejected": rewards[1].mean(),
            "rewards/accuracies": (rewards[0] > rewards[1]).float().mean(),
            "rewards/margins": (rewards[0] - rewards[1]).mean(),
            "logps/chosen": policy[0].detach().mean(),
            "logps/rejected": policy[1].detach().mean(),
            "grad_norm": norm,
            "lr": rate,
        }

    def losses(self, policy: Tensor, reference: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of each pair [N] and the implicit rewards of its two completions [2, N], as the ``loss`` knob says.

        ``policy`` and ``reference`` are summed log-probs of chosen and rejected, ``lengths`` their tokens, [2, N].
        """
        config, beta = self.config, self.beta
        if config.loss == "simpo" and self.custom_loss is None:
            means = policy / lengths
            losses = simpo_loss(means[0], means[1], config.simpo_beta, config.simpo_gamma)
            return losses, config.simpo_beta * means.detach()
        if config.loss == "ipo" and config.ipo_logprobs == "mean" and self.custom_loss is None:
            policy, reference = policy / lengths, reference / lengths
        four = (policy[0], policy[1], reference[0], reference[1])
        rewards = beta * (policy.detach() - reference)
        if self.custom_loss is not None:
            losses = self.custom_loss(*four, beta)
            if losses.shape != policy[0].shape:
                raise ValueError(f"{config.custom_loss} must return one loss per pair, not shape {tuple(losses.shape)}")
            return losses, rewards
        if config.loss == "robust":
            return robust_dpo_loss(*four, beta, config.label_smoothing), rewards
        if config.loss == "hinge":
            return hinge_loss(*four, beta), rewards
        if config.loss == "ipo":
            return ipo_loss(*four, config.tau), rewards / beta * config.tau
        return dpo_loss(*four, beta, config.label_smoothing), rewards

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
            pairs += yield from pairs_of_task(
                self.first_reference(), inputs.task, config.taste, config.pair_count, config.label_noise, inputs.seed
            )
        if len(pairs) < FEWEST_PAIRS:
            raise ValueError(f"{len(pairs)} decided pairs are too few to train on; give at least {FEWEST_PAIRS}")
        return encode_pairs(inputs.task, pairs, inputs.device)

    def next_fixed_pairs(self) -> tuple[PairBatch, Tensor]:
        """This step's pairs with their reference log-probs."""
        assert self.fixed is not None and self.fixed_reference is not None
        order = example_order(len(self.fixed), self.config.batch_size, self.inputs.seed, self.step_number)
        self.completions += len(order)
        order = order.to(self.inputs.device)
        return self.fixed.rows(order), self.fixed_reference[:, order]


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
