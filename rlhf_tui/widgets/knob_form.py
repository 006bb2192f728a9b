"""The knobs of a method, generated from its configuration: value, range, unit, explanation; errors said at the field.

The list draws its own lines: a form of thirty input widgets would take longer to mount than the whole screen.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from rich.cells import cell_len
from rich.segment import Segment
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Input

from core.config import Config, ConfigError, Knob, knobs
from rlhf_tui.safe_text import fit, safe_str, safe_text
from rlhf_tui.screens.topics import HelpTopic
from rlhf_tui.widgets.still_text import StillText

NUDGE = 1.25  # factor of + and −


class HasKnobs(Protocol):
    """A method, or anything else with a title and a configuration."""

    @property
    def title(self) -> str: ...
    @property
    def config(self) -> type[Config]: ...


class KnobList(ScrollView, can_focus=True):
    """One line a knob; the cursor's line is reversed, what cannot be turned now is dim."""

    DEFAULT_CSS = """
    KnobList {
        height: 1fr; scrollbar-size-vertical: 1; overflow-x: hidden;
        & > .knobs--name { color: $foreground; }
        & > .knobs--changed { color: $accent; text-style: bold; }
        & > .knobs--fixed { color: $text-muted; text-style: dim; }
        & > .knobs--cursor { text-style: reverse; }
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {"knobs--name", "knobs--changed", "knobs--fixed", "knobs--cursor"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "Knob above", show=False, id="knobs.up"),
        Binding("down", "move(1)", "Knob below", show=False, id="knobs.down"),
        Binding("home", "move(-999)", "First knob", show=False, id="knobs.first"),
        Binding("end", "move(999)", "Last knob", show=False, id="knobs.last"),
        Binding("enter", "edit", "Edit", show=False, id="knobs.edit",
                tooltip="Type a value; a choice goes to its next"),
        Binding("plus,equals_sign", "nudge(1)", "More", key_display="+", show=False, id="knobs.more",
                tooltip="A quarter more, or the next choice"),
        Binding("minus", "nudge(-1)", "Less", key_display="-", show=False, id="knobs.less",
                tooltip="A fifth less, or the choice before"),
        Binding("backspace", "default", "Default", show=False, id="knobs.default", tooltip="Back to the default value"),
    ]  # fmt: skip

    class Moved(Message):
        """The cursor stands on another knob."""

    class Wanted(Message):
        """A knob should get a value; without one, the person wants to type it."""

        def __init__(self, knob: Knob, value: Any = None) -> None:
            super().__init__()
            self.knob, self.value = knob, value

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.knobs: tuple[Knob, ...] = ()
        self.values: dict[str, Any] = {}
        self.live_only = False
        self.at = 0

    def show(self, knobs_: tuple[Knob, ...], values: Mapping[str, Any], live_only: bool) -> None:
        if (knobs_, values, live_only) == (self.knobs, self.values, self.live_only):
            return
        if knobs_ != self.knobs:
            self.at = 0
        self.knobs, self.values, self.live_only = knobs_, dict(values), live_only
        self.virtual_size = Size(self.size.width, len(knobs_))
        self.refresh()

    @property
    def knob(self) -> Knob | None:
        return self.knobs[self.at] if self.knobs else None

    def can_turn(self, knob: Knob) -> bool:
        return knob.live or not self.live_only

    def render_line(self, y: int) -> Strip:
        index = y + self.scroll_offset.y
        width = self.scrollable_content_region.width  # beside the scrollbar
        if index >= len(self.knobs):
            return Strip.blank(width, self.rich_style)
        knob = self.knobs[index]
        value = self.values.get(knob.name, knob.default)
        changed = value != knob.default
        room = width - 3  # a mark before the name, a blank behind it, a star behind the value
        text = ending(shown(value), max(room - cell_len(knob.name), room // 2))
        mark = "~" if knob.live else " "
        line = f"{mark}{fit(knob.name, room - cell_len(text))} {text}{'*' if changed else ' '}"
        kind = "fixed" if not self.can_turn(knob) else "changed" if changed else "name"
        style = self.get_component_rich_style(f"knobs--{kind}")
        if index == self.at and self.has_focus:
            style += self.get_component_rich_style("knobs--cursor")
        return Strip([Segment(fit(line, width), style)])

    def action_move(self, distance: int) -> None:
        self.at = min(max(self.at + distance, 0), max(len(self.knobs) - 1, 0))
        self._scroll_to_cursor()
        self.refresh()
        self.post_message(self.Moved())

    def _scroll_to_cursor(self) -> None:
        self.scroll_to_region(Region(0, self.at, 1, 1), animate=False, force=True)

    def action_edit(self) -> None:
        knob = self.knob
        if knob is None:
            return
        if knob.type is bool or knob.choices:
            self.action_nudge(1)
        else:
            self.post_message(self.Wanted(knob))

    def action_nudge(self, direction: int) -> None:
        if (knob := self.knob) is None:
            return
        value = nudged(knob, self.values.get(knob.name, knob.default), direction)
        if self.can_turn(knob):  # at once, so that a quick second press goes on from here
            self.values[knob.name] = value
            self.refresh()
        self.post_message(self.Wanted(knob, value))

    def action_default(self) -> None:
        if (knob := self.knob) is not None:
            self.post_message(self.Wanted(knob, knob.default))

    def on_click(self, event: events.Click) -> None:
        row = event.get_content_offset_capture(self).y + self.scroll_offset.y
        if row < len(self.knobs):
            again = row == self.at
            self.action_move(row - self.at)
            if again:
                self.action_edit()

    def on_resize(self) -> None:
        self.virtual_size = Size(self.size.width, len(self.knobs))
        self._scroll_to_cursor()  # a long explanation below leaves fewer lines


class KnobForm(Vertical):
    """The list, and under it the knob at the cursor explained – or typed into."""

    ALLOW_MAXIMIZE = True
    DEFAULT_CSS = """
    KnobForm { border: round $panel-lighten-2; border-title-color: $foreground; border-subtitle-color: $text-muted; }
    KnobForm:focus-within { border: round $accent; border-title-style: bold; }
    KnobForm #about { height: auto; min-height: 5; max-height: 9; padding: 0 1; color: $text-muted; }
    KnobForm #value { display: none; border: none; height: 1; padding: 0 1; background: $boost; }
    KnobForm.-editing #value { display: block; }
    """

    class Turned(Message):
        """A valid value for a knob."""

        def __init__(self, name: str, value: Any) -> None:
            super().__init__()
            self.name, self.value = name, value

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.error = ""
        self._method_title = ""
        self._titles = ("", "")

    def compose(self) -> ComposeResult:
        yield KnobList(id="list")
        yield Input(id="value", compact=True)
        yield StillText(id="about")

    @property
    def list(self) -> KnobList:
        return self.query_one("#list", KnobList)

    def show(self, method: HasKnobs, values: Mapping[str, Any], live_only: bool) -> None:
        """``values`` may lack knobs at their default; ``live_only``: the run has begun."""
        known = knobs(method.config)
        if known != self.list.knobs:
            self.remove_class("-editing")
        self.list.show(known, values, live_only)
        self._method_title = method.title
        self._entitle()
        self._explain()

    def _entitle(self) -> None:
        """Say around the list whose knobs these are and what its signs or the keys of the field mean."""
        signs = "~ can be turned now" if self.list.live_only else "* changed"
        subtitle = "Enter sets · Esc leaves" if self.has_class("-editing") else signs
        titles = f"knobs of {self._method_title}", subtitle
        if titles != self._titles:
            self._titles = titles
            self.border_title, self.border_subtitle = safe_text(titles[0]), subtitle

    @on(KnobList.Moved)
    def _moved(self) -> None:
        self.error = ""
        self.remove_class("-editing")
        self._entitle()
        self._explain()

    @on(KnobList.Wanted)
    def _wanted(self, message: KnobList.Wanted) -> None:
        message.stop()
        knob = message.knob
        if not self.list.can_turn(knob):
            self.error = f"{knob.name} is fixed once a run has begun; f forks the run with another value"
            self._explain()
        elif message.value is None:
            self._edit(knob)
        else:
            self._turn(knob, message.value)

    def _edit(self, knob: Knob) -> None:
        field = self.query_one("#value", Input)
        field.value = as_typed(self.list.values.get(knob.name, knob.default))
        field.placeholder = knob.range
        self.error = ""
        self.add_class("-editing")
        self._entitle()
        field.focus()
        field.action_select_all()
        self._explain()

    @on(Input.Changed, "#value")
    def _check(self, event: Input.Changed) -> None:
        knob = self.list.knob
        if knob is None or not self.has_class("-editing"):
            return
        try:
            knob.parse(event.value)
            self.error = ""
        except ConfigError as error:
            self.error = str(error)
        self._explain()

    @on(Input.Submitted, "#value")
    def _submit(self, event: Input.Submitted) -> None:
        event.stop()
        knob = self.list.knob
        if knob is None:
            return
        try:
            value = knob.parse(event.value)
        except ConfigError as error:
            self.error = str(error)
            self._explain()
            return
        self.close_field()
        self._turn(knob, value)

    def _turn(self, knob: Knob, value: Any) -> None:
        try:
            value = knob.check(value)
        except ConfigError as error:
            self.error = str(error)
            self._explain()
            return
        self.error = ""
        self._explain()
        self.post_message(self.Turned(knob.name, value))

    def close_field(self) -> None:
        """Leave the field without a value."""
        self.remove_class("-editing")
        self._entitle()
        self.error = ""
        self.list.focus()
        self._explain()

    def on_key(self, event: events.Key) -> None:
        if event.key == "escape" and self.has_class("-editing"):
            event.stop()
            self.close_field()

    @property
    def unsent(self) -> str:
        """A value that was typed and not entered, with its knob."""
        knob = self.list.knob
        typed = self.query_one("#value", Input).value
        editing = knob is not None and self.has_class("-editing")
        if not editing or knob is None or typed == as_typed(self.list.values.get(knob.name, knob.default)):
            return ""
        return f"{knob.name} = {safe_str(typed, 40)}"

    def _explain(self) -> None:
        knob = self.list.knob
        if knob is None:
            return
        if self.error:
            self.query_one("#about", StillText).show(safe_text(f"✗ {self.error}", style="$text-error"))
            return
        facts = [knob.range, knob.unit, f"default {shown(knob.default) or 'none'}"]
        about = safe_text(knob.help[:1].upper() + knob.help[1:]) + Content(". ")
        self.query_one("#about", StillText).show(about + safe_text(" · ".join(fact for fact in facts if fact)))

    def help_topic(self) -> HelpTopic:
        knob = self.list.knob
        about = f"{knob.name}: {knob.help} ({knob.range})" if knob else ""
        return HelpTopic(
            "Knobs",
            (
                ("This knob", about),
                (
                    "Before a run starts",
                    "Every knob can be set. Enter types a value, + and - turn it, Backspace sets the default. "
                    "A star marks what differs from the default.",
                ),
                (
                    "While it trains",
                    "Knobs with ~ are live: a new value is felt from the next step on and marked on the charts (▾). "
                    "The others are fixed; f forks the run with another value.",
                ),
            ),
        )


def as_typed(value: Any) -> str:
    """A knob's value as it is typed, whole."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def shown(value: Any) -> str:
    """A knob's value to read."""
    return safe_str(as_typed(value))


def ending(text: str, width: int) -> str:
    """``text`` in at most ``width`` cells; of one that is too long the end, which tells most of a path."""
    if cell_len(text) <= width:
        return text
    while text and cell_len(text) > max(width - 1, 0):
        text = text[1:]
    return f"…{text}"


def nudged(knob: Knob, value: Any, direction: int) -> Any:
    """The value one turn further; at the end of the range it stays."""
    if knob.type is bool:
        return not value
    if knob.choices:
        return knob.choices[(knob.choices.index(value) + direction) % len(knob.choices)]
    if knob.type is str:
        return value
    if not value:
        further: float = direction * (1 if knob.type is int else 0.1)
    else:
        further = value * (NUDGE if (direction > 0) == (value > 0) else 1 / NUDGE)
    if knob.type is int:
        further = round(further) if round(further) != value else value + direction
    else:
        further = float(f"{further:.3g}")
    if knob.minimum is not None:
        further = max(further, knob.minimum)
    if knob.maximum is not None:
        further = min(further, knob.maximum)
    return knob.type(further)
