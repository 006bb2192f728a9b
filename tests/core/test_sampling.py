"""Sampling and re-reading. Models are toys whose probabilities can be written down; see toys.py."""

import math

import pytest
import torch
from toys import BOS, EOS, VOCABULARY, A, B, C, HistoryModel, every_completion, tiny_lstm

from core.logprobs import token_logprobs
from core.models.build import build_language_model
from core.models.config import BackboneConfig
from core.sampling import (
    Completions,
    completion_hidden,
    completion_logits,
    completions_of,
    draw,
    filter_logits,
    generate,
    pad,
    uniforms,
)
from core.tokenizer import CharTokenizer

PROMPTS = [[BOS, A, BOS], [BOS, B, C, A, BOS], [BOS, C, BOS], [BOS, B, B, B, A, BOS], [BOS, A, BOS]]


def seeds(count: int, first: int = 0) -> torch.Tensor:
    return torch.arange(first, first + count) * 7919 + 13


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator("cpu").manual_seed(seed)


# --- batches ---


def test_pad_fills_on_the_right():
    tokens, mask = pad([[4], [5, 6, 4], []])
    assert tokens.tolist() == [[4, 0, 0], [5, 6, 4], [0, 0, 0]]
    assert mask.tolist() == [[True, False, False], [True] * 3, [False] * 3]
    assert tokens.dtype == torch.int64
    assert mask.dtype == torch.bool


@pytest.mark.parametrize("rows", [[[]], [[], []]])
def test_pad_of_empty_rows_has_one_column(rows):
    tokens, mask = pad(rows)
    assert tokens.tolist() == [[0]] * len(rows)
    assert not mask.any()


def uneven() -> Completions:
    return completions_of([[BOS, A, BOS], [BOS, B, C, A, BOS], [BOS, BOS]], [[A, B, EOS], [C, A, B, C], [EOS]])


def test_sequences_put_prompt_and_completion_in_one_piece():
    """Without the prompt's padding between them."""
    sequences, lengths = uneven().sequences()
    assert sequences.tolist() == [
        [BOS, A, BOS, A, B, EOS, 0, 0, 0],
        [BOS, B, C, A, BOS, C, A, B, C],
        [BOS, BOS, EOS, 0, 0, 0, 0, 0, 0],
    ]
    assert lengths.tolist() == [6, 9, 3]


def test_sequences_do_not_show_what_padding_holds():
    clean = uneven()
    dirty = Completions(
        torch.where(clean.prompt_mask, clean.prompts, C), clean.prompt_mask,
        torch.where(clean.mask, clean.tokens, C), clean.mask,
    )  # fmt: skip
    assert torch.equal(dirty.sequences()[0], clean.sequences()[0])


def test_a_row_is_ended_by_its_eos_only():
    batch = uneven()
    assert batch.ended.tolist() == [True, False, True]
    behind_the_mask = Completions(
        batch.prompts, batch.prompt_mask, torch.where(batch.mask, batch.tokens, EOS), batch.mask
    )
    assert behind_the_mask.ended.tolist() == [True, False, True]
    assert len(batch) == 3


def test_rows_come_in_the_order_asked_for_without_empty_columns():
    chosen = uneven().rows(torch.tensor([2, 0]))
    assert chosen.prompts.tolist() == [[BOS, BOS, 0], [BOS, A, BOS]]
    assert chosen.prompt_mask.tolist() == [[True, True, False], [True] * 3]
    assert chosen.tokens.tolist() == [[EOS, 0, 0], [A, B, EOS]]
    assert chosen.mask.tolist() == [[True, False, False], [True] * 3]
    assert uneven().rows(torch.tensor([2, 2])).tokens.tolist() == [[EOS], [EOS]]


def test_rows_of_empty_completions_keep_one_column():
    batch = completions_of([[BOS, A], [BOS]], [[], [A]])
    chosen = batch.rows(torch.tensor([0]))
    assert chosen.tokens.shape == (1, 1)
    assert chosen.mask.tolist() == [[False]]


def test_texts_stop_at_eos_and_skip_padding():
    tokenizer = CharTokenizer("abc")
    batch = completions_of([[BOS]] * 3, [[A, B, EOS], [C, C], []])
    dirty = Completions(batch.prompts, batch.prompt_mask, torch.where(batch.mask, batch.tokens, A), batch.mask)
    assert batch.texts(tokenizer) == dirty.texts(tokenizer) == ["ab", "cc", ""]


def test_to_takes_all_along():
    batch = uneven().to(torch.device("cpu"))
    for here, there in zip(vars(batch).values(), vars(uneven()).values(), strict=True):
        assert torch.equal(here, there)


# --- reading completions again ---


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_completion_logits_are_those_after_the_prompt_and_the_letters_before(temperature):
    """Row by row and letter by letter from whole prefixes, without batch or padding."""
    model, batch = HistoryModel(), uneven()
    found = completion_logits(model, batch, temperature)
    for row, (prompt, completion) in enumerate(
        [([BOS, A, BOS], [A, B, EOS]), ([BOS, B, C, A, BOS], [C, A, B, C]), ([BOS, BOS], [EOS])]
    ):
        for t in range(len(completion)):
            prefix = torch.tensor([prompt + completion[:t]])
            alone = model(prefix)[0, -1] / temperature
            torch.testing.assert_close(found[row, t], alone)


def test_a_rows_last_token_is_not_read_since_nothing_is_predicted_from_it(monkeypatch):
    model, read = tiny_lstm(), []
    hidden_at = model.hidden_at
    monkeypatch.setattr(model, "hidden_at", lambda *given: read.append(given[1].tolist()) or hidden_at(*given))
    completion_hidden(model, uneven())  # rows of 3 + 3, 5 + 4 and 2 + 1 tokens
    assert read == [[5, 8, 2]]


def test_completion_hidden_of_an_lstm_is_that_of_each_row_alone():
    model, batch = tiny_lstm(layers=2), uneven()
    found = completion_hidden(model, batch)
    for row in range(3):
        alone = completion_hidden(model, batch.rows(torch.tensor([row])))[0]
        kept = int(batch.mask[row].sum())
        torch.testing.assert_close(found[row, :kept], alone[:kept])


def test_the_whole_prompt_is_read_not_only_its_last_token():
    """Both prompts end in the same two tokens."""
    for model in (HistoryModel(), tiny_lstm()):
        batch = completions_of([[BOS, A, BOS], [BOS, C, A, BOS]], [[A, EOS], [A, EOS]])
        logits = completion_logits(model, batch)[:, :, 3:]
        assert (logits[0] - logits[1]).abs().max() > 1e-3


# --- choosing a token ---


def test_filter_keeps_the_k_likeliest():
    logits = torch.tensor([[1.0, 4.0, 2.0, 3.0], [9.0, 1.0, 2.0, 3.0]])
    assert filter_logits(logits, top_k=2).tolist() == [
        [-math.inf, 4, -math.inf, 3], [9, -math.inf, -math.inf, 3]
    ]  # fmt: skip
    assert filter_logits(logits, top_k=1).isfinite().sum(1).tolist() == [1, 1]
    assert filter_logits(logits, top_k=3).isfinite().sum(1).tolist() == [3, 3]


@pytest.mark.parametrize("top_k", [0, 4, 5, 50])
def test_no_k_or_one_beyond_the_vocabulary_is_no_limit(top_k):
    logits = torch.tensor([[1.0, 4.0, 2.0, 3.0]])
    assert torch.equal(filter_logits(logits, top_k=top_k), logits)


@pytest.mark.parametrize(
    ("top_p", "kept"),
    [(1.0, 4), (0.95, 4), (0.85, 3), (0.75, 2), (0.55, 2), (0.45, 1), (1e-9, 1)],
)
def test_filter_keeps_the_smallest_set_of_probability_p(top_p, kept):
    """½, ¼, ⅛, ⅛ in mixed order: sums ½, ¾, ⅞, 1. Of two equal ones the first stays."""
    logits = torch.log(torch.tensor([[0.125, 0.5, 0.125, 0.25]]))
    order = [1, 3, 0, 2]
    found = filter_logits(logits, top_p=top_p)[0]
    assert found.isfinite().nonzero().flatten().tolist() == sorted(order[:kept])
    assert torch.equal(found[found.isfinite()], logits[0, sorted(order[:kept])])


def test_top_p_counts_within_what_top_k_left():
    """Of ½, ¼, ⅛, ⅛ the first two, ⅔ and ⅓ of what is left; 0.6 is then reached by the first alone."""
    logits = torch.log(torch.tensor([0.5, 0.25, 0.125, 0.125]))
    assert filter_logits(logits, top_k=2, top_p=0.6).isfinite().tolist() == [True, False, False, False]
    assert filter_logits(logits, top_k=2, top_p=0.7).isfinite().tolist() == [True, True, False, False]


@pytest.mark.parametrize(
    ("uniform", "token"),
    [(0.0, 1), (0.19, 1), (0.21, 3), (0.49, 3), (0.51, 4), (0.999, 4), (1 - 2**-24, 4)],
)
def test_draw_takes_the_token_where_the_cumulated_probability_passes(uniform, token):
    """0, 0.2, 0, 0.3, 0.5, 0: what cannot be is never drawn, not first, not between, not last."""
    logits = torch.log(torch.tensor([[0.0, 0.2, 0.0, 0.3, 0.5, 0.0]]))
    assert draw(logits + 3, torch.tensor([uniform])).tolist() == [token]


def test_draw_decides_each_row_by_its_own_number():
    logits = torch.zeros(4, 4)
    assert draw(logits, torch.tensor([0.1, 0.3, 0.6, 0.9])).tolist() == [0, 1, 2, 3]


# --- the numbers ---


def splitmix64(seed: int, count: int) -> list[int]:
    """Vigna's SplitMix64 with Python's unbounded integers."""
    found, state = [], seed
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
        found.append(z ^ (z >> 31))
    return found


def test_uniforms_are_the_top_bits_of_splitmix64():
    """Seed 0 begins E220A8397B1DCDAF, 6E789E6AA1B965F4, 06C45D188009454F, as published."""
    assert splitmix64(0, 3) == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    row_seeds = [0, 1, 2**63 - 1, -5, 123456789]
    expected = [[(each >> 40) / 2**24 for each in splitmix64(seed, 6)] for seed in row_seeds]
    assert uniforms(torch.tensor(row_seeds), 6).tolist() == expected


def test_uniforms_are_uniform():
    numbers = uniforms(torch.arange(500), 40)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    counts = torch.histc(numbers, bins=20, min=0, max=1)
    chi_square = ((counts - 1000) ** 2 / 1000).sum().item()
    assert chi_square < 43.8  # 19 degrees of freedom, p = 0.001
    columns = torch.corrcoef(numbers.T) - torch.eye(40)
    assert columns.abs().max() < 5 / math.sqrt(500)


# --- generating ---


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"prompts": []}, "at least one prompt"),
        ({"prompts": [[BOS], []]}, "at least one token"),
        ({"max_new_tokens": 0}, "max_new_tokens ≥ 1.* not 0, 1.0, 0, 1.0"),
        ({"temperature": 0.0}, "temperature > 0.* not 3, 0.0, 0, 1.0"),
        ({"temperature": -1.0}, "temperature > 0"),
        ({"temperature": math.nan}, "temperature > 0"),
        ({"top_k": -1}, "top_k ≥ 0.* not 3, 1.0, -1, 1.0"),
        ({"top_p": 0.0}, "0 < top_p ≤ 1.* not 3, 1.0, 0, 0.0"),
        ({"top_p": 1.1}, "0 < top_p ≤ 1"),
    ],
)
def test_generate_refuses_what_cannot_be(changed, said):
    settings = {"prompts": [[BOS]], "max_new_tokens": 3, "temperature": 1.0, "top_k": 0, "top_p": 1.0} | changed
    with pytest.raises(ValueError, match=said):
        generate(HistoryModel(), **settings)


@pytest.mark.parametrize(
    "changed", [{"max_new_tokens": 1}, {"temperature": 0.01}, {"top_k": 1}, {"top_p": 1e-6}, {"top_p": 1.0}]
)
def test_generate_takes_settings_at_their_limits(changed):
    settings = {"max_new_tokens": 2, "temperature": 1.0, "top_k": 0, "top_p": 1.0} | changed
    assert generate(HistoryModel(), [[BOS]], **settings).mask.any()


def by_hand(model: HistoryModel, prompt: list[int], numbers: list[float], limit: int) -> list[int]:
    """The completion that the inverse of the cumulated probabilities gives, one whole prefix after the other."""
    completion: list[int] = []
    while len(completion) < limit and EOS not in completion:
        p = model(torch.tensor([prompt + completion]))[0, -1].detach().double().softmax(-1)
        total, token = 0.0, -1
        while total <= numbers[len(completion)]:
            token += 1
            total += float(p[token])
        completion.append(token)
    return completion


def test_generate_writes_what_its_numbers_say_after_each_prompt():
    model = HistoryModel(seed=4)
    row_seeds = seeds(len(PROMPTS))
    rollout = generate(model, PROMPTS, 6, row_seeds=row_seeds)
    for row, prompt in enumerate(PROMPTS):
        numbers = [(each >> 40) / 2**24 for each in splitmix64(int(row_seeds[row]), 6)]
        assert rollout.tokens[row][rollout.mask[row]].tolist() == by_hand(model, prompt, numbers, 6)
        assert rollout.prompts[row][rollout.prompt_mask[row]].tolist() == prompt
    assert rollout.ended.any()
    assert not rollout.ended.all()


def test_the_first_token_has_the_models_distribution():
    """20,000 draws against the probabilities after the prompt; 3 degrees of freedom, p = 0.001."""
    model, prompt, n = HistoryModel(seed=2), [BOS, C, A, BOS], 20_000
    drawn = generate(model, [prompt] * n, 1, generator=generator(5)).tokens[:, 0]
    expected = model(torch.tensor([prompt]))[0, -1].softmax(-1) * n
    counts = torch.bincount(drawn, minlength=VOCABULARY)
    possible = expected > 0
    assert counts[~possible].sum() == 0
    assert possible.sum() == 4
    assert ((counts - expected)[possible] ** 2 / expected[possible]).sum() < 16.27


def test_whole_completions_have_the_models_distribution():
    """All 13 completions of up to 2 tokens at temperature 1.5; 12 degrees of freedom, p = 0.001."""
    model, prompt, n, temperature = tiny_lstm(3), [BOS, B, BOS], 20_000, 1.5
    completions = every_completion(2)
    batch = completions_of([prompt] * len(completions), completions)
    logprobs = token_logprobs(completion_logits(model, batch, temperature), batch.tokens)
    expected = torch.where(batch.mask, logprobs, 0).sum(1).exp() * n
    rollout = generate(model, [prompt] * n, 2, temperature, generator=generator(6))
    seen = [tuple(row[mask].tolist()) for row, mask in zip(rollout.tokens, rollout.mask, strict=True)]
    counts = torch.tensor([seen.count(tuple(each)) for each in completions])
    assert counts.sum() == n
    assert ((counts - expected) ** 2 / expected).sum() < 32.91


@pytest.mark.parametrize("temperature", [1.0, 0.6, 1.7])
@pytest.mark.parametrize("limits", [{}, {"top_k": 2}, {"top_p": 0.7}])
def test_logprobs_while_sampling_are_those_of_teacher_forcing(temperature, limits):
    """At the same temperature on both sides, and before top-k and top-p."""
    for model in (HistoryModel(), build_language_model(BackboneConfig(embedding=8, hidden=16), VOCABULARY, seed=3)):
        rollout = generate(model, PROMPTS * 4, 8, temperature, **limits, generator=generator(1))
        again = token_logprobs(completion_logits(model, rollout, temperature), rollout.tokens)
        torch.testing.assert_close(rollout.logprobs, torch.where(rollout.mask, again, 0.0), atol=1e-5, rtol=1e-5)
        assert (rollout.logprobs[rollout.mask] < 0).all()


def test_logits_and_hidden_states_are_kept_on_request():
    model = build_language_model(BackboneConfig(embedding=8, hidden=16), VOCABULARY, seed=3)
    rollout = generate(model, PROMPTS, 8, 0.7, generator=generator(1), keep=True)
    kept = rollout.mask
    torch.testing.assert_close(rollout.hidden[kept], completion_hidden(model, rollout)[kept])
    torch.testing.assert_close(rollout.logits[kept], completion_logits(model, rollout, 0.7)[kept])
    assert rollout.logits.shape == (*kept.shape, VOCABULARY)
    assert rollout.hidden.shape == (*kept.shape, 16)
    plain = generate(model, PROMPTS, 8, 0.7, generator=generator(1))
    assert plain.logits is None
    assert plain.hidden is None
    assert torch.equal(plain.tokens, rollout.tokens)
    assert torch.equal(plain.logprobs, rollout.logprobs)


def completions_in(rollout: Completions) -> list[list[int]]:
    return [row[mask].tolist() for row, mask in zip(rollout.tokens, rollout.mask, strict=True)]


def test_a_rows_text_does_not_depend_on_the_other_rows():
    model, row_seeds = HistoryModel(seed=1), seeds(5)
    together = completions_in(generate(model, PROMPTS, 10, row_seeds=row_seeds))
    for row in range(5):
        alone = generate(model, PROMPTS[row : row + 1], 10, row_seeds=row_seeds[row : row + 1])
        assert completions_in(alone) == [together[row]]
    order = torch.tensor([3, 1, 4, 0, 2])
    permuted = generate(model, [PROMPTS[i] for i in order], 10, row_seeds=row_seeds[order])
    assert completions_in(permuted) == [together[i] for i in order]


def test_a_rows_text_does_not_depend_on_the_size_of_the_batch():
    model, prompts = HistoryModel(seed=1), PROMPTS * 20
    many = completions_in(generate(model, prompts, 10, generator=generator(9)))
    for few in (1, 3, 50):
        assert completions_in(generate(model, prompts[:few], 10, generator=generator(9))) == many[:few]


def test_a_higher_limit_only_continues_what_was_cut_off():
    model = HistoryModel(seed=1)
    short = completions_in(generate(model, PROMPTS * 4, 3, generator=generator(9)))
    long = completions_in(generate(model, PROMPTS * 4, 12, generator=generator(9)))
    assert [each[:3] for each in long] == short
    assert any(len(each) > 3 for each in long)


def test_a_rows_text_does_not_depend_on_when_others_stop():
    """A row that ends at once beside rows that never do, and the other way round."""
    model = HistoryModel(seed=1)
    row_seeds = seeds(200)
    all_rows = completions_in(generate(model, [PROMPTS[0]] * 200, 10, row_seeds=row_seeds))
    lengths = torch.tensor([len(each) for each in all_rows])
    assert lengths.min() == 1
    assert lengths.max() == 10
    shortest, longest = (lengths == 1).nonzero()[0], (lengths == 10).nonzero()[0]
    for pair in (torch.cat([shortest, longest]), torch.cat([longest, shortest])):
        found = completions_in(generate(model, [PROMPTS[0]] * 2, 10, row_seeds=row_seeds[pair]))
        assert found == [all_rows[i] for i in pair]


def test_sampling_stops_when_all_rows_have_ended():
    model = HistoryModel()
    with torch.no_grad():
        model.head.bias[EOS] = 100.0
    rollout = generate(model, PROMPTS, 20, generator=generator())
    assert rollout.tokens.tolist() == [[EOS]] * 5
    assert rollout.mask.all()
    assert rollout.logprobs.shape == (5, 1)


def test_padding_stands_behind_eos_and_nowhere_else():
    rollout = generate(HistoryModel(seed=1), PROMPTS * 10, 6, generator=generator(3), keep=True)
    for tokens, mask, logprobs in zip(rollout.tokens.tolist(), rollout.mask, rollout.logprobs, strict=True):
        length = tokens.index(EOS) + 1 if EOS in tokens else 6
        assert mask.tolist() == [True] * length + [False] * (6 - length)
        assert tokens[length:] == [0] * (6 - length)
        assert (logprobs[length:] == 0).all()


def test_pad_bos_and_unk_are_never_sampled_however_likely_the_head_finds_them():
    model = HistoryModel()
    with torch.no_grad():
        model.head.bias[[0, 1, 3]] = 1e4
    rollout = generate(model, PROMPTS * 100, 6, temperature=10.0, generator=generator(3))
    assert set(rollout.tokens[rollout.mask].tolist()) == {EOS, A, B, C}


def test_eos_inside_a_prompt_is_not_taken_for_the_end():
    model = HistoryModel(seed=1)
    prompts = [[BOS, A, EOS, B, BOS], [BOS, EOS, BOS]]
    rollout = generate(model, prompts * 50, 6, generator=generator(3))
    assert rollout.mask[:, 0].all()
    assert rollout.tokens[:, 0].unique().tolist() == [EOS, A, B, C]
    again = token_logprobs(completion_logits(model, rollout), rollout.tokens)
    torch.testing.assert_close(rollout.logprobs, torch.where(rollout.mask, again, 0.0))


def test_top_k_1_and_a_low_temperature_are_greedy():
    model = HistoryModel(seed=5)
    greedy: list[list[int]] = []
    for prompt in PROMPTS:
        completion: list[int] = []
        while len(completion) < 6 and EOS not in completion:
            completion.append(int(model(torch.tensor([prompt + completion]))[0, -1].argmax()))
        greedy.append(completion)
    for settings in ({"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-3}):
        assert completions_in(generate(model, PROMPTS, 6, generator=generator(8), **settings)) == greedy


def test_top_k_draws_only_from_the_k_likeliest():
    model, prompt = HistoryModel(seed=2), [BOS, C, A, BOS]
    likeliest = model(torch.tensor([prompt]))[0, -1].topk(2).indices
    drawn = generate(model, [prompt] * 500, 1, top_k=2, generator=generator(5)).tokens
    assert set(drawn.flatten().tolist()) == set(likeliest.tolist())


def test_the_same_generator_gives_the_same_texts_and_the_global_one_is_left_alone():
    model = HistoryModel()
    before = torch.random.get_rng_state()
    first, again, other = (
        generate(model, PROMPTS * 4, 8, generator=generator(seed)).tokens.tolist() for seed in (1, 1, 2)
    )
    assert first == again != other
    assert torch.equal(before, torch.random.get_rng_state())


def test_sampling_records_no_gradients():
    rollout = generate(tiny_lstm(), PROMPTS, 4, generator=generator(), keep=True)
    assert not any(each.requires_grad for each in (rollout.logprobs, rollout.logits, rollout.hidden))
    assert torch.is_grad_enabled()


def test_the_default_settings_limit_nothing():
    model, row_seeds = HistoryModel(seed=2), seeds(200)
    plain = generate(model, [PROMPTS[0]] * 200, 3, row_seeds=row_seeds)
    told = generate(model, [PROMPTS[0]] * 200, 3, 1.0, 0, 1.0, row_seeds=row_seeds)
    assert torch.equal(plain.tokens, told.tokens)


# --- devices ---


def test_batches_are_made_on_the_device_asked_for():
    meta = torch.device("meta")
    assert {each.device.type for each in pad([[A], [B, C]], meta)} == {"meta"}
    assert {each.device.type for each in vars(completions_of([[BOS]], [[A]], meta)).values()} == {"meta"}
    assert {each.device.type for each in vars(uneven().to(meta)).values()} == {"meta"}


def test_everything_stays_on_the_models_device_whatever_the_default_one_is():
    """As on a GPU: a tensor made without saying where would be on another device than the model, and fail."""
    model, batch = HistoryModel(seed=1), uneven()
    expected = generate(model, PROMPTS * 4, 6, top_k=3, top_p=0.9, generator=generator(2), keep=True)
    logits, sequences = completion_logits(model, batch), batch.sequences()
    with torch.device("meta"):
        found = generate(model, PROMPTS * 4, 6, top_k=3, top_p=0.9, generator=generator(2), keep=True)
        assert torch.equal(completion_logits(model, batch), logits)
        assert torch.equal(batch.sequences()[0], sequences[0])
    for name, each in vars(expected).items():
        assert torch.equal(vars(found)[name], each), name


def test_what_was_sampled_can_take_part_in_gradients():
    model = tiny_lstm()
    rollout = generate(model, PROMPTS, 6, generator=generator(), keep=True)
    assert rollout.hidden is not None and rollout.logits is not None
    scale = torch.ones((), dtype=rollout.hidden.dtype, requires_grad=True)
    again = token_logprobs(completion_logits(model, rollout), rollout.tokens)
    value = (scale * rollout.hidden).square().sum() + (scale * rollout.logits).clamp(min=-9).sum()
    (value + again.sum() + (scale * rollout.logprobs).sum()).backward()
    assert scale.grad is not None and scale.grad.isfinite()
