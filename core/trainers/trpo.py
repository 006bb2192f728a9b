"""Trust region policy optimisation (arXiv 1502.05477): the natural gradient under a bound on KL(old‖new)."""

import math
from collections.abc import Callable, Generator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils import parameters_to_vector

from core.logprobs import exact_kl, masked_mean, token_logprobs
from core.losses import ppo_policy_loss
from core.methods.trpo import TRPOConfig
from core.sampling import completion_hidden, completion_logits
from core.trainers.base import Phase, TrainingDivergedError
from core.trainers.experience import Experience, Metrics, direct_kl
from core.trainers.ppo import ActorCriticTrainer
from core.trainers.updates import update


class Surrogate(NamedTuple):
    """What is to be lowered, at some weights."""

    loss: Tensor  # scalar
    logits: Tensor  # [B, T, V]


class TRPOTrainer(ActorCriticTrainer[TRPOConfig]):
    """Conjugate gradient on Fisher-vector products, the longest step within the bound, then a line search."""

    config_class = TRPOConfig

    def updates(self, experience: Experience, rate: float) -> Generator[Phase, None, list[Metrics]]:
        """One step of the policy, then the critic's own."""
        config = self.config
        gradient, before = self.surrogate_gradient(experience)
        direction, fisher = torch.zeros_like(gradient), self.fisher(experience)
        residual, search = gradient.clone(), gradient.clone()
        for _ in range(config.cg_iterations):  # solves F·direction = gradient
            square = residual.dot(residual)
            if square == 0:
                break
            product = fisher(search)
            length = square / search.dot(product)
            direction += length * search
            residual -= length * product
            search = residual + residual.dot(residual) / square * search
            yield "conjugate gradient"
        bound = config.max_kl * rate / config.learning_rate if config.learning_rate else 0.0
        curvature = direction.dot(gradient - residual).item()  # of F·direction, which is gradient − residual
        metrics = self.line_search(experience, before, direction, curvature, bound)
        yield "line search"
        hidden = completion_hidden(self.policy, experience.batch).detach()
        for _ in range(config.critic_epochs):
            loss, more = self.loss_beside(experience, hidden)
            norm = update(loss, self.rates(rate), config.max_grad_norm)
            yield "critic"
        return [metrics | more | {"grad_norm": gradient.norm(), "critic_grad_norm": norm}]

    def policy_loss(self, logits: Tensor, logprobs: Tensor, experience: Experience) -> tuple[Tensor, Metrics]:
        """The surrogate −A·π/π_old (Eq 14), without a clip, plus the price of KL to the reference."""
        loss, stats = ppo_policy_loss(
            logprobs, experience.logprobs, experience.advantages, experience.batch.mask, clip=math.inf
        )
        return loss + direct_kl(logits, experience), {"loss/policy_avg": loss.detach(), "val/ratio": stats.ratio}

    def surrogate(self, experience: Experience) -> Surrogate:
        """The loss at the weights as they are."""
        logits = completion_logits(self.policy, experience.batch, self.config.temperature)
        loss, _ = self.policy_loss(logits, token_logprobs(logits, experience.batch.tokens), experience)
        return Surrogate(loss, logits)

    def surrogate_gradient(self, experience: Experience) -> tuple[Tensor, Surrogate]:
        """The downhill direction, in one vector, and the loss it leads down from. Raises TrainingDivergedError."""
        loss, logits = self.surrogate(experience)
        weights = self.learning_weights()
        gradient = -flat(torch.autograd.grad(loss, weights, allow_unused=True), weights)
        if not gradient.isfinite().all():
            raise TrainingDivergedError("the policy's gradient is not finite; the weights are those before this step")
        return gradient, Surrogate(loss.detach(), logits.detach())

    def fisher(self, experience: Experience) -> Callable[[Tensor], Tensor]:
        """v -> (F + damping)·v, F the Hessian of the mean KL(old‖new) per token at the policy as it is.

        Taken over a part of the batch only (Appendix C.1: a tenth gives directions as good), the gradient over all.
        """
        some = torch.arange(min(len(experience), self.config.fisher_completions), device=self.inputs.device)
        batch = experience.batch.rows(some)
        weights = self.learning_weights()
        self.policy.second_order = True
        try:
            with sdpa_kernel([SDPBackend.MATH]):
                logits = completion_logits(self.policy, batch, self.config.temperature)
                kl = masked_mean(exact_kl(logits.detach(), logits), batch.mask)
                slope = flat(torch.autograd.grad(kl, weights, create_graph=True, allow_unused=True), weights)
        finally:
            self.policy.second_order = False

        def product(vector: Tensor) -> Tensor:
            found = torch.autograd.grad(slope.dot(vector), weights, retain_graph=True, allow_unused=True)
            return flat(found, weights) + self.config.damping * vector

        return product

    @torch.no_grad()
    def line_search(
        self, experience: Experience, before: Surrogate, direction: Tensor, curvature: float, bound: float
    ) -> Metrics:
        """Halve the longest step that the bound allows until it keeps the bound and helps; else do not move."""
        config, weights = self.config, self.learning_weights()
        here = parameters_to_vector(weights)
        length = math.sqrt(2 * bound / curvature) if curvature > 0 else 0.0
        found: Metrics = {"policy/kl_bound": bound}
        for halvings in range(config.backtracks + 1):
            set_weights(weights, here + length * direction)
            after, logits = self.surrogate(experience)
            kl = masked_mean(exact_kl(before.logits, logits), experience.batch.mask)
            if length and kl <= bound and after < before.loss:
                return found | {"policy/kl": kl, "policy/backtracks": float(halvings), "loss/policy_avg": after}
            length /= 2
        set_weights(weights, here)
        return found | {"policy/kl": 0.0, "policy/backtracks": config.backtracks + 1.0, "loss/policy_avg": before.loss}

    def learning_weights(self) -> list[torch.nn.Parameter]:
        """The policy's weights that can move."""
        return [each for each in self.policy.parameters() if each.requires_grad]

    def optimizers(self) -> Mapping[str, torch.optim.Optimizer]:
        return {"critic": self.critic_optimizer}


def flat(values: tuple[Tensor | None, ...], like: list[torch.nn.Parameter]) -> Tensor:
    """Tensors as one vector, 0 where a weight plays no part."""
    return torch.cat(
        [(torch.zeros_like(w) if v is None else v).flatten() for v, w in zip(values, like, strict=True)]
    )  # fmt: skip


def set_weights(weights: list[torch.nn.Parameter], values: Tensor) -> None:
    """Copy one vector into the weights. (As views of it they would lie at other addresses than those of a resumed run,
    and sums over other addresses differ in their last digits.)"""
    for weight, part in zip(weights, values.split([w.numel() for w in weights]), strict=True):
        weight.copy_(part.view_as(weight))
