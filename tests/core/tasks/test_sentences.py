"""The Chinese sentences: what the data promises."""

import unicodedata

from core.tasks.table import load_task


def test_sentences_and_pairs():
    task = load_task("sentences", 1)
    demonstrations = task.demonstrations + task.held_out_demonstrations
    assert len(demonstrations) == 61 and len(task.pairs) == 40
    assert task.gold is None
    assert len({each.prompt for each in demonstrations}) == 24
    assert not set(task.prompts) & set(task.held_out_prompts)
    assert {each.prompt for each in task.pairs} == set(task.prompts + task.held_out_prompts)
    texts = [each.prompt + each.completion for each in demonstrations]
    texts += [each.prompt + text for each in task.pairs for text in (each.chosen, each.rejected)]
    for text in texts:
        assert unicodedata.normalize("NFC", text) == text
        assert text.endswith("。")
        assert all(unicodedata.east_asian_width(letter) == "W" or letter in "，。" for letter in text)
        assert not task.unknown_letters(text)
    assert set("".join(texts)) == set(task.alphabet)


def test_length_alone_hardly_tells_which_is_better():
    """A judge that prefers the longer text, or the shorter one, is right in at most 60 percent."""
    pairs = load_task("sentences", 1).pairs
    lengths = [(len(each.chosen), len(each.rejected)) for each in pairs]
    longer = sum((a > b) + 0.5 * (a == b) for a, b in lengths) / len(pairs)
    assert 0.4 <= longer <= 0.6


def test_no_pair_repeats_a_demonstration():
    """What the reward model is tested on is not what the language model recites."""
    task = load_task("sentences", 1)
    known = {each.completion for each in task.demonstrations + task.held_out_demonstrations}
    assert not known & {text for each in task.pairs for text in (each.chosen, each.rejected)}
