"""Knobs of losses on preferences: which loss, its constants, and the SFT mix."""

from dataclasses import dataclass

from core.config import knob
from core.methods.alignment import AlignmentConfig

LOSSES = ("dpo", "robust", "hinge", "ipo", "simpo")


@dataclass(frozen=True, kw_only=True)
class DemonstrationMixConfig(AlignmentConfig):
    """A share of SFT in the loss of a method that learns from preferences."""

    beta: float = knob(
        0.5,
        "β: how strongly the implicit reward is tied to the reference (0.1 online ends near KL 20)",
        above=0,
        live=True,
    )
    sft_weight: float = knob(
        0.0, "weight of an SFT loss beside the preference loss; 0.1 keeps samples diverse", minimum=0, live=True
    )
    sft_from: str = knob(
        "demonstrations", "what the SFT loss imitates: the task's demonstrations, or the chosen completions",
        choices=("demonstrations", "chosen"),
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PreferenceLossConfig(DemonstrationMixConfig):
    """Which loss on pairs, and the constants of each."""

    loss: str = knob(
        "dpo", "dpo; robust: unbiased under label noise ε; hinge; ipo: a squared gap, does not run away; simpo: mean "
        "log-probs and no reference, so give it a tenth of the learning rate",
        choices=LOSSES,
    )  # fmt: skip
    custom_loss: str = knob(
        "", "a loss of your own instead, module:function of the arguments of core.losses.hinge_loss", code=True
    )
    label_smoothing: float = knob(
        0.0, "ε: believed share of wrong labels (with the loss dpo: cDPO)", minimum=0, maximum=0.499
    )
    tau: float = knob(1.0, "τ of ipo: the gap is drawn to 1/(2τ) nats", above=0, live=True)
    ipo_logprobs: str = knob(
        "mean", "ipo counts a completion's log-prob as the mean of its letters', as most libraries do, or their sum, "
        "as the paper does",
        choices=("mean", "sum"),
    )  # fmt: skip
    simpo_beta: float = knob(2.0, "β of simpo, for log-probs per letter", above=0, live=True)
    simpo_gamma: float = knob(0.5, "γ of simpo: the margin asked for, in units of β·log-prob", minimum=0, live=True)
