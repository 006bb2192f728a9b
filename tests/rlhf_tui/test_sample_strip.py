"""The strip of samples says which reference stands beside the policy."""

import pytest
from textual.app import App, ComposeResult

from core.engine.protocol import Samples, SampleText
from rlhf_tui.widgets.sample_strip import SampleStrip


class StripApp(App[None]):
    def compose(self) -> ComposeResult:
        yield SampleStrip()


@pytest.mark.parametrize(("stands", "said"), [(None, "reference  "), (40, "reference of step 40  ")])
async def test_a_refreshed_reference_is_named_by_its_step(stands: int | None, said: str) -> None:
    texts = [SampleText(prompt="ba", text="nana or so that is long", ended=True)]
    app = StripApp()
    async with app.run_test(size=(100, 10)):
        strip = app.query_one(SampleStrip)
        strip.show(Samples(run=1, step=41, samples=texts, reference=texts, reference_step=stands))
        assert f"prompt  {said}" in strip.render().plain.splitlines()[0]
