"""Samples of two models beside one another, or above one another where that does not fit, differences highlighted."""

from functools import partial

from rich.cells import cell_len
from textual.content import Content

from core.engine.protocol import Samples, SampleText
from core.evaluation.side_by_side import score_of
from rlhf_tui.aligned import aligned_rows, highlighted
from rlhf_tui.safe_text import ELLIPSIS, safe_str, safe_text, visible
from rlhf_tui.screens.topics import HelpTopic
from rlhf_tui.widgets.line_list import LineList, Row

CUT_OFF = "⋯"
COLUMNS = {
    "gold": "gold_reward", "learned": "learned_reward", "lp A": "reference_logprob", "lp B": "logprob", "KL": "kl",
}  # fmt: skip
"""What a column shows. Of both sides' texts: what describes a completion says "policy" of B, "reference" of A."""
_FIGURE = 8  # cells of a figure
_TEXT = 8  # the least cells for a text
_MOST_LINES = 6  # that a long text unfolds into


class SamplePairs(LineList):
    """The row with the cursor unfolds: whole texts, letters in common under one another."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, empty="Nothing to compare yet.", title="samples")
        self.samples: Samples | None = None
        self.head = self._head

    def show_samples(self, samples: Samples) -> None:
        self.samples = samples
        self._arrange()

    def on_resize(self) -> None:
        self._arrange()

    def _arrange(self) -> None:
        samples = self.samples
        pairs = [] if samples is None else list(zip(samples.reference, samples.samples, strict=False))
        self._prompts = min(max([6, *(cell_len(safe_str(one.prompt, 24)) for one, _ in pairs)]), 24)
        self._known = [
            name
            for name, field in COLUMNS.items()
            if any(getattr(each, field) is not None for pair in pairs for each in pair)
        ]
        longest = max([_TEXT, *(cell_len(safe_str(each.text, 400)) + 1 for pair in pairs for each in pair)])
        side = (self._width - self._prompts - 3) // 2
        self._beside = side >= longest + len(self._known) * _FIGURE
        if self._beside:
            self._texts = side - len(self._known) * _FIGURE
        else:
            self._texts = max(self._width - self._prompts - 3 - len(self._known) * _FIGURE, _TEXT)
        self.show([
            Row(index, partial(self._draw, index), self._height(index, *pair))
            for index, pair in enumerate(pairs)
        ])  # fmt: skip

    @property
    def _width(self) -> int:
        return max(self.scrollable_content_region.width - 1, 20)

    def action_move(self, distance: int) -> None:
        super().action_move(distance)
        self._arrange()

    def _height(self, index: int, one: SampleText, other: SampleText) -> int:
        return (1 if self._beside else 2) + (len(self._unfolded(one, other)) if index == self.at else 0)

    def _head(self, width: int) -> Content:
        figures = "".join(f"{name:>{_FIGURE}}" for name in self._known) if self.samples else ""
        head = f" {'prompt':<{self._prompts}} " if self.samples else ""
        if self.samples is None:
            return Content("")
        if self._beside:
            return Content.styled(f"{head}{'A':<{self._texts}}{figures} {'B':<{self._texts}}{figures}", "dim")
        return Content.styled(f"{head}  {'':<{self._texts}}{figures}", "dim")

    def _draw(self, index: int, width: int, here: bool) -> list[Content]:
        assert self.samples is not None
        one, other = self.samples.reference[index], self.samples.samples[index]
        again = index and self.samples.samples[index - 1].prompt == other.prompt
        prompt = _fitted(safe_text("" if again else other.prompt, self._prompts, "$text-secondary"), self._prompts)
        left, right = self._side(one, other, False), self._side(other, one, True)
        if self._beside:
            lines = [prompt + Content(" ") + left + Content(" ") + right]
        else:
            lines = [
                prompt + Content.styled(" A ", "dim") + left,
                Content(" " * self._prompts) + Content.styled(" B ", "dim") + right,
            ]
        return lines + (self._unfolded(one, other) if here else [])

    def _side(self, sample: SampleText, other: SampleText, is_right: bool) -> Content:
        end = "" if sample.ended else CUT_OFF
        room = self._texts - len(end) - 1
        text = highlighted(sample.text, other.text) if sample.text else Content.styled("(empty)", "dim")
        if text.cell_length > room:
            text = text[: _letters(text.plain, room - 1)] + Content(ELLIPSIS)
        shown = _fitted(text + Content.styled(end, "dim"), self._texts)
        for name in self._known:
            gain = _gain(sample, other) if is_right and name == self._scored else None
            shown += _figure(getattr(sample, COLUMNS[name]), gain)
        return shown

    @property
    def _scored(self) -> str:
        return "gold" if "gold" in self._known else "learned"

    def _unfolded(self, one: SampleText, other: SampleText) -> list[Content]:
        """Both texts whole, shared letters in the same columns; nothing where the line above shows as much."""
        longest = max(cell_len(safe_str(each.text, 400)) for each in (one, other))
        if not self._beside and longest < self._texts:
            return []
        room = max(self._width - 6, 10)
        rows = aligned_rows(one.text, other.text)
        lines: list[Content] = []
        length = len(rows[0].plain)
        at = 0
        while at < length and len(lines) < _MOST_LINES:
            count = max(1, min(_letters(rows[0].plain[at:], room), _letters(rows[1].plain[at:], room)))
            for mark, row in zip("AB", rows, strict=True):
                lines.append(Content.styled(f"   {mark} ", "dim") + row[at : at + count])
            at += count
        if at < length:
            lines[-1] = lines[-1] + Content(ELLIPSIS)
        return lines

    def as_text(self, every: bool = False) -> str:
        """The row with the cursor, or every row, for the clipboard: tab-separated with a heading."""
        if self.samples is None or not self.rows:
            return ""
        lines = ["\t".join(("prompt", "side", "text", *COLUMNS))]
        for index in range(len(self.rows)) if every else [self.at]:
            for mark, each in (("A", self.samples.reference[index]), ("B", self.samples.samples[index])):
                figures = (getattr(each, field) for field in COLUMNS.values())
                shown = ("" if value is None else f"{value:.4f}" for value in figures)
                lines.append("\t".join((visible(each.prompt), mark, visible(each.text), *shown)))
        return "\n".join(lines) + "\n"

    def help_topic(self) -> HelpTopic:
        return HelpTopic(
            "Samples of A and B",
            (
                (
                    "What it shows",
                    "Both models write after the same prompts with the same random numbers, so what differs is what "
                    "training changed: underlined is what the other side lacks. gold and learned are rewards; lp A and "
                    "lp B the log-probability of the whole completion under each model; KL is KL(B‖A) summed along it, "
                    f"in nats. ▲ ▼ say whether B scores above A. {CUT_OFF} marks a text cut off at the "
                    "length limit.",
                ),
                (
                    "The usual misreading",
                    "Eight samples are an anecdote; the averages below stand on many more. Alike samples of one "
                    "prompt at high reward are collapse.",
                ),
            ),
        )


def _gain(sample: SampleText, other: SampleText) -> float | None:
    mine, yours = score_of(sample), score_of(other)
    return None if mine is None or yours is None else mine - yours


def _figure(value: float | None, gain: float | None) -> Content:
    if value is None:
        return Content.styled(f"{'–':>{_FIGURE}}", "dim")
    number = f"{value:.2f}" if abs(value) < 100 else f"{value:.0f}"
    if gain is None or gain == 0:
        return Content(f"{number:>{_FIGURE}}")
    sign, style = ("▲", "$text-success") if gain > 0 else ("▼", "$text-error")
    return Content.styled(f"{sign + number:>{_FIGURE}}", style)


def _fitted(text: Content, width: int) -> Content:
    return text + Content(" " * max(0, width - text.cell_length))


def _letters(text: str, cells: int) -> int:
    """How many letters of ``text`` fit into so many cells."""
    used = 0
    for at, letter in enumerate(text):
        used += cell_len(letter)
        if used > cells:
            return at
    return len(text)
