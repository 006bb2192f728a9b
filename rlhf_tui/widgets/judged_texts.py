"""What is judged: the prompt, two texts side by side and aligned below – or four of which the best and worst count."""

from textual import events
from textual.app import ComposeResult
from textual.containers import Grid, Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from core.preferences.selection import ChosenFour, ChosenPair
from rlhf_tui.aligned import aligned_rows, highlighted
from rlhf_tui.safe_text import safe_text, visible
from rlhf_tui.screens.topics import HelpTopic

EMPTY = "(empty)"
TEXTS = 4


class TextPane(VerticalScroll, can_focus=False):
    """One text in a box; a click chooses it."""

    class Chosen(Message):
        """The text at ``position`` was clicked."""

        def __init__(self, position: int) -> None:
            super().__init__()
            self.position = position

    def __init__(self, position: int) -> None:
        super().__init__(id=f"text-{position}", classes="text")
        self.position = position
        self._length = 10**6  # cells of the text that is shown; before the first, any may need a layout

    def compose(self) -> ComposeResult:
        yield Static()

    def show(self, text: Content, title: str, marked: bool = False) -> None:
        if title != self.border_title:  # which draws the whole box, the same title too
            self.border_title = title
        self.set_class(marked, "-marked")
        text = text if text.plain else Content.styled(EMPTY, "dim")
        # To lay out the screen anew costs more than all else here, and a text that stays on its line needs none.
        room = self.scrollable_content_region.width
        longest = max(text.cell_length, self._length)
        self._length = text.cell_length
        self.query_one(Static).update(text, layout=longest > room)
        if self.scroll_y:
            self.scroll_home(animate=False)

    def on_click(self, event: events.Click) -> None:
        self.post_message(self.Chosen(self.position))


class JudgedTexts(Vertical, can_focus=True):
    """Holds the focus, so that the keys of the screen reach it and nothing eats the arrows."""

    DEFAULT_CSS = """
    JudgedTexts {
        & #prompt-line { height: 1; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis; }
        & #texts { height: 1fr; grid-size: 2; grid-rows: 1fr; }
        & .text {
            border: round $panel-lighten-2; border-title-color: $foreground; border-title-style: bold; padding: 0 1;
            height: 100%; scrollbar-size-vertical: 1; text-style: bold;
        }
        & .text.-marked { border: heavy $accent; }
        & #aligned { height: 2; padding: 0 1; text-wrap: nowrap; }
        & #nothing { display: none; height: 1fr; padding: 1 2; color: $text-warning; }
        &.-nothing #texts, &.-nothing #aligned, &.-nothing #prompt-line { display: none; }
        &.-nothing #nothing { display: block; }
        &.-four #aligned { display: none; }
        & #text-2, & #text-3 { display: none; }
        &.-four #text-2, &.-four #text-3 { display: block; }
    }
    JudgedTexts:focus .text { border: round $accent; }
    JudgedTexts:focus .text.-marked { border: heavy $accent; }
    """

    def compose(self) -> ComposeResult:
        yield Static(id="prompt-line")
        with Grid(id="texts"):
            for position in range(TEXTS):
                yield TextPane(position)
        yield Static(id="aligned")
        yield Static(id="nothing")

    def show_nothing(self, why: str) -> None:
        """Say why there is nothing to judge, in one or more paragraphs."""
        paragraphs = [safe_text(each, 400) for each in why.split("\n\n")]
        self.query_one("#nothing", Static).update(Content("\n\n").join(paragraphs))
        self.set_class(True, "-nothing")

    def show_pair(self, pair: ChosenPair, marks: str = "") -> None:
        """``marks``: what stands behind the prompt (a note, a flag)."""
        self._begin(pair.prompt, marks, four=False)
        left, right = pair.left.text, pair.right.text
        self._pane(0).show(highlighted(left, right), "A  ←")
        self._pane(1).show(highlighted(right, left), "B  →")
        rows = aligned_rows(left, right)
        room = self.size.width - 6
        fits = rows[0].cell_length <= room
        named = [Content.styled(f"{name}  ", "dim") + row for name, row in zip("AB", rows, strict=True)]
        both = Content("\n").join(named) if fits else Content("")
        self.query_one("#aligned", Static).update(both, layout=False)

    def show_four(self, four: ChosenFour, best: int | None, marks: str = "") -> None:
        """The best, once chosen, is marked."""
        self._begin(four.prompt, marks or ("best of the four?" if best is None else "and the worst?"), four=True)
        for position, side in enumerate(four.sides):
            chosen = position == best
            self._pane(position).show(
                Content(visible(side.text)), f"{position + 1}  ✓ the best" if chosen else f"{position + 1}", chosen
            )

    def _begin(self, prompt: str, marks: str, four: bool) -> None:
        self.set_class(False, "-nothing")
        self.set_class(four, "-four")
        line = Content.styled("prompt  ", "dim") + safe_text(prompt, style="bold")
        if marks:
            line += Content.styled("   ", "") + safe_text(marks, style="$text-accent")
        self.query_one("#prompt-line", Static).update(line, layout=False)

    def _pane(self, position: int) -> TextPane:
        return self.query_one(f"#text-{position}", TextPane)

    def help_topic(self) -> HelpTopic:
        return HelpTopic(
            "Labelling",
            (
                (
                    "What to do",
                    "Read both answers to the prompt and press the key of the one that is better by the line above. "
                    "1 to 3 mean A, 5 to 7 mean B, the outer keys more strongly; the arrows mean A or B at middle "
                    "strength. "
                    "Each answer is on disk before the next pair shows; u takes back as many as you like.",
                ),
                (
                    "What an answer does",
                    "A decided pair teaches a reward model that the chosen text scores higher, and DPO to prefer it. A "
                    "tie says to a reward model that both are worth the same; DPO leaves it out. Both bad teaches "
                    "neither: it is exported as two bad examples, which KTO learns from.",
                ),
                (
                    "The usual misreading",
                    "Which side a text stands on is a coin's choice, and who wrote it and what the reward model thinks "
                    "stay hidden until you have answered: they would judge for you.",
                ),
                (
                    "Why this pair",
                    "Half of the pairs are random, most others are those that the reward models are least sure of, and "
                    "some come again with sides exchanged, to see whether you agree with yourself. A fixed slice of "
                    "the random ones is never trained on, so that accuracy stays honest.",
                ),
            ),
        )
