"""The strip of samples says which reference stands beside the policy."""

import pytest
from rich.cells import cell_len
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


async def test_double_width_prompts_are_whole_and_what_follows_stands_in_one_column() -> None:
    prompts = ("今天的天气", "春风", "ab")
    texts = [SampleText(prompt=prompt, text="真好。", ended=True) for prompt in prompts]
    app = StripApp()
    async with app.run_test(size=(80, 10)):
        strip = app.query_one(SampleStrip)
        strip.show(Samples(run=1, step=1, samples=texts, reference=texts))
        _, *lines = strip.render().plain.splitlines()
        for prompt, line in zip(prompts, lines, strict=True):
            assert line.startswith(f"{prompt} ")
            first = line.index("真好")
            second = line.index("真好", first + 1)
            assert cell_len(line[:first]) == 12  # the longest prompt's ten cells, and two between
            assert cell_len(line[:second]) == cell_len(lines[0][: lines[0].rindex("真好")])
