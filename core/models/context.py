"""Does everything that a run will read fit into the model's context? Torch-free."""

from collections.abc import Iterable

from core.models.config import BackboneConfig, ContextError
from core.preferences.pair import PreferencePair
from core.tasks.base import Task

SPECIAL = 2  # BOS before the prompt and behind it


def check_context(task: Task, backbone: BackboneConfig, pairs: Iterable[PreferencePair] = ()) -> None:
    """Raises ContextError, in one line with what would help, when a transformer's context is too short.

    Looked at are demonstrations and pairs with their EOS, and every prompt with the most that may be written.
    """
    if backbone.kind != "transformer":
        return
    written = [(each.prompt, len(each.completion) + 1) for each in task.demonstrations + task.held_out_demonstrations]
    written += [(each.prompt, max(len(each.chosen), len(each.rejected)) + 1) for each in (*task.pairs, *pairs)]
    written += [(prompt, task.max_new_tokens) for prompt in task.prompts + task.held_out_prompts]
    prompt, completion = max(written, key=lambda each: len(each[0]) + each[1])
    needed = SPECIAL + len(prompt) + completion
    if needed > backbone.context:
        shown = prompt if len(prompt) <= 40 else prompt[:40] + "…"
        raise ContextError(
            f"the prompt '{shown}' with its completion takes {needed} tokens, more than the context of "
            f"{backbone.context}; a session with context={needed} has room for it, and so has the lstm"
        )
