"""Short flags: the setting of each, which flag overrides which, and evaluations of benchmarks by name."""

import json
import sqlite3
from pathlib import Path

import pytest

from dph.cli.main import main, parse
from dph.config import NewModelConfig
from dph.errors import SettingsError
from dph.models.scratch import new_policy
from helpers import randomise


def settings(stage: str, *words: str):
    return parse(stage, words)[0]


def test_a_benchmark_brings_its_split_rule_and_number_of_samples():
    found = settings("eval", "--task", "spider_dk", "--data", "x")
    assert (found.task.name, found.task.split, found.task.options) == ("spider", "dk", {"root": "x"})
    assert (found.verifier.comparator, found.verifier.policy, found.rollout.n) == ("spider", "typed", 32)
    found = settings("eval", "--task=AIME24", "--data=x")
    assert (found.task.name, found.task.split, found.rollout.n) == ("aime24", "test", 128)
    assert (found.verifier.comparator, found.verifier.policy) == ("strict", "qwen")
    found = settings("verify", "--task", "bird-mini-dev", "--data", "x")
    assert (found.task.name, found.task.split, found.verifier.comparator) == ("bird", "mini_dev", "bird")


def test_training_takes_the_task_alone():
    for stage in ("train", "presample"):
        found, plain = settings(stage, "--task", "spider", "--data", "x"), settings(stage)
        assert (found.task.name, found.task.split, found.task.options) == ("spider", "train", {"root": "x"})
        assert (found.verifier, found.rollout) == (plain.verifier, plain.rollout)


def test_long_flags_presets_and_files_go_before_what_a_benchmark_brings(tmp_path: Path):
    found = settings("eval", "--task", "spider", "--task.split", "dev, syn", "--rollout.n", "5", "--rule", "strict")
    assert (found.task.split, found.rollout.n, found.verifier.comparator) == ("dev, syn", 5, "strict")
    (tmp_path / "a.toml").write_text('[task]\nname = "records"\nlimit = 7\n[rollout]\nn = 6\n')
    found = settings("eval", "--config", str(tmp_path / "a.toml"), "--task", "bird")
    assert (found.task.name, found.task.limit, found.rollout.n) == ("bird", 7, 6)


def test_a_preset_brings_the_options_that_the_named_task_has():
    for words, options in (
        ([], {"prompt_style": "boxed"}),
        (["--task", "math500"], {"prompt_style": "boxed"}),
        (["--task", "records", "--data", "x"], {"path": "x"}),
    ):
        assert settings("eval", "--preset", "llama_math", *words).task.options == options


def test_a_file_with_another_task_drops_the_options_of_the_presets_task(tmp_path: Path):
    (tmp_path / "a.toml").write_text('[task]\nname = "records"\noptions = {path = "x"}\n')
    found = settings("eval", "--preset", "llama_math", "--config", str(tmp_path / "a.toml"))
    assert found.task.options == {"path": "x"}


def test_options_of_the_task():
    words = ["--task", "spider", "--data", "a", "--databases", "b", "--suite", "c", "--gold=d"]
    words += ["--subset", "--skip-missing"]
    assert settings("eval", *words).task.options == {
        **{"root": "a", "databases": "b", "test_suite": "c", "gold": "d"},
        **{"subset": "true", "skip_missing": "true"},
    }
    found = settings("eval", "--task", "bird", "--task.options", "evidence", "false", "--data", "x")
    assert found.task.options == {"evidence": "false", "root": "x"}
    assert settings("eval", "--task", "records", "--data", "x").task.options == {"path": "x"}
    words = ["--task", "verl_rows", "--data", "x", "--databases", "y", "--skip-missing"]
    assert settings("eval", *words).task.options == {"path": "x", "db_root": "y", "skip_missing": "true"}


def test_settings_of_the_verifier():
    words = ["--rule", "bird", "--policy=paper", "--workers", "3", "--timeout", "2.5", "--keep-distinct"]
    found = settings("verify", *words).verifier
    assert (found.comparator, found.policy, found.workers, found.timeout, found.keep_distinct) == (
        *("bird", "paper", 3, 2.5),
        True,
    )


def test_the_data_of_supervised_training_are_its_rows_or_those_of_a_task_that_the_line_names():
    assert settings("sft", "--data", "rows.jsonl").data == "rows.jsonl"
    assert settings("sft", "--data", "rows.jsonl", "--task.name", "records").data == "rows.jsonl"
    found = settings("sft", "--task", "records", "--data", "problems", "--databases", "files")
    assert (found.data, found.task.name) == ("", "records")
    assert found.task.options == {"path": "problems", "db_root": "files"}


def test_weak_golds_are_skipped_where_they_would_be_used():
    assert all(settings(stage, "--skip-weak").verifier.skip_weak for stage in ("check", "presample", "train", "eval"))
    with pytest.raises(SettingsError, match="unrecognized arguments: --skip-weak"):  # its scores are the published
        settings("verify", "--skip-weak")


@pytest.mark.parametrize("words", [["--task"], ["--data", "--out", "x"], ["--rule"]])
def test_a_flag_without_its_value(words: list[str]):
    with pytest.raises(SettingsError, match=f"{words[0]}.*: expected one argument"):
        settings("eval", *words)


@pytest.mark.parametrize("name", ["spider", "bird", "math500"])
def test_a_tiny_model_is_evaluated_on_a_benchmark(tmp_path: Path, name: str):
    """Official layouts of two problems; a random model answers, so only what must be there is checked."""
    for folder in ("database", "dev_databases"):
        path = tmp_path / folder / "clubs" / "clubs.sqlite"
        path.parent.mkdir(parents=True)
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE club (id INT)")
        connection.close()
    asked = {"db_id": "clubs", "question": "How many?", "query": "SELECT count(*) FROM club"}
    if name == "spider":
        (tmp_path / "dev.json").write_text(json.dumps([asked, asked]))
    elif name == "bird":
        row = {
            "db_id": "clubs",
            "question": "How many?",
            "SQL": asked["query"],
            "evidence": "count",
            "difficulty": "simple",
        }
        (tmp_path / "dev.json").write_text(json.dumps([{**row, "question_id": i} for i in range(2)]))
    else:
        (tmp_path / "math500").mkdir()
        rows = [{"problem": f"{i}?", "answer": str(i)} for i in range(2)]
        (tmp_path / "math500/test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    size = NewModelConfig(tokenizer="bpe", vocab_size=300, hidden=16, layers=1, heads=2, intermediate=16, context=4096)
    policy = new_policy(size, ["SELECT count ( * ) FROM club", "```sql", "boxed"], 0)
    randomise(policy.model, 0)
    policy.save(tmp_path / "model")
    words = [
        "--task",
        name,
        "--data",
        tmp_path,
        "--subset",
        "--model.path",
        tmp_path / "model",
        "--model.device",
        "cpu",
    ]
    words += ["--rollout.n", "2", "--rollout.max-tokens", "4", "--out", tmp_path / "run"]
    main(["eval", *map(str, words)])
    [(split, summary)] = json.loads((tmp_path / "run/scores.json").read_text())["splits"].items()
    assert (split, summary["problems"], summary["samples"]) == ("test" if name == "math500" else "dev", 2, 2)
    assert summary["metrics"]["greedy"]["mean"] == 0 and summary["metrics"]["token_entropy"]["mean"] > 0
    kinds = {"distinct_answers"} if name == "math500" else {"distinct_sql"}
    assert {key for key in summary["metrics"] if key.startswith("distinct") and not key.endswith("correct")} == kinds
