"""Chat templates in every stage: one date whatever the day, variables, and templates that reject a prompt."""

import json
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from transformers import AutoTokenizer
from transformers.utils import chat_template_utils

from complaints import complaint, run
from dph.config import ModelConfig
from dph.errors import RunError
from dph.models.chat import PLAIN, Rendering, dated_template, render_prompt, tokenizer_hash
from dph.models.policy import Policy
from dph.rehearsal.check import check_fit
from dph.runs.directory import RunDir
from helpers import base_run, rollout, weights

TURNS = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
DAY = TURNS + "{% for digit in strftime_now('%d%m') %} {{ digit }}{% endfor %}"
THINKING = TURNS + "{% if enable_thinking is defined and enable_thinking is false %} 9{% endif %}"
NO_SYSTEM = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"


@pytest.fixture
def on(monkeypatch):
    """Sets today's date for transformers' chat templates."""

    def set_day(day: int) -> None:
        class Today(datetime):
            @classmethod
            def now(cls, tz=None):
                return cls(2026, 11, day)

        monkeypatch.setattr(chat_template_utils, "datetime", Today)

    return set_day


def model_with(folder: Path, template: str | None) -> Path:
    """The base model with a chat template."""
    shutil.copytree(base_run() / "model", folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    return folder


def data_of(folder: Path, rows: list[dict[str, Any]]) -> Path:
    folder.mkdir(exist_ok=True)
    for split in ("train", "test"):
        text = "".join(json.dumps({"answer": "yes", "verifier": "exact", **row}) + "\n" for row in rows)
        (folder / f"{split}.jsonl").write_text(text)
    return folder


ROWS: list[dict[str, Any]] = [{"prompt": f"{kind} {i}"} for i in range(4) for kind in ("easy", "hard")]


def words(stage: str, model: Path, data: Path, *more: Any) -> list[Any]:
    common = [stage, "--task", "records", "--data", data, "--model.path", model, "--model.device", "cpu"]
    return [*common, "--rollout.max-tokens", "4", "--rollout.n", "4", *more]


def train_words(model: Path, data: Path, out: Path, *more: Any) -> list[Any]:
    sizes = ["--rollout.prompts", "2", "--optim.lr", "1e-3", "--optim.minibatches", "1", "--overlong.buffer", "0"]
    return words("train", model, data, *sizes, "--checkpoint-every", "2", "--out", out, *more)


def done(capsys, *line: Any) -> str:
    """What a command that succeeds says on standard error."""
    status, said = run(capsys, *line)
    assert status == 0, said
    return said


def completions(out: Path) -> list[str]:
    return pq.read_table(out / "completions.parquet")["text"].to_pylist()


# The date -----------------------------------------------------------------------------------------------------------


TEMPLATES = [
    DAY,
    "\n\n  {% if true %}\nX{{ strftime_now('%-d %B, %A %H:%M 100%% %j') }}{% endif %}",
    "  {{ strftime_now(format='%Y-%m-%d') }} {% macro f() %}{{ strftime_now('%y') }}{% endmacro %}{{ f() }}\n",
    "{% if not day is defined %}{% set day = strftime_now('%d %b %Y') if strftime_now is defined %}{% endif %}"
    "{{ day }}",
]


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_dated_template_writes_what_transformers_would_have_written_on_that_day(template, on):
    tokenizer = AutoTokenizer.from_pretrained(base_run() / "model")
    tokenizer.chat_template = template
    message = [{"role": "user", "content": "easy 1"}]

    def today() -> str:
        return tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)

    on(28)
    expected = today()
    on(29)
    assert today() != expected, "transformers writes the day"
    assert render_prompt(tokenizer, "easy 1", Rendering("2026-11-28")) == expected
    assert render_prompt(tokenizer, "easy 1") == render_prompt(tokenizer, "easy 1", Rendering(PLAIN.date))
    before, dated = tokenizer_hash(tokenizer), dated_template(template, "2026-11-28")
    assert dated_template(dated, "2026-11-28") == dated and dated_template(dated, "2026-11-29") != dated
    tokenizer.chat_template = dated
    assert tokenizer_hash(tokenizer) == before, "the date is no part of the template"


def test_a_template_without_a_date_stays_as_it_is():
    assert dated_template(TURNS, "2026-11-28") is TURNS


@pytest.fixture
def dated(tmp_path, capsys, on):
    """A model whose template writes the date, its data, and a presample run of the 28th."""
    model, data, out = model_with(tmp_path / "model", DAY), data_of(tmp_path / "data", ROWS), tmp_path / "presample"
    on(28)
    return model, data, out, done(capsys, *words("presample", model, data, "--threshold", "4", "--out", out))


def test_training_on_the_next_day_reads_the_prompts_of_the_set(dated, tmp_path, capsys, on):
    model, data, presampled, said = dated
    sentence = "the chat template writes a date into prompts: 2026-01-01 on every day (model.date names another)"
    assert sentence in said
    manifest = RunDir.open(presampled).manifest
    assert manifest["chat_template_date"] == "2026-01-01"
    policy = Policy.load(ModelConfig(path=str(model), device="cpu"))
    stored = pq.read_table(presampled / "rehearsal.parquet").to_pylist()
    texts = {policy.tokenizer.decode(row["prompt_ids"]).strip() for row in stored}
    assert texts and all(text.endswith(" 0 1 0 1") for text in texts)
    on(29)
    method = ["--preset", "dph_js", "--rehearsal.path", presampled, "--steps", "2", "--rehearsal.rows", "2"]
    train = train_words(model, data, tmp_path / "train", *method)
    assert sentence in done(capsys, *train)
    assert RunDir.open(tmp_path / "train").manifest["chat_template_date"] == "2026-01-01"
    other = train_words(model, data, tmp_path / "other", *method, "--model.date", "2026-11-29")
    assert "(chat_template_date '2026-01-01' there, '2026-11-29' here)" in complaint(capsys, *other)


def test_a_set_of_an_older_version_is_read_and_the_doubt_is_said(dated, caplog):
    model, _, presampled, _ = dated
    file = presampled / "manifest.json"
    older = json.loads(file.read_text())
    del older["chat_template_date"]
    file.write_text(json.dumps(older))
    policy = Policy.load(ModelConfig(path=str(model), device="cpu"))
    check_fit(RunDir.open(presampled), policy, rollout(), same_weights=True)
    assert "does not say on which day its prompts were rendered" in caplog.text


def test_a_run_that_continues_on_the_next_day_ends_with_the_same_weights(dated, tmp_path, capsys, on):
    model, data, *_ = dated
    done(capsys, *train_words(model, data, tmp_path / "whole", "--preset", "grpo", "--steps", "4"))
    done(capsys, *train_words(model, data, tmp_path / "parts", "--preset", "grpo", "--steps", "2"))
    on(29)
    done(capsys, *train_words(model, data, tmp_path / "parts", "--preset", "grpo", "--steps", "4", "--resume"))
    whole, parts = (weights(tmp_path / name / "model") for name in ("whole", "parts"))
    assert all((whole[name] == parts[name]).all() for name in whole)
    changed = train_words(model, data, tmp_path / "parts", "--preset", "grpo", "--steps", "4", "--resume")
    assert "model.date: '2026-01-01' → '2026-11-29'" in complaint(capsys, *changed, "--model.date", "2026-11-29")


HOT = ("--rollout.temperature", "2", "--rollout.n", "16")
"""Other prompts then have other completions."""


def test_evaluations_on_two_days_have_the_same_completions(dated, tmp_path, capsys, on):
    model, data, *_ = dated
    for day in (28, 29):
        on(day)
        done(capsys, *words("eval", model, data, *HOT, "--out", tmp_path / str(day)))
    assert completions(tmp_path / "28") == completions(tmp_path / "29")
    done(capsys, *words("eval", model, data, *HOT, "--model.date", "2027-09-28", "--out", tmp_path / "other"))
    assert completions(tmp_path / "28") != completions(tmp_path / "other")


def test_check_says_that_the_template_writes_a_date(dated, capsys):
    from dph.cli.main import main

    model, data, *_ = dated
    main([str(word) for word in words("check", model, data, "--no-step", "--test", "")])
    said = capsys.readouterr().out
    assert "date    the chat template writes a date into prompts: 2026-01-01 on every day" in said
    assert "easy 0 0 1 0 1" in said


@pytest.mark.parametrize("date", ["tomorrow", "2026-13-01", "20260101", "2026-W01-1"])
def test_a_date_that_is_none_is_refused(date, tmp_path, capsys):
    line = words("eval", base_run() / "model", data_of(tmp_path / "data", ROWS), "--out", tmp_path / "x")
    assert f"model.date is '{date}'; it must be a date like 2026-01-31" in complaint(
        capsys, *line, "--model.date", date
    )


# Variables ------------------------------------------------------------------------------------------------------------


OFF = ("--model.chat-template-kwargs", "enable_thinking", "false")


def shown_prompt(capsys, model: Path, data: Path, *more: Any) -> str:
    """The first prompt, as `dph check` shows it."""
    from dph.cli.main import main

    main([str(word) for word in words("check", model, data, "--no-step", "--test", "", *more)])
    lines = capsys.readouterr().out.splitlines()
    return lines[next(i for i, line in enumerate(lines) if "as the model reads it" in line) + 2].strip()


def test_variables_come_from_the_setting_and_from_a_column(tmp_path, capsys):
    model, data = model_with(tmp_path / "model", THINKING), data_of(tmp_path / "data", ROWS)
    assert shown_prompt(capsys, model, data) == "easy 0"
    assert shown_prompt(capsys, model, data, *OFF) == "easy 0 9"
    file = tmp_path / "settings.toml"
    file.write_text("[model.chat_template_kwargs]\nenable_thinking = false\n")
    assert shown_prompt(capsys, model, data, "--config", file) == "easy 0 9"
    own = data_of(tmp_path / "own", [row | {"chat_template_kwargs": {"enable_thinking": False}} for row in ROWS])
    assert shown_prompt(capsys, model, own) == "easy 0 9"
    other = data_of(tmp_path / "other", [row | {"chat_template_kwargs": '{"enable_thinking": true}'} for row in ROWS])
    assert shown_prompt(capsys, model, other, *OFF) == "easy 0", "a row's own override the setting"


def test_stored_responses_of_other_variables_are_refused(tmp_path, capsys):
    model, data, out = model_with(tmp_path / "model", THINKING), data_of(tmp_path / "data", ROWS), tmp_path / "set"
    done(capsys, *words("presample", model, data, "--threshold", "4", *OFF, "--out", out))
    assert RunDir.open(out).manifest["chat_template_kwargs"] == {"enable_thinking": False}
    policy = Policy.load(ModelConfig(path=str(model), device="cpu"))
    with pytest.raises(RunError, match=r"\(chat_template_kwargs \{'enable_thinking': False\} there, None here\)"):
        check_fit(RunDir.open(out), policy, rollout(), same_weights=True)
    method = ["--preset", "dph_js", "--rehearsal.path", out, "--steps", "1", "--rehearsal.rows", "2"]
    done(capsys, *train_words(model, data, tmp_path / "same", *method, *OFF))
    said = done(capsys, *words("eval", tmp_path / "same" / "model", data, "--out", tmp_path / "eval"))
    assert "trained with other prompts than it is evaluated with (chat_template_kwargs.enable_thinking: 'false'" in said
    said = done(capsys, *words("eval", tmp_path / "same" / "model", data, *OFF, "--out", tmp_path / "eval2"))
    assert "other prompts" not in said


def test_a_row_whose_variables_changed_is_another_problem(tmp_path, capsys):
    model, data, out = model_with(tmp_path / "model", THINKING), data_of(tmp_path / "data", ROWS), tmp_path / "set"
    done(capsys, *words("presample", model, data, "--threshold", "4", "--out", out))
    data_of(data, [row | {"chat_template_kwargs": {"enable_thinking": False}} for row in ROWS])
    line = train_words(model, data, tmp_path / "train", "--preset", "dph_js", "--rehearsal.path", out, "--steps", "1")
    assert "the problems are not those that" in complaint(capsys, *line)


MISTAKES = {
    "not in the template": (
        ("enable_thinkng", "false"),
        "'enable_thinkng', but the tokenizer's chat template does not",
    ),
    "taken": (("add_generation_prompt", "false"), "'add_generation_prompt', which is no variable of a chat template"),
    "the date": (("strftime_now", "x"), "the date is the setting model.date"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_variables_that_change_nothing_are_refused(name, tmp_path, capsys):
    pair, sentence = MISTAKES[name]
    line = words("eval", model_with(tmp_path / "model", THINKING), data_of(tmp_path / "data", ROWS))
    assert sentence in complaint(capsys, *line, "--out", tmp_path / "x", "--model.chat-template-kwargs", *pair)


def test_variables_without_a_template(tmp_path, capsys):
    own = data_of(tmp_path / "data", [row | {"chat_template_kwargs": {"enable_thinking": False}} for row in ROWS])
    line = words("eval", base_run() / "model", own, "--out", tmp_path / "x")
    assert "sets 'enable_thinking', but the tokenizer's chat template is missing" in complaint(capsys, *line, *OFF)
    assert "the column chat_template_kwargs sets variables that the tokenizer's chat template does not use: enable" in (
        done(capsys, *line)
    )


@pytest.mark.parametrize("value", ["thinking", 3, ["enable_thinking"], {"messages": []}])
def test_a_column_that_holds_no_variables_is_refused_with_its_row(value, tmp_path, capsys):
    data = data_of(tmp_path / "data", [*ROWS, {"prompt": "easy 9", "chat_template_kwargs": value}])
    line = words("eval", base_run() / "model", data, "--out", tmp_path / "x")
    message = complaint(capsys, *line)
    assert f"row {len(ROWS) + 1}: chat_template_kwargs" in message


def test_an_option_of_this_name_is_answered_with_the_setting(tmp_path, capsys):
    line = words("eval", base_run() / "model", data_of(tmp_path / "data", ROWS), "--out", tmp_path / "x")
    message = complaint(capsys, *line, "--task.options", "chat_template_kwargs", "{}")
    assert "--model.chat-template-kwargs NAME VALUE" in message


def test_demonstrations_have_variables_too(tmp_path, capsys):
    model, data = model_with(tmp_path / "model", THINKING), tmp_path / "rows.jsonl"
    row = {"prompt": "easy 1", "response": "yes", "chat_template_kwargs": {"enable_thinking": False}}
    data.write_text(json.dumps(row) + "\n")
    common = ["sft", "--data", data, "--model.path", model, "--model.device", "cpu", "--steps", "1", "--batch", "1"]
    done(capsys, *common, "--out", tmp_path / "own")
    del row["chat_template_kwargs"]
    data.write_text(json.dumps(row) + "\n")
    done(capsys, *common, "--out", tmp_path / "none")
    done(capsys, *common, "--out", tmp_path / "set", *OFF)
    hashes = [RunDir.open(tmp_path / name).manifest["rows_hash"] for name in ("own", "none", "set")]
    assert hashes[0] == hashes[2] != hashes[1]


# Prompts that a template or a model does not take -------------------------------------------------------------------


FURTHER = {"check": ["--no-step"], "presample": ["--threshold", "4"], "eval": []}


def out_of(stage: str, folder: Path) -> list[Any]:
    return [] if stage == "check" else ["--out", folder / "x"]


@pytest.mark.parametrize("stage", FURTHER)
def test_a_prompt_that_the_template_rejects_is_named(stage, tmp_path, capsys):
    model = model_with(tmp_path / "model", NO_SYSTEM + TURNS)
    system = [{"role": "system", "content": "yes"}, {"role": "user", "content": "easy 1"}]
    data = data_of(tmp_path / "data", [*ROWS[:3], {"prompt": system}, *ROWS[3:]])
    message = complaint(capsys, *words(stage, model, data, *FURTHER[stage], *out_of(stage, tmp_path)))
    id = "test-4" if stage == "eval" else "train-4"
    assert message.startswith(
        f"problem {id}: the tokenizer's chat template rejects the prompt: System role not support"
    )


def test_a_demonstration_that_the_template_rejects_is_named(tmp_path, capsys):
    model, data = model_with(tmp_path / "model", NO_SYSTEM + TURNS), tmp_path / "rows.jsonl"
    system = [{"role": "system", "content": "yes"}, {"role": "user", "content": "easy 1"}]
    rows = [{"prompt": "easy 1", "response": "yes"}, {"prompt": system, "response": "yes"}]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    message = complaint(capsys, "sft", "--data", data, "--model.path", model, "--steps", "1", "--out", tmp_path / "x")
    assert f"{data}, row 2" in message and "chat template rejects the prompt" in message


@pytest.mark.parametrize("stage", ["check", "presample", "eval", "sft"])
def test_a_token_that_the_model_does_not_have_is_named_with_its_problem(stage, tmp_path, capsys):
    model = model_with(tmp_path / "model", TURNS)
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.add_tokens(["beyond"])
    tokenizer.save_pretrained(model)
    rows = [{**row, "response": "yes"} for row in [*ROWS[:2], {"prompt": "easy beyond"}]]
    data = data_of(tmp_path / "data", rows)
    if stage == "sft":
        line = ["sft", "--data", data / "train.jsonl", "--model.path", model, "--steps", "1", "--out", tmp_path / "x"]
        name = f"{data / 'train.jsonl'}, row 3"
    else:
        line = words(stage, model, data, *FURTHER[stage], *out_of(stage, tmp_path))
        name = "test-3" if stage == "eval" else "train-3"
    message = complaint(capsys, *line)
    assert message.startswith(
        f"problem {name}: the tokenizer produced token id 17 ('beyond'), but the model has only 17"
    )


# Complaints of users that were collected ------------------------------------------------------------------------------


HELD_BY = {
    "t1": test_a_run_that_continues_on_the_next_day_ends_with_the_same_weights,
    "t1-0": test_check_says_that_the_template_writes_a_date,
    "t1-1": test_training_on_the_next_day_reads_the_prompts_of_the_set,
    "t1-2": test_training_on_the_next_day_reads_the_prompts_of_the_set,
    "t1-4": test_evaluations_on_two_days_have_the_same_completions,
    "t2": test_a_prompt_that_the_template_rejects_is_named,
    "t4": test_a_token_that_the_model_does_not_have_is_named_with_its_problem,
    "t7": test_variables_come_from_the_setting_and_from_a_column,
    "t7-2": test_an_option_of_this_name_is_answered_with_the_setting,
    "t7-90": test_stored_responses_of_other_variables_are_refused,
}
"""The test of each kind of complaint about chat templates, and of single ones."""


def test_every_complaint_about_templates_has_a_test(shared_data: Path):
    file = shared_data / "complaints" / "inputs_2.jsonl"
    if not file.is_file():
        pytest.skip("the collected complaints are not here")
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    kinds = {row["kind"] for row in rows if row["kind"].startswith("t")}
    assert kinds and kinds <= HELD_BY.keys()
    assert {name for name in HELD_BY if "-" in name} <= {row["id"] for row in rows}
