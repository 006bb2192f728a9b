"""Characters to ids and back. Torch-free."""

from collections.abc import Iterable


class CharTokenizer:
    """One id per character: PAD 0, BOS 1, EOS 2, UNK 3, then the alphabet's letters in their order.

    Raises ValueError for an empty alphabet or one that names a letter twice.
    """

    pad_id, bos_id, eos_id, unk_id = 0, 1, 2, 3
    unknown = "\N{REPLACEMENT CHARACTER}"

    def __init__(self, alphabet: str) -> None:
        if not alphabet:
            raise ValueError("the alphabet is empty")
        if len(set(alphabet)) != len(alphabet):
            twice = next(letter for letter in alphabet if alphabet.count(letter) > 1)
            raise ValueError(f"the alphabet names {twice!r} twice")
        self.alphabet = alphabet
        self._ids = {letter: 4 + position for position, letter in enumerate(alphabet)}

    def __len__(self) -> int:
        """Size of the vocabulary, special tokens included."""
        return 4 + len(self.alphabet)

    def encode(self, text: str) -> list[int]:
        """The ids of ``text``, without BOS or EOS; letters outside the alphabet become UNK."""
        return [self._ids.get(letter, self.unk_id) for letter in text]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ``ids`` up to the first EOS; PAD and BOS are skipped, UNK shows as �."""
        letters = []
        for each in ids:
            if each == self.eos_id:
                break
            if each >= 4:
                letters.append(self.alphabet[each - 4])
            elif each == self.unk_id:
                letters.append(self.unknown)
        return "".join(letters)
