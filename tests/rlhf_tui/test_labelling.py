"""The desk and what surrounds it, without a screen: order, prefetching, undo, sources, rounds, filters."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.config import ConfigError
from core.preferences.labels import Answer, LabelRecord, Reason, Side
from core.preferences.quality import Rate, model_change, self_agreement
from core.preferences.selection import Candidate, ChosenFour, ChosenPair, SelectionConfig
from core.store import Session
from core.tasks.table import load_task
from rlhf_tui.labelling.automatic import judge, parse_simulation
from rlhf_tui.labelling.desk import Desk, Scored, after_vote
from rlhf_tui.labelling.finding import matching
from rlhf_tui.labelling.options import LabelOptions, read_options
from rlhf_tui.labelling.rounds import effect_line, measured_labels, new_labels, plan_align, plan_retrain, stages
from rlhf_tui.labelling.sources import SourceName, file_candidates, parse_sources, writers
from rlhf_tui.labelling.supply import PROMPTS, Supply
from rlhf_tui.state import AppState, Run

ONLY_RANDOM = SelectionConfig(uncertain=0.0, repeats=0.0)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with Session.create(tmp_path / "s", seed=5) as made:
        yield made


def pool(prompts: int = 6, texts: int = 6, source: str = "reference") -> tuple[Candidate, ...]:
    return tuple(
        Candidate(f"p{prompt}", Side(f"{source[0]}{prompt}{'abcdefgh'[text]}", source))
        for prompt, text in itertools.product(range(prompts), range(texts))
    )


def desk(session: Session, selection: SelectionConfig = ONLY_RANDOM, **options: object) -> Desk:
    made = Desk(session.labels, session.seed, selection, annotator="ann", **options)  # type: ignore[arg-type]
    made.offer(Scored(pool()))
    return made


def shown(made: Desk) -> tuple[str, frozenset[str]]:
    assert isinstance(made.item, ChosenPair)
    return made.item.prompt, frozenset((made.item.left.text, made.item.right.text))


def label(number: int, answer: Answer = Answer.LEFT, **fields: object) -> LabelRecord:
    values: dict[str, object] = {
        "id": str(number), "time": 0.0, "annotator": "ann", "prompt": "p", "left": Side(f"l{number}"),
        "right": Side(f"r{number}"), "answer": answer, **fields,
    }  # fmt: skip
    return LabelRecord(**values)  # type: ignore[arg-type]


def test_no_pair_comes_twice_though_the_next_is_chosen_before_the_answer(session: Session) -> None:
    made = desk(session)
    seen = set()
    for _ in range(90):  # all there are: 6 prompts of 15 pairs
        seen.add(shown(made))
        made.prepare()
        made.answer(Answer.LEFT)
    assert len(seen) == 90
    assert made.item is None and "every pair" in made.problem
    made.offer(Scored(pool(source="policy")))
    assert made.item is not None


def test_prepared_or_not_the_pairs_are_right_and_the_coin_is_fair(session: Session) -> None:
    """Of 2,000 pairs of two sources each stands on the left half of the time, within 3σ = 3·√2000/2 ≈ 67."""
    made = Desk(session.labels, session.seed, ONLY_RANDOM)
    made.offer(Scored(pool(40, 8) + pool(40, 8, "policy")))
    left = 0
    for turn in range(2000):
        assert isinstance(made.item, ChosenPair)
        assert {made.item.left.source, made.item.right.source} == {"reference", "policy"}
        left += made.item.left.source == "reference"
        if turn % 2:
            made.prepare()
        made.pass_by()
    assert abs(left - 1000) < 67


def test_a_repeat_carries_the_scores_and_the_reward_model_of_its_first_showing(session: Session) -> None:
    made = Desk(session.labels, session.seed, SelectionConfig(random=0.3, uncertain=0, repeats=0.7, repeat_gap=1))
    scored = tuple(Candidate(c.prompt, Side(c.side.text, "reference", score=1.0), (1.0,)) for c in pool())
    made.offer(Scored(scored, (4, 100)))
    for _ in range(10):
        made.answer(Answer.LEFT)
    made.offer(Scored(scored, (5, 200)))
    for _ in range(30):
        made.prepare()
        made.answer(Answer.RIGHT)
    by_id = {each.id: each for each in session.labels.current()}
    repeats = [each for each in by_id.values() if each.repeats is not None]
    assert len(repeats) > 5
    assert len({each.repeats for each in repeats}) == len(repeats)  # none is shown a third time
    for each in repeats:
        first = by_id[each.repeats or ""]
        assert (each.left, each.right) == (first.right, first.left)
        assert (each.reward_run, each.reward_step) == (first.reward_run, first.reward_step)


def test_scores_of_an_older_reward_model_are_dropped_not_compared(session: Session) -> None:
    made = Desk(session.labels, session.seed, SelectionConfig(random=0, uncertain=1, repeats=0))
    old = tuple(Candidate("old", Side(f"o{n}", "reference", score=float(n)), (float(n),)) for n in range(4))
    new = tuple(Candidate("new", Side(f"n{n}", "reference", score=float(n)), (float(n),)) for n in range(4))
    made.offer(Scored(old, (1, 5)))
    made.offer(Scored(new, (2, 5)))
    for _ in range(6):
        made.pass_by()
        assert isinstance(made.item, ChosenPair)
        assert (made.item.prompt, made.item.reason) == ("new", Reason.UNCERTAIN)


@pytest.mark.parametrize(("best", "worst"), list(itertools.permutations(range(4), 2)))
def test_four_come_back_by_undo_as_far_as_their_order_is_known(session: Session, best: int, worst: int) -> None:
    made = desk(session, fours=True)
    assert isinstance(made.item, ChosenFour)
    before = [side.text for side in made.item.sides]
    made.pick(best)
    assert len(made.pick(worst)) == 5
    made.undo()
    assert isinstance(made.item, ChosenFour)
    after = [side.text for side in made.item.sides]
    middle = [place for place in range(4) if place not in (best, worst)]
    if middle[1] - middle[0] > 1:
        assert after == before
    else:  # nothing is known of two neighbours that are neither
        assert sorted(after) == sorted(before)
        assert [after[place] for place in (best, worst)] == [before[place] for place in (best, worst)]


def test_a_correction_keeps_its_place_and_names_what_it_replaces(session: Session) -> None:
    made = desk(session)
    made.answer(Answer.LEFT)
    made.answer(Answer.TIE)
    first = session.labels.current()[0]
    made.change(first.id, answer=Answer.RIGHT_MUCH)
    assert [each.answer for each in session.labels.current()] == [Answer.RIGHT_MUCH, Answer.TIE]
    assert session.labels.current()[0].replaces == first.id
    made.undo()
    assert session.labels.current()[0] == first


def test_a_corrected_pair_is_shown_again_once_and_compared_with_the_correction(session: Session) -> None:
    made = Desk(session.labels, session.seed, SelectionConfig(random=0.5, uncertain=0, repeats=0.5, repeat_gap=1))
    made.offer(Scored(pool()))
    for _ in range(60):
        made.answer(Answer.LEFT)
        newest = session.labels.current()[-1]
        made.change(newest.id, answer=Answer.TIE)
        made.change(session.labels.current()[-1].id, answer=Answer.LEFT_MUCH)
    labels = session.labels.current()
    repeats = [each for each in labels if each.repeats is not None]
    assert len(repeats) > 10
    assert len({each.repeats for each in repeats}) == len(repeats)  # none is shown a third time
    # The left one was preferred each time, and a repeat has the sides exchanged.
    assert self_agreement(labels) == Rate(0, len(repeats))
    assert "you said otherwise before" in after_vote(repeats[0], labels)


def test_after_the_vote_it_is_said_whether_you_agreed_with_yourself() -> None:
    first = label(1, Answer.LEFT)
    same = label(2, Answer.RIGHT_MUCH, left=first.right, right=first.left, reason=Reason.REPEAT, repeats="1")
    other = label(3, Answer.LEFT, left=first.right, right=first.left, reason=Reason.REPEAT, repeats="1")
    tie = label(4, Answer.TIE, left=first.right, right=first.left, reason=Reason.REPEAT, repeats="1")
    assert "you said the same before" in after_vote(same, [first])
    assert "you said otherwise before" in after_vote(other, [first])
    assert "you said otherwise before" in after_vote(tie, [first])


def test_sources_are_read_as_typed() -> None:
    assert parse_sources("reference policy 3 3@120 file:'my pairs.jsonl'") == (
        SourceName("reference"), SourceName("policy"), SourceName("run", 3), SourceName("run", 3, 120),
        SourceName("file", file="my pairs.jsonl"),
    )  # fmt: skip
    for wrong, said in (
        ("", "at least one"),
        ("polcy", "did you mean 'policy'"),
        ("file:", "no source"),
        ("'", "quot"),
    ):
        with pytest.raises(ConfigError, match=said):
            parse_sources(wrong)


def state(*runs: tuple[str, str]) -> AppState:
    """Runs 1, 2, …: (method, state), each with a step done."""
    made = AppState()
    for number, (method, how) in enumerate(runs, 1):
        made.runs[number] = Run(number, method, "", how, step=10, steps=10)
    return made


def test_sources_are_found_among_the_runs() -> None:
    runs = state(("sft", "done"), ("rm", "done"), ("ppo", "running"))
    found, missing = writers(parse_sources("reference policy 3@5 2 9"), runs)
    assert [(each.name, each.run, each.step) for each in found] == [
        ("reference", 1, None), ("PPO #3", 3, None), ("PPO #3@5", 3, 5),
    ]  # fmt: skip
    assert missing == ["run 2 writes no texts", "there is no run 9"]
    assert writers(parse_sources("reference policy"), state())[1] == [
        "there is no reference yet: train SFT first", "no policy has been aligned yet",
    ]  # fmt: skip


def test_a_file_that_cannot_be_judged_is_said_in_one_line(tmp_path: Path) -> None:
    task = load_task("words", 1)
    with pytest.raises(ConfigError, match=r"none\.jsonl: no such file"):
        file_candidates(str(tmp_path / "none.jsonl"), task)
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "tree"}\n')
    with pytest.raises(ConfigError, match="nothing that answers a prompt"):
        file_candidates(str(prompts), task)


def test_the_supply_walks_through_all_prompts_before_any_comes_again() -> None:
    task = load_task("words", 1)
    supply = Supply(task, 3)
    asked = []
    for _ in range(-(-len(task.prompts) // PROMPTS)):
        asked += supply._prompts()
        supply.turn()
    assert sorted(asked) == sorted(task.prompts)
    assert supply._prompts() != asked[:PROMPTS]  # in another order the next time round


def test_options_survive_what_is_not_valid_any_more() -> None:
    kept = {"sources": "reference", "temperature": 99, "nonsense": 1, "random": 0.0, "guideline": "rounder"}
    options = read_options(kept)
    assert options == LabelOptions(sources="reference", random=0.0, guideline="rounder")
    assert read_options({"random": 0.0, "uncertain": 0.0, "repeats": 0.0}) == LabelOptions()
    assert read_options("broken") == LabelOptions()


def test_the_stages_lead_round_by_round() -> None:
    def now(runs: AppState, labels: list[LabelRecord]) -> str:
        return next(each.name for each in stages(runs, labels) if each.current)

    labels = [label(number) for number in range(30)]
    assert now(state(), []) == "train SFT"
    runs = state(("sft", "done"))
    assert now(runs, labels[:24]) == "label" and now(runs, labels) == "retrain"
    runs = state(("sft", "done"), ("rm", "done"))
    runs.runs[2].inputs = {"pair_counts": {"labels": 30}}
    assert new_labels(runs, labels) == 0 and now(runs, labels) == "align"
    runs.runs[3] = Run(3, "ppo", "", "running", step=1, steps=9)
    assert now(runs, labels) == "label"  # while it trains
    assert plan_align(runs, labels, LabelOptions()).obstacle == "PPO #3 is still training: 1 of 9 steps"
    runs.runs[3].state = "done"
    assert now(runs, labels) == "label"
    reward, policy = runs.runs[2], runs.runs.pop(3)
    align = next(each for each in stages(runs, labels) if each.name == "align")
    assert align.state == "due"
    reward.state, reward.step, reward.steps = "running", 2, 9
    align = next(each for each in stages(runs, labels) if each.name == "align")
    assert align.state == ""  # not before the reward model has ended
    for plan in (plan_retrain(runs, labels, LabelOptions()), plan_align(runs, labels, LabelOptions())):
        assert plan.obstacle == f"{reward.name} is still training: 2 of 9 steps"
    reward.state, runs.runs[3] = "done", policy
    assert plan_retrain(runs, labels, LabelOptions(ensemble=5)).fields["title"] == "Reward model, round 2"
    assert plan_align(runs, labels, LabelOptions(align="dpo")).fields["config"] == {"pairs": "labels"}
    assert "at least 4 pairs" in plan_align(runs, labels[:3], LabelOptions(align="dpo")).obstacle
    assert "at least 4 pairs" in plan_retrain(runs, labels[:3], LabelOptions()).obstacle


def test_the_effect_names_pairs_that_flipped_and_whether_the_measure_is_honest() -> None:
    labels = [label(number, held_out=number < 5) for number in range(8)]
    measured, honest = measured_labels(labels, 100)
    assert honest and [each.id for each in measured] == ["0", "1", "2", "3", "4"]
    assert measured_labels(labels[4:], 100) == (labels[4:], False)
    before = {each.id: (0.0, 1.0) for each in measured}
    after = {**before, "0": (2.0, 1.0)}
    line = effect_line(model_change(measured, before, after), honest, after)
    assert line == "accuracy 0% → 20% on 5 labels; 1 pair flipped, 1 of them to agree with you: 'l0' now above 'r0'"


def test_the_simulated_person_judges_pairs_and_fours(session: Session) -> None:
    task = load_task("words", 1)
    simulation = parse_simulation("ends-with:a noise=0 count=3", task, 1)
    made = desk(session)
    for _ in range(20):
        for record in judge(made, simulation):
            liked = [text.endswith("a") for text in record.texts]
            assert record.answer is (Answer.TIE if liked[0] == liked[1] else Answer.LEFT if liked[0] else Answer.RIGHT)
            assert record.annotator == "automatic: ends-with:a"
    made.retune(ONLY_RANDOM, annotator="ann", guideline="", fours=True)
    four = judge(made, simulation)
    assert len(four) in (1, 5)
    for wrong, said in (
        ("", ""),
        ("gold count=0", "count"),
        ("gold noise", "expected"),
        ("shrt", "did you mean 'short'"),
    ):
        if said:
            with pytest.raises(ConfigError, match=said):
                parse_simulation(wrong, task, 1)


def test_filters_find_what_they_say() -> None:
    labels = [
        label(1, note="odd one"), label(2, Answer.TIE, flagged=True), label(3, Answer.SKIP),
        label(4, left=Side("elm", "run 7", score=0.0), right=Side("oak", score=1.0)),
    ]  # fmt: skip
    assert [each.id for each in matching(labels, "is:flagged")] == ["2"]
    assert [each.id for each in matching(labels, "ODD")] == ["1"]
    assert [each.id for each in matching(labels, "is:decided run")] == ["4"]
    assert [each.id for each in matching(labels, "is:disputed")] == ["4"]
    assert [each.id for each in matching(labels, "is:random")] == ["1", "2", "3", "4"]
    assert len(matching(labels, "")) == 4
    with pytest.raises(ConfigError, match="did you mean 'is:flagged'"):
        matching(labels, "is:flaged")
