"""What can be asked about a run's policy: samples, the strip beside the charts, a measurement."""

from collections.abc import Generator
from typing import TypeVar

import torch

from core.engine.driver import RunDriver
from core.engine.launching import RefusedError
from core.engine.looking import Wanted, describe, write
from core.engine.measuring import best_of_n_estimate, measure_optimality
from core.engine.policies import Policy, best_of, policy_of, reference_of
from core.engine.protocol import Evaluate, Evaluation, Event, Sample, Samples, Score, Scores
from core.engine.workspace import Workspace
from core.evaluation.probe import batches, joined, measure, probe_rollout, win_rate
from core.sampling import Rollout, completions_of

MOST_SAMPLES = 512  # at once; more would keep other commands waiting
STRIP_PROMPTS = 5
STRIP_TEMPERATURE = 0.8
EVALUATION_SLICE = 128  # completions measured between two turns of a run
T = TypeVar("T")


def sample(workspace: Workspace, command: Sample) -> Generator[None, None, Event]:
    """Completions of a run's policy and, if asked, of a reference beside it; yields between the draws of a best of n.

    Raises RefusedError.
    """
    task = workspace.task
    prompts = command.prompts or list(task.probe_prompts)
    if not 1 <= command.count * len(prompts) <= MOST_SAMPLES:
        raise RefusedError(f"ask for 1 to {MOST_SAMPLES} samples at once, not {command.count * len(prompts)}")
    if command.max_new_tokens is not None and command.max_new_tokens > 10 * task.max_new_tokens:
        raise RefusedError(f"max_new_tokens must be at most {10 * task.max_new_tokens}, not {command.max_new_tokens}")
    notes = [_unknown(workspace, prompt) for prompt in prompts if task.unknown_letters(prompt)]
    policy = policy_of(workspace, command.run, command.step)
    notes += policy.note("the policy")
    if command.step is not None and policy.step != command.step:
        notes.append(f"no snapshot at step {command.step}; this is step {policy.step}")
    reference = None
    if command.reference is not None:
        wanted_step = command.reference_step
        reference = policy_of(workspace, command.reference or None, wanted_step)
        notes += reference.note("the reference")
        if wanted_step is not None and reference.step != wanted_step:
            notes.append(f"the reference has no snapshot at step {wanted_step}; this is step {reference.step}")
    found = workspace.reward_model(command.reward_run)
    (reward_run, reward_step), reward = found if found is not None else ((None, None), None)
    wanted = Wanted(
        tuple(prompt for prompt in prompts for _ in range(command.count)), command.seed, command.temperature,
        command.top_k, command.top_p, command.max_new_tokens,
    )  # fmt: skip
    rollouts = []
    for each in (policy, reference):
        if each is not None:
            try:
                rollouts.append((yield from each.write(task, wanted)))
            except ValueError as error:
                raise RefusedError(str(error)) from error
    models = policy.likely, None if reference is None else reference.likely
    described = [
        describe(each, wanted.prompts, workspace.models, command.temperature, *models, reward) for each in rollouts
    ]
    return Samples(
        id=command.id, run=command.run, step=policy.step, samples=described[0],
        reference=described[1] if reference is not None else [], notes=notes, reward_run=reward_run,
        reward_step=reward_step, reference_step=None if reference is None else reference.step,
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

    The reference is the one that KL is counted from now. Its column is written once, and anew when it is refreshed.
    """
    trainer = driver.trainer
    model, reference = trainer.sampler(), trainer.reference_sampler()
    if model is None:
        return None
    policy = Policy(trainer.step_number, model, best_of(workspace, driver.record))
    task, prompts = workspace.task, strip_prompts(workspace)
    wanted = Wanted(prompts, workspace.session.seed, STRIP_TEMPERATURE)
    stands = trainer.reference_step
    if reference is not None and (driver.reference_strip is None or driver.reference_strip[0] != stands):
        rollout = write(reference, task, wanted)
        column = describe(rollout, prompts, workspace.models, STRIP_TEMPERATURE, reference, None, None)
        driver.reference_strip = stands, column
    rollout = finish(policy.write(task, wanted))
    return Samples(
        run=driver.id, step=policy.step,
        samples=describe(rollout, prompts, workspace.models, STRIP_TEMPERATURE, policy.likely, reference, None),
        reference=driver.reference_strip[1] if driver.reference_strip is not None else [],
        reference_step=stands or None,
    )  # fmt: skip


def finish(work: Generator[None, None, T]) -> T:
    """Run ``work`` to its end."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result


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
    policy = policy_of(workspace, command.run, command.step)
    reference = reference_of(workspace, command.run)
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
        size = EVALUATION_SLICE if policy.best_of is None else max(1, EVALUATION_SLICE // policy.best_of.n)
        for piece, count in enumerate(batches(command.completions, size)):
            rollout = policy.probe(task, prompts, count, piece)
            pieces.append(rollout)
            yield
            if reference is not None and gold is not None:
                other = probe_rollout(reference, task, prompts, count, piece)
                wins += [win_rate(gold(rollout), gold(other))] * count
                yield
        result = measure(joined(pieces), task, gold, reward, reference if policy.best_of is None else None)
        yield
        values |= {f"{prefix}{name}": value for name, value in result.metrics().items()}
        if wins:
            values[f"{prefix}win_rate"] = sum(wins) / len(wins)
    if policy.best_of is not None:
        point = yield from best_of_n_estimate(workspace, policy.model, policy.best_of)
        values["objective/kl"] = point.kl
    notes: list[str] = []
    if workspace.session.runs.get(command.run).config.get("reference_refresh"):
        notes.append("KL is counted from the reference that the run began with, not from a refreshed one")
    if command.optimality:
        more, found_notes = yield from measure_optimality(workspace, command, policy)
        values |= more
        notes = found_notes + notes
    return Evaluation(id=command.id, run=command.run, step=policy.step, values=values, notes=notes)


def _unknown(workspace: Workspace, prompt: str) -> str:
    letters = " ".join(workspace.task.unknown_letters(prompt))
    return f"the alphabet lacks {letters} (in '{prompt}'); read as unknown"
