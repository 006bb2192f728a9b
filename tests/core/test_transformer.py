"""The transformer backbone, held against the interface's promises and against torch's own attention."""

import pytest
import torch
from torch.nn import functional as F
from toys import BOS, EOS, VOCABULARY, A, B, C, gradients

from core.config import ConfigError, knobs, make
from core.models.build import build_language_model, parameter_count
from core.models.config import BackboneConfig, ContextError
from core.models.row_packing import RowPacking
from core.models.transformer import TransformerLanguageModel
from core.sampling import completion_logits, completions_of, generate

SMALL = BackboneConfig(kind="transformer", embedding=6, hidden=8, layers=2, heads=2, context=24)


def tiny_transformer(context: int = 24) -> TransformerLanguageModel:
    """In float64, with weights large enough that every token, position and head matters."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = TransformerLanguageModel(VOCABULARY, 6, 8, 2, 2, context).double()
        for weight in model.parameters():
            torch.nn.init.normal_(weight, std=0.5)
    return model


@pytest.fixture
def model() -> TransformerLanguageModel:
    return tiny_transformer()


def textbook_logits(model: TransformerLanguageModel, tokens: torch.Tensor) -> torch.Tensor:
    """Logits of one row [L] by the formulas of arXiv 1706.03762 and 2002.04745, each head and position by itself."""
    x = model.embedding.weight[tokens] @ model.widen.weight.T + model.positions[: len(tokens)]
    width = x.shape[1] // model.heads
    for block in model.blocks:
        query, key, value = block.queries_keys_values(block.attention_norm(x)).chunk(3, -1)
        mixed = torch.zeros_like(x)
        for head in range(model.heads):
            part = slice(head * width, (head + 1) * width)
            for here in range(len(tokens)):
                seen = key[: here + 1, part]
                weights = (seen @ query[here, part] / width**0.5).softmax(0)
                mixed[here, part] = weights @ value[: here + 1, part]
        x = x + block.attention_out(mixed)
        x = x + block.feed_forward_out(block.feed_forward_in(block.feed_forward_norm(x)).clamp(min=0))
    return model.logits(model.norm(x))


def test_logits_are_those_of_the_textbook(model):
    row = torch.tensor([BOS, A, BOS, B, C, A, EOS])
    torch.testing.assert_close(model(row.unsqueeze(0))[0], textbook_logits(model, row))


def test_changing_a_later_letter_changes_no_earlier_logit_and_every_later_one(model):
    tokens = torch.tensor([[BOS, A, BOS, B, C, A, EOS]])
    before = model(tokens)
    for t in range(7):
        changed = tokens.clone()
        changed[:, t] = C if tokens[0, t] != C else A
        after = model(changed)
        assert torch.equal(after[:, :t], before[:, :t])
        assert (after[:, t:] != before[:, t:]).any(-1).all()


def test_reading_step_by_step_gives_the_states_of_reading_at_once(model):
    """Over more steps than the cache has spare places, so that it grows."""
    tokens = torch.randint(4, VOCABULARY, (3, 20), generator=torch.Generator().manual_seed(0))
    whole = model.hidden(tokens, torch.tensor([20, 20, 20]))
    hidden, state = model.begin(tokens[:, :2], torch.tensor([2, 2, 2]))
    torch.testing.assert_close(hidden, whole[:, 1])
    for t in range(2, 20):
        hidden, state = model.advance(tokens[:, t], state)
        torch.testing.assert_close(hidden, whole[:, t])


def test_prompts_of_different_lengths_are_read_and_continued_as_each_alone(model):
    prompts = torch.tensor([[BOS, A, BOS, 0, 0], [BOS, B, C, A, BOS], [BOS, 0, 0, 0, 0]])
    lengths = torch.tensor([3, 5, 1])
    following = torch.tensor([[A, B], [B, C], [C, C]])
    hidden, state = model.begin(prompts, lengths)
    states = [hidden]
    for t in range(2):
        hidden, state = model.advance(following[:, t], state)
        states.append(hidden)
    for row, length in enumerate(lengths):
        alone = torch.cat([prompts[row, :length], following[row]]).unsqueeze(0)
        whole = model.hidden(alone, torch.tensor([alone.shape[1]]))[0]
        torch.testing.assert_close(torch.stack(states)[:, row], whole[length - 1 :])


def test_what_stands_in_padding_reaches_nothing(model):
    rows = torch.tensor([[BOS, A, BOS, 0, 0, 0], [BOS, B, C, A, BOS, C]])
    lengths = torch.tensor([3, 6])
    other, wider = rows.clone(), F.pad(rows, (0, 3))
    other[0, 3:] = torch.tensor([C, EOS, A])
    expected = model.hidden(rows, lengths)
    for each in (other, wider):
        found = model.hidden(each, lengths)
        torch.testing.assert_close(found[0, :3], expected[0, :3], rtol=0, atol=0)
        torch.testing.assert_close(found[1, :6], expected[1, :6], rtol=0, atol=0)
    torch.testing.assert_close(model(rows[:1, :3])[0], model.logits(expected[0, :3]))


def test_padding_has_no_part_in_gradients(model):
    """A batch of uneven rows gives the sum of the gradients that its rows give alone."""
    rows = [[BOS, A, BOS], [BOS, B, C, A, BOS, C], [BOS]]
    whole = completions_of([[BOS, A]] * 3, rows)
    together = gradients(torch.where(whole.mask, completion_logits(model, whole)[..., 4], 0).square().sum(), model)
    alone = sum(
        gradients(completion_logits(model, completions_of([[BOS, A]], [row]))[..., 4].square().sum(), model)
        for row in rows
    )
    torch.testing.assert_close(together, alone)
    assert (together != 0).any()


def test_rows_in_another_order_give_the_same_rows(model):
    rows, lengths = torch.tensor([[BOS, A, C], [BOS, B, 0], [BOS, C, A]]), torch.tensor([3, 2, 3])
    order = torch.tensor([2, 0, 1])
    torch.testing.assert_close(
        model.hidden(rows[order], lengths[order]), model.hidden(rows, lengths)[order], rtol=0, atol=1e-12
    )


def test_selected_states_go_on_as_their_rows_would(model):
    _, state = model.begin(torch.tensor([[BOS, A], [BOS, B], [BOS, C]]), torch.tensor([2, 2, 1]))
    rows, tokens = torch.tensor([2, 0, 2, 2]), torch.tensor([A, B, C])
    chosen, chosen_state = model.advance(tokens[rows], model.select(state, rows))
    whole, whole_state = model.advance(tokens, state)
    torch.testing.assert_close(chosen, whole[rows])
    torch.testing.assert_close(
        model.advance(tokens[rows], chosen_state)[0], model.advance(tokens, whole_state)[0][rows]
    )


def test_two_continuations_of_one_state_do_not_disturb_each_other(model):
    """Places are written in memory that states share; whoever comes second gets a copy."""
    start = torch.tensor([[BOS, A]])
    _, state = model.begin(start, torch.tensor([2]))
    _, first = model.advance(torch.tensor([B]), state)
    _, second = model.advance(torch.tensor([C]), state)
    for letter, branch in ((B, first), (C, second)):
        hidden, _ = model.advance(torch.tensor([A]), branch)
        whole = torch.cat([start, torch.tensor([[letter, A]])], 1)
        torch.testing.assert_close(hidden, model.hidden(whole, torch.tensor([4]))[:, -1])


def test_sampled_logprobs_are_those_of_teacher_forcing():
    model = build_language_model(SMALL, VOCABULARY, seed=1)
    torch.nn.init.normal_(model.head.weight, generator=torch.Generator().manual_seed(0))
    prompts = [[BOS, A, BOS], [BOS, B, C, A, BOS], [BOS, C, BOS]] * 8
    rollout = generate(model, prompts, 15, 0.8, generator=torch.Generator().manual_seed(1))
    assert len(set(rollout.mask.sum(1).tolist())) > 3
    logits = completion_logits(model, rollout, 0.8)
    forced = logits.log_softmax(-1).gather(-1, rollout.tokens.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(torch.where(rollout.mask, forced, 0), rollout.logprobs, atol=1e-5, rtol=1e-5)


def test_a_text_depends_on_no_other_row():
    model = build_language_model(SMALL, VOCABULARY, seed=1)
    prompts, seeds = [[BOS, A, BOS], [BOS, B, C, A, BOS], [BOS, C, BOS]], torch.tensor([5, 6, 7])
    whole = generate(model, prompts, 12, row_seeds=seeds)
    for row in range(3):
        alone = generate(model, prompts[row : row + 1], 12, row_seeds=seeds[row : row + 1])
        kept = whole.tokens[row][whole.mask[row]]
        assert alone.tokens[0][alone.mask[0]].tolist() == kept.tolist()


# --- length ---


def test_the_context_can_be_filled_but_not_passed():
    model = tiny_transformer(context=6)
    full = torch.full((2, 6), A)
    hidden, state = model.begin(full[:, :4], torch.tensor([4, 2]))
    for _ in range(2):
        hidden, state = model.advance(full[:, 0], state)
    torch.testing.assert_close(hidden[0], model.hidden(full, torch.tensor([6, 6]))[0, -1])
    with pytest.raises(ContextError, match="more than 6 tokens"):
        model.advance(full[:, 0], state)
    with pytest.raises(ContextError, match="takes 7 tokens, and the context has 6"):
        model.hidden(torch.full((1, 7), A), torch.tensor([7]))
    short = model.select(state, torch.tensor([1]))  # the long row has ended: the short one goes on
    for _ in range(2):
        _, short = model.advance(full[:1, 0], short)
    with pytest.raises(ContextError):
        model.advance(full[:1, 0], short)
    model.hidden(torch.full((1, 9), A), torch.tensor([6]))  # padding takes no room


# --- sizes ---


@pytest.mark.parametrize(
    "sizes",
    [
        {}, {"kind": "transformer"}, {"kind": "transformer", "hidden": 64, "layers": 3, "context": 40},
        {"kind": "transformer", "embedding": 10, "hidden": 12, "heads": 3}, {"embedding": 5, "hidden": 7, "layers": 3},
    ],
)  # fmt: skip
@pytest.mark.parametrize("vocabulary", [30, 411])
def test_the_count_that_forms_show_is_that_of_the_model(sizes, vocabulary):
    backbone = make(BackboneConfig, sizes)
    assert backbone.parameter_count(vocabulary) == parameter_count(build_language_model(backbone, vocabulary, 0))


def test_both_architectures_have_about_as_many_weights():
    """By hand: 30·96 + 64·96 + 2·(4·96² + 4·96 + 8·96² + 5·96 + 4·96) + 2·96 + 30·96 + 30."""
    lstm, transformer = (BackboneConfig(kind=kind).parameter_count(30) for kind in ("lstm", "transformer"))
    assert (lstm, transformer) == (237_214, 235_806)


def test_a_configuration_says_its_sizes_and_can_be_saved():
    made = BackboneConfig(kind="transformer")
    assert (made.embedding, made.hidden) == (96, 96)
    assert BackboneConfig(kind="transformer", hidden=64).embedding == 64
    assert (BackboneConfig().embedding, BackboneConfig().hidden) == (64, 128)
    assert make(BackboneConfig, made.to_dict()) == made
    assert {each.name for each in knobs(BackboneConfig)} == {
        "kind", "embedding", "hidden", "layers", "heads", "context"
    }  # fmt: skip


def test_heads_must_divide_the_width():
    with pytest.raises(ConfigError, match="hidden must be a multiple of heads, and 96 is none of 5"):
        BackboneConfig(kind="transformer", heads=5)
    BackboneConfig(kind="lstm", hidden=10, heads=4)


# --- the layout without padding ---


def test_packing_lays_rows_one_behind_the_other():
    packing = RowPacking.of(torch.tensor([2, 3, 1]), 4, torch.device("cpu"))
    padded = torch.tensor([[1, 2, 0, 0], [3, 4, 5, 0], [6, 0, 0, 0]])
    assert packing.pack(padded).tolist() == [1, 2, 3, 4, 5, 6]
    assert packing.positions.tolist() == [0, 1, 0, 1, 2, 0]
    assert torch.equal(packing.unpack(torch.arange(1, 7).unsqueeze(1)).squeeze(-1), padded)


def test_heads_are_taken_apart_and_put_together():
    packing = RowPacking.of(torch.tensor([2, 1]), 2, torch.device("cpu"))
    packed = torch.arange(18).view(3, 6)  # one part, three heads of width 2
    (apart,) = packing.to_heads(packed, 1, 3)
    assert apart[::2, 0].tolist() == [[0, 1], [2, 3], [4, 5]]  # first row's first token, head by head
    assert apart[1::2, 0].tolist() == [[12, 13], [14, 15], [16, 17]]  # the second row's
    assert apart[0].tolist() == [[0, 1], [6, 7]]
    assert torch.equal(packing.from_heads(apart, 3), packed)


def test_the_layouts_gradients_are_right():
    packing = RowPacking.of(torch.tensor([2, 3, 1]), 3, torch.device("cpu"))
    generator = torch.Generator().manual_seed(0)
    packed = torch.randn(6, 12, dtype=torch.double, generator=generator, requires_grad=True)
    real = packing.real.view(3, 3, 1)

    def there_and_back(x: torch.Tensor) -> torch.Tensor:
        first, second = packing.to_heads(x, 2, 3)
        return packing.from_heads(first * second + second.sin(), 3)

    assert torch.autograd.gradcheck(there_and_back, packed)
    assert torch.autograd.gradcheck(
        lambda x: torch.where(real, torch.stack(packing.to_heads(x, 2, 3)).view(6, 3, 3, 2), 0), packed
    )
