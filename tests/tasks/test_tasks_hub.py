"""The task `hub`: data sets of the library `datasets`, saved here by the tests, or handed over in place of a hub's."""

import json
import sys
from datetime import datetime
from decimal import Decimal

import pytest

from complaints import complaint, run
from dph.build import make_task, select
from dph.config import TaskConfig
from dph.config import checks as network
from dph.errors import DataError, SettingsError
from dph.tasks import load_task
from dph.types import Problem
from dph.verifiers import Verifiers
from helpers import base_run

datasets = pytest.importorskip("datasets", reason="the library datasets (extra hub) is not installed")

GSM8K = {
    "question": ["2 + 3?", "600 + 434?"],
    "answer": ["Add them: 2 + 3 = <<2+3=5>>5\n#### 5", "#### is no answer yet.\n#### 1,034"],
}


@pytest.fixture
def saved(tmp_path):
    """A function that saves splits as `save_to_disk` does and returns the folder."""

    def save(**splits):
        parts = {name: datasets.Dataset.from_dict(columns) for name, columns in splits.items()}
        datasets.DatasetDict(parts).save_to_disk(str(tmp_path / "saved"))
        return str(tmp_path / "saved")

    return save


def test_gsm8k_is_read_by_a_pattern_and_a_template(saved):
    name = saved(train=GSM8K, test={column: values[:1] for column, values in GSM8K.items()})
    task = load_task(
        "hub",
        name=name,
        answer_pattern=r"####\s*(.+)",
        template="{question}\nAnswer in \\boxed{}.",
        verifier="math",
    )
    first, second = task.problems("train")
    assert first.id == "train-0" and second.id == "train-1"
    assert first.prompt == "2 + 3?\nAnswer in \\boxed{}." and first.meta["question"] == "2 + 3?"
    assert (first.answer, second.answer, second.verifier) == ("5", "1,034", "math")
    assert [problem.id for problem in task.problems("test")] == ["test-0"]
    with Verifiers() as verifiers:
        judged = verifiers.verify([(second, r"\boxed{1034}"), (second, r"\boxed{434}")])
    assert [verdict.correct for verdict in judged] == [True, False]


def test_columns_are_mapped(saved):
    rows = {
        "ask": ["capital of Norway?", "capital of Malta?"],
        "key": ["no", "mt"],
        "gold": [{"text": ["Oslo"], "year": 1}, {"text": ["Valletta", "Il-Belt"], "year": 2}],
        "judge": ["exact", None],
    }
    columns = {"prompt": "ask", "answer": "gold.text", "verifier_column": "judge", "id": "key", "verifier": "last"}
    norway, malta = load_task("hub", name=saved(train=rows), system="Be brief.", **columns).problems("train")
    messages = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "capital of Norway?"})
    assert (norway.id, norway.prompt, norway.answer, norway.verifier) == ("no", messages, ["Oslo"], "exact")
    assert (malta.answer, malta.verifier) == (["Valletta", "Il-Belt"], "last")


def test_rows_in_the_formats_of_files_need_no_options(saved):
    """The columns that `records` reads: a chat, an answer, a verifier."""
    chat = [{"role": "user", "content": "1 + 1?"}]
    rows = {"messages": [chat], "answer": ["2"], "verifier": ["math"], "level": [3]}
    assert load_task("hub", name=saved(train=rows)).problems("train") == [
        Problem("train-0", tuple(chat), "2", "math", {"level": 3})  # type: ignore[arg-type]
    ]


QUESTION = {"role": "user", "content": "6 x 7?"}
SOLVED = [QUESTION, {"role": "assistant", "content": r"It is \boxed{42}."}]


@pytest.mark.parametrize("name", ["problem", "question", "instruction", "prompt"])
def test_a_conversation_that_holds_the_solution_is_no_prompt(saved, name):
    rows = {name: ["6 x 7?"], "solution": ["It is 42."], "messages": [SOLVED], "answer": ["42"]}
    [problem] = load_task("hub", name=saved(train=rows), verifier="math").problems("train")
    assert (problem.prompt, problem.answer) == ("6 x 7?", "42")


@pytest.mark.parametrize(("column", "options"), [("messages", {}), ("prompt", {}), ("chat", {"prompt": "chat"})])
def test_a_prompt_that_ends_with_the_assistant_is_refused(saved, column, options):
    task = load_task("hub", name=saved(train={column: [SOLVED], "answer": ["42"]}), verifier="math", **options)
    with pytest.raises(DataError, match="row 0: the prompt ends with the assist"):
        task.problems("train")


def test_earlier_turns_of_the_assistant_stay(saved):
    rows = {"messages": [[*SOLVED, QUESTION]], "answer": ["42"]}
    [problem] = load_task("hub", name=saved(train=rows), verifier="math").problems("train")
    assert list(problem.prompt) == [*SOLVED, QUESTION]


@pytest.mark.parametrize(("dtype", "value"), [("float16", 0.3), ("float32", 0.1), ("float64", 1 / 3)])
def test_narrow_floats_are_what_was_written(tmp_path, dtype, value):
    features = datasets.Features({"prompt": datasets.Value("string"), "answer": datasets.Value(dtype)})
    rows = datasets.Dataset.from_dict({"prompt": ["?"], "answer": [value]}, features=features)
    rows.save_to_disk(str(tmp_path / "one"))
    [problem] = load_task("hub", name=str(tmp_path / "one"), verifier="math").problems("train")
    assert problem.answer == value


YES_NO = datasets.ClassLabel(names=["yes", "no"])


@pytest.mark.parametrize(
    ("feature", "value", "options", "gold"),
    [
        (YES_NO, 1, {}, "no"),
        (datasets.List(YES_NO), [1, 0], {}, ["no", "yes"]),
        ({"gold": YES_NO}, {"gold": 0}, {"answer": "answer.gold"}, "yes"),
        ({"gold": datasets.List(YES_NO)}, {"gold": [1]}, {"answer": "answer.gold"}, ["no"]),
        (datasets.Translation(languages=["en", "de"]), {"en": "yes", "de": "ja"}, {"answer": "answer.de"}, "ja"),
        (datasets.Value("large_string"), "42", {}, "42"),
        (datasets.Value("decimal128(10,2)"), Decimal("3.50"), {}, "3.50"),
        (YES_NO, None, {}, "answer is null"),
        (YES_NO, -1, {}, "answer is null"),  # how data sets write an unknown class
        (datasets.Value("timestamp[ns]"), datetime(2020, 1, 2), {}, "the answer must be text, a finite number"),
        (datasets.Value("bool"), True, {}, "the answer must be text, a finite number"),
    ],
)
def test_answers_of_every_feature_are_read_or_refused_from_disk_and_from_parquet(
    tmp_path, feature, value, options, gold
):
    """Parquet files that the library wrote say in their metadata what its folders say beside the data."""
    features = datasets.Features({"prompt": datasets.Value("string"), "answer": feature})
    rows = datasets.Dataset.from_dict({"prompt": ["?"], "answer": [value]}, features=features)
    rows.save_to_disk(str(tmp_path / "one"))
    rows.to_parquet(str(tmp_path / "rows.parquet"))
    hub = load_task("hub", name=str(tmp_path / "one"), verifier="exact", **options)
    records = load_task("records", path=str(tmp_path / "rows.parquet"), verifier="exact", **options)
    for task in (hub, records):
        if isinstance(gold, str) and " " in gold:
            with pytest.raises(DataError, match=gold):
                task.problems("train")
        else:
            assert [problem.answer for problem in task.problems("train")] == [gold]


def test_a_picture_is_refused_whatever_its_column_is_called(tmp_path, capsys):
    """Without decoding it, for which the library takes others."""
    stored = {"bytes": datasets.Value("binary"), "path": datasets.Value("string")}
    features = {
        "prompt": datasets.Value("string"),
        "answer": datasets.Value("string"),
        "figure": stored,
        "level": YES_NO,
    }
    columns = {
        "prompt": ["?", "?"],
        "answer": ["1", "2"],
        "figure": [None, {"bytes": b"x", "path": None}],
        "level": [0, 1],
    }
    rows = datasets.Dataset.from_dict(columns, features=datasets.Features(features))
    rows = rows.cast_column("figure", datasets.Image())
    rows.save_to_disk(str(tmp_path / "pictures"))
    rows.select([0]).save_to_disk(str(tmp_path / "none"))
    with pytest.raises(DataError, match="row 1: the column 'figure' holds pictures, films or sounds"):
        load_task("hub", name=str(tmp_path / "pictures"), verifier="math").problems("train")
    [problem] = load_task("hub", name=str(tmp_path / "none"), verifier="math").problems("train")
    assert problem.meta == {"level": "yes"} and "ignored: level (" in capsys.readouterr().err


def test_one_split_that_was_saved_alone_is_called_train(tmp_path):
    datasets.Dataset.from_dict({"prompt": ["?"], "answer": ["1"]}).save_to_disk(str(tmp_path / "one"))
    assert [p.id for p in load_task("hub", name=str(tmp_path / "one"), verifier="exact").problems("train")] == [
        "train-0"
    ]


def test_held_out_rows_are_a_split_that_depends_on_the_seed_alone(saved):
    name = saved(train={"prompt": [str(i) for i in range(100)], "answer": ["1"] * 100})

    def splits(seed):
        task = load_task("hub", name=name, verifier="exact", held_out=20, held_out_seed=seed)
        return [{problem.id for problem in task.problems(split)} for split in ("train", "dev")]

    train, dev = splits(0)
    assert (len(train), len(dev)) == (80, 20) and train | dev == {f"train-{i}" for i in range(100)}
    assert splits(0) == [train, dev]
    assert splits(1)[1] != dev
    assert min(int(id[6:]) for id in dev) < 50 <= max(int(id[6:]) for id in dev)  # spread, not a block at the end


@pytest.mark.parametrize(
    ("options", "split", "message"),
    [
        ({}, "dev", "no split 'dev'; it has: train; the"),
        ({"held_out": "2"}, "dev", "held_out is 2; it must lie between"),
        ({"held_out": "1"}, "test", "has no split 'test'; it has: train$"),
        ({"prompt": "ask"}, "train", "train, row 0: no column 'ask'; it has: q"),
        ({"answer": "answer.text"}, "train", "row 0: no column 'answer.text'"),
        ({"template": "{quest}"}, "train", "the template names no column in braces"),
        ({"answer_pattern": r"\*\*(\d+)"}, "train", r"row 0: answer_pattern .* '.*#### 5'"),
        ({"answer_pattern": "(", "verifier": "math"}, "train", "answer_pattern is not a regular"),
        ({"id": "answer", "answer_pattern": ""}, "train", None),
        ({"held_out": "many"}, "train", "held_out must be a whole number, not"),
        ({"colum": "x"}, "train", "does not take these options: 'colum'"),
    ],
)
def test_mistakes_are_named(saved, options, split, message):
    config = TaskConfig("hub", {"name": saved(train=GSM8K), **options})
    if message is None:
        assert [problem.id for problem in make_task(config).problems(split)] == GSM8K["answer"]
        return
    with pytest.raises((DataError, SettingsError), match=message):
        make_task(config).problems(split)


def test_ids_that_occur_twice_and_a_dev_split_of_its_own(saved):
    rows = {"prompt": ["a", "b"], "answer": ["1", "2"], "key": ["x", "x"]}
    name = saved(train=rows, dev=rows)
    with pytest.raises(DataError, match="the id 'x' twice; ids must be unique"):
        select(load_task("hub", name=name, id="key"), "train")
    with pytest.raises(SettingsError, match="has a split 'dev' of its own"):
        load_task("hub", name=name, held_out=1).problems("dev")


def test_a_folder_of_files_is_not_a_saved_data_set(tmp_path):
    (tmp_path / "train.jsonl").write_text("{}\n")
    with pytest.raises(DataError, match=r"not a folder that save_to_disk .* use"):
        load_task("hub", name=str(tmp_path)).problems("train")


def test_a_damaged_folder(saved):
    name = saved(train=GSM8K)
    with open(f"{name}/train/state.json", "w") as file:
        file.write("{")
    with pytest.raises(DataError, match=r"cannot load the data set .* it may be"):
        load_task("hub", name=name).problems("train")


# A hub --------------------------------------------------------------------------------------------------------------


def test_a_name_is_asked_for_once_then_loaded(monkeypatch):
    asked = []

    def load(name, config, *, revision):
        asked.append((name, config, revision))
        return datasets.DatasetDict({"train": datasets.Dataset.from_dict(GSM8K)})

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr("dph.tasks.hub.ask_hub", lambda *words: asked.append(words))
    monkeypatch.setattr(datasets, "load_dataset", load)
    task = load_task("hub", name="openai/gsm8k", config="main", verifier="math")
    assert len(task.problems("train")) == len(task.problems("train")) == 2
    assert asked == [("openai/gsm8k", "README.md", "dataset"), ("openai/gsm8k", "main", None)]


def test_no_network_is_one_sentence_at_once(monkeypatch):
    """The library alone would repeat the request for 24 seconds."""
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: pytest.fail("the library was asked"))

    def unreachable(*_, **__):
        raise ConnectionError("Name or service not known")

    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", unreachable)
    with pytest.raises(DataError) as failure:
        load_task("hub", name="openai/gsm8k").problems("train")
    said = str(failure.value)
    assert "cannot load the data set 'openai/gsm8k' (Name or service not known); check the name" in said
    assert "save_to_disk" in said and "HF_HUB_OFFLINE=1" in said


def test_a_hub_without_the_file_has_the_repository(monkeypatch):
    from huggingface_hub.errors import EntryNotFoundError

    def missing(url, *, timeout):
        assert url.endswith("/datasets/a/b/resolve/main/README.md") and timeout <= 10
        raise EntryNotFoundError("404")

    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", missing)
    network.ask_hub("a/b", "README.md", "dataset")


def test_without_the_library_the_extra_is_named(saved, monkeypatch):
    name = saved(train=GSM8K)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match="need the library datasets; run: pip"):
        load_task("hub", name=name).problems("train")


# The command line ---------------------------------------------------------------------------------------------------


def test_an_evaluation_by_the_command_line(saved, tmp_path, capsys):
    name = saved(train={"q": [f"easy {i}" for i in range(4)], "a": ["so: yes"] * 4})
    options = ["prompt", "q", "answer", "a", "answer_pattern", ": (.+)", "verifier", "exact", "held_out", "2"]
    words = ["eval", "--task", "hub", "--data", name, "--task.options", *options]
    words += ["--model.path", base_run() / "model", "--rollout.n", "2", "--rollout.max-tokens", "4"]
    status, said = run(capsys, *words, "--task.split", "dev", "--out", tmp_path / "eval")
    assert status == 0, said
    scores = json.loads((tmp_path / "eval" / "scores.json").read_text())["splits"]["dev"]
    assert scores["problems"] == 2 and scores["metrics"]["greedy"]["mean"] == 1  # the model answers "easy" with yes
    assert "has no split 'test'" in complaint(capsys, *words, "--task.split", "test", "--out", tmp_path / "other")
