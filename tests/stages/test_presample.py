"""Pre-sampling: thresholds, refinement, what is stored, and the refusal of a set that does not fit."""

import itertools
import json
import math
import re
import shutil
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dph.build import load_problems
from dph.config import ModelConfig, TaskConfig, TrainConfig, VerifierConfig, from_dict
from dph.errors import DataError, JudgeError, ModelError, RunError, SettingsError
from dph.models.policy import Policy
from dph.rehearsal.check import recheck
from dph.rehearsal.partition import (
    can_be_lost,
    is_near_perfect,
    is_rehearsed,
    missed_by,
    place_of,
    responses_to_store,
)
from dph.rehearsal.presampled import Presampled
from dph.rehearsal.store import RehearsalSet, read_rehearsal
from dph.runs.directory import RunDir, find_model, read_metrics
from dph.stages import presample as module
from dph.stages.presample import presample
from dph.stages.train import train
from dph.types import Completion, FinishReason, Group, Outcome, Problem, Rollout, Verdict
from helpers import base_run, interrupted_at, presample_config, presampled, read_partition, train_config

GOOD, BAD, LOST = Outcome.CORRECT, Outcome.WRONG, Outcome.INFRA_ERROR


def test_thresholds_of_the_paper():
    assert [is_near_perfect(c, 8, 6, 8) for c in range(9)] == [False] * 6 + [True] * 3
    assert [is_near_perfect(c, 8, 8, 8) for c in (7, 8)] == [False, True]


@given(st.integers(1, 20), st.data())
def test_draws_that_could_not_be_judged_shorten_the_count(n, data):
    threshold, samples = data.draw(st.integers(1, n)), data.draw(st.integers(0, n))
    correct = data.draw(st.integers(0, samples))
    share = Fraction(correct, samples) if samples else Fraction(0)
    assert is_near_perfect(correct, samples, threshold, n) == (samples > 0 and share >= Fraction(threshold, n))


@given(st.integers(0, 40), st.integers(1, 50), st.data())
def test_a_prompt_can_lose_passk_from_1_to_4_of_k_correct(samples, k, data):
    correct = data.draw(st.integers(0, samples))
    share = Fraction(correct, samples) if samples else Fraction(0)
    assert can_be_lost(correct, samples, k) == (samples > 0 and Fraction(1, k) <= share < Fraction(4, k))
    assert not can_be_lost(0, samples, k)


def test_the_class_of_experiment_d1_and_what_too_few_draws_miss():
    assert [c for c in range(9) if can_be_lost(c, 8, 8)] == [1, 2, 3]
    assert [c for c in range(33) if can_be_lost(c, 32, 32)] == [1, 2, 3]
    assert [c for c in range(9) if can_be_lost(c, 8, 1)] == [8], "pass@1: what is always solved"
    assert [c for c in range(9) if can_be_lost(c, 8, 2)] == [4, 5, 6, 7, 8]
    assert not any(can_be_lost(c, 8, 32) for c in range(9)), "one of eight is more than 4 of 32"
    assert missed_by(16, 32) == pytest.approx((31 / 32) ** 16)


def scripted(monkeypatch, first, further):
    """Presampling whose verdicts are given by problem: of the n first draws, and of the refinement draw."""

    def sample_groups(policy, sampler, verifiers, items, params, seed, purpose):
        outcomes = first if purpose == "presample" else further
        eos = policy.tokenizer.eos_token_id
        groups = []
        for item in items:
            given_outcomes = outcomes[item.problem.id]
            assert len(given_outcomes) == params.n
            rollouts = []
            for i, outcome in enumerate(given_outcomes):
                ids = [4 + i, eos] if purpose == "presample" else [3, eos]
                rollouts.append(Rollout(Completion(ids, [], "stop"), f"{purpose}{i}", Verdict(outcome, 0.0)))
            groups.append(Group(item.problem, item.prompt_ids, rollouts))
        return groups

    monkeypatch.setattr(module, "sample_groups", sample_groups)


FIRST = {
    "train/0": [GOOD] * 4,
    "train/1": [GOOD, GOOD, GOOD, BAD],
    "train/2": [GOOD, GOOD, GOOD, LOST],  # 3 of 3
    "train/3": [GOOD, GOOD, BAD, BAD],
    "train/4": [BAD] * 4,
    "train/5": [LOST] * 4,
    "train/6": [BAD, GOOD, GOOD, GOOD],
}
FURTHER = {"train/0": [GOOD], "train/1": [BAD], "train/2": [GOOD], "train/6": [BAD]}


def run_scripted(monkeypatch, out, **changes):
    scripted(monkeypatch, FIRST, FURTHER)
    task = TaskConfig(name="toy", options={"problems": "7"})
    config = presample_config(out, task=task, threshold=3, max_unjudged=1.0, **changes)
    config = replace(config, rollout=replace(config.rollout, n=4))
    presample(config)
    return config, read_partition(out, task), read_rehearsal(out / "rehearsal.parquet")


@pytest.mark.parametrize(
    ("refine", "place", "label"),
    [("move", "explore", "moved"), ("discard", "dropped", "discarded"), ("keep", "perfect", "")],
)
def test_refinement_by_hand(tmp_path, monkeypatch, refine, place, label):
    _, partition, stored = run_scripted(monkeypatch, tmp_path, refine=refine)
    assert partition == {
        "train/0": "perfect",
        "train/1": place,
        "train/2": "perfect",
        "train/3": "explore",
        "train/4": "explore",
        "train/5": "dropped",
        "train/6": place,
    }
    rows = {row["problem_id"]: row for row in pq.read_table(tmp_path / "partition.parquet").to_pylist()}
    assert [rows[f"train/{i}"]["refined"] for i in range(7)] == ["kept", label, "kept", "", "", "", label]
    counted = [(rows[f"train/{i}"]["correct"], rows[f"train/{i}"]["samples"]) for i in range(7)]
    assert counted == [(4, 4), (3, 4), (3, 3), (2, 4), (0, 4), (0, 0), (3, 4)]
    expected = {"train/0": "refine0", "train/2": "refine0"}
    if refine == "keep":  # the first correct one of the first draws
        expected |= {"train/1": "presample0", "train/6": "presample1"}
    assert {row.problem_id: row.text for row in stored} == expected and len(stored) == len(expected)


@pytest.mark.parametrize(
    ("refine", "expected"),
    [
        ("move", {"train/1": "presample0", "train/3": "presample0", "train/6": "presample1"}),
        ("keep", {"train/1": "presample0", "train/3": "presample0", "train/6": "presample1"}),
        ("discard", {"train/3": "presample0"}),  # what is dropped is not rehearsed
    ],
)
def test_what_can_be_lost_is_rehearsed_in_place_of_what_is_mastered(tmp_path, monkeypatch, caplog, refine, expected):
    """For k = 4 from 1/4 on, and less than all: train/0 and train/2 (3 of 3 judged) have no pass@4 to lose."""
    caplog.set_level("INFO", "dph")
    _, plain, _ = run_scripted(monkeypatch, tmp_path / "plain", refine=refine)
    _, partition, stored = run_scripted(monkeypatch, tmp_path / "for-k", refine=refine, for_k=4)
    assert partition == plain, "what is explored stays the same"
    assert {row.problem_id: row.text for row in stored} == expected and len(stored) == len(expected)
    prompts = "1 prompt" if len(expected) == 1 else "3 prompts"
    rows = f"{len(expected)} stored response" + ("s" if len(expected) > 1 else "")
    assert f"to rehearse: {prompts} that can lose pass@4 ({rows})" in caplog.messages
    assert Presampled.open(tmp_path / "for-k").run.manifest["for_k"] == 4
    assert "for_k" not in Presampled.open(tmp_path / "plain").run.manifest


def test_a_chunk_is_whole_batches_of_the_sampler(tmp_path, monkeypatch):
    config = presample_config(tmp_path, task=TaskConfig(name="toy", options={"problems": "7"}), max_unjudged=1.0)
    rollout, sampler = replace(config.rollout, n=4), replace(config.sampler, rows=11)
    scripted(monkeypatch, FIRST, FURTHER)
    sizes, sample = [], module.sample_groups
    monkeypatch.setattr(module, "sample_groups", lambda *args: sizes.append(len(args[3])) or sample(*args))
    presample(replace(config, rollout=rollout, sampler=sampler, threshold=3))
    # 11 rows decode 2 problems at once; 5 problems (2 · 11 / 4) would take a third batch for the last of them
    assert sizes == [4, 3, 4], "two chunks of first draws, and the refinement of four mastered problems"


def test_a_refinement_draw_that_could_not_be_judged_says_nothing(tmp_path, monkeypatch):
    monkeypatch.setitem(FURTHER, "train/1", [LOST])
    _, partition, stored = run_scripted(monkeypatch, tmp_path, refine="discard")
    assert (partition["train/1"], partition["train/6"]) == ("perfect", "dropped")
    assert {row.problem_id: row.text for row in stored}["train/1"] == "presample0"


def test_unsolved_prompts_are_dropped_on_request(tmp_path, monkeypatch):
    _, partition, _ = run_scripted(monkeypatch, tmp_path, drop_unsolved=True)
    assert Counter(partition.values()) == {"perfect": 2, "explore": 3, "dropped": 2}
    assert partition["train/4"] == "dropped" and partition["train/3"] == "explore"
    sizes = RunDir.open(tmp_path, "presample").manifest["sizes"]
    assert sizes == {"explore": 3, "perfect": 2, "dropped": 2}


def test_several_correct_responses_are_stored_the_refinement_draw_first(tmp_path, monkeypatch):
    _, _, stored = run_scripted(monkeypatch, tmp_path, stored=3)
    assert [(row.problem_id, row.text) for row in stored] == [
        *(("train/0", text) for text in ("refine0", "presample0", "presample1")),
        *(("train/2", text) for text in ("refine0", "presample0", "presample1")),
    ]


def test_the_end_shows_outcomes_and_responses(tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO", "dph")
    run_scripted(monkeypatch, tmp_path)
    assert caplog.messages[-7:] == [
        "4 prompts to explore, 2 near-perfect (2 stored responses), 1 dropped",
        "28 responses: correct 15, wrong 8, infra_error 5; cut off at rollout.max_tokens: 0",
        "train/0: correct, reward 0, 2 tokens: presample0",
        "train/1: correct, reward 0, 2 tokens: presample0",
        "train/2: correct, reward 0, 2 tokens: presample0",
        "train/4: wrong, reward 0, 2 tokens: presample0",
        "train/5: infra_error, reward 0, 2 tokens: presample0",
    ]


def drawn(ids, outcome=GOOD, reason: FinishReason = "stop"):
    return Rollout(Completion(ids, [-1.0] * len(ids), reason), str(ids), Verdict(outcome, 0.0))


def test_a_draw_is_stored_only_if_it_is_finished_and_correct_and_as_often_as_it_was_drawn():
    extra = drawn([1, 2])
    others = [drawn([1, 2]), drawn([5], BAD), drawn([6], GOOD, "length"), drawn([7]), drawn([7]), drawn([8])]
    texts = [rollout.text for rollout in responses_to_store([extra, *others], 9)]
    assert texts == ["[1, 2]", "[1, 2]", "[7]", "[7]", "[8]"]
    assert [rollout.text for rollout in responses_to_store([extra, *others], 3)] == ["[1, 2]", "[1, 2]", "[7]"]
    once = responses_to_store([extra, *others], 4, distinct=True)  # of the first four
    assert [rollout.text for rollout in once] == ["[1, 2]", "[7]"]


POLICY = [
    (0.5, drawn([1])),
    (0.1, drawn([2])),
    (0.2, drawn([3], BAD)),
    (0.15, drawn([4], GOOD, "length")),
    (0.05, drawn([5], LOST)),
]
"""A reference policy of five responses with their probabilities: two are correct and finished."""


@pytest.mark.parametrize("refine", ["move", "discard", "keep"])
@pytest.mark.parametrize("stored", [1, 2, 4])
@pytest.mark.parametrize("place", ["perfect", "explore"])
def test_stored_responses_are_samples_of_the_reference_given_a_correct_one(refine, stored, place):
    """Over all possible draws, the expected empirical distribution of a prompt's stored responses is π_ref given
    correct and finished: 5/6 and 1/6."""
    weight = 0.0
    by_prompt: dict[str, float] = dict.fromkeys(("[1]", "[2]"), 0.0)
    by_row = dict(by_prompt)
    for draws in itertools.product(POLICY, repeat=4):
        probability = math.prod(p for p, _ in draws)
        *first, extra = [one for _, one in draws]
        group = Group(Problem("p", "", "", "exact"), [1], first)
        correct, samples = group.counts
        near_perfect = is_near_perfect(correct, samples, 2, 3)
        placed, _ = place_of(group, extra if near_perfect else None, refine=refine)
        drawn_first = [extra, *first] if place == "perfect" else first
        rows = responses_to_store(drawn_first, stored) if placed == place else []
        weight += probability * bool(rows)
        for one in rows:
            by_prompt[one.text] += probability / len(rows)
            by_row[one.text] += probability
    assert {text: value / weight for text, value in by_prompt.items()} == pytest.approx({"[1]": 5 / 6, "[2]": 1 / 6})
    assert by_row["[1]"] == pytest.approx(5 * by_row["[2]"])


@pytest.mark.parametrize("refine", ["move", "discard", "keep"])
@pytest.mark.parametrize("stored", [1, 3])
def test_stored_responses_to_prompts_that_can_be_lost_are_samples_of_the_reference_too(refine, stored):
    """As above, for k = 5: one or two of three judged draws are correct."""
    weight = 0.0
    by_prompt: dict[str, float] = dict.fromkeys(("[1]", "[2]"), 0.0)
    for draws in itertools.product(POLICY, repeat=4):
        probability = math.prod(p for p, _ in draws)
        *first, extra = [one for _, one in draws]
        group = Group(Problem("p", "", "", "exact"), [1], first)
        near_perfect = is_near_perfect(*group.counts, 2, 3)
        placed, _ = place_of(group, extra if near_perfect else None, refine=refine)
        rows = []
        if is_rehearsed(group, placed, 5):
            rows = responses_to_store([extra, *first] if near_perfect else first, stored)
            assert 0.2 <= group.counts[0] / group.counts[1] < 0.8
        weight += probability * bool(rows)
        for one in rows:
            by_prompt[one.text] += probability / len(rows)
    assert weight > 0.1
    assert {text: value / weight for text, value in by_prompt.items()} == pytest.approx({"[1]": 5 / 6, "[2]": 1 / 6})


# A real run ---------------------------------------------------------------------------------------------------------


def policy():
    return Policy.load(ModelConfig(path=str(base_run() / "model"), device="cpu"))


def test_the_base_model_masters_the_easy_half():
    partition = read_partition(presampled(), TaskConfig(name="toy"))
    easy = {f"train/{i}" for i in range(1, 12, 2)}
    assert {name for name, where in partition.items() if where == "perfect"} == easy
    assert set(partition.values()) == {"perfect", "explore"} and len(partition) == 12


def test_stored_logprobs_are_the_models_own_by_plain_forward_passes():
    model = policy()
    stored = read_rehearsal(presampled() / "rehearsal.parquet")
    assert len(stored) == 6
    for row in stored:
        assert row.prompt_ids == model.encode_prompt(f"easy {int(row.problem_id.split('/')[1]) % 10}")
        assert model.decode(row.response_ids) == row.text and row.text.strip() == "yes"
        with torch.no_grad():
            logits = model.model(torch.tensor([[*row.prompt_ids, *row.response_ids]])).logits[0].double()
        expected = logits[len(row.prompt_ids) - 1 : -1].log_softmax(-1)[range(len(row.response_ids)), row.response_ids]
        # fp32 against double in the softmax, other batch shapes
        assert row.ref_logprobs == pytest.approx(expected.tolist(), abs=1e-5)
    assert recheck(model, stored, 1.0, 7) < 1e-5
    shifted = [replace(stored[0], ref_logprobs=[value - 0.25 for value in stored[0].ref_logprobs]), *stored[1:]]
    assert recheck(model, shifted, 1.0, 1000) == pytest.approx(0.25, abs=1e-5)


def test_stored_logprobs_are_untruncated_at_the_sampling_temperature(tmp_path):
    config = presample_config(tmp_path)
    presample(replace(config, rollout=replace(config.rollout, temperature=0.5, top_p=0.6)))
    stored = read_rehearsal(tmp_path / "rehearsal.parquet")
    assert recheck(policy(), stored, 0.5, 1000) < 1e-5 < 1e-4 < recheck(policy(), stored, 1.0, 1000)


def test_the_manifest_says_what_training_checks():
    manifest = RunDir.open(presampled(), "presample").manifest
    model = policy()
    expected = {
        "status": "complete",
        "sizes": {"explore": 6, "perfect": 6, "dropped": 0},
        "stored_responses": 6,
        "weight_hash": model.weight_hash(),
        "tokenizer_hash": model.tokenizer_hash(),
        "temperature": 1.0,
        "top_p": 1.0,
        "threshold": [7, 8],
        "seed": 0,
    }
    assert {key: manifest[key] for key in expected} == expected
    assert manifest["weight_hash"] == RunDir.open(base_run(), "sft").manifest["weight_hash"]


def test_the_same_seed_is_the_same_run_and_rows_do_not_matter(tmp_path):
    config = presample_config(tmp_path / "a")
    presample(replace(config, sampler=replace(config.sampler, rows=3)))
    tables = [pq.read_table(run / "partition.parquet") for run in (tmp_path / "a", presampled())]
    assert tables[0].equals(tables[1])
    texts = [[row.text for row in read_rehearsal(run / "rehearsal.parquet")] for run in (tmp_path / "a", presampled())]
    assert texts[0] == texts[1]


def test_a_complete_run_is_left_alone_and_an_interrupted_one_goes_on(tmp_path):
    config = presample_config(tmp_path)
    shutil.copytree(presampled(), tmp_path, dirs_exist_ok=True)
    before = (tmp_path / "partition.parquet").stat().st_mtime_ns
    config = replace(config, out=str(tmp_path))
    assert presample(config, resume=True) == tmp_path
    assert (tmp_path / "partition.parquet").stat().st_mtime_ns == before
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps({**manifest, "status": "running"}))
    with pytest.raises(RunError, match="is not complete; run `dph presample"):
        read_partition(tmp_path, config.task)
    presample(config, resume=True)
    assert read_partition(tmp_path, config.task) == read_partition(presampled(), config.task)


def _of_class(n: int = 8, k: int = 8) -> list[str]:
    """The prompts of the toy run that can lose pass@k, from its partition."""
    rows = pq.read_table(presampled() / "partition.parquet").to_pylist()
    return sorted(row["problem_id"] for row in rows if k * row["correct"] >= n and k * row["correct"] < 4 * n)


def test_training_rehearses_what_can_be_lost(tmp_path, monkeypatch):
    config = presample_config(tmp_path / "set", for_k=8, stored=2)
    presample(config)
    stored = read_rehearsal(tmp_path / "set" / "rehearsal.parquet")
    assert sorted({row.problem_id for row in stored}) == _of_class() and stored, "the same draws as the other run"
    seen: list[str] = []
    take = RehearsalSet.take

    def noted(self, cursor, count):
        rows = take(self, cursor, count)
        seen.extend(row.problem_id for row in rows)
        return rows

    monkeypatch.setattr(RehearsalSet, "take", noted)
    rehearsing = {"rehearsal": {"path": str(tmp_path / "set"), "rows": 4}, "loss": {"eta": 2.0}}
    train(train_config(tmp_path / "run", "dph_js", rehearsing, steps=3))
    assert len(seen) >= 12 and set(seen) == set(_of_class()) and not set(seen) & _mastered()
    metrics = read_metrics(tmp_path / "run")
    assert all(line["pef/tokens"] > 0 for line in metrics if "pef/tokens" in line) and metrics
    assert any(abs(line.get("pef/divergence", 0.0)) > 0 for line in metrics), "the rows have a loss"


def _mastered() -> set[str]:
    return {id for id, place in read_partition(presampled(), TaskConfig(name="toy")).items() if place == "perfect"}


def test_an_interrupted_run_for_k_goes_on_to_the_same_set(tmp_path, monkeypatch):
    config = presample_config(tmp_path / "whole", for_k=8)
    presample(config)
    with monkeypatch.context() as patched:
        patched.setattr(module, "write_rehearsal", interrupted_at(module.write_rehearsal, 1))
        with pytest.raises(KeyboardInterrupt):
            presample(replace(config, out=str(tmp_path / "parts")))
    presample(replace(config, out=str(tmp_path / "parts")), resume=True)
    for name in ("partition.parquet", "rehearsal.parquet"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    with pytest.raises(RunError, match="for_k"):
        presample(replace(config, for_k=7), resume=True)


# Refusals -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("threshold", "message"), [(0, "threshold is 0; it must be at least 1"), (9, "threshold 9 must lie between 1 and")]
)
def test_an_impossible_threshold(tmp_path, threshold, message):
    with pytest.raises(SettingsError, match=message):
        presample_config(tmp_path, threshold=threshold)


def test_a_k_that_these_samples_cannot_tell(tmp_path, monkeypatch, caplog):
    with pytest.raises(SettingsError, match=r"for_k 32 asks for .* set --rollout.n to 32 or more"):
        presample_config(tmp_path, for_k=32)
    with pytest.raises(SettingsError, match=r"for_k is -1; it must be 0 or more"):
        presample_config(tmp_path, for_k=-1)
    rollout = replace(presample_config(tmp_path).rollout, n=32)
    with pytest.raises(
        SettingsError, match=r"threshold 7 of rollout.n = 32 .* from 22 % .* set --threshold 24 \(6 of 8"
    ):
        presample_config(tmp_path, for_k=32, rollout=rollout)
    caplog.set_level("INFO", "dph")
    run_scripted(monkeypatch, tmp_path, for_k=6)
    few = "4 responses a prompt are few for pass@6: a prompt that is solved in 1 of 6 is solved in none of them with"
    assert any(few in line and "48 %" in line and "--rollout.n 6 leaves 33 % out" in line for line in caplog.messages)


def test_a_set_for_k_without_a_prompt_is_refused_by_training(tmp_path, monkeypatch):
    run_scripted(monkeypatch, tmp_path, for_k=1, refine="discard", drop_unsolved=True)
    assert {row.problem_id for row in read_rehearsal(tmp_path / "rehearsal.parquet")} == {"train/0", "train/2"}
    scripted(monkeypatch, {f"train/{i}": [GOOD] * 4 for i in range(7)}, {f"train/{i}": [GOOD] for i in range(7)})
    task = TaskConfig(name="toy", options={"problems": "7"})
    config = presample_config(tmp_path / "none", task=task, threshold=3, for_k=4)
    presample(replace(config, rollout=replace(config.rollout, n=4)))
    with pytest.raises(DataError, match=r"found no prompt that can lose pass@4 \(its for_k\)"):
        _ = Presampled.open(tmp_path / "none").stored


def test_a_partition_of_another_task(tmp_path):
    with pytest.raises(RunError, match="made for another task"):
        read_partition(presampled(), TaskConfig(name="toy", limit=3))
    with pytest.raises(RunError, match="has no manifest"):
        read_partition(tmp_path, TaskConfig(name="toy"))


def test_the_order_of_a_tasks_problems_matters_to_a_partition_of_some_of_them_only(tmp_path):
    assert read_partition(presampled(), TaskConfig(name="toy", shuffle=True)), "all problems, in any order"
    some = TaskConfig(name="toy", limit=4)
    config = presample_config(tmp_path, task=some, threshold=1)
    presample(config)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    del manifest["task"]["shuffle"]  # as earlier versions wrote it
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert len(read_partition(tmp_path, some)) == 4
    with pytest.raises(RunError, match="made for another task"):
        read_partition(tmp_path, replace(some, shuffle=True))


def test_relative_paths_of_a_run_are_found_from_anywhere(tmp_path, monkeypatch):
    """A user's problems and model, named from the folder of the run, and training from another folder."""
    rows = [
        {"prompt": f"{kind} {i}", "answer": "x", "verifier": "exact"} for i in range(3) for kind in ("easy", "hard")
    ]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    shutil.copytree(base_run() / "model", tmp_path / "model")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    task = TaskConfig(name="records", options={"path": "data.jsonl"})
    presample(presample_config(Path("run"), model=ModelConfig("model", device="cpu"), task=task))
    monkeypatch.chdir("other")
    here = TaskConfig(name="records", options={"path": "../data.jsonl"})
    assert len(read_partition(Path("../run"), here)) == 6
    made = from_dict(TaskConfig, RunDir.open(tmp_path / "run").manifest["task"])
    assert len(load_problems(made)[1]) == 6
    assert find_model("../run").model == str(tmp_path / "model")


def opened(config: TrainConfig) -> Presampled:
    """The presample run of a training run."""
    return Presampled.open(Path(config.rehearsal.path))


def test_a_set_of_more_splits_serves_one_of_them(tmp_path):
    """Responses of another domain can be rehearsed without its prompts being trained on."""
    made = TaskConfig(name="toy", split="train, easy")
    presample(presample_config(tmp_path / "both", task=made))
    trained = TaskConfig(name="toy", split="train")
    config = train_config(tmp_path / "run", "dph_js", task=trained)
    config = replace(config, prompt_set="all", rehearsal=replace(config.rehearsal, path=str(tmp_path / "both")))
    chosen = opened(config).training_problems(config.task, config.prompt_set, load_problems(trained)[1])
    assert {problem.id.partition("/")[0] for problem in chosen} == {"train"}
    stored = {row.problem_id.partition("/")[0] for row in read_rehearsal(tmp_path / "both" / "rehearsal.parquet")}
    assert stored == {"train", "easy"}
    with pytest.raises(RunError, match="made for another task"):
        read_partition(tmp_path / "both", TaskConfig(name="toy", split="train,long"))


def test_a_published_partition_is_two_tasks(tmp_path):
    """D_pef is pre-sampled; D_exp, whose problems it has none of, is trained on."""
    presample(presample_config(tmp_path / "pef", task=TaskConfig(name="toy", split="easy")))
    explore = TaskConfig(name="toy", split="train")
    config = train_config(tmp_path / "run", "dph_js", task=explore)
    config = replace(config, prompt_set="other", rehearsal=replace(config.rehearsal, path=str(tmp_path / "pef")))
    everything = load_problems(explore)[1]
    assert opened(config).training_problems(explore, "other", everything) == everything
    train(config)
    assert any("pef/forgotten" in line for line in read_metrics(tmp_path / "run")), "stored responses were rehearsed"
    easy = TaskConfig(name="toy", split="easy")
    with pytest.raises(DataError, match="problems are in the presample run"):
        opened(config).training_problems(easy, "other", load_problems(easy)[1])


@pytest.mark.parametrize("prompt_set", ["explore", "all"])
def test_problems_added_after_presampling_are_named_and_not_trained_on(tmp_path, capsys, prompt_set):
    config = train_config(tmp_path, "dph_js")
    problems = load_problems(config.task)[1]
    chosen = opened(config).training_problems(config.task, prompt_set, problems)
    assert "not trained on" not in capsys.readouterr().err
    added = [*problems, *(replace(problems[0], id=f"new{i}") for i in range(2))]
    assert opened(config).training_problems(config.task, prompt_set, added) == chosen
    told = " ".join(capsys.readouterr().err.split())
    assert told.count(f"not trained on: 2 of {len(added)} problems (first 'new0')") == 1
    assert opened(config).training_problems(config.task, prompt_set, added, fresh=False) == chosen
    assert not capsys.readouterr().err  # a resumed run has said it


def test_an_empty_set_and_one_without_prompts_to_explore(tmp_path):
    hard = presample_config(tmp_path / "hard", task=TaskConfig(name="toy", limit=1))
    presample(hard)
    config = train_config(tmp_path / "run", "dph_js", task=hard.task)
    config = replace(config, rehearsal=replace(config.rehearsal, path=str(tmp_path / "hard")))
    with pytest.raises(DataError, match="found no near-perfect prompt, so there"):
        train(config)
    mastered = presample_config(tmp_path / "easy", threshold=1, refine="keep", rollout=hard.rollout)
    presample(replace(mastered, rollout=replace(hard.rollout, n=30, temperature=1.5)))
    config = train_config(tmp_path / "run2", "exp_only", {"rehearsal": {"path": str(tmp_path / "easy")}})
    with pytest.raises(DataError, match="left no prompt to explore; train on"):
        train(config)


def test_problems_that_cannot_be_judged_are_left_out(capsys):
    from dph.build import make_verifiers
    from dph.sampling.rollouts import usable_problems

    problems = [Problem(f"p{i}", "x", "" if i else "yes", "exact") for i in range(9)]
    with make_verifiers(VerifierConfig()) as verifiers:
        assert [problem.id for problem in usable_problems(verifiers, problems)] == ["p0"]
        assert "left out: 8 golds: the answer is empty: p1, p2, p3, p4, p5 and 3 more" in capsys.readouterr().err
        with pytest.raises(JudgeError, match="no problem is left: none has a gold answer that"):
            usable_problems(verifiers, problems[1:])


# The sampler's own log-probabilities --------------------------------------------------------------------------------


def test_a_sampler_that_draws_from_another_distribution_is_refused(tmp_path, monkeypatch, capsys):
    presample(presample_config(tmp_path / "good"))
    said = " ".join(capsys.readouterr().err.split())
    mean = float(re.search(r"sampler and trainer agree to (\S+) nats per token", said)[1])  # type: ignore[index]
    assert mean < 1e-5
    sampled = module.sample_groups

    def shift(one):
        lower = [value - 0.5 for value in one.completion.logprobs]
        return replace(one, completion=replace(one.completion, logprobs=lower))

    def shifted(*args):
        return [replace(group, rollouts=[shift(one) for one in group.rollouts]) for group in sampled(*args)]

    monkeypatch.setattr(module, "sample_groups", shifted)
    with pytest.raises(ModelError, match=r"differ from the model's by 0\.5 nats per"):
        presample(presample_config(tmp_path / "bad"))
    assert not RunDir.open(tmp_path / "bad", "presample").complete
