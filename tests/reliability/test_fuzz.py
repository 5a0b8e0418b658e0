"""Every parser of users' files and arguments: for any input the result is a value or a UserError."""

import gzip
import json
import math
import unicodedata
from dataclasses import fields, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dph.build import make_task
from dph.cli.arguments import read_words
from dph.config import (
    STAGES,
    LossConfig,
    OptimConfig,
    RolloutConfig,
    TaskConfig,
    TrainConfig,
    flatten,
    from_dict,
    merge_settings,
    read_settings,
    to_dict,
    to_toml,
)
from dph.errors import UserError, one_line
from dph.measure.pairing import pair
from dph.measure.predictions import read_predictions
from dph.rehearsal.store import read_rehearsal
from dph.report.data import EvalRun, read_eval
from dph.runs.directory import RunDir, read_metrics
from dph.runs.pinned import Pinned, pin
from dph.tasks.countdown import Countdown
from dph.tasks.records import Records
from dph.tasks.tables import read_rows
from dph.types import Problem
from helpers import presampled
from report_support import write_eval

FEW = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
MANY = settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])

texts = st.text(st.characters(codec="utf-8"), max_size=12)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | texts
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


def objects(*names):
    """Objects some of whose fields have the names that a parser looks for."""
    known = st.fixed_dictionaries({}, optional={name: json_values for name in names})
    return st.builds(lambda one, two: {**two, **one}, known, st.dictionaries(texts, json_values, max_size=2))


def outcome(read, *arguments) -> Any:
    """What a parser returns, or the UserError that it raises."""
    try:
        return read(*arguments)
    except UserError as error:
        return error


def refused(found):
    """Whether an outcome is a UserError whose message is one printable line."""
    if not isinstance(found, UserError):
        return False
    line = one_line(str(found))
    return bool(line) and not any(unicodedata.category(character)[0] == "C" for character in line)


# Settings ------------------------------------------------------------------------------------------------------------


@MANY
@given(content=st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "replace")))
def test_settings_files_of_any_bytes(tmp_path, content):
    (tmp_path / "a.toml").write_bytes(content)
    found = outcome(read_settings, tmp_path / "a.toml")
    assert refused(found) or isinstance(found, dict)


def trees(stage):
    """Nested settings of a stage with right and wrong names and values."""
    flat = flatten(to_dict(STAGES[stage]()))
    right = st.sampled_from(sorted(flat)).flatmap(
        lambda key: st.tuples(st.just(key.split(".")), st.just(flat[key]) | scalars | json_values)
    )
    wrong = st.tuples(st.lists(st.sampled_from(["model", "task", "zzz", "train", "for"]), min_size=1), json_values)
    return st.lists(right | wrong, max_size=4).map(_nested)


def _nested(pairs):
    tree = {}
    for path, value in pairs:
        place = tree
        for name in path[:-1]:
            place = place.setdefault(name, {}) if isinstance(place.get(name, {}), dict) else {}
        place[path[-1]] = value
    return tree


@pytest.mark.parametrize("stage", ["train", "eval", "sft", "presample", "demo"])
@FEW
@given(data=st.data())
def test_settings_of_any_names_and_values(stage, data):
    config = outcome(from_dict, STAGES[stage], data.draw(trees(stage)))
    if refused(config):
        return
    assert isinstance(config, STAGES[stage])
    if stage == "train":
        checked = outcome(config.check_ready)
        assert refused(checked) or checked is None


@FEW
@given(data=st.data())
def test_what_is_accepted_can_be_written_and_read_again(tmp_path, data):
    config = outcome(from_dict, TrainConfig, data.draw(trees("train")))
    if refused(config):
        return
    (tmp_path / "a.toml").write_text(to_toml(config), encoding="utf-8")
    again = outcome(lambda: from_dict(TrainConfig, merge_settings("train", [], [tmp_path / "a.toml"])))
    assert refused(again) or repr(again) == repr(config)  # NaN differs from itself


@MANY
@given(value=st.floats(), part=st.sampled_from(["rollout", "loss", "optim"]), data=st.data())
def test_numbers_that_pass_are_finite(value, part, data):
    kind = {"rollout": RolloutConfig, "loss": LossConfig, "optim": OptimConfig}[part]
    name = data.draw(
        st.sampled_from([item.name for item in fields(kind) if isinstance(getattr(kind(), item.name), float)])
    )
    config = TrainConfig(loss=replace(LossConfig(), eta=0.0))
    try:
        replace(config, **{part: replace(getattr(config, part), **{name: value})})
    except UserError:
        return
    if name != "alpha":  # only read where the divergence is alpha
        assert math.isfinite(value)


FLAGS = ("--preset", "--config", "--plugin", "--resume", "--preset=a", "--seed=3", "--new.layers", "--x", "-h")


@MANY
@given(words=st.lists(st.sampled_from(FLAGS) | texts))
def test_command_lines_of_any_words(words):
    line = outcome(read_words, "sft", words)
    if not refused(line):
        names = {word.partition("=")[0] for word in words if word.startswith("--")}
        taken = len(line.presets) + len(line.files) + len(line.plugins)
        assert taken == sum(word.partition("=")[0] in ("--preset", "--config", "--plugin") for word in words)
        assert (line.resume, line.help) == ("--resume" in words, "-h" in words)
        assert flatten(line.settings).keys() == {n[2:].replace("-", "_") for n in names & {"--seed", "--new.layers"}}


@FEW
@given(options=st.dictionaries(st.sampled_from(["test_problems", "seed", "limit", "x"]), texts, max_size=2))
def test_options_of_a_task(options):
    task = outcome(make_task, TaskConfig(name="countdown", options=options))
    assert refused(task) or isinstance(task, Countdown)


# Rows ----------------------------------------------------------------------------------------------------------------


@MANY
@given(content=st.binary(max_size=80), kind=st.sampled_from(["jsonl", "json", "parquet", "jsonl.gz", "csv"]))
def test_tables_of_any_bytes(tmp_path, content, kind):
    (tmp_path / f"a.{kind}").write_bytes(gzip.compress(content) if kind.endswith("gz") else content)
    rows = outcome(read_rows, tmp_path / f"a.{kind}")
    assert refused(rows) or all(isinstance(row, dict) for row in rows)


@FEW
@given(data=st.data())
def test_parquet_with_flipped_bytes(tmp_path, data):
    pq.write_table(pa.table({"prompt": ["a", "b"], "n": [1, 2], "l": [[1.5], []]}), tmp_path / "a.parquet")
    content = bytearray((tmp_path / "a.parquet").read_bytes())
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=4)):
        content[place] = data.draw(st.integers(0, 255))
    (tmp_path / "b.parquet").write_bytes(bytes(content))
    rows = outcome(read_rows, tmp_path / "b.parquet", ("prompt",))
    assert refused(rows) or all("prompt" in row for row in rows)


@MANY
@given(
    rows=st.lists(objects("id", "prompt", "messages", "answer", "verifier", "db", "db_id", "reward_model"), max_size=3)
)
def test_records_of_any_shape(tmp_path, rows):
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    problems = outcome(Records(path=str(tmp_path / "a.jsonl"), verifier="exact").problems, "test")
    if not refused(problems):
        assert len(problems) == len(rows)
        for problem in problems:
            json.dumps([problem.id, problem.meta]).encode()  # what is kept can be written and hashed


@MANY
@given(content=json_values | st.lists(objects("id", "response", "pred", "sql", "index", "sample"), max_size=3))
def test_predictions_of_any_shape(tmp_path, content):
    (tmp_path / "a.json").write_text(json.dumps(content), encoding="utf-8")
    found = outcome(read_predictions, tmp_path / "a.json", 2)
    if not refused(found):
        problems = [Problem(f"p/{i}", "q", "a", "exact", {"index": i}) for i in range(2)]
        pairing = pair(problems, found)
        assert len(pairing.unknown) + sum(len(own) for _, own in pairing.pairs) == len(found)


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("gsm8k", ("question", "answer", "solution", "extra_info", "reward_model", "level", "problem")),
        ("minerva_math", ("question", "answer", "final_answer", "prompt")),
        ("spider", ("db_id", "question", "query")),
    ],
)
@FEW
@given(data=st.data())
def test_rows_of_benchmarks_of_any_shape(tmp_path, name, columns, data):
    rows = data.draw(st.lists(objects(*columns), min_size=1, max_size=2))
    for file in ("test.jsonl", "test.json"):
        (tmp_path / file).write_text(json.dumps(rows) if file.endswith("json") else "\n".join(map(json.dumps, rows)))
    (tmp_path / "database").mkdir(exist_ok=True)
    task = make_task(TaskConfig(name=name, options={"root": str(tmp_path), "subset": "true"}))
    problems = outcome(task.problems, "test")
    assert refused(problems) or len(problems) == len(rows)


# Run directories ------------------------------------------------------------------------------------------------------


@MANY
@given(content=st.binary(max_size=60) | json_values.map(lambda value: json.dumps(value).encode()))
def test_logs_manifests_scores_and_notes_of_any_content(tmp_path, content):
    for name in ("metrics.jsonl", "manifest.json", "scores.json", "inputs.json"):
        (tmp_path / name).write_bytes(content)
    assert all(isinstance(row["step"], int) for row in read_metrics(tmp_path))
    assert refused(outcome(RunDir.open, tmp_path, "train"))
    assert refused(outcome(read_eval, tmp_path))
    pinned = outcome(lambda: pin(tmp_path, [], [], "", fresh=False, note=False))
    assert refused(pinned) or isinstance(pinned, Pinned)


NAMES = ["splits", "test", "metrics", "pass_curve", "greedy", "label"]


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    """A run directory of an evaluation, and the text of its scores."""
    run = write_eval(tmp_path_factory.mktemp("run") / "eval", "a", [1], splits=("test",))
    return run, (run / "scores.json").read_text()


@MANY
@given(path=st.lists(st.sampled_from(NAMES)), value=json_values)
def test_scores_with_one_thing_changed(scored, path, value):
    run, text = scored
    scores = json.loads(text)
    place = scores
    for name in path[:-1]:
        place = place[name] if isinstance(place.get(name), dict) else place
    if path:
        place[path[-1]] = value
    (run / "scores.json").write_text(json.dumps(scores))
    found = outcome(read_eval, run)
    assert isinstance(found, EvalRun) if not path else refused(found) or isinstance(found, EvalRun)


@FEW
@given(data=st.data())
def test_rehearsal_sets_with_flipped_bytes(tmp_path, data):
    content = bytearray((presampled() / "rehearsal.parquet").read_bytes())
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=3)):
        content[place] = data.draw(st.integers(0, 255))
    (tmp_path / "rehearsal.parquet").write_bytes(bytes(content))
    rows = outcome(read_rehearsal, tmp_path / "rehearsal.parquet")
    for row in [] if refused(rows) else rows:
        assert len(row.response_ids) == len(row.ref_logprobs) > 0 and all(map(math.isfinite, row.ref_logprobs))
