"""What each answer becomes for a reward model, for DPO, for KTO and in an export. Torch-free.

========================  ==================================  ======================  ===========================
answer                    reward model                        DPO                     TRL export
========================  ==================================  ======================  ===========================
A or B, strength 0…1      hard label, margin by strength      pair                    prompt / chosen / rejected
tie                       target 0.5                          left out (option: 0.5)  left out
both bad, bad             –                                   –                       unpaired rows, label false
good                      –                                   –                       unpaired row, label true
skip                      –                                   –                       –
========================  ==================================  ======================  ===========================
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from core.preferences.labels import Answer, LabelRecord
from core.preferences.pair import PreferencePair, UnpairedExample


def preference_pair(record: LabelRecord) -> PreferencePair | None:
    """The pair of a decided label; None for any other answer."""
    if record.chosen is None or record.rejected is None or record.strength is None:
        return None
    return PreferencePair(
        prompt=record.prompt,
        chosen=record.chosen.text,
        rejected=record.rejected.text,
        strength=record.strength,
        source="labels",
    )


def tied_pair(record: LabelRecord) -> PreferencePair | None:
    """A tie as a pair with target 0.5, strength 0 (no margin) and the left text first; None for any other answer."""
    if record.answer is not Answer.TIE or record.right is None:
        return None
    return PreferencePair(
        record.prompt, record.left.text, record.right.text, strength=0.0, target=0.5, source="labels"
    )  # fmt: skip


def decided_pairs(records: Iterable[LabelRecord]) -> list[PreferencePair]:
    """What DPO learns from and what is exported: decided labels only."""
    return [pair for pair in map(preference_pair, records) if pair is not None]


def pairs_with_ties(records: Iterable[LabelRecord]) -> list[PreferencePair]:
    """What a reward model learns from (and DPO where it is told to): decided labels, and ties with target 0.5."""
    return [pair for each in records if (pair := preference_pair(each) or tied_pair(each)) is not None]


def unpaired_examples(records: Iterable[LabelRecord]) -> list[UnpairedExample]:
    """Both-bad labels as two bad examples each, and the judgements of single texts."""
    return [
        UnpairedExample(each.prompt, text, each.answer is Answer.GOOD)
        for each in records
        if each.answer in (Answer.BOTH_BAD, Answer.GOOD, Answer.BAD)
        for text in each.texts
    ]


def unpaired_from_pairs(pairs: Iterable[PreferencePair]) -> list[UnpairedExample]:
    """Each decided pair as a good and a bad example, as KTO takes preferences; ties say neither."""
    return [
        example
        for each in pairs
        if each.target == 1.0
        for example in (
            UnpairedExample(each.prompt, each.chosen, True, each.source),
            UnpairedExample(each.prompt, each.rejected, False, each.source),
        )
    ]


def for_training(records: Iterable[LabelRecord]) -> list[LabelRecord]:
    """The labels that a run may learn from: those not held out."""
    return [each for each in records if not each.held_out]


def for_measuring(records: Iterable[LabelRecord]) -> list[LabelRecord]:
    """The labels that no run may learn from, so that accuracy on them stays honest."""
    return [each for each in records if each.held_out]


@dataclass(frozen=True)
class LabelCounts:
    """How many labels gave what."""

    decided: int
    ties: int
    both_bad: int
    skipped: int
    single: int  # judgements of one text
    held_out: int  # of all the above

    def line(self) -> str:
        """``42 decided, 7 ties, 3 both bad, 1 skipped, 9 held out``, without what there is none of."""
        parts = (
            (self.decided, "decided"),
            (self.ties, "tie" if self.ties == 1 else "ties"),
            (self.both_bad, "both bad"),
            (self.skipped, "skipped"),
            (self.single, "single"),
            (self.held_out, "held out"),
        )
        return ", ".join(f"{count} {name}" for count, name in parts if count) or "no labels"


def count_labels(records: Sequence[LabelRecord]) -> LabelCounts:
    """Counts by kind of answer."""
    answers = Counter(each.answer for each in records)
    return LabelCounts(
        decided=sum(count for answer, count in answers.items() if answer.decided),
        ties=answers[Answer.TIE],
        both_bad=answers[Answer.BOTH_BAD],
        skipped=answers[Answer.SKIP],
        single=answers[Answer.GOOD] + answers[Answer.BAD],
        held_out=sum(each.held_out for each in records),
    )


def training_effect(answer: Answer) -> str:
    """What an answer does to training, as the footer of the label screen says it."""
    if answer.decided:
        how = {0.0: "no margin", 0.5: "half margin", 1.0: "full margin"}[answer.strength or 0.0]
        return f"reward model: hard label, {how} · DPO: pair · export: chosen and rejected"
    return {
        Answer.TIE: "reward model: target 0.5 · DPO: left out · export: left out",
        Answer.BOTH_BAD: "reward model and DPO: nothing · export: two unpaired rows, label false",
        Answer.SKIP: "teaches nothing",
        Answer.GOOD: "unpaired example, label true",
        Answer.BAD: "unpaired example, label false",
    }[answer]
