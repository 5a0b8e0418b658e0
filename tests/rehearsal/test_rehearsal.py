"""The rehearsal set: its file, and the properties that must match those of the training."""

import itertools
import shutil
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from dph.config import (
    ModelConfig,
    PresampleConfig,
    RewardConfig,
    TaskConfig,
    VerifierConfig,
    to_toml,
)
from dph.errors import DataError, ModelError, RunError, UserError
from dph.models.policy import Policy
from dph.process.distributed import World
from dph.process.progress import show_messages
from dph.rehearsal.check import (
    check_fit,
    check_sampler,
    check_start,
    other_versions,
    recheck,
    warn_of_another_judge,
)
from dph.rehearsal.presampled import Presampled, file_hashes
from dph.rehearsal.store import Rehearsal, RehearsalSet, read_rehearsal, write_rehearsal
from dph.runs.directory import RunDir, package_versions
from dph.stages.train import train
from dph.training.rows import mix, rehearsal_row
from dph.verifiers import judging_versions
from helpers import base_run, presampled, read_partition, rollout, tiny_policy, train_config
from mathequal import RULES_VERSION


def policy():
    return Policy.load(ModelConfig(path=str(base_run() / "model"), device="cpu"))


def test_a_set_is_refused_where_tokenizer_sampling_or_weights_differ():
    manifest, model, sampling = RunDir.open(presampled(), "presample").manifest, policy(), rollout()

    def check(manifest=manifest, sampling=sampling, same_weights=True):
        check_fit(RunDir(presampled(), manifest), model, sampling, same_weights=same_weights)

    check()
    with pytest.raises(
        UserError,
        match=r"does not fit this run \(temperature 1\.0",
    ):
        check(sampling=rollout(temperature=0.9, top_p=0.5))
    with pytest.raises(RunError, match=r"\(tokenizer_hash '"):
        check({**manifest, "tokenizer_hash": "?"})
    with torch.no_grad():
        next(model.model.parameters())[0, 0] += 1
    with pytest.raises(RunError, match=r"\(weight_hash '"):
        check()
    check(same_weights=False)


@pytest.mark.parametrize(
    ("verifier", "reward", "said"),
    [
        ({"comparator": "bird"}, {}, "verifier.comparator 'strict' there, 'bird' here"),
        ({"policy": "qwen"}, {"correct_from": 0.5}, "reward.correct_from 1.0 there, 0.5 here"),
        ({}, {"function": "mine.py:f"}, "reward.function '' there, 'mine.py:f' here"),
        ({"workers": 7, "timeout": 9.0, "reward": "arctic"}, {"in_process": True}, ""),
    ],
)
def test_a_set_that_was_judged_by_other_rules_is_named_in_one_line(tmp_path, capsys, verifier, reward, said):
    there = RunDir.start(str(tmp_path / "p"), "presample", PresampleConfig(), versions={})
    show_messages()
    warn_of_another_judge(there, VerifierConfig(**verifier), RewardConfig(**reward))
    lines = [line for line in capsys.readouterr().err.splitlines() if "judged by other rules" in line]
    assert len(lines) == (1 if said else 0) and all(said in line and str(tmp_path / "p") in line for line in lines)


def test_training_warns_of_a_set_that_was_judged_by_other_rules(tmp_path, capsys):
    config = train_config(tmp_path / "run", "dph_js")
    show_messages()
    train(replace(config, verifier=replace(config.verifier, tolerance=0.5)))
    assert "verifier.tolerance 1e-12 there, 0.5 here" in capsys.readouterr().err


def test_training_refuses_another_model_and_another_temperature(tmp_path):
    tiny_policy().save(tmp_path / "other")
    config = train_config(tmp_path / "run", "dph_js")
    with pytest.raises(RunError, match=r"does not fit this run.*weight_hash"):
        train(replace(config, model=replace(config.model, path=str(tmp_path / "other"))))
    other = replace(config, out=str(tmp_path / "run2"), rollout=replace(config.rollout, temperature=0.7))
    with pytest.raises(RunError, match=r"temperature 1\.0 there, 0\.7 here"):
        train(other)


def copied(path, change=None):
    """A copy of the presampled run whose stored rows were changed before its manifest was written."""
    shutil.copytree(presampled(), path)
    if change is not None:
        write_rehearsal(path / "rehearsal.parquet", change(read_rehearsal(path / "rehearsal.parquet")))
        RunDir.open(path, "presample").update(files=file_hashes(path))
    return path


def train_from(path, out, **changes):
    config = train_config(out, "dph_js")
    return replace(config, rehearsal=replace(config.rehearsal, path=str(path), **changes))


def shifted(rows, which, nats=3.0):
    return [
        replace(row, ref_logprobs=[value - nats * (place in which) for value in row.ref_logprobs])
        for place, row in enumerate(rows)
    ]


@pytest.mark.parametrize(("which", "nats"), [({0, 1, 2, 3, 4, 5}, 3.0), ({4}, 3.0), ({4}, 0.21)])
def test_training_refuses_stored_logprobs_that_are_not_the_models(tmp_path, which, nats):
    """Four of six rows are recomputed, spread over the set: 0, 1, 3 and 4."""
    path = copied(tmp_path / "set", lambda rows: shifted(rows, which, nats))
    with pytest.raises(RunError, match=f"by {nats:.1f} nats, so they are not"):
        train(train_from(path, tmp_path / "run"))
    train(replace(train_from(path, tmp_path / "unchecked", check_rows=0), steps=0))


def test_what_bf16_rounds_is_no_reason_to_refuse(tmp_path):
    path = copied(tmp_path / "set", lambda rows: shifted(rows, {4}, 0.5))
    RunDir.open(path, "presample").update(precision="bf16")
    assert check_start(Presampled.open(path), policy(), rollout(), 4, 1000) == pytest.approx(0.5, abs=1e-5)


def test_the_start_says_how_well_the_set_agrees_and_with_which_other_versions(tmp_path, capsys):
    path = copied(tmp_path / "set")
    run = RunDir.open(path, "presample")
    run.update(versions={**run.manifest["versions"], "torch": "1.0"})
    train(replace(train_from(path, tmp_path / "run"), steps=0))
    said = capsys.readouterr().err
    assert "agree with recomputed ones to" in said and "(4 rows); versions have changed: torch 1.0 → " in said
    assert [change.split()[:2] for change in other_versions(run.manifest)] == [["torch", "1.0"]]
    rules = str(RULES_VERSION)
    judged = {**package_versions(), **judging_versions(), "mathequal rules": "0"}
    assert other_versions({"versions": judged}) == [f"mathequal rules 0 → {rules}"]
    del judged["mathequal rules"]  # as of runs before the rules had a version
    assert other_versions({"versions": judged}) == [f"mathequal rules not recorded → {rules}"]
    noted = RunDir.open(tmp_path / "run", "train").manifest["rehearsal"]
    assert noted["hash"] == file_hashes(path)["rehearsal.parquet"]
    assert noted["checked_rows"] == 4 and 0 <= noted["deviation"] < 1e-5


def test_a_resumed_run_keeps_its_set(tmp_path):
    shutil.copytree(presampled(), tmp_path / "set")
    config = train_from(tmp_path / "set", tmp_path / "run")
    train(replace(config, steps=1))
    manifest = RunDir.open(tmp_path / "run", "train")
    manifest.update(status="running")
    (tmp_path / "run" / "config.toml").write_text(to_toml(config))
    shutil.rmtree(tmp_path / "set")
    copied(tmp_path / "set", lambda rows: rows[:-1])
    with pytest.raises(RunError, match=r"is not the one that .*run was started"):
        train(config, resume=True)
    shutil.rmtree(tmp_path / "set")
    copied(tmp_path / "set")
    train(config, resume=True)
    assert RunDir.open(tmp_path / "run", "train").complete


@pytest.mark.parametrize("name", ["partition.parquet", "rehearsal.parquet"])
def test_files_that_are_not_those_that_were_written(tmp_path, name):
    path = copied(tmp_path / "set")
    with (path / name).open("ab") as file:
        file.write(b"x")
    for use in (Presampled.open, lambda path: read_partition(path, TaskConfig(name="toy"))):
        with pytest.raises(RunError, match=f"{name} is not the file"):
            use(path)
    (path / name).unlink()
    with pytest.raises(RunError, match=rf"{name} cannot be read: No such file"):
        Presampled.open(path)
    RunDir.open(path, "presample").update(files=None)
    with pytest.raises(RunError, match="does not say what its files hold"):
        Presampled.open(path)


DAMAGED = {
    "no id": {"problem_id": None},
    "no text": {"text": None},
    "empty prompt": {"prompt_ids": []},
    "no response": {"response_ids": None},
    "a missing token": {"response_ids": [3, None]},
    "a missing logprob": {"ref_logprobs": [-1.0]},
    "not a number": {"ref_logprobs": [-1.0, float("nan")]},
    "more than certain": {"ref_logprobs": [-1.0, 0.5]},
    "a negative token": {"prompt_ids": [-1]},
}


@pytest.mark.parametrize("name", DAMAGED)
def test_rows_that_no_run_writes(tmp_path, name):
    good = Rehearsal([1, 2], [3, 4], "a", [-0.5, 0.0], "x")
    write_rehearsal(tmp_path / "r.parquet", [good, replace(good, **DAMAGED[name])])
    with pytest.raises(DataError, match="is damaged in row 2; run `dph presample`"):
        read_rehearsal(tmp_path / "r.parquet")


def test_tokens_that_the_model_does_not_have(tmp_path):
    row = Rehearsal([1], [10_000], "a", [-0.5], "x")
    with pytest.raises(RunError, match="tokens beyond the model's"):
        recheck(policy(), [row], 1.0, 1000)


# The order ----------------------------------------------------------------------------------------------------------


def stored_by_prompt(counts: dict[str, int]) -> list[Rehearsal]:
    return [Rehearsal([1], [n + 2], name, [-0.5], f"{name}{n}") for name, count in counts.items() for n in range(count)]


def drawn(rows: RehearsalSet, cursor: int, count: int, all_rows: list[Rehearsal]) -> list[str]:
    texts = {id(row.response_ids): row.text for row in all_rows}
    return [texts[id(row.response_ids)] for row in rows.take(cursor, count)]


def test_responses_to_one_prompt_follow_each_other():
    counts = {"a": 3, "b": 1, "c": 2, "d": 3}
    stored = stored_by_prompt(counts)
    epochs = [drawn(RehearsalSet(stored, seed=7), 9 * epoch, 9, stored) for epoch in range(6)]
    for epoch in epochs:
        assert sorted(epoch) == sorted(row.text for row in stored)
        assert len([1 for one, two in itertools.pairwise(epoch) if one[0] != two[0]]) == len(counts) - 1
    assert len(set(map(tuple, epochs))) > 3


def test_the_order_is_a_function_of_the_cursor():
    stored = stored_by_prompt({"a": 2, "b": 2, "c": 1})
    whole = drawn(RehearsalSet(stored, seed=1), 0, 23, stored)
    one = RehearsalSet(stored, seed=1)
    assert [drawn(one, at, 1, stored)[0] for at in (17, 3, 22, 0)] == [whole[at] for at in (17, 3, 22, 0)]
    assert drawn(RehearsalSet(stored, seed=1), 4, 7, stored) == whole[4:11]
    assert RehearsalSet([], seed=1).take(3, 5) == []


def test_processes_share_the_rows_and_siblings_stay_together():
    stored = stored_by_prompt({"a": 4, "b": 4, "c": 4, "d": 4})
    rows = [rehearsal_row(row) for row in stored]
    ranks = [mix([], [], 0, stored, 2, World(rank, 2)) for rank in range(2)]
    assert [[[len(group) for group in minibatch] for minibatch in its] for its in ranks] == [[[4], [4]]] * 2
    assert [row for part in range(2) for its in ranks for group in its[part] for row in group] == rows
    alone = mix([], [], 0, stored, 2, World(0, 1))
    assert [row for minibatch in alone for group in minibatch for row in group] == rows


# The file -----------------------------------------------------------------------------------------------------------


def test_stored_responses_survive_the_file(tmp_path):
    rows = [Rehearsal([1, 2], [3], "a/ü", [-0.5], "é\n"), Rehearsal([1], [2, 3], "b", [-0.25, -1e-3], "")]
    write_rehearsal(tmp_path / "r.parquet", rows)
    again = read_rehearsal(tmp_path / "r.parquet")
    assert [replace(row, ref_logprobs=[]) for row in again] == [replace(row, ref_logprobs=[]) for row in rows]
    for old, new in zip(rows, again, strict=True):
        assert new.ref_logprobs == torch.tensor(old.ref_logprobs, dtype=torch.float32).tolist()
    row = rehearsal_row(again[1])
    assert row.is_rehearsal and row.ref_logprobs == again[1].ref_logprobs and row.advantage == 0


def test_a_mask_survives_the_file_and_a_file_without_one_has_all_tokens(tmp_path):
    """A set in which nothing called a tool has the columns of before."""
    path, plain = tmp_path / "r.parquet", Rehearsal([1], [2, 3], "a", [-0.25, -0.5], "3")
    called = Rehearsal([1], [2, 9, 3], "b", [-0.25, 0.0, -0.5], "3", [True, False, True])
    for rows, columns in (([plain], 5), ([plain, called], 6)):
        write_rehearsal(path, rows)
        assert read_rehearsal(path) == rows and len(pq.read_table(path).column_names) == columns
    assert rehearsal_row(called).counted == 2 and rehearsal_row(plain).counted == 2
    table = pq.read_table(path)
    for broken in ([None, [True, False]], [None, [True, None, True]], [[True], None]):
        changed = table.drop_columns(["written"]).append_column("written", pa.array(broken, pa.list_(pa.bool_())))
        pq.write_table(changed, path)
        with pytest.raises(DataError, match="damaged in row"):
            read_rehearsal(path)


def test_a_file_that_is_missing_damaged_or_of_another_layout(tmp_path):
    path = tmp_path / "r.parquet"
    with pytest.raises(DataError, match=r"there is no rehearsal set .*; run `dph"):
        read_rehearsal(path)
    path.write_bytes(b"PAR1")
    with pytest.raises(DataError, match="cannot be read"):
        read_rehearsal(path)
    pq.write_table(pa.table({"problem_id": ["a"], "prompt_ids": [[1]]}), path)
    with pytest.raises(DataError, match="lacks the column 'response_ids'"):
        read_rehearsal(path)


# The sampler's log-probabilities ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("precision", "fine", "wrong"), [("fp32", 0.009, 0.011), ("bf16", 0.09, 0.11)])
def test_a_sampler_that_is_further_from_the_trainer_than_rounding_is_refused(precision, fine, wrong, capsys):
    trained = [[-1.0, -2.0], [-0.5]]
    check_sampler([[-1.0 - fine, -2.0 + fine], [-0.5 + fine]], trained, precision)
    assert f"agree to {fine:.1e} nats per token (at most {fine:.1e})" in capsys.readouterr().err
    for shift in (wrong, float("nan")):
        with pytest.raises(ModelError, match=r"differ from the model's by .* nats per"):
            check_sampler([[-1.0 - shift, -2.0 + shift], [-0.5 + shift]], trained, precision)


def test_single_tokens_may_be_far_apart_and_samplers_may_give_no_logprobs(capsys):
    values = [-1.0] * 200
    check_sampler([[-2.0, *values[1:]]], [values], "fp32")  # a token that rounding sent to another expert
    assert "agree to 5.0e-03 nats per token (at most 1.0e+00)" in capsys.readouterr().err
    check_sampler([[], []], [[-1.0], [-2.0]], "fp32")
    check_sampler([], [], "fp32")
    assert not capsys.readouterr().err
