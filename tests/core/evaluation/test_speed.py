"""The arithmetic that the bench counts is what torch counts."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from core.evaluation.speed import reading_flops
from core.models.build import build_language_model
from core.models.config import BackboneConfig

pytestmark = pytest.mark.filterwarnings("ignore:TF32")  # torch says it when oneDNN is switched off

ROWS, LENGTH, VOCABULARY = 3, 7, 11
WIDE = BackboneConfig(kind="transformer", embedding=6, hidden=8, heads=2, layers=3)


def counted(backbone: BackboneConfig) -> int:
    """What torch's own counter finds in the products of a whole forward pass, padding and masked attention included."""
    model = build_language_model(backbone, VOCABULARY, seed=0)
    model.second_order = True  # torch's own LSTM, which shares no work between tokens; oneDNN's would not be counted
    with torch.backends.mkldnn.flags(enabled=False), FlopCounterMode(display=False) as counter:
        model(torch.randint(4, VOCABULARY, (ROWS, LENGTH)))
    return counter.get_total_flops()


def test_reading_of_an_lstm_is_its_matrices_for_each_token():
    backbone = BackboneConfig(embedding=5, hidden=6, layers=2)
    assert ROWS * reading_flops(backbone, VOCABULARY, LENGTH) == counted(backbone)


@pytest.mark.parametrize("backbone", [BackboneConfig(kind="transformer", hidden=8, heads=2, layers=1), WIDE])
def test_reading_of_a_transformer_is_its_matrices_and_the_attention_to_what_came_before(backbone):
    unseen = LENGTH**2 - LENGTH * (LENGTH + 1) // 2  # pairs of a token and a later one
    masked = ROWS * backbone.layers * unseen * 2 * (2 * backbone.hidden)  # a product for scores, one for values
    assert ROWS * reading_flops(backbone, VOCABULARY, LENGTH) + masked == counted(backbone)


def test_the_default_lstm_by_hand():
    # 4·128·(64 + 128) and 4·128·(128 + 128) weights of gates, 128·30 of the head, two operations each
    assert reading_flops(BackboneConfig(), 30, 1) == 2 * (98_304 + 131_072 + 3_840)
