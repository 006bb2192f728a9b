"""Earlier labels: find them, change what was said, note, flag, delete. Nothing is lost: every change can be undone."""

from collections.abc import Callable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import DataTable, Input, Static

from core.config import ConfigError
from core.preferences.labels import KEYS, LabelError, LabelRecord
from rlhf_tui.labelling.desk import Desk
from rlhf_tui.labelling.finding import COLUMNS, WORDS, matching, row_of
from rlhf_tui.safe_text import safe_text
from rlhf_tui.screens.prompt import PromptScreen

MOST_ROWS = 5_000  # the newest ones; the filter finds the others


class LabelBrowser(ModalScreen[None]):
    """Newest first. The keys of the answers change the label at the cursor."""

    CSS_PATH = "label_browser.tcss"
    AUTO_FOCUS = "#labels"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,h,q", "close", "Close", key_display="Esc", id="labels.close"),
        *(
            Binding(key, f"answer('{key}')", show=False, id=f"labels.key_{key}")
            for key in KEYS if key not in ("left", "right")
        ),
        Binding("n", "note", "Note", id="labels.note"),
        Binding("f", "flag", "Flag", id="labels.flag"),
        Binding("x,delete", "delete", "Delete", key_display="x", id="labels.delete"),
        Binding("u,backspace", "undo", "Undo", key_display="u", id="labels.undo"),
        Binding("slash", "find", "Find", key_display="/", id="labels.find"),
    ]  # fmt: skip

    def __init__(self, desk: Desk, keep: Callable[[Callable[[], object]], bool], read_only: bool = False) -> None:
        super().__init__()
        self.desk = desk
        self.keep = keep  # writes to the session, and says why where it cannot
        self.read_only = read_only
        self.shown: list[LabelRecord] = []

    def compose(self) -> ComposeResult:
        with Vertical(id="browser") as box:
            box.border_title = "labels"
            box.border_subtitle = "1–7 b s change the answer · n note · f flag · x delete · u undo · / find · Esc"
            yield Input(placeholder=f"letters, or {' '.join(WORDS[:5])} …", id="find", compact=True)
            yield DataTable(id="labels", cursor_type="row", zebra_stripes=True)
            yield Static(id="label-facts")

    def on_mount(self) -> None:
        table = self.query_one(DataTable)
        for name, width in COLUMNS:
            table.add_column(name, width=width)
        self._fill()

    def _fill(self) -> None:
        table = self.query_one(DataTable)
        at = table.cursor_row
        labels = self.desk.labels.current()
        problem = ""
        try:
            self.shown = matching(labels, self.query_one("#find", Input).value)[::-1][:MOST_ROWS]
        except ConfigError as error:
            problem = str(error)
        table.clear()
        for each in self.shown:
            table.add_row(*(safe_text(cell, width) for cell, (_, width) in zip(row_of(each), COLUMNS, strict=True)))
        table.move_cursor(row=min(at, max(len(self.shown) - 1, 0)), animate=False)
        self.query_one("#browser").border_title = f"labels: {len(self.shown)} of {len(labels)}"
        self._facts(problem)

    def _facts(self, problem: str = "") -> None:
        label = self.at_cursor
        if problem:
            line = safe_text(f"✗ {problem}", style="$text-error")
        elif label is None:
            line = safe_text("no labels" if not self.desk.labels.current() else "no label matches")
        else:
            sides = [
                f"{name} {side.source}" for name, side in zip("AB", (label.left, label.right), strict=True) if side
            ]
            facts = [*sides, label.reason.value, f"by {label.annotator}", label.guideline]
            line = safe_text(" · ".join(fact for fact in facts if fact))
        self.query_one("#label-facts", Static).update(line)

    @property
    def at_cursor(self) -> LabelRecord | None:
        row = self.query_one(DataTable).cursor_row
        return self.shown[row] if 0 <= row < len(self.shown) else None

    @on(DataTable.RowHighlighted)
    def _moved(self) -> None:
        self._facts()

    @on(Input.Changed, "#find")
    def _find(self) -> None:
        self._fill()

    @on(Input.Submitted, "#find")
    def _found(self) -> None:
        self.query_one(DataTable).focus()

    def action_find(self) -> None:
        self.query_one("#find", Input).focus()

    def action_answer(self, key: str) -> None:
        self._change(answer=KEYS[key])

    def action_flag(self) -> None:
        if (label := self.at_cursor) is not None:
            self._change(flagged=not label.flagged)

    def action_note(self) -> None:
        label = self.at_cursor
        if label is not None:
            self.app.push_screen(
                PromptScreen("Note", "Stored with this label.", value=label.note),
                lambda text: self._change(note=text.strip()) if text is not None else None,
            )

    def _change(self, **changes: object) -> None:
        label = self.at_cursor
        if label is not None:
            self._write(lambda: self.desk.change(label.id, **changes))

    def action_delete(self) -> None:
        label = self.at_cursor
        if label is not None:
            self._write(lambda: self.desk.delete([label.id]))

    def action_undo(self) -> None:
        undone: list[object] = []
        self._write(lambda: undone.append(self.desk.undo()))
        if undone == [None]:
            self.notify("there is nothing to take back")

    def _write(self, change: Callable[[], object]) -> None:
        if self._refused():
            return
        try:
            if not self.keep(change):
                self.notify("not saved, so not changed", severity="error")
        except LabelError as error:
            self.notify(safe_text(str(error)).plain, markup=False, severity="error")
        self._fill()

    def _refused(self) -> bool:
        if self.read_only:
            self.notify("this session is open to look at only", severity="warning")
        return self.read_only

    def action_close(self) -> None:
        self.dismiss(None)
