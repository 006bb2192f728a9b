"""What can be asked about a run's policy: samples, the strip beside the charts, a measurement."""

from collections.abc import Generator

import torch

from core.engine.driver import RunDriver
from core.engine.launching import RefusedError
from core.engine.looking import Wanted, describe, write
from core.engine.measuring import measure_optimality
from core.engine.protocol import Evaluate, Evaluation, Event, Sample, Samples, Score, Scores
from core.engine.workspace import Workspace
from core.evaluation.probe import joined, measure, probe_rollout, win_rate
from core.methods.table import find_method
from core.models.language_model import LanguageModel
from core.sampling import Rollout, completions_of

MOST_SAMPLES = 512  # at once; more would keep other commands waiting
STRIP_PROMPTS = 5
STRIP_TEMPERATURE = 0.8
EVALUATION_SLICE = 128  # completions measured between two turns of a run


def sample(workspace: Workspace, command: Sample) -> Event:
    """Completions of a run's policy and, if asked, of a reference beside it. Raises RefusedError."""
    task = workspace.task
    prompts = command.prompts or list(task.probe_prompts)
    if not 1 <= command.count * len(prompts) <= MOST_SAMPLES:
        raise RefusedError(f"ask for 1 to {MOST_SAMPLES} samples at once, not {command.count * len(prompts)}")
    if command.max_new_tokens is not None and command.max_new_tokens > 10 * task.max_new_tokens:
        raise RefusedError(f"max_new_tokens must be at most {10 * task.max_new_tokens}, not {command.max_new_tokens}")
    notes = [_unknown(workspace, prompt) for prompt in prompts if task.unknown_letters(prompt)]
    step, policy = _policy(workspace, command.run, command.step)
    if command.step is not None and step != command.step:
        notes.append(f"no snapshot at step {command.step}; this is step {step}")
    reference_step, reference = None, None
    if command.reference is not None:
        wanted_step = command.reference_step
        reference_step, reference = _policy(workspace, command.reference or None, wanted_step)
        if wanted_step is not None and reference_step != wanted_step:
            notes.append(f"the reference has no snapshot at step {wanted_step}; this is step {reference_step}")
    found = workspace.reward_model(command.reward_run)
    (reward_run, reward_step), reward = found if found is not None else ((None, None), None)
    wanted = Wanted(
        tuple(prompt for prompt in prompts for _ in range(command.count)), command.seed, command.temperature,
        command.top_k, command.top_p, command.max_new_tokens,
    )  # fmt: skip
    try:
        rollouts = [write(model, task, wanted) for model in (policy, reference) if model is not None]
    except ValueError as error:
        raise RefusedError(str(error)) from error
    described = [
        describe(each, wanted.prompts, workspace.models, command.temperature, policy, reference, reward)
        for each in rollouts
    ]
    return Samples(
        id=command.id, run=command.run, step=step, samples=described[0],
        reference=described[1] if reference is not None else [], notes=notes, reward_run=reward_run,
        reward_step=reward_step, reference_step=reference_step,
    )  # fmt: skip


@torch.no_grad()
def score(workspace: Workspace, command: Score) -> Scores:
    """What a reward model says of texts that are given. Raises RefusedError, or TaskError for an empty prompt."""
    if len(command.prompts) != len(command.texts) or len(command.texts) > MOST_SAMPLES:
        raise RefusedError(f"give a prompt with each text, {MOST_SAMPLES} at most")
    found = workspace.reward_model(command.reward_run)
    if found is None:
        raise RefusedError("there is no reward model yet; train one first (rm)")
    (run, step), reward = found
    task = workspace.task
    readable = [at for at, text in enumerate(command.texts) if not task.unknown_letters(text)]
    scores: list[list[float] | None] = [None] * len(command.texts)
    if readable:
        completions = completions_of(
            [task.encode_prompt(command.prompts[at]) for at in readable],
            [task.encode_completion(command.texts[at]) for at in readable],
            workspace.place.device,
        )
        for at, members in zip(readable, reward.model.each(completions).T.tolist(), strict=True):
            scores[at] = members
    return Scores(id=command.id, reward_run=run, reward_step=step, scores=scores)


def strip(workspace: Workspace, driver: RunDriver) -> Samples | None:
    """Fresh samples of a run that trains, the same prompts and seeds each time; None for a reward model.

    The reference's column does not change, so it is written once.
    """
    policy = driver.trainer.sampler()
    if policy is None:
        return None
    task = workspace.task
    prompts = strip_prompts(workspace)
    wanted = Wanted(prompts, workspace.session.seed, STRIP_TEMPERATURE)
    reference = driver.trainer.reference_sampler()
    if reference is not None and driver.reference_strip is None:
        rollout = write(reference, task, wanted)
        driver.reference_strip = describe(
            rollout, prompts, workspace.models, STRIP_TEMPERATURE, reference, None, None
        )  # fmt: skip
    rollout = write(policy, task, wanted)
    return Samples(
        run=driver.id, step=driver.trainer.step_number,
        samples=describe(rollout, prompts, workspace.models, STRIP_TEMPERATURE, policy, reference, None),
        reference=driver.reference_strip or [],
    )  # fmt: skip


def strip_prompts(workspace: Workspace) -> tuple[str, ...]:
    """Three trained and two held-out prompts (fewer where the task has fewer)."""
    task = workspace.task
    held_out = task.held_out_prompts[: STRIP_PROMPTS // 2]
    return task.prompts[: STRIP_PROMPTS - len(held_out)] + held_out


def evaluate(workspace: Workspace, command: Evaluate) -> Generator[None, None, Event]:
    """Measure a policy on trained and on held-out prompts; yields between slices. Raises RefusedError.

    Metrics of the trained prompts have their usual names, those of the held-out ones begin with ``held_out/``.
    """
    task = workspace.task
    step, policy = _policy(workspace, command.run, command.step)
    reference = _reference(workspace, command.run)
    found = workspace.reward_model(command.reward_run)
    reward = found[1] if found is not None else None
    gold = workspace.models.gold
    yield
    values: dict[str, float] = {}
    for prefix, prompts in (("", task.probe_prompts[:10]), ("held_out/", task.held_out_prompts)):
        if not prompts:
            continue
        wins: list[float] = []
        pieces: list[Rollout] = []
        for piece in range(max(1, -(-command.completions // EVALUATION_SLICE))):
            count = min(EVALUATION_SLICE, command.completions - piece * EVALUATION_SLICE)
            rollout = probe_rollout(policy, task, prompts, count, piece)
            pieces.append(rollout)
            yield
            if reference is not None and gold is not None:
                other = probe_rollout(reference, task, prompts, count, piece)
                wins += [win_rate(gold(rollout), gold(other))] * count
                yield
        result = measure(joined(pieces), task, gold, reward, reference)
        yield
        values |= {f"{prefix}{name}": value for name, value in result.metrics().items()}
        if wins:
            values[f"{prefix}win_rate"] = sum(wins) / len(wins)
    notes: list[str] = []
    if command.optimality:
        more, notes = yield from measure_optimality(workspace, command, policy)
        values |= more
    return Evaluation(id=command.id, run=command.run, step=step, values=values, notes=notes)


def _policy(workspace: Workspace, run: int | None, step: int | None) -> tuple[int, LanguageModel]:
    if run is None:
        return 0, workspace.models.untrained()
    method = find_method(workspace.session.runs.get(run).method)
    if method.trains != "policy":
        raise RefusedError(f"run {run} trained a reward model, which writes nothing")
    at, weights = workspace.weights(run, step)
    return at, workspace.models.policy((run, at), weights)


def _reference(workspace: Workspace, run: int) -> LanguageModel | None:
    weights = workspace.reference_weights(run)
    return None if weights is None else workspace.models.policy((run, -1), weights)


def _unknown(workspace: Workspace, prompt: str) -> str:
    letters = " ".join(workspace.task.unknown_letters(prompt))
    return f"the alphabet lacks {letters} (in '{prompt}'); read as unknown"
