import torch
from hypothesis import given
from hypothesis import strategies as st

from core.randomness import derived_seed, generator_for


def test_seeds_are_blake2b_of_seed_purpose_and_step():
    """What coreutils' b2sum -l 64 says of "42/weights/0" and "42/sampling/7", halved: saved runs depend on it."""
    assert derived_seed(42, "weights") == int("aaf6d5caf27d3c75", 16) >> 1
    assert derived_seed(42, "sampling", 7) == int("81f669f3f45f1ad5", 16) >> 1


@given(st.integers(0, 2**63), st.text(max_size=10), st.integers(0, 10**9))
def test_seeds_fit_a_generator_and_repeat(seed, purpose, step):
    found = derived_seed(seed, purpose, step)
    assert 0 <= found < 2**63
    assert found == derived_seed(seed, purpose, step)


def test_seed_purpose_and_step_each_matter():
    seeds = {
        derived_seed(seed, purpose, step)
        for seed in range(20) for purpose in ("sampling", "shuffle", "weights") for step in range(20)
    }  # fmt: skip
    assert len(seeds) == 20 * 3 * 20


def test_a_generator_repeats_its_numbers_and_leaves_the_global_one_alone():
    before = torch.random.get_rng_state()
    first = torch.rand(5, generator=generator_for(1, "x", 2))
    again = torch.rand(5, generator=generator_for(1, "x", 2))
    other = torch.rand(5, generator=generator_for(1, "x", 3))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(before, torch.random.get_rng_state())
