"""A policy gradient of one's own: GRPO with an advantage function from outside."""

from dataclasses import dataclass

from core.config import knob
from core.methods.alignment import GOLD_AND_LEARNED, GROUP_REWARD, POLICY_ENTROPY, POLICY_LOSS, SEQUENCE_KL
from core.methods.base import Method
from core.methods.grpo import GRPOConfig


@dataclass(frozen=True, kw_only=True)
class CustomConfig(GRPOConfig):
    """Knobs of one's own policy gradient."""

    function: str = knob(
        "core.advantages:group_advantages",
        "module:function from rewards [groups, group size] to advantages of that shape, both torch tensors",
        code=True,
    )


CUSTOM = Method(
    name="custom",
    title="Your own",
    config=CustomConfig,
    trainer="core.trainers.custom:CustomTrainer",
    trains="policy",
    starts_from="sft",
    summary="Sampling, clipping and KL as in GRPO, with advantages from a function of yours.",
    when="To try an idea in a minute. For more than advantages, name a Method of your own: train module:METHOD.",
    pitfalls="Advantages should have mean 0 over a group: a constant added to all of them is noise.",
    charts=(GOLD_AND_LEARNED, SEQUENCE_KL, POLICY_ENTROPY, GROUP_REWARD, POLICY_LOSS),
    headline="gold_reward",
)  # fmt: skip
