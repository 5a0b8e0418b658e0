"""Which step is the best: pass@k decides among those of about the highest greedy accuracy; step 0 counts. The alarms
about a run's verdicts and about a fall of pass@k.
"""

import itertools
import json
from dataclasses import replace

import pytest

from dph.config import MonitorConfig, MonitorSet
from dph.errors import SettingsError
from dph.runs.coverage import MONITORED, read_visits
from dph.stages.train import train
from dph.training import loop, rollouts
from dph.training.callbacks import monitor
from dph.training.callbacks.guards import VerdictAlarm
from dph.training.callbacks.monitor import PassAlarm
from dph.training.callbacks.statistics import StepStats
from dph.training.checkpoints import BestCheckpoint
from dph.types import Outcome, Verdict
from helpers import interrupted_at, train_config

RUN = {0: (0.60, 0.95), 1: (0.61, 0.97), 2: (0.70, 0.93), 3: (0.71, 0.90), 4: (0.69, 0.92), 5: (0.60, 0.99)}
"""step → greedy accuracy, pass@8"""


def line(step: int):
    greedy, passed = RUN[step]
    return {"eval/greedy": greedy, "eval/pass@1": 0.5, "eval/pass@8": passed, "eval/pass@16": 1 - passed}


def choose(steps, metric="eval/greedy", within=0.02):
    best = BestCheckpoint(metric, within, "runs/base/model")
    noted = [best.note(step, line(step)) for step in steps]
    return best, noted


def test_a_step_of_nearly_the_highest_accuracy_and_more_coverage_is_the_best():
    best, noted = choose(RUN)
    assert best.step == 2 and best.steps == (2,)
    assert noted == [False, True, True, False, False, False]  # step 0 needs no checkpoint


def test_without_a_tolerance_the_highest_accuracy_decides():
    assert choose(RUN, within=0.0)[0].step == 3


def test_another_metric_and_none():
    assert choose(RUN, metric="eval/pass@8", within=0.0)[0].step == 5
    best, noted = choose(RUN, metric="")
    assert best.step is None and not any(noted)
    with pytest.raises(SettingsError, match="keep_best is 'eval/styles', but the"):
        BestCheckpoint("eval/styles", 0.02, "").check({"eval/greedy": 0.5})


def test_the_base_model_may_be_the_best(tmp_path):
    best, _ = choose([0, 5])
    assert best.step == 5
    best, noted = choose([1, 0])  # a step of the accuracy and less coverage is no better
    assert best.step == 1 and noted == [True, False]
    best, _ = choose([0])
    (tmp_path / "checkpoints").mkdir()
    best.write(tmp_path)
    facts = {"step": 0, "metric": "eval/greedy", "value": 0.6, "eval/pass@8": 0.95, "model": "runs/base/model"}
    assert json.loads((tmp_path / "checkpoints" / "best.json").read_text()) == facts
    assert best.steps == ()


def write_run(path, steps, saved):
    lines = [json.dumps({"step": step, **line(step)}) + "\n" for step in steps]
    (path / "metrics.jsonl").write_text("".join(lines))
    for step in saved:
        (path / "checkpoints" / f"step-{step:08d}").mkdir(parents=True)


def test_a_resumed_run_has_the_best_of_the_uninterrupted_one(tmp_path):
    """Also when the step of the highest accuracy, which is still the measure of the others, is not kept."""
    write_run(tmp_path, [0, 1, 2, 3, 4], saved=[2, 4])
    best = BestCheckpoint.so_far(tmp_path, "eval/greedy", 0.02, "base")
    assert best.step == 2 and best.note(5, line(5)) is False
    best = BestCheckpoint.so_far(tmp_path, "eval/greedy", 0.015, "base")
    assert best.step == 2


def test_a_best_checkpoint_that_was_deleted_is_replaced_by_one_that_is_there(tmp_path):
    write_run(tmp_path, [0, 1, 2, 3, 4], saved=[1, 4])
    assert BestCheckpoint.so_far(tmp_path, "eval/greedy", 0.02, "base").step == 4


def judged(outcomes, rewarded=0):
    """A step with responses of these outcomes, some of which have a reward."""
    return StepStats({"rewarded": rewarded}, None, outcomes, visits=[], reasons=[], attempted=1)


def alarm(steps, by_function=False):
    """What is said of the newest of some steps."""
    watched = VerdictAlarm(by_function)
    return [watched.note(step) for step in steps][-1]


GOOD = judged({Outcome.CORRECT: 1, Outcome.WRONG: 7}, rewarded=1)
PARTIAL = judged({Outcome.WRONG: 8}, rewarded=3)  # partial credit only
NOTHING = judged({Outcome.WRONG: 6, Outcome.NO_ANSWER: 2})
BROKEN = judged({Outcome.ERROR: 5, Outcome.TIMEOUT: 3})


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([GOOD], None),
        ([PARTIAL], None),
        ([NOTHING, GOOD], None),
        ([judged({})], None),
        ([GOOD, NOTHING], "every reward is 0 in this step (8 responses: 6 wrong, 2 no_answer); check whether the gold"),
        (
            [BROKEN],
            "every verdict is an error in this step (8 responses: 5 error, 3 timeout); check",
        ),
        ([NOTHING, NOTHING], "every reward is 0 in 2 steps in a row"),
        ([NOTHING, BROKEN], "every verdict is an error in this step"),
        ([BROKEN, NOTHING], "every reward is 0 in 2 steps in a row"),  # no reward in either
    ],
)
def test_what_the_newest_step_gives_alarm_for(steps: list[StepStats], expected: str | None):
    message = alarm(steps)
    assert message is None if expected is None else message is not None and message.startswith(expected)


def test_a_lasting_state_is_told_of_ever_more_rarely():
    for state in (NOTHING, BROKEN):
        told = [count for count in range(1, 20) if alarm([GOOD, *[state] * count])]
        assert told == [1, 2, 4, 8, 16]


def test_one_verdict_that_is_no_error_calls_off_that_alarm():
    mixed = judged({Outcome.ERROR: 7, Outcome.WRONG: 1})
    assert str(alarm([mixed])).startswith("every reward is 0")
    assert alarm([judged({Outcome.ERROR: 7, Outcome.CORRECT: 1}, rewarded=1)]) is None


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        (Outcome.NO_ANSWER, "answer format"),
        (Outcome.TIMEOUT, "verifier.timeout"),
        (Outcome.INFRA_ERROR, "databases"),
        (Outcome.WRONG, "gold answers"),
    ],
)
def test_the_commonest_outcome_decides_the_advice(kind: Outcome, advice: str):
    rest = Outcome.WRONG if kind is not Outcome.WRONG else Outcome.NO_ANSWER
    assert advice in str(alarm([judged({rest: 1, kind: 5})]))


@pytest.mark.parametrize("kind", Outcome)
def test_the_advice_about_a_reward_function_is_about_the_function(kind: Outcome):
    told = str(alarm([judged({kind: 5})], by_function=True))
    advice = told.partition("); ")[2]
    assert advice.startswith("check") and "reward function" in advice
    assert not any(word in advice for word in ("gold", "verifier", "database"))


def test_penalties_of_a_reward_function_are_rewards(tmp_path, capsys):
    """Below 0 throughout, and different: the run learns, and nothing is wrong with it."""

    def shorter(prompt, completion, **_):
        return -1.0 - len(completion) / 10

    train(train_config(tmp_path / "a", "grpo"), reward=shorter)
    assert "every reward" not in capsys.readouterr().err
    train(train_config(tmp_path / "b", "grpo"), reward=lambda prompt, completion, **_: 0.0)
    told = " ".join(capsys.readouterr().err.split())
    assert "step 1: every reward is 0 in this step" in told and "check that the reward function gives good" in told


def test_a_training_run_tells_of_steps_without_any_reward(tmp_path, monkeypatch, capsys):
    original = rollouts.sample_groups
    failed = Verdict(Outcome.NO_ANSWER, 0.0)

    def sample_and_reject(*arguments):
        return [
            replace(group, rollouts=[replace(rollout, verdict=failed) for rollout in group.rollouts])
            for group in original(*arguments)
        ]

    monkeypatch.setattr(rollouts, "sample_groups", sample_and_reject)
    config = train_config(tmp_path, "grpo", steps=3)
    train(config)
    told = " ".join("".join(capsys.readouterr()).split())  # the console breaks lines
    count = config.rollout.prompts * config.rollout.n
    assert f"step 1: every reward is 0 in this step ({count} responses: {count} no_answer);" in told
    assert f"step 2: every reward is 0 in 2 steps in a row ({count} responses" in told
    assert "step 3: every" not in told


def test_a_fall_that_shows_again_is_told_of_ever_more_rarely():
    watched = PassAlarm("", 16)
    solved, lost = ({f"{i}": (c, 16) for i in range(64)} for c in (15, 1))
    said = [watched.note(20 * i, counts) for i, counts in enumerate([solved] * 3 + [lost] * 5)]
    assert [message is not None for message in said] == [False, False, False, True, True, False, True, False]
    assert str(said[3]).startswith(
        "pass@8 of the monitored problems has fallen from 100.0% at step 0 to 50.0% at step 60 (a run without a fall "
    )


def test_a_run_tells_of_a_fall_and_a_resumed_run_still_knows_the_best(tmp_path, monkeypatch, caplog):
    """The monitored problems are all solved before step 1 and hardly any of them after step 1."""
    caplog.set_level("INFO", "dph")
    score, calls = monitor.score_group, itertools.count()

    def scored(*given):
        measured, problem = divmod(next(calls), 10)
        return score(*given) | {"samples": 4, "correct": 4 if measured == 0 else int(problem == 0)}

    monkeypatch.setattr(monitor, "score_group", scored)
    measured = MonitorConfig(every=1, limit=10, n=4)
    config = train_config(tmp_path, "grpo", {"steps": 2, "checkpoint_every": 1}, monitor=measured)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(loop.Updater, "update", interrupted_at(loop.Updater.update, 2))
        train(config)
    train(config, resume=True)
    falls = [message.split(" (")[0] for message in caplog.messages if "has fallen" in message]
    # pass@2 of 1 correct in 4 is 1/2, of one problem in 10
    fallen = "pass@2 of the monitored problems has fallen from 100.0% at step 0 to 5.0%"
    assert falls == [f"step 1: {fallen} at step 1", f"step 2: {fallen} at step 2"]
    assert list(read_visits(tmp_path, MONITORED)) == [0, 1, 2]


def test_a_fall_on_a_further_set_is_told_with_its_name(tmp_path, monkeypatch, caplog):
    """The problems of the training task stay solved, those of the set are lost after step 1."""
    caplog.set_level("INFO", "dph")
    score, steps = monitor.score_group, itertools.count()

    def scored(task, group, best):
        solved = group.problem.id.startswith("dev/") or next(steps) < 4
        return score(task, group, best) | {"samples": 4, "correct": 4 if solved else 0}

    monkeypatch.setattr(monitor, "score_group", scored)
    measured = MonitorConfig(every=1, limit=4, n=4, sets={"easy": MonitorSet(split="easy", limit=4, n=4)})
    train(train_config(tmp_path, "grpo", {"steps": 1}, monitor=measured))
    falls = [message.split(" (")[0] for message in caplog.messages if "has fallen" in message]
    fallen = "pass@2 of the monitored problems has fallen from 100.0% at step 0 to 0.0% at step 1"
    assert falls == [f"step 1: monitor/easy/{fallen}"]
