"""A text that is set often: nothing happens when it stays the same, and nothing moves while it keeps its height."""

from textual.content import Content
from textual.widgets import Static


class StillText(Static):
    """:meth:`show` in place of ``update``, which lays out the whole screen each time, in a fortieth of a second."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._shown = Content("")

    def show(self, text: Content) -> None:
        """Say this from now on."""
        if text.is_same(self._shown):
            return
        before, self._shown = self._shown, text
        width = self.content_size.width
        grows = not width or self._lines(text, width) != self._lines(before, width)
        self.update(text, layout=grows)

    def _lines(self, text: Content, width: int) -> int:
        return text.get_height({"text_wrap": self.styles.text_wrap}, width)
