"""Backbones, reward model and critic."""

import pytest
import torch
from toys import BOS, EOS, VOCABULARY, A, B, C, gradients, tiny_lstm

from core.models.build import build_language_model, parameter_count
from core.models.config import BackboneConfig
from core.models.critic import Critic, ValueHead
from core.models.language_model import LanguageModel
from core.models.reward_model import RewardEnsemble, RewardModel
from core.sampling import Completions, completion_hidden, completions_of

SMALL = BackboneConfig(embedding=6, hidden=10, layers=2)


@pytest.fixture
def model() -> LanguageModel:
    return build_language_model(SMALL, VOCABULARY, seed=1)


def batch() -> Completions:
    return completions_of([[BOS, A, BOS], [BOS, B, C, A, BOS], [BOS, C, BOS]], [[A, B, EOS], [C, A, B, C, A], [EOS]])


# --- the language model ---


def test_weights_depend_on_the_seed_alone():
    torch.manual_seed(1)
    first = build_language_model(SMALL, VOCABULARY, seed=7)
    torch.manual_seed(2)
    before = torch.random.get_rng_state()
    again = build_language_model(SMALL, VOCABULARY, seed=7)
    other = build_language_model(SMALL, VOCABULARY, seed=8)
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(w, again.state_dict()[name]) for name, w in first.state_dict().items())
    assert not torch.equal(first.head.weight, other.head.weight)


def test_default_sizes_have_237_214_weights():
    """26 letters: 30·64 + 4·128·(64 + 128 + 2) + 4·128·(128 + 128 + 2) + 30·128 + 30."""
    assert parameter_count(build_language_model(BackboneConfig(), 30, seed=0)) == 237_214


def test_no_position_sees_what_follows(model):
    tokens = torch.tensor([[BOS, A, BOS, B, C, A, EOS]])
    before = model(tokens)
    for t in range(7):
        changed = tokens.clone()
        changed[:, t] = C if tokens[0, t] != C else A
        after = model(changed)
        assert torch.equal(after[:, :t], before[:, :t])
        assert not torch.equal(after[:, t], before[:, t])


def test_a_position_sees_all_that_came_before(model):
    tokens = torch.tensor([[BOS, A, BOS, B]])
    for t in range(4):
        changed = tokens.clone()
        changed[:, t] = C
        assert not torch.equal(model(changed)[:, -1], model(tokens)[:, -1])


@pytest.mark.parametrize("lengths", [[1], [4], [1, 1], [3, 3], [4, 1, 3], [2, 5, 5, 1, 3]])
@pytest.mark.parametrize("layers", [1, 2])
def test_packed_rows_are_read_as_torchs_own_lstm_reads_each(lengths, layers):
    """States and the gradients of every weight."""
    model = tiny_lstm(5, layers=layers)
    longest = max(lengths)
    tokens = torch.randint(1, VOCABULARY, (len(lengths), longest), generator=torch.Generator().manual_seed(2))
    pull = torch.randn(len(lengths), longest, model.width, generator=torch.Generator().manual_seed(3)).double()
    hidden = model.hidden(tokens, torch.tensor(lengths))
    ours, theirs = [], []
    for row, length in enumerate(lengths):
        alone = model.lstm(model.embedding(tokens[row : row + 1, :length]))[0][0]
        torch.testing.assert_close(hidden[row, :length], alone)
        ours.append((hidden[row, :length] * pull[row, :length]).sum())
        theirs.append((alone * pull[row, :length]).sum())
    found, expected = gradients(sum(ours), model), gradients(sum(theirs), model)
    torch.testing.assert_close(found, expected)
    assert expected.abs().max() > 0.1


def test_reading_step_by_step_gives_the_states_of_reading_at_once(model):
    tokens = torch.tensor([[BOS, A, BOS, B, C, A], [BOS, C, BOS, A, A, B]])
    whole = model.hidden(tokens, torch.tensor([6, 6]))
    hidden, state = model.begin(tokens[:, :3], torch.tensor([3, 3]))
    torch.testing.assert_close(hidden, whole[:, 2])
    for t in range(3, 6):
        hidden, state = model.advance(tokens[:, t], state)
        torch.testing.assert_close(hidden, whole[:, t])


def test_prompts_of_different_lengths_are_read_as_each_alone(model):
    """Padding behind a short prompt must not reach the state from which its completion is written."""
    prompts = torch.tensor([[BOS, A, BOS, 0, 0], [BOS, B, C, A, BOS], [BOS, 0, 0, 0, 0]])
    lengths = torch.tensor([3, 5, 1])
    hidden, state = model.begin(prompts, lengths)
    following, _ = model.advance(torch.tensor([A, B, C]), state)
    for row, length in enumerate(lengths):
        alone, alone_state = model.begin(prompts[row : row + 1, :length], lengths[row : row + 1])
        torch.testing.assert_close(hidden[row], alone[0])
        alone_following, _ = model.advance(torch.tensor([[A, B, C][row]]), alone_state)
        torch.testing.assert_close(following[row], alone_following[0])


def test_selected_states_go_on_as_their_rows_would(model):
    prompts = torch.tensor([[BOS, A], [BOS, B], [BOS, C]])
    _, state = model.begin(prompts, torch.tensor([2, 2, 2]))
    rows = torch.tensor([2, 0, 2, 2])
    tokens = torch.tensor([A, B, C])
    whole, _ = model.advance(tokens, state)
    chosen, _ = model.advance(tokens[rows], model.select(state, rows))
    torch.testing.assert_close(chosen, whole[rows])


def test_pad_bos_and_unk_have_no_probability_and_finite_logits(model):
    logits = model(torch.tensor([[BOS, A, BOS]]))
    p = logits.softmax(-1)
    assert (p[..., [0, 1, 3]] == 0).all()
    assert (p[..., [2, 4, 5, 6]] > 0).all()
    assert torch.isfinite(logits).all()
    torch.testing.assert_close(p.sum(-1), torch.ones(1, 3))


def test_what_is_forbidden_is_not_saved_as_a_weight(model):
    assert set(model.state_dict()) == {
        "head.weight", "head.bias", "embedding.weight",
        *(f"lstm.{kind}_{part}_l{layer}" for kind in ("weight", "bias") for part in ("ih", "hh") for layer in (0, 1)),
    }  # fmt: skip


def test_training_mode_changes_nothing_so_kl_is_0_at_step_0(model):
    """No dropout anywhere."""
    tokens = torch.tensor([[BOS, A, BOS, B]])
    assert torch.equal(model.train()(tokens), model.eval()(tokens))
    reward = RewardModel(model)
    assert torch.equal(reward.train()(batch()), reward.eval()(batch()))


# --- the reward model ---


@pytest.fixture
def reward(model) -> RewardModel:
    reward = RewardModel(model)
    torch.nn.init.normal_(reward.head.weight, generator=torch.Generator().manual_seed(0))
    return reward


def test_scores_start_small(model):
    """A head drawn with deviation 0.1/√width on states within ±1 scores within a few tenths of 0."""
    assert 0 < RewardModel(model)(batch()).abs().max() < 0.5


def test_the_score_is_read_at_the_last_real_token_and_over_the_completion(reward):
    """EOS where the row has ended, its last letter where it was cut off; never padding, and no prompt in the mean."""
    scores = reward(batch())
    for row, (prompt, completion) in enumerate(
        [([BOS, A, BOS], [A, B, EOS]), ([BOS, B, C, A, BOS], [C, A, B, C, A]), ([BOS, C, BOS], [EOS])]
    ):
        sequence = prompt + completion
        hidden = reward.backbone.hidden(torch.tensor([sequence]), torch.tensor([len(sequence)]))[0]
        read = torch.cat([hidden[-1], hidden[len(prompt) :].sum(0) / len(completion)])
        torch.testing.assert_close(scores[row], (read * reward.head.weight[0]).sum() + reward.head.bias[0])


def test_scores_do_not_feel_padding_neighbours_or_order(reward):
    whole = batch()
    scores = reward(whole)
    for row in range(3):
        torch.testing.assert_close(reward(whole.rows(torch.tensor([row])))[0], scores[row])
    order = torch.tensor([2, 0, 1])
    torch.testing.assert_close(reward(whole.rows(order)), scores[order])
    padded = Completions(
        *(torch.cat([each, each.new_full((3, 2), filler)], 1) for each, filler in zip(
            (whole.prompts, whole.prompt_mask, whole.tokens, whole.mask), (C, False, B, False), strict=True
        ))
    )  # fmt: skip
    torch.testing.assert_close(reward(padded), scores)


def test_an_empty_completion_is_scored_at_the_prompts_last_token(reward):
    score = reward(completions_of([[BOS, A, BOS]], [[]]))
    hidden = reward.backbone.hidden(torch.tensor([[BOS, A, BOS]]), torch.tensor([3]))[0, -1]
    width = reward.backbone.width
    torch.testing.assert_close(score[0], (hidden * reward.head.weight[0, :width]).sum() + reward.head.bias[0])


def test_the_score_depends_on_prompt_and_completion(reward):
    base, other_prompt, other_completion = (
        reward(completions_of([prompt], [completion])).item()
        for prompt, completion in (([BOS, A, BOS], [B, EOS]), ([BOS, C, BOS], [B, EOS]), ([BOS, A, BOS], [C, EOS]))
    )
    assert len({base, other_prompt, other_completion}) == 3


def test_normalised_scores_have_mean_0_and_deviation_1_keep_their_order_and_can_be_normalised_again(reward):
    raw = reward(batch()).detach()
    expected = (raw - raw.mean()) / raw.std()
    for _ in range(2):
        reward.normalise_on(batch())
        torch.testing.assert_close(reward(batch()).detach(), expected, atol=1e-5, rtol=1e-5)
    assert torch.equal(reward.raw(batch()), raw)


def test_normalising_equal_scores_stays_finite(model):
    reward = RewardModel(model)
    torch.nn.init.zeros_(reward.head.weight)
    reward.normalise_on(batch())
    assert reward(batch()).tolist() == [0, 0, 0]


def test_normalisation_is_saved_with_the_weights(reward):
    reward.normalise_on(batch())
    loaded = RewardModel(build_language_model(SMALL, VOCABULARY, seed=2))
    loaded.load_state_dict(reward.state_dict())
    assert torch.equal(loaded(batch()), reward(batch()))


def test_an_ensemble_scores_with_its_members_mean(model):
    ensemble = RewardEnsemble([model, build_language_model(SMALL, VOCABULARY, seed=2)])
    apart = [member(batch()) for member in ensemble.members]
    assert (apart[0] - apart[1]).abs().max() > 1e-4
    torch.testing.assert_close(ensemble.each(batch()), torch.stack(apart))
    torch.testing.assert_close(ensemble(batch()), (apart[0] + apart[1]) / 2)
    ensemble.normalise_on(batch())
    each = ensemble.each(batch())
    torch.testing.assert_close(each.mean(1), torch.zeros(2), atol=1e-4, rtol=0)
    torch.testing.assert_close(each.std(1), torch.ones(2), atol=1e-4, rtol=0)


# --- the critic ---


def test_values_start_at_0():
    assert ValueHead(5)(torch.randn(2, 3, 5)).tolist() == [[0, 0, 0]] * 2
    assert Critic(5)(batch(), torch.randn(3, 5, 5)).abs().max() == 0


def test_the_critic_does_not_train_the_policys_trunk():
    policy = tiny_lstm()
    critic = Critic(policy.width).double()
    torch.nn.init.normal_(critic.head.outer.weight)
    values = critic(batch(), completion_hidden(policy, batch()))
    assert values.shape == batch().tokens.shape
    loss = values.square().sum()
    assert (gradients(loss, policy) == 0).all()
    assert (gradients(loss, critic) != 0).any()


def test_a_critic_of_its_own_reads_and_trains_its_own_trunk():
    policy, trunk = tiny_lstm(), tiny_lstm(1)
    critic = Critic(trunk.width, trunk).double()
    torch.nn.init.normal_(critic.head.outer.weight)
    values = critic(batch(), completion_hidden(policy, batch()))
    torch.testing.assert_close(values, critic.head(completion_hidden(trunk, batch())))
    loss = values.square().sum()
    assert (gradients(loss, policy) == 0).all()
    assert (gradients(loss, trunk) != 0).any()


def test_a_value_knows_only_what_came_before_its_token():
    trunk = tiny_lstm(1)
    critic = Critic(trunk.width, trunk).double()
    torch.nn.init.normal_(critic.head.outer.weight)
    values = critic(completions_of([[BOS, A, BOS]], [[A, B, C]]), torch.zeros(1, 3, 4))
    other = critic(completions_of([[BOS, A, BOS]], [[A, C, C]]), torch.zeros(1, 3, 4))
    assert torch.equal(values[:, :2], other[:, :2])
    assert values[0, 2] != other[0, 2]
