"""``rlhf-tui train``: one method, with what it needs before it, or the whole pipeline and a table at its end."""

import argparse
import asyncio
import dataclasses
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import Any, cast

from core import trust
from core.config import ConfigError, find_knob, make
from core.engine.protocol import Evaluate, Evaluation, Fork, Resume, RunState, Sample, Samples, Start
from core.methods.base import Method
from core.methods.table import METHODS, find_method, method_title
from core.pipeline import PRESETS, RunLike, Stage, fitting, missing_before, newest_done, parse_setting, pipeline, stage
from core.store import Session
from core.store.locations import find_session, last_session, saves_folder
from core.store.runs import RunRecord
from rlhf_tui.commands import new_session, starting
from rlhf_tui.commands.arguments import (
    INTERRUPTED,
    WRONG_USAGE,
    CommandError,
    Parser,
    add_knobs,
    add_session,
    add_shared,
    given_knobs,
    typed,
    whole,
)
from rlhf_tui.commands.report import completions_table, outcome_table
from rlhf_tui.commands.workshop import Interrupted, Workshop

ALL = "all"
REPORT_COMPLETIONS = 2048
SHOWN_PROMPTS = 5
UNFINISHED = ("interrupted", "paused", "running", "pausing", "waiting")


def configure(commands: Any) -> None:
    """Add ``train`` with a parser for each method."""
    about = "train a method, or all of them one after the other"
    parser: Parser = commands.add_parser(
        "train", help=about, description=about,
        epilog="A method of your own, in a module that can be imported: rlhf-tui train module:METHOD",
    )  # fmt: skip
    methods = parser.add_subparsers(dest="method", metavar="METHOD", required=True, parser_class=Parser)
    everything = methods.add_parser(
        ALL, help="SFT, reward model, PPO and online DPO, with a table at the end",
        description="SFT → reward model → PPO on the learned reward, and online DPO beside it. The gold rule audits.",
    )  # fmt: skip
    everything.add_argument(
        "--set", action="append", default=[], dest="settings", metavar="METHOD.KNOB=VALUE",
        help="set a knob of one stage, as in ppo.learning_rate=1e-3; may be repeated",
    )  # fmt: skip
    everything.add_argument("--steps", type=whole(1, 1_000_000), metavar="N", help="at most so many steps a stage")
    _add_common(everything)
    new_session.configure(everything)
    for method in METHODS.values():
        _add_method(methods, method)

    def from_outside(word: str) -> None:
        if ":" not in word:
            return
        known = trust.is_trusted(word)
        try:
            trust.trust(word)
            _add_method(methods, find_method(word))
        except (ConfigError, argparse.ArgumentError) as error:
            if not known:
                trust.distrust(word)
            raise argparse.ArgumentError(None, f"{word}: {error}") from error

    parser.find_choice = from_outside


def _add_method(methods: Any, method: Method) -> None:
    """A parser for a method, with a flag for each knob. Raises ArgumentError for a knob with another option's name."""
    about = method.summary.replace("%", "%%")
    one: Parser = methods.add_parser(method.name, help=about, description=_description(method))
    one.add_argument("--config", metavar="TEXT", default="", help="knobs in one string: 'beta=0.3 steps=50'")
    learns_from_pairs = "pairs" in {field.name for field in dataclasses.fields(method.config)}
    if learns_from_pairs:
        one.add_argument("--pairs-file", metavar="PATH", help="pairs to learn from, for pairs=file or mixed")
    starting.configure(one, method, learns_from_pairs)
    _add_common(one)
    add_knobs(one, method.config, new_session.configure(one, method.config))


def _add_common(parser: Parser) -> None:
    """What every ``train`` command takes."""
    add_session(parser, "session to train in, made if need be (default: a new one)")
    add_shared(parser)
    parser.add_argument(
        "--preset", default="full", choices=tuple(PRESETS), metavar="PRESET",
        help="quick: a first look; full: the methods' defaults (default full)",
    )  # fmt: skip
    parser.add_argument("--jsonl", action="store_true", help="print the engine's events as JSON lines")
    parser.add_argument(
        "--resume", action="store_true", help="go on with what was interrupted (default session: the last)"
    )
    parser.set_defaults(run=run, parser=parser)


def run(args: argparse.Namespace) -> int:
    """Train what ``args`` say. Raises CommandError, StoreError or ConfigError with one line."""
    new_session.check_words(args)
    stages = _stages(args)
    pairs_file = getattr(args, "pairs_file", None)
    if pairs_file is not None and not Path(pairs_file).is_file():
        raise CommandError(f"there is no file {pairs_file}")
    if args.method != ALL:
        starting.check_words(args)
    folder = _session_folder(args)
    if args.method != ALL:
        starting.check_runs(args, folder)
    return asyncio.run(_train(args, stages, folder))


async def _train(args: argparse.Namespace, stages: tuple[Stage, ...], folder: Path) -> int:
    async with Workshop(folder, device=args.device, threads=args.threads, jsonl=args.jsonl) as workshop:
        workshop.say(f"session: {folder}")
        began = time.monotonic()
        work = Work(workshop, args, folder)
        try:
            finished = [await work.do(each) for each in stages]
            if args.method == ALL:
                await work.report_all(finished, time.monotonic() - began)
            else:
                await work.report_one(finished[-1])
        except Interrupted as signalled:
            workshop.say(f"stopped; everything learned is saved. Go on with: {_resume_command(args, folder)}")
            return INTERRUPTED if signalled.number == signal.SIGINT else 128 + signalled.number
    return 0


class Work:
    """The runs of one ``train`` command, in order."""

    def __init__(self, workshop: Workshop, args: argparse.Namespace, folder: Path) -> None:
        self.workshop = workshop
        self.args = args
        with Session.open(folder, read_only=True) as session:
            self.records: list[RunRecord] = session.runs.all()
        self.done: list[RunState] = []  # by this command
        self.chosen = {} if args.method == ALL else starting.chosen(args)

    async def do(self, wanted: Stage) -> RunState:
        """Train a stage, or go on with it, after what is missing before it."""
        if not self.workshop.gold and wanted.config.get("reward") == "gold":
            raise CommandError("the task has no gold rule to give a reward; leave --reward out, or set it to learned")
        knobs = fitting(wanted.method, wanted.config, self.workshop.gold, self.workshop.backbone)
        wanted = Stage(wanted.method, knobs)
        if self.args.resume and (there := await self._go_on(wanted)) is not None:
            return there
        known: list[RunLike] = [*self.records, *self.done]
        if self.args.method != ALL:
            for missing in self._missing(wanted, known):
                self.workshop.say(f"{wanted.method.title} needs {missing.method.title} first: training it")
                await self._start(missing)
            if self.args.fork:
                return await self._fork(wanted)
            return await self._start(wanted, pairs_file=getattr(self.args, "pairs_file", None), **self.chosen)
        return await self._start(wanted)

    def _missing(self, wanted: Stage, known: list[RunLike]) -> list[Stage]:
        """What must be trained before ``wanted``, but for what the command names."""
        named = {wanted.method.starts_from} if "parent" in self.chosen else set()
        named |= {"rm"} if "reward_run" in self.chosen else set()
        return [each for each in missing_before(wanted, known, self.args.preset) if each.method.name not in named]

    async def _start(self, wanted: Stage, **chosen: Any) -> RunState:
        known = [*map(_as_state, self.records), *self.done]
        parent = wanted.method.starts_from and newest_done(known, wanted.method.starts_from)
        fields: dict[str, Any] = {"method": wanted.method.name, "config": wanted.config}
        if self.args.seed is not None:
            fields["seed"] = self.args.seed
        if parent:
            fields["parent"] = parent.run
        state = cast(RunState, await self.workshop.request(Start, **{**fields, **chosen}))
        return await self._finish(state)

    async def _fork(self, wanted: Stage) -> RunState:
        config = wanted.full_config.to_dict()
        fields = {"run": self.args.parent, "step": self.args.parent_step, "config": config, "seed": self.args.seed}
        state = cast(RunState, await self.workshop.request(Fork, **fields))
        return await self._finish(state)

    async def _go_on(self, wanted: Stage) -> RunState | None:
        """What the newest run of the method has come to, after going on with it; None when there is none."""
        newest = next((each for each in reversed(self.records) if each.method == wanted.method.name), None)
        if newest is None:
            return None
        steps = wanted.config.get("steps") if self.args.method != ALL else None
        if newest.state in ("done", "stopped") and (steps is None or steps <= newest.step):
            if self.args.method != ALL:
                raise CommandError(f"run {newest.id} ({newest.title}) is {newest.state} at step {newest.step}; "
                                   "give more --steps to go on")  # fmt: skip
            self.workshop.say(f"{wanted.method.title}: {newest.state} before")
            state = _as_state(newest)
            self.done.append(state)
            return state
        fields: dict[str, Any] = {"run": newest.id} | ({"steps": steps} if steps else {})
        state = cast(RunState, await self.workshop.request(Resume, **fields))
        self.workshop.say(f"{wanted.method.title}: going on from step {state.step}")
        return await self._finish(state)

    async def _finish(self, state: RunState) -> RunState:
        rested = await self.workshop.finish(state)
        self.done.append(rested)
        if rested.message:
            self.workshop.say(f"{method_title(rested.method)}: {rested.message}")
        return rested

    async def report_one(self, state: RunState) -> None:
        """The figures of one run, and what it writes."""
        method = find_method(state.method)
        if method.trains != "policy":
            with Session.open(self.workshop.folder, read_only=True) as session:
                table = session.metrics.read(state.run, [method.headline])
            for name, column in table.values.items():
                known = [value for value in column.tolist() if value == value]
                self._print(f"{method.title}: best {name} {max(known):.3f}, last {known[-1]:.3f}")
            return
        policies = await self._with_start([state])
        await self._report(policies)

    async def report_all(self, finished: list[RunState], seconds: float) -> None:
        """The table of the pipeline, and completions before and after."""
        policies = [each for each in finished if find_method(each.method).trains == "policy"]
        await self._report(policies)
        self._print(f"all of it took {seconds:.0f} s")

    async def _report(self, policies: list[RunState]) -> None:
        self.workshop.say("measuring …")
        self._print(outcome_table([(each, await self._measure(each)) for each in policies]))
        self._print(completions_table(await self._write(policies)))

    async def _with_start(self, policies: list[RunState]) -> list[RunState]:
        """``policies`` behind the run that they started from."""
        parent = policies[0].parent
        known = {each.run: each for each in [*map(_as_state, self.records), *self.done]}
        return [known[parent], *policies] if parent in known else policies

    async def _measure(self, state: RunState) -> dict[str, float]:
        answer = await self.workshop.request(Evaluate, run=state.run, completions=REPORT_COMPLETIONS)
        return cast(Evaluation, answer).values

    async def _write(self, policies: list[RunState]) -> dict[str, Samples]:
        written = {}
        for each in policies:
            answer = await self.workshop.request(Sample, run=each.run, seed=0)
            samples = cast(Samples, answer)
            shown = samples.samples
            if len(shown) > SHOWN_PROMPTS:  # trained prompts come first, held-out ones last
                shown = [*shown[: SHOWN_PROMPTS // 2], *shown[-(SHOWN_PROMPTS - SHOWN_PROMPTS // 2) :]]
            written[method_title(each.method)] = dataclasses.replace(samples, samples=shown)
        return written

    def _print(self, text: str) -> None:
        if not self.args.jsonl:
            print(text)
            sys.stdout.flush()


def _stages(args: argparse.Namespace) -> tuple[Stage, ...]:
    """The stages that ``args`` ask for. Raises ConfigError."""
    try:
        if args.method != ALL:
            method = find_method(args.method)
            given = typed(method.config, args.config) | given_knobs(args)
            trust.trust_named(method.config, given)
            return (stage(args.method, args.preset, given),)
        settings: dict[str, dict[str, Any]] = {}
        for each in args.settings:
            name, knob, value = parse_setting(each)
            settings.setdefault(name, {})[knob] = value
            trust.trust_named(find_method(name).config, {knob: value})
        stages = pipeline(args.preset, settings)
        if args.steps is None:
            return stages
        return tuple(_shortened(each, args.steps) for each in stages)
    except ConfigError as error:
        raise CommandError(str(error), WRONG_USAGE) from error


def _shortened(wanted: Stage, steps: int) -> Stage:
    find_knob(wanted.method.config, "steps").check(steps)
    return Stage(wanted.method, {**wanted.config, "steps": min(steps, wanted.full_config.steps)})


def _session_folder(args: argparse.Namespace) -> Path:
    """The folder of the session to train in, which is made if need be."""
    saves = saves_folder(args.saves)
    if args.session and (args.resume or starting.chosen(args) or _exists(saves, args.session)):
        return new_session.refuse_other(find_session(saves, args.session), args)
    if args.resume:
        last = last_session(saves)
        if last is None:
            raise CommandError(f"there is no session in {saves} to go on with")
        return new_session.refuse_other(last, args)
    return new_session.begin(args, saves)


def _exists(saves: Path, name: str) -> bool:
    from core.store import SessionMissingError

    try:
        find_session(saves, name)
    except SessionMissingError:
        return False
    return True


def _resume_command(args: argparse.Namespace, folder: Path) -> str:
    words = ["rlhf-tui", "train", args.method, "--session", folder.name, "--resume"]
    if args.saves:
        words += ["--saves", args.saves]
    return shlex.join(words)


def _description(method: Method) -> str:
    make(method.config, {})
    return f"{method.summary}\n\nWhen: {method.when}\nWhat goes wrong: {method.pitfalls}"


def _as_state(record: RunRecord) -> RunState:
    return RunState(
        run=record.id, method=record.method, title=record.title, state=record.state, step=record.step,
        steps=record.steps, completions=record.completions, seconds=record.seconds, parent=record.parent,
        parent_step=record.parent_step, message=record.message,
    )  # fmt: skip
