"""The options of labelling in the form that knobs have everywhere."""

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen

from core.config import ConfigError, change
from rlhf_tui.labelling.options import LabellingForm, LabelOptions
from rlhf_tui.widgets.knob_form import KnobForm


class LabelOptionsScreen(ModalScreen[LabelOptions | None]):
    """Dismissed with the options as they were left, or None."""

    CSS_PATH = "label_options.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "done", "Done", key_display="Esc", id="label_options.done")
    ]

    def __init__(self, options: LabelOptions) -> None:
        super().__init__()
        self.options = options

    def compose(self) -> ComposeResult:
        with Vertical(id="label-options"):
            yield KnobForm(id="label-knobs")

    def on_mount(self) -> None:
        self._show()
        self.query_one(KnobForm).list.focus()

    def _show(self) -> None:
        form = self.query_one(KnobForm)
        form.show(LabellingForm, self.options.to_dict(), live_only=False)
        form.border_subtitle = "Enter types a value · + − turn it · Esc done"

    @on(KnobForm.Turned)
    def _turned(self, message: KnobForm.Turned) -> None:
        form = self.query_one(KnobForm)
        try:
            self.options = change(self.options, message.name, message.value)
        except ConfigError as error:
            form.error = str(error)
        self._show()

    def action_done(self) -> None:
        self.dismiss(self.options)
