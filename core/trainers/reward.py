"""The reward model's trainer."""

from collections.abc import Generator, Mapping, Sequence

import torch
from torch import Tensor, nn

from core.losses import reward_loss
from core.methods.reward import RewardConfig
from core.models.build import build_language_model
from core.models.language_model import LanguageModel
from core.models.reward_model import RewardEnsemble
from core.preferences.pair import PreferencePair
from core.randomness import derived_seed, generator_for
from core.sampling import generate
from core.trainers.base import Phase, Trainer, TrainerAlert, TrainerInputs, Weights
from core.trainers.models import reference_policy
from core.trainers.pairs import PairBatch, encode_pairs, has_own_pairs, pairs_of_task
from core.trainers.updates import example_order, learning_rate, make_optimizer, to_floats, update

NORMALISED_ON = 512  # completions of the reference whose scores get mean 0 and deviation 1
FEWEST_PAIRS = 4


class RewardTrainer(Trainer[RewardConfig]):
    """Bradley–Terry on preference pairs (arXiv 2203.02155 Eq 1), from the SFT weights, measured on held-out pairs."""

    config_class = RewardConfig

    def __init__(self, config: RewardConfig, inputs: TrainerInputs) -> None:
        super().__init__(config, inputs)
        self.reference = reference_policy(inputs)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derived_seed(inputs.seed, "reward heads"))
            self.model = RewardEnsemble(self._members()).to(inputs.device)
        self.optimizer = make_optimizer(self.model.parameters(), config)
        self.training: PairBatch | None = None  # both made in the first step: labelling takes a while
        self.held_out: PairBatch | None = None
        prompts = [
            inputs.task.encode_prompt(inputs.task.prompts[i % len(inputs.task.prompts)]) for i in range(NORMALISED_ON)
        ]
        self.typical = generate(
            self.reference, prompts, inputs.task.max_new_tokens, generator=generator_for(inputs.seed, "normalise")
        )

    def _members(self) -> Generator[LanguageModel, None, None]:
        for number in range(self.config.ensemble):
            seed = derived_seed(self.inputs.seed, "member", number)
            backbone = build_language_model(self.inputs.backbone, len(self.inputs.task.tokenizer), seed)
            backbone.load_state_dict(self.reference.state_dict())
            yield backbone

    def step(self) -> Generator[Phase, None, dict[str, float]]:
        """One batch of pairs for each member, in an order of its own."""
        config = self.config
        if self.training is None:
            yield from self.prepare()
        assert self.training is not None
        rate = learning_rate(config, self.step_number)
        loss = torch.zeros((), device=self.inputs.device)
        scores = []
        for number, member in enumerate(self.model.members):
            seed = derived_seed(self.inputs.seed, "member order", number)
            order = example_order(len(self.training), config.batch_size, seed, self.step_number)
            pairs = self.training.rows(order.to(self.inputs.device))
            chosen, rejected = member.raw(pairs.both()).chunk(2)
            loss = loss + self.loss(chosen, rejected, pairs).mean() / config.ensemble
            scores.append(torch.stack([chosen, rejected]).detach())
        norm = update(loss, {self.optimizer: rate}, config.max_grad_norm)
        self.completions += config.batch_size
        both = torch.stack(scores)
        metrics = to_floats(
            {
                "loss": loss,
                "accuracy": agreement(both[:, 0], both[:, 1]),
                "margin": (both[:, 0] - both[:, 1]).mean(),
                "min_reward": both.min(),
                "mean_reward": both.mean(),
                "max_reward": both.max(),
                "grad_norm": norm,
                "lr": rate,
            }
        )
        if not self.validates:
            return self.end_step(metrics)
        yield "update"
        metrics |= self.validate()
        return self.end_step(metrics, metrics["validation_accuracy"] - 0.1 * metrics["validation_loss"])

    def loss(self, chosen: Tensor, rejected: Tensor, pairs: PairBatch) -> Tensor:
        """The loss of each pair; ties have no margin."""
        margin = self.config.margin * pairs.strength * (pairs.target != 0.5)
        return reward_loss(chosen, rejected, margin, pairs.target, self.config.center)

    def prepare(self) -> Generator[Phase, None, None]:
        """Collect the pairs and hold some of them out."""
        config, inputs = self.config, self.inputs
        pairs = list(inputs.pairs) if config.pairs != "automatic" else []
        if config.pairs in ("automatic", "mixed"):
            pairs += yield from pairs_of_task(
                self.reference, inputs.task, config.taste, config.pair_count, config.label_noise, inputs.seed
            )
        if len(pairs) < FEWEST_PAIRS:
            raise ValueError(f"{len(pairs)} preference pairs are too few to train on; give at least {FEWEST_PAIRS}")
        judged = config.pairs == "automatic" and not has_own_pairs(inputs.task, config.taste)
        if judged and len(pairs) < config.pair_count:
            message = f"only {len(pairs)} pairs: the reference hardly writes two different answers to a prompt"
            self.alerts.append(TrainerAlert("pairs", message))
        held_out, training = split(pairs, config.validation_share, inputs.seed)
        self.held_out = encode_pairs(inputs.task, held_out, inputs.device)
        self.training = encode_pairs(inputs.task, training, inputs.device)
        yield "pairs"

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """Loss and accuracy on the held-out pairs; brings the scores' normalisation up to date."""
        assert self.held_out is not None
        members = [member.raw(self.held_out.both()).chunk(2) for member in self.model.members]
        chosen, rejected = (torch.stack([member[side] for member in members]) for side in (0, 1))
        self.model.normalise_on(self.typical)
        losses = torch.stack([self.loss(c, r, self.held_out).mean() for c, r in zip(chosen, rejected, strict=True)])
        decided = self.held_out.target != 0.5
        ensemble_chosen, ensemble_rejected = self.model(self.held_out.both()).chunk(2)
        return to_floats(
            {
                "validation_loss": losses.mean(),
                "validation_accuracy": agreement(ensemble_chosen[decided], ensemble_rejected[decided]),
            }
        )

    def modules(self) -> Mapping[str, nn.Module]:
        return {"reward_model": self.model}

    def optimizers(self) -> Mapping[str, torch.optim.Optimizer]:
        return {"reward_model": self.optimizer}

    def weights(self) -> Weights:
        return self.model.state_dict()

    def use_weights(self, weights: Weights) -> None:
        self.model.load_state_dict(weights)


def split(
    pairs: Sequence[PreferencePair], share: float, seed: int
) -> tuple[list[PreferencePair], list[PreferencePair]]:
    """(held out, for training): at random, but all judgements of the same two texts on the same side.

    Raises ValueError when all pairs are judgements of the same two texts.
    """
    same: dict[object, list[PreferencePair]] = {}
    for pair in pairs:
        same.setdefault((pair.prompt, frozenset((pair.chosen, pair.rejected))), []).append(pair)
    groups = list(same.values())
    if len(groups) < 2:
        raise ValueError("all preference pairs compare the same two texts; give others, so that some can be held out")
    order = torch.randperm(len(groups), generator=generator_for(seed, "held out")).tolist()
    count = min(len(groups) - 1, max(1, round(share * len(groups))))
    held_out, training = ([pair for i in part for pair in groups[i]] for part in (order[:count], order[count:]))
    return held_out, training


def agreement(chosen: Tensor, rejected: Tensor) -> Tensor:
    """Share of pairs whose chosen score is higher, ties half; ½ of no pairs."""
    if chosen.numel() == 0:
        return torch.tensor(0.5)
    return ((chosen > rejected).float() + 0.5 * (chosen == rejected).float()).mean()
