"""What can be done on the Compare screen: choose sides, scrub, turn the dice, ask with a prompt of one's own, copy."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.screen import Screen

from core.config import ConfigError, parse_short
from rlhf_tui.comparing import Question, Sampling, Side, mixed_prompts, scrubbed
from rlhf_tui.screens.choose import ChooseScreen
from rlhf_tui.screens.prompt import PromptScreen
from rlhf_tui.widgets.line_list import LineList
from rlhf_tui.widgets.sample_pairs import SamplePairs
from rlhf_tui.widgets.scoreboard import Scoreboard

if TYPE_CHECKING:
    from core.tasks.base import Task
    from rlhf_tui.app import PlaygroundApp

TEMPERATURES = (0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.5, 2.0)
COUNTS = (4, 8, 16, 32, 64)


class CompareActions(Screen[None]):
    """The keys of the Compare screen; :class:`CompareScreen` is what they act on."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "choose_side('left')", "A", id="compare.left", tooltip="Choose the run on the left"),
        Binding("b", "choose_side('right')", "B", id="compare.right", tooltip="Choose the run on the right"),
        Binding("comma", "scrub('right', -1)", "Earlier", key_display=",", id="compare.earlier",
                tooltip="B one snapshot earlier"),
        Binding("full_stop", "scrub('right', 1)", "Later", key_display=".", id="compare.later",
                tooltip="B one snapshot later, up to where its run stands"),
        Binding("less_than_sign", "scrub('left', -1)", "A earlier", key_display="<", show=False,
                id="compare.left_earlier", tooltip="A one snapshot earlier"),
        Binding("greater_than_sign", "scrub('left', 1)", "A later", key_display=">", show=False,
                id="compare.left_later", tooltip="A one snapshot later"),
        Binding("x", "swap", "Swap", show=False, id="compare.swap", tooltip="A becomes B and B becomes A"),
        Binding("p", "own_prompt", "Prompt", id="compare.prompt", tooltip="Ask with a prompt of your own"),
        Binding("n", "one_or_several", "One/several", id="compare.several",
                tooltip="Several samples of the prompt at the cursor, or one of several prompts"),
        Binding("r", "new_seed", "Dice", id="compare.seed", tooltip="Other random numbers"),
        Binding("R", "first_seed", "First seed", show=False, id="compare.first_seed", tooltip="Back to seed 0"),
        Binding("t", "temperature(1)", "Temperature", show=False, id="compare.hotter", tooltip="A higher temperature"),
        Binding("T", "temperature(-1)", "Cooler", show=False, id="compare.cooler", tooltip="A lower temperature"),
        Binding("plus,equals_sign", "count(1)", "More", key_display="+", show=False, id="compare.more",
                tooltip="More samples"),
        Binding("minus", "count(-1)", "Fewer", key_display="-", show=False, id="compare.fewer",
                tooltip="Fewer samples"),
        Binding("o", "sampling", "Sampling", id="compare.sampling",
                tooltip="Temperature, top-k, top-p, seed and number of samples, typed"),
        Binding("y", "copy(False)", "Copy", id="compare.copy", tooltip="Copy the pair at the cursor"),
        Binding("Y", "copy(True)", "Copy all", show=False, id="compare.copy_all", tooltip="Copy every pair"),
    ]  # fmt: skip

    # What CompareScreen has, for the type checker.
    if TYPE_CHECKING:
        question: Question
        steps: dict[int | None, list[int]]

        @property
        def asked_task(self) -> Task: ...

        @property
        def playground(self) -> PlaygroundApp: ...
        def ask_again(self, question: Question | None = None, chosen: bool = True) -> None: ...
        def policies(self) -> list[tuple[int, str]]: ...

    # --- sides -------------------------------------------------------------------------------------------------

    def _put(self, name: str, side: Side) -> None:
        fields: dict[str, Any] = {name: side}
        self.ask_again(replace(self.question, **fields))

    def action_choose_side(self, name: str) -> None:
        board = self.query_one(Scoreboard)
        if board.has_focus and board.policy is not None:
            self.put_run(name, board.policy)
            return
        current: Side = getattr(self.question, name)

        def chosen(run: int | None) -> None:
            if run is not None:
                self.put_run(name, run or None)

        mark = "A" if name == "left" else "B"
        self.app.push_screen(
            ChooseScreen(f"The run on side {mark}", "", self.policies(), current.run or 0), chosen
        )  # fmt: skip

    def put_run(self, name: str, run: int | None) -> None:
        """Compare with a run where it stands now."""
        self._put(name, Side(run))
        self.run_changed()

    def run_changed(self) -> None:
        """The snapshots of the sides are other ones."""
        self._stale = True
        self._look_around()

    if TYPE_CHECKING:
        _stale: bool

        def _look_around(self) -> None: ...

    @on(LineList.Chosen, "#runs")
    def _run_chosen(self, message: LineList.Chosen) -> None:
        board = self.query_one(Scoreboard)
        if board.policy is not None:
            self.put_run("right", board.policy)

    def action_scrub(self, name: str, distance: int) -> None:
        side: Side = getattr(self.question, name)
        run = self.playground.state.runs.get(side.run) if side.run is not None else None
        moved = scrubbed(side, self.steps.get(side.run, []), run.step if run else 0, distance)
        if moved != side:
            self._put(name, moved)

    def action_swap(self) -> None:
        self.ask_again(replace(self.question, left=self.question.right, right=self.question.left))

    # --- prompts and dice --------------------------------------------------------------------------------------

    def _sample_with(self, **changes: Any) -> None:
        self.ask_again(replace(self.question, sampling=replace(self.question.sampling, **changes)))

    def action_own_prompt(self) -> None:
        def wrong(text: str) -> str:
            unknown = self.asked_task.unknown_letters(text)
            return f"the alphabet lacks {' '.join(unknown)}" if unknown else ""

        def asked(text: str | None) -> None:
            if text is not None:
                self.ask_again(replace(self.question, prompt=text))

        self.app.push_screen(
            PromptScreen("Your prompt", "Both models continue it; empty for the task's own prompts.",
                         value=self.question.prompt, placeholder=mixed_prompts(self.asked_task, 1)[0], check=wrong),
            asked,
        )  # fmt: skip

    def action_one_or_several(self) -> None:
        if self.question.prompt:
            self.ask_again(replace(self.question, prompt=""))
            return
        pairs = self.query_one(SamplePairs)
        prompts = mixed_prompts(self.asked_task, self.question.sampling.count)
        if pairs.samples is not None and pairs.rows:
            self.ask_again(replace(self.question, prompt=pairs.samples.samples[pairs.at].prompt))
        else:
            self.ask_again(replace(self.question, prompt=prompts[0]))

    def action_new_seed(self) -> None:
        self._sample_with(seed=self.question.sampling.seed + 1)

    def action_first_seed(self) -> None:
        self._sample_with(seed=0)

    def action_temperature(self, direction: int) -> None:
        self._sample_with(temperature=_next(TEMPERATURES, self.question.sampling.temperature, direction))

    def action_count(self, direction: int) -> None:
        self._sample_with(count=_next(COUNTS, self.question.sampling.count, direction))

    def action_sampling(self) -> None:
        now = self.question.sampling

        def wrong(text: str) -> str:
            try:
                parse_short(Sampling, text)
            except ConfigError as error:
                return str(error)
            return ""

        def asked(text: str | None) -> None:
            if text is not None:
                self.ask_again(replace(self.question, sampling=parse_short(Sampling, text)))

        whole = " ".join(f"{name}={value:g}" for name, value in now.to_dict().items())
        self.app.push_screen(
            PromptScreen("How both sides write", "name=value with blanks between; what is left out has its default.",
                         value=whole, check=wrong),
            asked,
        )  # fmt: skip

    def action_copy(self, every: bool) -> None:
        text = self.query_one(SamplePairs).as_text(every)
        if not text:
            self.playground.toast("nothing to copy yet")
            return
        self.app.copy_to_clipboard(text)
        lines = text.count("\n") - 1
        self.playground.toast(f"copied {lines} texts with their scores (where the terminal allows it)")


def _next(values: tuple[Any, ...], now: Any, direction: int) -> Any:
    """The value of the scale that follows ``now`` in a direction; the last one beyond its ends."""
    if direction > 0:
        return next((each for each in values if each > now), values[-1])
    return next((each for each in reversed(values) if each < now), values[0])
