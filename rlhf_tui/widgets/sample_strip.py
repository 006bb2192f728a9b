"""Fresh samples: the same prompts and seeds each time, the reference's text beside the policy's, both with reward."""

from rich.cells import cell_len
from textual.content import Content
from textual.widget import Widget

from core.engine.protocol import Samples, SampleText
from rlhf_tui.safe_text import fit, safe_str, safe_text
from rlhf_tui.screens.topics import HelpTopic

_REWARD = 7  # cells
CUT_OFF = "⋯"  # after a text that reached the length limit instead of ending


class SampleStrip(Widget, can_focus=True):
    ALLOW_MAXIMIZE = True
    DEFAULT_CSS = """
    SampleStrip {
        border: round $panel-lighten-2; border-title-color: $foreground; border-subtitle-color: $text-muted;
        padding: 0 1;
    }
    SampleStrip:focus { border: round $accent; border-title-style: bold; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.border_title = "samples"
        self.samples: Samples | None = None
        self.empty = ""

    def show(self, samples: Samples | None, empty: str = "") -> None:
        """``empty`` is said where there are none."""
        if samples is self.samples and empty == self.empty:
            return
        self.samples, self.empty = samples, empty
        self.border_subtitle = f"step {samples.step} · same prompts and seeds each time" if samples else ""
        self.refresh()

    def render(self) -> Content:
        if self.samples is None or not self.samples.samples:
            return Content.styled(self.empty, "$text-muted")
        return Content("\n").join(self._lines(self.samples)[: max(self.size.height, 1)])

    def _lines(self, samples: Samples) -> list[Content]:
        width = self.size.width
        written = (cell_len(safe_str(each.prompt, 24)) for each in samples.samples)
        prompts = min(max([6, *written]), max(width // 5, 4), 24)
        longest = max((cell_len(safe_str(each.text, 60)) for each in [*samples.samples, *samples.reference]), default=0)
        side = max(min((width - prompts - 4) // 2, max(longest, 12) + _REWARD + 2), 8)
        head = _column(Content.styled("prompt", "dim"), prompts) + Content("  ")
        if samples.reference:
            stands = f" of step {samples.reference_step}" if samples.reference_step else ""
            head += _column(Content.styled(fit(f"reference{stands}", side), "dim"), side) + Content("  ")
        lines = [head + Content.styled("policy", "dim")]
        for index, sample in enumerate(samples.samples):
            before = samples.reference[index] if index < len(samples.reference) else None
            line = _column(safe_text(sample.prompt, prompts, "$text-secondary"), prompts) + Content("  ")
            if samples.reference:
                line += _column(_text(before, side), side) + Content("  ")
            lines.append(line + _text(sample, side, before))
        return lines

    def help_topic(self) -> HelpTopic:
        return HelpTopic(
            "Samples",
            (
                (
                    "What it shows",
                    "What the frozen reference and the policy write after the same prompts with the same random "
                    "numbers, refreshed every few steps. Where the reference is refreshed, it is the one that KL is "
                    "counted from now, and its step is named. The number before each text is its gold reward, ▲ and ▼ "
                    f"say whether the policy's is higher or lower; {CUT_OFF} marks a text cut off at the length limit.",
                ),
                (
                    "The usual misreading",
                    "One better sample is luck: read the reward chart. Alike samples at high reward are collapse: "
                    "read the entropy chart.",
                ),
            ),
        )


def _column(text: Content, width: int) -> Content:
    return text + Content(" " * max(0, width - text.cell_length))


def _text(sample: SampleText | None, width: int, before: SampleText | None = None) -> Content:
    if sample is None:
        return Content("")
    reward = Content("")
    if sample.gold_reward is not None:
        sign, style = " ", ""
        if before is not None and before.gold_reward is not None:
            gain = sample.gold_reward - before.gold_reward
            sign, style = ("▲", "$text-success") if gain > 0 else ("▼", "$text-error") if gain < 0 else ("=", "dim")
        reward = Content.styled(f"{sign}{sample.gold_reward:5.2f} ", style)
    room = max(width - reward.cell_length - (0 if sample.ended else 1), 1)
    text = safe_text(sample.text, room) if sample.text else Content.styled("(empty)", "dim")
    return reward + text + Content("" if sample.ended else CUT_OFF)
