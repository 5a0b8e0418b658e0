"""Evaluation: metrics from known verdicts, the files it writes, and verdicts that are missing."""

import itertools
import json
from collections import Counter
from dataclasses import replace

import pyarrow.parquet as pq
import pytest

from dph.config import EvalConfig, ModelConfig, RolloutConfig, TaskConfig
from dph.errors import DataError, RunError, SettingsError
from dph.measure.metrics import metric_values, powers_of_two, score_group, summarise
from dph.stages import evaluate as module
from dph.stages.evaluate import evaluate
from dph.types import Completion, Group, Outcome, Problem, Rollout, Verdict
from helpers import ToyTask, base_run, folder

GOOD, BAD, LOST = Outcome.CORRECT, Outcome.WRONG, Outcome.INFRA_ERROR


def group(*pairs, problem=None):
    """A group of (text, outcome) pairs."""
    rollouts = [Rollout(Completion([1], [0.0], "stop"), text, Verdict(outcome, 0.0)) for text, outcome in pairs]
    return Group(problem or Problem("p", "", "yes", "exact", {"kind": "k"}), [1], rollouts)


def scored(samples, correct, greedy=None, styles=(), right=None):
    counts = dict(Counter(styles))
    found = {"styles": len(counts) or None, "styles_correct": right, "style_counts": counts}
    return {"samples": samples, "correct": correct, "greedy": greedy, **found}


def test_shares_of_styles_that_belong_to_single_problems_are_left_out():
    few, many = (summarise([scored(n, 0, styles=[f"s{i}" for i in range(n)])], n) for n in (24, 25))
    assert len(few["style_shares"]) == 24 and many["style_shares"] == {}
    assert many["metrics"]["styles"]["mean"] == 25


# Scoring ------------------------------------------------------------------------------------------------------------


def test_a_group_is_scored_without_what_could_not_be_judged():
    pairs = [
        ("yes", GOOD),
        ("no", BAD),
        ("yes", LOST),
        ("what", GOOD),
        ("no", Outcome.GOLD_ERROR),
        ("", Outcome.TIMEOUT),
    ]
    found = score_group(ToyTask(), group(*pairs), group(("yes", GOOD)))
    assert (found["samples"], found["correct"], found["greedy"]) == (4, 2, True)
    assert found["style_counts"] == {"yes": 1, "no": 1, "other": 2}
    assert (found["styles"], found["styles_correct"]) == (3, 1)  # "other" is no style among correct ones


@pytest.mark.parametrize(("outcome", "expected"), [(GOOD, True), (BAD, False), (LOST, None)])
def test_a_greedy_response(outcome, expected):
    assert score_group(ToyTask(), group(("yes", GOOD)), group(("yes", outcome)))["greedy"] is expected
    assert score_group(ToyTask(), group(("yes", GOOD)), None)["greedy"] is None


def test_styles_are_counted_in_the_first_32_judged_samples():
    pairs = [("yes", LOST)] * 5 + [("yes", BAD)] * 31 + [("no", GOOD), ("maybe", GOOD)]
    found = score_group(ToyTask(), group(*pairs), None)
    assert (found["samples"], found["correct"]) == (33, 2)
    assert found["style_counts"] == {"yes": 31, "no": 1} and found["styles_correct"] == 1


def test_a_task_without_styles_counts_none():
    class Plain(ToyTask):
        def style(self, problem, response):
            return None

    found = score_group(Plain(), group(("yes", GOOD)), None)
    assert found["styles"] is found["styles_correct"] is None and found["style_counts"] == {}


def test_powers_of_two():
    assert [powers_of_two(n) for n in (1, 2, 3, 4, 31, 32)] == [
        [1],
        [1, 2],
        [1, 2],
        [1, 2, 4],
        [1, 2, 4, 8, 16],
        [1, 2, 4, 8, 16, 32],
    ]


def test_metrics_by_hand():
    items = [
        scored(4, 1, True, {"yes": 3, "other": 1}, 1),
        scored(4, 4, False, {"yes": 2, "no": 2}, 2),
        scored(4, 0, None, {"other": 4}, 0),
    ]
    summary = summarise(items, 4)
    means = {name: float(values.mean()) for name, values in metric_values(items, 4).items()}
    assert means == pytest.approx(
        {
            "greedy": 1 / 2,  # two of three were judged
            "mean@4": 5 / 12,
            "pass@1": (1 / 4 + 1 + 0) / 3,
            "pass@2": (1 / 2 + 1 + 0) / 3,  # 1 − C(3, 2)/C(4, 2) = 1 − 3/6
            "pass@4": 2 / 3,
            "styles": (2 + 2 + 1) / 3,
            "styles_correct": (1 + 2 + 0) / 3,
        }
    )
    assert summary["style_shares"] == pytest.approx({"no": 2 / 12, "other": 5 / 12, "yes": 5 / 12})
    assert means == {name: value["mean"] for name, value in summary["metrics"].items()}
    assert (summary["problems"], summary["samples"], list(summary["pass_curve"])) == (3, 4, ["1", "2", "4"])
    for value in summary["metrics"].values():
        assert value["low"] <= value["mean"] <= value["high"]


def test_problems_with_too_few_judged_samples_enter_smaller_k_only():
    values = metric_values([scored(4, 1), scored(1, 1), scored(0, 0), scored(3, 0)], 4)
    means = {name: float(of_problems.mean()) for name, of_problems in values.items()}
    assert means == pytest.approx(
        {
            "mean@4": (1 / 4 + 1 + 0) / 3,
            "pass@1": (1 / 4 + 1 + 0) / 3,
            "pass@2": (1 / 2 + 0) / 2,
            "pass@4": 1.0,
        }
    )
    items = [scored(4, 1), scored(1, 1), scored(0, 0), scored(3, 0)]
    assert {name: len(values) for name, values in metric_values(items, 4).items()} == {
        **{"mean@4": 3, "pass@1": 3, "pass@2": 2, "pass@4": 1}
    }
    metrics = summarise(items, 4)["metrics"]
    assert [value["problems"] for value in metrics.values()] == [3, 3, 2, 1]
    assert metric_values([], 4) == {}


def test_nothing_could_be_judged():
    summary = summarise([scored(0, 0), scored(0, 0)], 4)
    assert summary["metrics"] == {} and summary["pass_curve"] == {} and summary["problems"] == 2


# The stage ----------------------------------------------------------------------------------------------------------


def config(out, **changes):
    base = EvalConfig(
        out=str(out),
        model=ModelConfig(path=str(base_run() / "model"), device="cpu"),
        task=TaskConfig(name="toy", split="test, dev", limit=6),
        rollout=RolloutConfig(n=8, max_tokens=4, max_prompt_tokens=8),
    )
    return replace(base, **changes)


@pytest.fixture(scope="module")
def run():
    return evaluate(config(folder() / "eval"))


def test_scores_follow_from_the_stored_completions(run):
    scores = json.loads((run / "scores.json").read_text())
    rows = pq.read_table(run / "completions.parquet").to_pylist()
    assert scores["label"] == "sft" and list(scores["splits"]) == ["test", "dev"]
    for split, summary in scores["splits"].items():
        own = [row for row in rows if row["split"] == split]
        assert len(own) == 6 * 9 and {row["sample"] for row in own} == {-1, *range(8)}
        correct = Counter(row["id"] for row in own if row["sample"] >= 0 and row["outcome"] == "correct")
        assert summary["metrics"]["pass@1"]["mean"] == pytest.approx(sum(correct.values()) / 48)
        assert summary["metrics"]["pass@8"]["mean"] == pytest.approx(len(correct) / 6)
        greedy = [row["outcome"] == "correct" for row in own if row["sample"] == -1]
        assert summary["metrics"]["greedy"]["mean"] == pytest.approx(sum(greedy) / 6)
        assert (summary["problems"], summary["samples"]) == (6, 8)
        styles = {name: {row["style"] for row in own if row["id"] == name and row["sample"] >= 0} for name in correct}
        problems = {
            row["id"]: row for row in pq.read_table(run / "problems.parquet").to_pylist() if row["split"] == split
        }
        for name, found in styles.items():
            assert problems[name]["styles"] == len(found) and problems[name]["correct"] == correct[name]
    for row in rows:
        assert (row["finish_reason"] == "stop") == (row["tokens"] < 4 or row["finish_reason"] == "stop")
        assert row["reward"] == float(row["outcome"] == "correct")


def test_the_same_seed_is_the_same_evaluation_and_another_is_not(tmp_path, run):
    again = evaluate(config(tmp_path / "a", sampler=replace(EvalConfig().sampler, rows=5)))
    other = evaluate(config(tmp_path / "b", seed=1))
    names = ("scores.json", "completions.parquet")
    assert [(again / name).read_bytes() for name in names] == [(run / name).read_bytes() for name in names]
    assert (other / "completions.parquet").read_bytes() != (run / "completions.parquet").read_bytes()


def test_a_problem_is_sampled_alike_whatever_else_is_evaluated(tmp_path, run):
    alone = evaluate(config(tmp_path, task=TaskConfig(name="toy", split="dev", limit=2), greedy=False))
    rows = pq.read_table(alone / "completions.parquet").to_pylist()
    before = pq.read_table(run / "completions.parquet").to_pylist()
    assert rows == [
        row for row in before if row["split"] == "dev" and row["id"] in ("dev/0", "dev/1") and row["sample"] >= 0
    ]
    assert "greedy" not in json.loads((alone / "scores.json").read_text())["splits"]["dev"]["metrics"]


def test_verdicts_that_are_missing_are_left_out(tmp_path, monkeypatch):
    from dph.verifiers import Verifiers

    verify = Verifiers.verify
    count = itertools.count()

    def sometimes(self, items):
        every = verify(self, items)  # in any number of calls, in the order of sampling
        return [Verdict(LOST, 0.0) if next(count) % 4 == 3 else verdict for verdict in every]

    monkeypatch.setattr(Verifiers, "verify", sometimes)
    out = evaluate(config(tmp_path, max_unjudged=1.0))
    summary = json.loads((out / "scores.json").read_text())["splits"]["test"]
    assert "pass@4" in summary["metrics"] and "pass@8" not in summary["metrics"]  # 6 of 8 were judged
    rows = [row for row in pq.read_table(out / "problems.parquet").to_pylist() if row["split"] == "test"]
    assert {row["samples"] for row in rows} == {6} and {row["greedy"] for row in rows} >= {None, True}
    expected = sum(row["correct"] / 6 for row in rows) / 6
    assert summary["metrics"]["mean@8"]["mean"] == pytest.approx(expected)


def test_a_complete_evaluation_is_left_alone(run):
    before = (run / "scores.json").stat().st_mtime_ns
    assert evaluate(config(run), resume=True) == run
    assert (run / "scores.json").stat().st_mtime_ns == before
    with pytest.raises(RunError, match="was started with other settings"):
        evaluate(config(run, label="other"), resume=True)


@pytest.mark.parametrize(
    ("path", "label", "expected"),
    [
        ("runs/grpo/model", "", "grpo"),
        ("runs/grpo/checkpoints/step-00000020/model", "", "step-00000020"),
        ("Qwen/Qwen2.5-0.5B", "", "Qwen2.5-0.5B"),
        ("/models/mine", "", "mine"),
        ("runs/grpo/model", "GRPO", "GRPO"),
    ],
)
def test_labels(path, label, expected):
    assert module.label_of(EvalConfig(label=label, model=ModelConfig(path=path))) == expected


def test_no_split_and_an_empty_one(tmp_path):
    with pytest.raises(SettingsError, match=r"no split was named; add --task\.split"):
        evaluate(config(tmp_path / "a", task=TaskConfig(name="toy", split=" , ")))
    with pytest.raises(DataError, match="the split 'test' holds no problem"):
        evaluate(config(tmp_path / "b", task=TaskConfig(name="toy", split="test", options={"problems": "0"})))
