"""Which step is the best: pass@k decides among those of about the highest greedy accuracy; step 0 counts."""

import json

import pytest

from dph.errors import SettingsError
from dph.training.monitor import Best

RUN = {0: (0.60, 0.95), 1: (0.61, 0.97), 2: (0.70, 0.93), 3: (0.71, 0.90), 4: (0.69, 0.92), 5: (0.60, 0.99)}
"""step → greedy accuracy, pass@8"""


def line(step: int):
    greedy, passed = RUN[step]
    return {"eval/greedy": greedy, "eval/pass@1": 0.5, "eval/pass@8": passed, "eval/pass@16": 1 - passed}


def choose(steps, metric="eval/greedy", within=0.02):
    best = Best(metric, within, "runs/base/model")
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
        Best("eval/styles", 0.02, "").check({"eval/greedy": 0.5})


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
    best = Best.so_far(tmp_path, "eval/greedy", 0.02, "base")
    assert best.step == 2 and best.note(5, line(5)) is False
    best = Best.so_far(tmp_path, "eval/greedy", 0.015, "base")
    assert best.step == 2


def test_a_best_checkpoint_that_was_deleted_is_replaced_by_one_that_is_there(tmp_path):
    write_run(tmp_path, [0, 1, 2, 3, 4], saved=[1, 4])
    assert Best.so_far(tmp_path, "eval/greedy", 0.02, "base").step == 4
