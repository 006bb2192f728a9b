"""From sizes to a model."""

import torch

from core.models.config import BackboneConfig as BackboneConfig
from core.models.language_model import LanguageModel
from core.models.lstm import LSTMLanguageModel
from core.models.transformer import TransformerLanguageModel
from core.randomness import derived_seed


def build_language_model(backbone: BackboneConfig, vocabulary_size: int, seed: int) -> LanguageModel:
    """A fresh model whose weights depend on ``seed`` alone; the global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(seed, "weights"))
        if backbone.kind == "transformer":
            return TransformerLanguageModel(
                vocabulary_size, backbone.embedding, backbone.hidden, backbone.layers, backbone.heads, backbone.context
            )
        return LSTMLanguageModel(vocabulary_size, backbone.embedding, backbone.hidden, backbone.layers)


def parameter_count(model: torch.nn.Module) -> int:
    """Number of weights that can learn."""
    return sum(each.numel() for each in model.parameters())
