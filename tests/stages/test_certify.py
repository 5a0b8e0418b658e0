"""Certificates end to end on the toy task: what is kept aside, training with checks, after the fact, and averaged
weights."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import tomli_w
import torch

from complaints import complaint, run
from dph import verifiers
from dph.config import CertifyConfig, CertifyStageConfig, EvalConfig, InterpolateConfig, ModelConfig, to_toml
from dph.errors import UserError
from dph.evaluation.certification import CertificationSet
from dph.rehearsal.presampled import Presampled
from dph.rehearsal.store import read_rehearsal
from dph.runs.coverage import CERTIFICATE, read_visits
from dph.runs.directory import RunDir, find_model, read_metrics
from dph.sampling.seeding import derive_key
from dph.stages.certify import certify
from dph.stages.evaluate import evaluate
from dph.stages.interpolate import interpolate
from dph.stages.presample import presample
from dph.stages.train import train
from dph.training.callbacks import certifier as module
from dph.training.update import Updater
from helpers import (
    ASIDE,
    base_run,
    folder,
    interrupted_at,
    kept_aside,
    presample_config,
    read_partition,
    rollout,
    train_config,
    weights,
)
from helpers import (
    ASIDE_TASK as TASK,
)


def config_of(out, method="dph_js", certify=None, **changes):
    """Four steps with a check after each, and the kept-aside problems out of training."""
    settings = {
        "task": {"name": "toy", "options": TASK.options},
        "rehearsal": {"path": str(kept_aside()), "rows": 0 if method == "grpo" else 6},
        "certify": {"set": str(kept_aside()), "epsilon": 0.1, "every": 1} | (certify or {}),
    }
    return train_config(out, method, settings, **{"steps": 4} | changes)


def losing(monkeypatch, calls):
    """From that call on, a policy's samples on the certification set are all wrong."""
    done, real = [], module.solved

    def scripted(evaluator, problems):
        done.append(1)
        found = real(evaluator, problems)
        return found if len(done) < calls else {id: (0, n) for id, (_, n) in found.items()}

    monkeypatch.setattr(module, "solved", scripted)


def test_a_share_of_the_near_perfect_problems_is_kept_aside():
    run = RunDir.open(kept_aside(), "presample")
    rows = pq.read_table(kept_aside() / "partition.parquet").to_pylist()
    aside = {row["problem_id"] for row in rows if row["set"] == "certify"}
    mastered = aside | {row["problem_id"] for row in rows if row["set"] == "perfect"}
    assert aside == {id for id in mastered if derive_key(0, "certify", id) < 0.7 * 2**63} and 33 <= len(aside) < len(
        mastered
    )
    assert run.manifest["sizes"]["certify"] == len(aside)
    for row in rows:
        assert (
            row["new_samples"] == (2 if row["problem_id"] in aside else 0) and row["new_correct"] <= row["new_samples"]
        )
    rehearsed = {row.problem_id for row in read_rehearsal(kept_aside() / "rehearsal.parquet")}
    assert rehearsed == mastered - aside
    from dph.build import load_problems

    problems = load_problems(TASK)[1]
    trained = {problem.id for problem in Presampled.open(kept_aside()).training_problems(TASK, "all", problems)}
    assert trained == {problem.id for problem in problems} - aside
    other = presample(presample_config(folder() / "other", task=TASK, certify=replace(ASIDE, share=0.2)))
    smaller = {id for id, where in read_partition(other, TASK).items() if where == "certify"}
    assert smaller < aside  # a larger share keeps the same problems, and more


def test_the_new_samples_have_random_keys_of_their_own(tmp_path, monkeypatch):
    from dph.stages import presample as stage

    seen = []
    real = stage.sample_groups

    def noted(policy, sampler, verifiers, items, params, seed, purpose):
        seen.append((purpose, params.n))
        return real(policy, sampler, verifiers, items, params, seed, purpose)

    monkeypatch.setattr(stage, "sample_groups", noted)
    presample(presample_config(tmp_path / "run", task=TASK, certify=ASIDE))
    assert dict(seen) == {"presample": 8, "refine": 1, "certify": 2}


def test_training_certifies_its_checkpoints(tmp_path, capsys):
    run = train(config_of(tmp_path / "run", checkpoint_every=1, keep_checkpoints=9))
    lines, visits = read_metrics(run), read_visits(run, CERTIFICATE)
    assert list(visits) == [0, 1, 2, 3, 4]
    size = len(visits[0])
    for line in lines[-4:]:
        assert 0 <= line["certify/loss"] < line["certify/bound"] <= 0.1 and line["certify/certified"] == 1
        correct = sum(count for _, count, _ in visits[int(line["step"])])
        before = sum(count for _, count, _ in visits[0])
        assert line["certify/loss"] == pytest.approx((before - correct) / (2 * size))
    assert "step 4: certified: with 95 % confidence pass@1" in capsys.readouterr().err
    last, there = weights(run / "certified"), weights(run / "checkpoints" / "step-00000004" / "model")
    assert all(torch.equal(last[name], there[name]) for name in there)
    assert "After step 4, certified" in (run / "certified" / "README.md").read_text()
    assert find_model(str(run / "certified")).run == run and RunDir.open(run).manifest["certified"] == 4
    sampled = {id for visited in list(read_visits(run).values())[1:] for id, *_ in visited}
    assert sampled and not sampled & {id for id, *_ in visits[0]}  # step 0 is the pre-sampling


def test_the_unchanged_policy_loses_nothing_and_pairs_with_the_base(tmp_path):
    run = train(config_of(tmp_path / "run", "grpo", {"k": 2}, steps=1, optim=replace(config_of("x").optim, lr=0.0)))
    (line,) = read_metrics(run)
    assert line["certify/loss"] == 0.0 and line["certify/lost"] == 0
    visits = read_visits(run, CERTIFICATE)
    assert sorted(visits[0]) == sorted(visits[1])


@pytest.mark.parametrize("stop", [False, True])
def test_after_the_first_failure_nothing_is_certified(tmp_path, monkeypatch, capsys, stop):
    losing(monkeypatch, 3)
    run = train(config_of(tmp_path / "run", certify={"stop": stop}))
    lines = read_metrics(run)
    assert [line["step"] for line in lines] == ([1, 2, 3] if stop else [1, 2, 3, 4])
    assert [line["certify/certified"] for line in lines] == [1, 1, 0, 0][: len(lines)]
    assert lines[2]["certify/lost"] > 30 and RunDir.open(run).manifest["certified"] == 2
    assert "After step 2, certified" in (run / "certified" / "README.md").read_text()
    assert RunDir.open(run).complete and (run / "model").is_dir() and RunDir.open(run).manifest["steps"] == len(lines)
    assert ("nothing is certified after the failure at step 3" in capsys.readouterr().err) == (not stop)


def same_files(one, two):
    names = ["metrics.jsonl", "coverage.jsonl", CERTIFICATE, "model/model.safetensors", "certified/model.safetensors"]
    return all((one / name).read_bytes() == (two / name).read_bytes() for name in names)


@pytest.mark.parametrize("stop", [False, True])
def test_an_interrupted_run_certifies_the_same(tmp_path, monkeypatch, stop):
    settings = {"certify": {"stop": stop}, "checkpoint_every": 2, "steps": 4}
    with monkeypatch.context() as patch:
        losing(patch, 3)
        whole = train(config_of(tmp_path / "whole", **settings))
    config = config_of(tmp_path / "parts", **settings)
    with monkeypatch.context() as patch:
        losing(patch, 3)
        patch.setattr(Updater, "update", interrupted_at(Updater.update, 4 if not stop else 3))
        with pytest.raises(KeyboardInterrupt):
            train(config)
    with monkeypatch.context() as patch:  # continues after the checkpoint of step 2
        losing(patch, 1)
        parts = train(config, resume=True)
    assert same_files(whole, parts)


def test_a_check_that_is_interrupted_is_repeated(tmp_path, monkeypatch):
    whole = train(config_of(tmp_path / "whole", steps=2))
    config = config_of(tmp_path / "parts", steps=2)
    with monkeypatch.context() as patch:
        patch.setattr(module.Certifier, "check", interrupted_at(module.Certifier.check, 2))
        with pytest.raises(KeyboardInterrupt):
            train(config)
    assert same_files(whole, train(config, resume=True))


KILLED = """
import os, signal, sys
from pathlib import Path
import helpers
from dph.config import TrainConfig, from_dict, read_settings
from dph.stages.train import train
from dph.training.update import Updater
real, calls = Updater.update, []
def update(self, *args, **kwargs):
    calls.append(1)
    if len(calls) == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(self, *args, **kwargs)
Updater.update = update
train(from_dict(TrainConfig, read_settings(Path(sys.argv[1]))))
"""


def test_a_killed_run_certifies_the_same(tmp_path):
    whole = train(config_of(tmp_path / "whole"))
    config = config_of(tmp_path / "parts")
    (tmp_path / "settings.toml").write_text(to_toml(config), encoding="utf-8")
    paths = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "settings.toml")], env=os.environ | {"PYTHONPATH": paths}
    )
    assert ended.returncode == -signal.SIGKILL
    assert list(read_visits(tmp_path / "parts", CERTIFICATE)) == [0, 1, 2, 3]  # its checkpoint is that of step 2
    assert same_files(whole, train(config, resume=True))


def test_a_base_model_that_other_rules_judged_is_refused(tmp_path, capsys, monkeypatch):
    [verifier] = {problem.verifier for problem in CertificationSet.open(config_of("x").certify).problems}
    monkeypatch.setattr(verifiers, "RULES", {**verifiers.RULES, verifier: "sql rules"})  # the toy's has no version
    older = shutil.copytree(kept_aside(), tmp_path / "older")
    run = RunDir.open(older, "presample")
    versions = run.manifest["versions"]
    allowed = replace(config_of("x").certify, set=str(older))
    run.update(versions=versions | {"sql rules": "strict@1"})
    with pytest.raises(UserError, match=r"by other rules \(sql rules strict@1 → .*run `dph presample` again"):
        CertificationSet.open(allowed)
    run.update(versions={name: version for name, version in versions.items() if name != "sql rules"})
    CertificationSet.open(allowed)
    assert "does not say by which version of the rules it judged the base model" in capsys.readouterr().err


def test_what_cannot_be_certified_is_refused_before_training(tmp_path):
    with pytest.raises(UserError, match="even if nothing is lost; 173 can"):
        train(config_of(tmp_path / "few", certify={"epsilon": 0.02}))
    with pytest.raises(UserError, match="pass@3 needs at least 3 samples"):
        train(config_of(tmp_path / "k", certify={"k": 3}))
    plain = presample(presample_config(tmp_path / "plain", task=TASK))
    with pytest.raises(UserError, match="kept no problem aside"):
        train(config_of(tmp_path / "none", certify={"set": str(plain)}))
    with pytest.raises(UserError, match="rehearsed: "):
        train(config_of(tmp_path / "rehearsed", rehearsal=replace(config_of("x").rehearsal, path=str(plain))))
    monitored = replace(config_of("x").monitor, every=1, split="train")
    with pytest.raises(UserError, match="monitored: "):
        train(config_of(tmp_path / "monitored", monitor=monitored))
    judged = replace(config_of("x").verifier, comparator="bird")
    with pytest.raises(UserError, match="judged the base model otherwise"):
        train(config_of(tmp_path / "judged", verifier=judged))
    shaken = folder() / "model"
    from dph.models.policy import Policy

    policy = Policy.load(ModelConfig(str(base_run() / "model"), device="cpu"))
    with torch.no_grad():
        next(policy.model.parameters()).add_(0.01)
    policy.save(shaken)
    with pytest.raises(UserError, match="weight_hash"):
        train(config_of(tmp_path / "other", "grpo", model=ModelConfig(str(shaken), device="cpu")))


def test_an_unjudged_sample_counts_against_the_certificate(tmp_path, monkeypatch):
    monkeypatch.setattr(Presampled, "new_counts", lambda self: dict.fromkeys(kept(), (0, 1)))  # one of two was judged
    held = CertificationSet.open(CertifyConfig(set=str(kept_aside()), epsilon=0.1))
    assert set(held.base.values()) == {(1, 2)}


def kept():
    return [id for id, where in read_partition(kept_aside(), TASK).items() if where == "certify"]


def stage_config(base, *checkpoints, **changes):
    certified = CertifyConfig(epsilon=0.1)
    model = ModelConfig(device="cpu")
    return CertifyStageConfig(
        base=str(base), checkpoints=tuple(map(str, checkpoints)), certify=certified, model=model, **changes
    )


def test_models_are_certified_after_the_fact(tmp_path, monkeypatch):
    run = train(config_of(tmp_path / "run"))
    found = certify(stage_config(kept_aside(), run, out=str(tmp_path / "out")))
    (row,) = json.loads((tmp_path / "out" / "certificates.json").read_text())
    assert row["checkpoint"] == str(run) and row["bound"] == found[0].bound == read_metrics(run)[-1]["certify/bound"]


def write_jsonl(path, samples):
    rows = [
        {"problem_id": id, "sample": i, "correct": value}
        for id, each in samples.items()
        for i, value in enumerate(each)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_judged_samples_of_any_program(tmp_path, capsys):
    base = write_jsonl(tmp_path / "base.jsonl", {str(i): [True, True] for i in range(100)})
    none = write_jsonl(tmp_path / "none.jsonl", {str(i): [0, None] for i in range(100)})
    found = certify(stage_config(base, base, none, base, base, out=str(tmp_path / "out")))
    assert [(one.certified, one.loss) for one in found] == [(True, 0.0), (False, 1.0)]  # None counts as wrong
    assert f"not tested, because {none} is not certified: {base}, {base}" in capsys.readouterr().err
    rows = json.loads((tmp_path / "out" / "certificates.json").read_text())
    assert [(row["checkpoint"], row.get("tested", True)) for row in rows] == [
        (str(name), tested) for name, tested in ((base, True), (none, True), (base, False), (base, False))
    ]
    unjudged = write_jsonl(tmp_path / "unjudged.jsonl", {str(i): [None, 1] for i in range(100)})
    assert certify(stage_config(unjudged, base))[0].loss == 0  # of the base it counts as correct
    (tmp_path / "bad.jsonl").write_text('{"problem_id": "1", "correct": 2}\n')
    with pytest.raises(UserError, match="'correct' is graded"):
        certify(stage_config(tmp_path / "bad.jsonl", base))
    with pytest.raises(UserError, match="needs a base and checkpoints"):
        certify(CertifyStageConfig())


def test_some_samples_choose_and_the_others_measure(tmp_path, capsys):
    samples = {f"good{i}": [1, 1, 1, 1] for i in range(100)} | {f"bad{i}": [0, 0, 0, 0] for i in range(50)}
    base = write_jsonl(tmp_path / "base.jsonl", samples)
    now = write_jsonl(tmp_path / "now.jsonl", {id: [1, 0, 1, 0] for id in samples})
    (found,) = certify(stage_config(base, now, choose=2, mastered=1.0))
    # of four samples two are left, of which 1, 0 or 2 are correct: half of them on average
    assert found.problems == 100 and found.loss == pytest.approx(0.5, abs=0.15)
    said = capsys.readouterr().err
    assert (
        "100 of 150 problems are chosen: at least 100 % of 2 samples of the base model are correct" in said
        and "have no number" not in said
    )
    mixed = write_jsonl(tmp_path / "mixed.jsonl", {str(i): [1, 1, 0, 0] for i in range(300)})
    (found,) = certify(stage_config(mixed, mixed, choose=2, mastered=1.0))
    # both correct ones are the two that choose in one of six problems: then none is left of either side
    assert found.problems == pytest.approx(50, abs=20) and found.loss == 0
    with pytest.raises(UserError, match="problem 'good0' has 4 samples, so that none is left to measure it with"):
        certify(stage_config(base, now, choose=4))
    few = write_jsonl(tmp_path / "few.jsonl", {id: [1] for id in samples})
    with pytest.raises(UserError, match="needs at least 1 sample of"):
        certify(stage_config(base, few, choose=3))


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def rewritten(path, name, rows, numbered=True):
    keys = ("problem_id", "sample", "correct") if numbered else ("problem_id", "correct")
    out = path.with_name(name)
    out.write_text("".join(json.dumps({key: row[key] for key in keys}) + "\n" for row in rows))
    return out


@pytest.mark.parametrize("numbered", [True, False])
def test_no_order_of_rows_changes_a_certificate(tmp_path, numbered):
    rng = random.Random(0)
    sides = [
        write_jsonl(tmp_path / f"{name}.jsonl", {str(i): [rng.random() < p for _ in range(12)] for i in range(80)})
        for name, p in (("base", 0.9), ("now", 0.8))
    ]
    expected, orders = (
        None,
        {
            "as they are": lambda rows: rows,
            "reversed": lambda rows: rows[::-1],
            "correct first": lambda rows: sorted(rows, key=lambda row: not row["correct"]),
            "wrong first": lambda rows: sorted(rows, key=lambda row: row["correct"]),
            "by sample": lambda rows: sorted(rows, key=lambda row: (row["sample"], row["problem_id"])),
            "shuffled": lambda rows: random.Random(1).sample(rows, len(rows)),
        },
    )
    for first in orders.values():
        for second in orders.values():
            files = [
                rewritten(side, f"{side.stem}-again.jsonl", order(rows_of(side)), numbered)
                for side, order in zip(sides, (first, second), strict=True)
            ]
            (found,) = certify(stage_config(*files, choose=6))
            expected = expected or found
            assert found == expected
    assert expected is not None and 60 < expected.problems < 80 and 0 < expected.loss < 0.2


def test_numbers_count_from_anywhere_and_a_sample_counts_once(tmp_path, capsys):
    samples = {str(i): [1, 1, 0, 1] for i in range(100)}
    base = write_jsonl(tmp_path / "base.jsonl", samples)
    later = rewritten(base, "later.jsonl", [row | {"sample": row["sample"] + 1} for row in rows_of(base)])
    assert certify(stage_config(base, base, choose=2)) == certify(stage_config(base, later, choose=2))
    twice = rewritten(base, "twice.jsonl", [*rows_of(base), rows_of(base)[2]])
    message = complaint(capsys, "certify", base, twice, "--certify.epsilon", "0.1")
    assert "problem_id '0' has 2 rows with sample 2: duplicates; remove one of them" in message
    odd = rewritten(base, "odd.jsonl", [row | {"sample": "x"} for row in rows_of(base)])
    message = complaint(capsys, "certify", base, odd, "--certify.epsilon", "0.1")
    assert "problem_id '0' has 4 rows with sample x: duplicates" in message
    some = tmp_path / "some.jsonl"
    some.write_text(base.read_text() + '{"problem_id": "0", "correct": true}\n')
    with pytest.raises(UserError, match="99 of 100 problems have fewer than 5 samples"):
        certify(stage_config(some, some))
    assert certify(stage_config(some, some, partial=True))[0].loss == 0  # a row without a number: only counts are used
    assert "there is no file" in complaint(capsys, "certify", base, tmp_path / "no.jsonl")


def test_a_folder_of_logs_and_the_options_of_its_columns(tmp_path, capsys):
    folder = tmp_path / "logs"
    folder.mkdir()
    for number in range(4):
        rows = [{"question": i, "points": 2 if number else i % 2} for i in range(100)]
        (folder / f"samples_{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("certify", folder, folder, "--certify.epsilon", "0.1", "--choose", "2")
    status, said = run(capsys, *words, "--id", "question", "--correct", "points", "--threshold", "2")
    assert status == 0 and "certified: with 95 % confidence" in said and "have no number" not in said


def test_files_are_certified_without_torch(tmp_path):
    base = write_jsonl(tmp_path / "base.jsonl", {str(i): [1, 1, 1, 1] for i in range(100)})
    code = (
        "import sys; sys.modules['torch'] = sys.modules['transformers'] = None\n"
        f"sys.argv = ['dph', 'certify', {str(base)!r}, {str(base)!r}, '--choose', '2', '--certify.epsilon', '0.1']\n"
        "from dph.cli.main import main; main()"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 0 and "certified: with 95 %" in ended.stderr + ended.stdout


def test_evaluations_are_compared_and_models_evaluated(tmp_path):
    settings = EvalConfig(
        model=ModelConfig(str(base_run() / "model"), device="cpu"),
        task=replace(TASK, split="dev"),
        rollout=rollout(n=2),
    )
    run = evaluate(replace(settings, out=str(tmp_path / "eval")))
    (same,) = certify(stage_config(run, run))
    assert same.problems == 120 and same.loss == 0
    options = {"task": settings.task, "rollout": settings.rollout, "out": str(tmp_path / "out")}
    (found,) = certify(stage_config(run, base_run(), **options))
    assert found.problems == 120 and found.loss == 0  # the same keys
    with pytest.raises(UserError, match="name one with --out"):
        certify(stage_config(run, base_run()))


def test_the_furthest_certified_share(tmp_path, monkeypatch):
    from dph.evaluation import certification

    run = train(config_of(tmp_path / "run"))
    asked = []
    real = certification.solved

    def scripted(evaluator, problems):
        asked.append(1)
        found = real(evaluator, problems)
        return found if len(asked) < 3 else {id: (0, n) for id, (_, n) in found.items()}

    monkeypatch.setattr(certification, "solved", scripted)
    config = InterpolateConfig(
        str(run), out=str(tmp_path / "mix"), shares=4, certify=CertifyConfig(set=str(kept_aside()), epsilon=0.1)
    )
    out = interpolate(config)
    assert len(asked) == 3  # 0.25 and 0.5 pass, 0.75 fails, 1 is not asked for
    plain = interpolate(InterpolateConfig(str(run), weight=0.5, out=str(tmp_path / "half")))
    one, two = weights(out), weights(plain)
    assert all(torch.equal(one[name], two[name]) for name in two)
    assert "certified: with 95 %" in (out / "README.md").read_text()
    asked += [1, 1]
    with pytest.raises(UserError, match=r"no share is certified, not even 0\.25"):
        interpolate(replace(config, out=str(tmp_path / "none")))


def test_words_of_the_command_line_are_base_and_checkpoints():
    from dph.cli.main import parse

    config, _ = parse("certify", ["base", "one", "two", "--certify.epsilon", "0.1", "--task", "toy"])
    assert (config.base, config.checkpoints, config.certify.epsilon) == ("base", ("one", "two"), 0.1)
    assert parse("presample", ["--certify", "0.2"])[0].certify.share == 0.2
    with pytest.raises(UserError, match="unrecognized arguments"):
        parse("certify", ["base", "one", "--certify.every", "3"])


# Code that a presample run names ------------------------------------------------------------------------------------


def naming(path, settings):
    """A copy of the presample run whose settings name code."""
    shutil.copytree(kept_aside(), path)
    before = RunDir.open(path).settings()
    changed = {key: value if key == "plugins" else before[key] | value for key, value in settings.items()}
    (path / "config.toml").write_text(tomli_w.dumps(before | changed))
    return "certify", path, base_run(), "--certify.epsilon", "0.1"


def test_a_certificate_says_which_flag_allows_the_code_of_a_run(tmp_path, capsys):
    words = naming(tmp_path / "run", {"reward": {"function": "a b.py:f"}})
    for flags in ((), ("--reward", "another.py:f")):
        message = complaint(capsys, *words, *flags)
        assert "which only a flag can allow" in message and message.endswith("--reward 'a b.py:f'")


def test_a_certificate_calls_the_function_that_the_call_names_too(tmp_path, capsys):
    (tmp_path / "own.py").write_text("def reward(*_, **__): return 1.0\n")
    function = f"{tmp_path / 'own.py'}:reward"
    words = naming(tmp_path / "run", {"reward": {"function": function, "in_process": True}})
    status, said = run(capsys, *words, "--reward", function)
    assert status == 0 and "certified" in said


def test_a_certificate_takes_no_other_code_from_a_run(tmp_path, capsys):
    named = {"plugins": ["missing.py"], "model": {"trust_remote_code": True, "attention": "org/kernel"}}
    assert run(capsys, *naming(tmp_path / "run", named))[0] == 0


def rare_files(tmp_path, kept):
    """Files of counts: 400 problems with 64 samples; the checkpoint has this share of the base model's correct ones."""
    paths = []
    for name, share in (("base", 1.0), ("now", kept)):
        rows = [{"id": f"p{i}", "c": round(share * (i % 65)), "n": 64} for i in range(400)]
        paths.append(tmp_path / f"{name}.jsonl")
        paths[-1].write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return paths


def test_rare_problems_are_certified_and_the_others_named(tmp_path, capsys):
    base, same = rare_files(tmp_path, 1.0)
    words = ("--choose", "32", "--for-k", "16", "--certify.epsilon", "0.2")
    status, said = run(capsys, "certify", base, same, *words, "--out", tmp_path / "out")
    assert status == 0 and "at least 1/16 and less than 4/16 of 32 samples of the base model are correct" in said
    assert "now.jsonl: certified: with 95 % confidence pass@16 on problems like these" in said
    [row] = json.loads((tmp_path / "out/certificates.json").read_text())
    assert row["k"] == 16 and row["others"] == 400 - row["problems"] > 200 and row["others_lost"] == 0
    assert f"; it is silent about the other {row['others']}, 0 of them lost" in said
    base, now = rare_files(tmp_path, 0.3)
    assert "now.jsonl: not certified" in run(capsys, "certify", base, now, *words)[1]
    _, said = run(capsys, "certify", base, now, "--choose", "32")
    others, lost = map(int, re.findall(r"silent about the other (\d+), (\d+) of them lost", said)[0])
    assert lost == sum(i % 65 == 1 for i in range(400)) and others > 200  # 0.3 of 1 is none


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--for-k", "32"), "name --choose too"),
        (("--for-k", "32", "--choose", "32", "--mastered", "0.5"), "choose different problems"),
        (("--for-k", "32", "--choose", "32", "--certify.k", "8"), "--for-k 32 certifies pass@32"),
        (("--for-k", "32", "--choose", "8"), "no number of correct ones is between"),
        (("--for-k", "60", "--choose", "30"), "pass@60 needs at least 60 samples of each problem"),
    ],
)
def test_what_cannot_be_a_coverage_certificate_is_refused(tmp_path, capsys, words, said):
    assert said in complaint(capsys, "certify", *rare_files(tmp_path, 1.0), *words)
