import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.tokenizer import CharTokenizer

alphabets = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=40).map(
    lambda text: "".join(dict.fromkeys(text))
)


def test_ids_are_fixed_and_letters_follow_in_alphabet_order():
    tokenizer = CharTokenizer("zab")
    assert (tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id) == (0, 1, 2, 3)
    assert tokenizer.encode("zab") == [4, 5, 6]
    assert len(tokenizer) == 7


def test_pad_is_not_eos_so_a_model_can_learn_to_stop():
    tokenizer = CharTokenizer("a")
    assert len({tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id}) == 4


def test_encode_adds_no_special_token():
    assert CharTokenizer("ab").encode("") == []


def test_decode_stops_at_eos_skips_pad_and_bos_and_shows_unk():
    tokenizer = CharTokenizer("abc")
    assert tokenizer.decode([1, 4, 0, 5, 3, 1, 6, 2, 4, 4]) == "ab\ufffdc"
    assert tokenizer.decode([2, 4]) == ""
    assert tokenizer.decode(iter([4, 5])) == "ab"


def test_text_without_blanks_keeps_every_letter():
    """Splitting at blanks would make one unknown token of a Chinese sentence."""
    tokenizer = CharTokenizer("我们学习强化")
    assert tokenizer.encode("我们学习") == [4, 5, 6, 7]
    assert tokenizer.decode(tokenizer.encode("强化学习")) == "强化学习"


def test_letters_outside_the_alphabet_become_one_unk_each():
    assert CharTokenizer("ab").encode("aXYb ") == [4, 3, 3, 5, 3]


@pytest.mark.parametrize(("alphabet", "said"), [("", "empty"), ("abca", "'a' twice"), ("xyzzy", "'y' twice")])
def test_refuses_an_alphabet_that_cannot_be(alphabet, said):
    with pytest.raises(ValueError, match=said):
        CharTokenizer(alphabet)


@given(st.data(), alphabets)
def test_texts_of_the_alphabet_come_back(data, alphabet):
    tokenizer = CharTokenizer(alphabet)
    text = data.draw(st.text(st.sampled_from(alphabet), max_size=30))
    ids = tokenizer.encode(text)
    assert len(ids) == len(text)
    assert all(4 <= each < len(tokenizer) for each in ids)
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode([1, *ids, 2, *ids, 0]) == text


@given(st.text(max_size=60))
def test_any_text_encodes_to_one_id_per_letter(text):
    tokenizer = CharTokenizer(string.ascii_lowercase)
    ids = tokenizer.encode(text)
    expected = [ord(letter) - ord("a") + 4 if "a" <= letter <= "z" else 3 for letter in text]
    assert ids == expected
    assert tokenizer.decode(ids) == "".join(letter if "a" <= letter <= "z" else "\ufffd" for letter in text)
