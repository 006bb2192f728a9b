"""The sizes of a backbone. Torch-free."""

from dataclasses import dataclass

from core.config import Config, knob


@dataclass(frozen=True, kw_only=True)
class BackboneConfig(Config):
    """What a session's language model is made of; fixed when the session is created."""

    kind: str = knob("lstm", "architecture", choices=("lstm",))
    embedding: int = knob(64, "width of a letter's embedding", minimum=1, maximum=4096)
    hidden: int = knob(128, "width of the hidden state", minimum=1, maximum=4096)
    layers: int = knob(2, "layers above one another", minimum=1, maximum=16)
