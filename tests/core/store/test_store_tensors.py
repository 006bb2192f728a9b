import json
import pickle
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.store import CheckpointBrokenError
from core.store.tensors import from_bytes, to_bytes

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool]


@settings(max_examples=40, deadline=None)
@given(
    shapes=st.dictionaries(
        st.text(min_size=1, max_size=8).filter(lambda name: name != "__metadata__"),
        st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 4), max_size=3)),
        max_size=4,
    ),
    values=st.dictionaries(st.text(max_size=4), st.floats() | st.text(max_size=4) | st.none()),
)
def test_tensors_and_values_come_back_bit_for_bit(shapes, values):
    generator = torch.Generator().manual_seed(0)
    tensors = {
        name: torch.randint(0, 2, shape, generator=generator).to(dtype) for name, (dtype, shape) in shapes.items()
    }
    found, said = from_bytes(to_bytes(tensors, values))
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype and found[name].shape == tensor.shape
        assert torch.equal(found[name], tensor)
    assert json.dumps(said) == json.dumps(values)  # NaN is not equal to itself


def test_nan_infinity_and_minus_zero_keep_their_bits():
    tensor = torch.tensor([float("nan"), float("inf"), -0.0, 1e-45])
    found, _ = from_bytes(to_bytes({"a": tensor}))
    assert torch.equal(found["a"].view(torch.int32), tensor.view(torch.int32))


def test_the_same_content_gives_the_same_bytes():
    assert to_bytes({"b": torch.ones(2), "a": torch.zeros(2)}, {"x": 1}) == to_bytes(
        {"b": torch.ones(2), "a": torch.zeros(2)}, {"x": 1}
    )


def test_views_and_tied_weights_are_written_for_themselves():
    weight = torch.arange(6.0).reshape(2, 3)
    found, _ = from_bytes(to_bytes({"weight": weight, "tied": weight, "row": weight[1], "turned": weight.T}))
    assert torch.equal(found["tied"], weight)
    assert torch.equal(found["row"], torch.tensor([3.0, 4.0, 5.0]))
    assert torch.equal(found["turned"], weight.T)
    found["tied"][0, 0] = 9
    assert weight[0, 0] == 0 and found["weight"][0, 0] == 0


class Bomb:
    exploded = False

    def __reduce__(self):
        return (setattr, (Bomb, "exploded", True))


@pytest.mark.parametrize("data", [b"", b"\0" * 8, b"\xff" * 64, b"{}", pickle.dumps(Bomb()), b"PK\x03\x04" * 20])
def test_other_bytes_are_no_checkpoint_and_run_nothing(data):
    with pytest.raises(CheckpointBrokenError, match="not a checkpoint"):
        from_bytes(data)
    assert not Bomb.exploded


def test_damaged_bytes_are_refused_or_parsed_but_never_crash():
    whole = to_bytes({"a": torch.arange(8.0)}, {"x": [1, 2]})
    generator = random.Random(0)
    for _ in range(500):
        damaged = bytearray(whole)
        damaged[generator.randrange(len(whole))] = generator.randrange(256)
        try:
            from_bytes(bytes(damaged))
        except CheckpointBrokenError:
            continue
    for length in range(len(whole)):
        with pytest.raises(CheckpointBrokenError):
            from_bytes(whole[:length])
