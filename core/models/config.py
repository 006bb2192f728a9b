"""The sizes of a backbone, and how many weights they make. Torch-free."""

from dataclasses import dataclass

from core.config import Config, ConfigError, knob, parse_short

OWN_SIZES: dict[str, dict[str, int]] = {
    "lstm": {"embedding": 64, "hidden": 128},
    "transformer": {"embedding": 96, "hidden": 96},
}
"""What a size of 0 stands for, by architecture: about 237,000 and 233,000 weights for the 26 letters of ``words``."""


class ContextError(ValueError):
    """A text that takes more tokens than a model's context has."""


FEED_FORWARD = 4  # the feed-forward layer's width, in hidden widths


@dataclass(frozen=True, kw_only=True)
class BackboneConfig(Config):
    """What a session's language model is made of; fixed when the session is created.

    A size of 0 is replaced by the architecture's own when the configuration is made, so that what is saved never
    depends on a later default.
    """

    kind: str = knob("lstm", "architecture", choices=("lstm", "transformer"))
    embedding: int = knob(
        0, "width of a letter's embedding; 0: the architecture's own (64 lstm, the hidden width transformer)",
        minimum=0, maximum=4096,
    )  # fmt: skip
    hidden: int = knob(
        0, "width of the hidden state; 0: the architecture's own (128 lstm, 96 transformer)", minimum=0, maximum=4096
    )
    layers: int = knob(2, "layers above one another", minimum=1, maximum=16)
    heads: int = knob(4, "attention heads of a layer (transformer); divide the hidden width", minimum=1, maximum=64)
    context: int = knob(
        64, "prompt and completion together, special tokens included (transformer)", minimum=4, maximum=1024,
        unit="tokens",
    )  # fmt: skip

    def __post_init__(self) -> None:
        own = OWN_SIZES.get(self.kind, {})
        if self.kind == "transformer" and self.hidden != 0:
            own = {"embedding": self.hidden}
        for name, size in own.items():
            if getattr(self, name) == 0:
                object.__setattr__(self, name, size)
        super().__post_init__()
        if self.kind == "transformer" and self.hidden % self.heads:
            raise ConfigError(f"hidden must be a multiple of heads, and {self.hidden} is none of {self.heads}")

    def parameter_count(self, vocabulary_size: int) -> int:
        """Number of weights of a model over that many tokens, special ones included."""
        embedding, hidden = self.embedding, self.hidden
        head = vocabulary_size * hidden + vocabulary_size
        if self.kind == "lstm":
            below = (embedding + (self.layers - 1) * hidden) + self.layers * (hidden + 2)  # inputs, states, two biases
            return vocabulary_size * embedding + 4 * hidden * below + head
        widening = 0 if embedding == hidden else embedding * hidden
        wide = FEED_FORWARD * hidden
        attention = hidden * 3 * hidden + 3 * hidden + hidden * hidden + hidden
        feed_forward = hidden * wide + wide + wide * hidden + hidden
        block = attention + feed_forward + 4 * hidden  # and two norms
        positions = self.context * hidden
        return vocabulary_size * embedding + widening + positions + self.layers * block + 2 * hidden + head


BACKBONE_TEXT = "lstm, transformer, or knobs such as 'kind=transformer hidden=64 layers=4'"
"""What :func:`parse_backbone` takes, in words for a user."""


def parse_backbone(text: str) -> BackboneConfig:
    """A backbone as it is typed; an empty text is the default one. Raises ConfigError."""
    return parse_short(BackboneConfig, text if "=" in text or not text else f"kind={text}")
