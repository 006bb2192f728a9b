"""What labelling asks of the engine: completions with each reward model's score, and scores of texts that are given."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from core.engine.asking import finish, sample, score
from core.engine.launching import RefusedError
from core.engine.protocol import Event, Sample, Samples, Score, Start
from core.engine.saving import Environment
from core.engine.workspace import Workspace
from core.models.config import BackboneConfig
from core.new_session import make_session, plan_session
from core.preferences.labels import Answer, LabelRecord, Side
from core.store import Session

TINY = {"embedding": 4, "hidden": 4, "layers": 1}


class Bench:
    """An engine's workspace without its process; runs are driven to their end at once."""

    def __init__(self, folder: Path) -> None:
        self.events: list[Event] = []
        self.workspace = Workspace.open(
            folder, "words", 7, TINY, torch.device("cpu"), Environment(torch.__version__, "cpu", 1), self.events.append
        )
        self._asked = 0

    def start(self, method: str, **fields: object) -> int:
        self._asked += 1
        state = self.workspace.start(Start(id=self._asked, method=method, **fields))  # type: ignore[arg-type]
        driver = self.workspace.drivers[state.run]  # type: ignore[union-attr]
        while driver.active:
            driver.slice()
        assert driver.state == "done", driver.message
        self.workspace.settle(driver)
        return driver.id

    def sample(self, **fields: object) -> Samples:
        answer = finish(sample(self.workspace, Sample(id=1, **fields)))  # type: ignore[arg-type]
        assert isinstance(answer, Samples)
        return answer


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("scoring") / "s")
    sft = made.start("sft", config={"steps": 1, "batch_size": 4})
    rm = {"steps": 1, "batch_size": 4, "pair_count": 8, "ensemble": 3}
    assert made.start("rm", parent=sft, config=rm) == 2
    yield made
    made.workspace.close()


def test_samples_say_what_each_member_scores_and_whose_scores_they_are(bench: Bench) -> None:
    found = bench.sample(run=1, prompts=["tree", "moss"], count=4, seed=3)
    assert (found.reward_run, found.reward_step) == (2, 1)
    for each in found.samples:
        assert len(each.member_rewards) == 3
        assert each.learned_reward == pytest.approx(sum(each.member_rewards) / 3, abs=1e-5)
    assert len({tuple(each.member_rewards) for each in found.samples}) > 1


def test_scores_of_given_texts_are_those_of_the_same_texts_when_sampled(bench: Bench) -> None:
    sampled = [each for each in bench.sample(run=1, prompts=["tree"], count=12, temperature=1.0).samples if each.ended]
    assert len(sampled) > 2
    answer = score(bench.workspace, Score(id=1, prompts=["tree"] * len(sampled), texts=[each.text for each in sampled]))
    assert (answer.reward_run, answer.reward_step) == (2, 1)
    for each, members in zip(sampled, answer.scores, strict=True):
        assert members == pytest.approx(each.member_rewards, abs=1e-5)


def test_a_text_outside_the_alphabet_has_no_score_and_spoils_no_other(bench: Bench) -> None:
    alone = score(bench.workspace, Score(id=1, prompts=["tree"], texts=["elm"])).scores
    answer = score(bench.workspace, Score(id=1, prompts=["tree"] * 3, texts=["Ünder", "elm", "日本"]))
    assert answer.scores[0] is None and answer.scores[2] is None
    assert answer.scores[1] == pytest.approx(alone[0], abs=1e-5)


def test_what_cannot_be_scored_is_refused(bench: Bench) -> None:
    with pytest.raises(RefusedError, match="prompt with each text"):
        score(bench.workspace, Score(id=1, prompts=["tree"], texts=["elm", "oak"]))
    with pytest.raises(RefusedError, match="run 1 trained no reward model"):
        score(bench.workspace, Score(id=1, prompts=["tree"], texts=["elm"], reward_run=1))


def test_without_a_reward_model_samples_have_no_scores(tmp_path: Path) -> None:
    fresh = Bench(tmp_path / "s")
    found = fresh.sample(prompts=["tree"])
    assert found.reward_run is None and found.samples[0].member_rewards == []
    with pytest.raises(RefusedError, match="no reward model yet"):
        score(fresh.workspace, Score(id=1, prompts=["tree"], texts=["elm"]))
    fresh.workspace.close()


def labelled(session: Session, count: int, **fields: object) -> None:
    for number in range(count):
        session.labels.add(LabelRecord(
            id=f"{number}-{fields}", time=0.0, annotator="t", prompt="tree", left=Side(f"el{'abcdefghij'[number]}"),
            right=Side("oak"), **{"answer": Answer.LEFT, **fields},  # type: ignore[arg-type]
        ))  # fmt: skip


def test_a_run_learns_from_labels_a_file_and_automatic_pairs_and_counts_them(tmp_path: Path) -> None:
    made = Bench(tmp_path / "s")
    session = made.workspace.session
    sft = made.start("sft", config={"steps": 1, "batch_size": 4})
    labelled(session, 5)
    labelled(session, 2, answer=Answer.TIE)
    labelled(session, 3, held_out=True)
    file = tmp_path / "pairs.jsonl"
    file.write_text('{"prompt": "tree", "chosen": "elm", "rejected": "yew"}\n' * 4)
    config = {"steps": 1, "batch_size": 4, "pairs": "mixed", "pair_count": 6}
    reward = made.start("rm", parent=sft, config=config, pairs_file=str(file))
    dpo = made.start("dpo", parent=sft, config=config, pairs_file=str(file))
    # Ties teach a reward model only; labels that are held out teach nobody.
    counts = {run: session.runs.get(run).inputs["pair_counts"] for run in (reward, dpo)}
    assert counts == {
        reward: {"labels": 7, "file": 4, "automatic": 6},
        dpo: {"labels": 5, "file": 4, "automatic": 6},
    }
    said = [each.message for each in session.events.read(reward)]
    assert "learns from 7 labels, 4 pairs of a file and 6 automatic pairs" in said
    made.workspace.close()


def test_a_run_on_a_tasks_own_pairs_says_how_many_those_are(tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(f'{{"prompt": "{a}", "chosen": "good {a}", "rejected": "bad {a}"}}\n' for a in "abcdefgh"))
    plan = plan_session("custom", {"pairs": str(file)}, 7, BackboneConfig(**TINY))
    made = Bench(make_session(tmp_path, "own pairs", plan))
    opened = made.workspace.opened(1)
    assert (opened.task, opened.gold) == ("custom", False)
    sft = made.start("sft", config={"steps": 1, "batch_size": 4})
    reward = made.start("rm", parent=sft, config={"steps": 1, "batch_size": 4})
    assert made.workspace.session.runs.get(reward).inputs["pair_counts"] == {"task": 8}
    assert "learns from 8 pairs of the task" in [each.message for each in made.workspace.session.events.read(reward)]
    made.workspace.close()
