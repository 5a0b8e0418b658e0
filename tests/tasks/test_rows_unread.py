"""What a row of problems holds is used, or named in one line, or the row is refused; never lost without a word."""

import datetime
import json
import time
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from complaints import complaint, inputs
from dph.errors import DataError
from dph.tasks import load_task
from dph.types import Problem
from dph.verifiers.golds import asked

ROW = {"prompt": "What is 6 x 7?", "answer": "42"}
TURN = {"role": "user", "content": "What is 6 x 7?"}


def problems(folder: Path, *rows: dict[str, Any], **options: Any) -> list[Problem]:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return load_task("records", path=str(path), **({"verifier": "math"} | options)).problems("train")


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capsys.readouterr().err.splitlines() if line]


IGNORED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"level": 3, "tools": [{"name": "add"}]}, {}, "level, tools"),
    ({"system": "Be brief."}, {}, "system"),
    ({"question": "6 x 7?", "final_answer": "42.0"}, {}, "question, final_answer"),
    ({"weight": 0.5, "verifier_options": {"decimals": "rounded"}}, {}, "weight, verifier_options"),
    ({"gold": {"text": "42", "also": ["42.0"]}, "answer": "7"}, {"answer": "gold.text"}, "answer, gold.also"),
    (
        {"answer": None, "reward_model": {"style": "rule", "ground_truth": "42"}, "data_source": "x"},
        {},
        "reward_model.style, data_source",
    ),
    ({"prompt": [TURN | {"weight": 1}]}, {}, "weight of messages"),
    ({"verifier": "exact", "judge": "math"}, {"verifier_column": "judge"}, "verifier"),
    ({"input": "text", "db": "x.sqlite"}, {}, "input, db"),
]


@pytest.mark.parametrize(("more", "options", "names"), IGNORED)
def test_what_nothing_reads_is_named_in_one_line(tmp_path, capsys, more, options, names):
    problems(tmp_path, ROW | more, ROW | more, **options)
    line, *others = said(capsys)
    assert line.startswith(f"ignored: {names} (") and not others


USED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"id": "a", "verifier": "math", "kind": "sums", "difficulty": 3, "index": 7}, {}),
    ({"ID": "a", "Verifier": "exact"}, {}),
    ({"level": None, "tools": [], "image": None, "images": [], "note": ""}, {}),
    ({"level": 3, "topic": "sums"}, {"template": "{prompt} ({level}, {topic})"}),
    ({"level": 3, "gold": [1]}, {"verifier": "of_a_plug_in"}),  # which gets all columns
    ({"prompt": None, "instruction": "Add.", "input": "6 and 7"}, {}),
    ({"prompt": [TURN | {"name": "Ann", "tool_calls": None}]}, {}),
    ({"chat_template_kwargs": {"enable_thinking": False}}, {}),
]


@pytest.mark.parametrize(("more", "options"), USED)
def test_nothing_is_said_where_all_is_read(tmp_path, capsys, more, options):
    problems(tmp_path, ROW | more, **options)
    assert said(capsys) == []


def test_the_line_comes_once_for_all_splits_of_a_task(tmp_path, capsys):
    for split in ("train", "test"):
        (tmp_path / f"{split}.jsonl").write_text(json.dumps(ROW | {"level": 3, "id": split}), encoding="utf-8")
    task = load_task("records", path=str(tmp_path), verifier="math")
    assert [task.problems(split)[0].id for split in ("train", "test")] == ["train", "test"]
    assert len(said(capsys)) == 1


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"image": "pic.jpg"}, "the column 'image' holds pictures, films or sounds"),
    ({"Images": ["a.png"]}, "the column 'Images' holds pictures"),
    ({"video": "v.mp4"}, "the column 'video' holds pictures"),
    ({"audio": {"array": [0.1], "sampling_rate": 16000}}, "the column 'audio' holds pictures"),
    ({"pixel_values": [0.1, 0.2]}, "the column 'pixel_values' holds pictures"),
    ({"decoded_image": "aGk="}, "the column 'decoded_image' holds pictures"),
    ({"image_0": "f1.png"}, "the column 'image_0' holds pictures"),
    ({"picture": "f1.png"}, "the column 'picture' holds pictures"),
    ({"photo": "https://example.org/f1"}, "the column 'photo' holds pictures"),
    ({"figure": ["f1.png", "f2.png"]}, "the column 'figure' holds pictures"),
    ({"speech": "a.wav"}, "the column 'speech' holds pictures"),
    ({"media": ["a.mp4"]}, "the column 'media' holds pictures"),
    ({"shown": "data:image/png;base64,aGk="}, "the column 'shown' holds pictures"),
    ({"content": [{"type": "image_url", "image_url": {"url": "x"}}]}, "the column 'content' holds pictures"),
    ({"extra_info": {"index": 1, "images": ["f1.png"]}}, "the column 'extra_info.images' holds pictures"),
    ({"prompt": "<image 1> What is the angle?"}, "the prompt holds <image 1>, the place of a picture"),
    ({"prompt": "[IMAGE] What is the angle?"}, "the prompt holds [IMAGE]"),
    ({"prompt": "What is the angle?\n[image]"}, "the prompt holds [image]"),
    ({"shown": {"bytes": "aGk=", "path": None}}, "the column 'shown' holds pictures"),
    ({"shown": [{"bytes": "aGk=", "path": "a.png"}]}, "the column 'shown' holds pictures"),
    ({"prompt": "<image>\nWhat is the angle?"}, "the prompt holds <image>, the place of a picture"),
    ({"prompt": "<image1> and <image2>"}, "the prompt holds <image1>"),
    ({"prompt": "<video>\nWhat happens?"}, "the prompt holds <video>"),
    ({"prompt": [TURN | {"content": "<|vision_start|>?"}]}, "the prompt holds <|vision_start|>"),
    (
        {"prompt": [TURN | {"content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        "a message has a part of the type 'image_url'",
    ),
    ({"prompt": [TURN | {"content": [{"type": "text", "text": "?", "image": "x"}]}]}, "a message has a part that is"),
    ({"prompt": [TURN | {"images": ["x.png"]}]}, "a message has images, and a prompt is text alone"),
    (
        {"prompt": [{"role": "assistant", "content": "", "tool_calls": [{"name": "f"}]}, TURN]},
        "a message has tool_calls, which prompts cannot hold",
    ),
    ({"prompt": "a\0b"}, "the prompt holds a NUL character"),
    ({"answer": ["4", "4\0"]}, "the answer holds a NUL character"),
    ({"id": "4\0"}, "the id holds a NUL character"),
    (
        {"reward_model": {"ground_truth": "7"}},
        "'answer' and 'reward_model.ground_truth' hold different answers; name one with the option answer",
    ),
    ({"prompt": "x" * 1_000_001}, "the prompt has 1000001 characters, and at most 1000000 are read; shorten it"),
]


@pytest.mark.parametrize(("more", "message"), REFUSED)
def test_what_a_text_cannot_hold_is_refused(tmp_path, more, message):
    with pytest.raises(DataError, match="row 2: ") as refusal:
        problems(tmp_path, ROW, ROW | more)
    assert message in str(refusal.value)


def test_a_question_about_html_is_a_text(tmp_path, capsys):
    asked = "Which attribute does <img> need, and may <video> stand in <p>?"
    [problem] = problems(tmp_path, ROW | {"prompt": asked, "images": 3})
    assert problem.prompt == asked and said(capsys)[0].startswith("ignored: images (")


@pytest.mark.parametrize(
    "more",
    [
        {"images": "none"},
        {"images": [None]},
        {"image": ["", None]},
        {"has_image": "no"},
        {"num_images": 0},
        {"figure": "Figure 3 shows a triangle."},
        {"image_caption": "A cat sits on a mat."},
        {"graph": "0-1, 1-2"},
        {"source": "scan.png"},
    ],
)
def test_a_column_without_a_picture_is_no_reason_to_refuse(tmp_path, more):
    """What says that there is none, what tells of one in words, and where a text was taken from."""
    [problem] = problems(tmp_path, ROW | more)
    assert problem.answer == "42"


def test_columns_that_differ_in_letter_case_alone_are_refused_if_they_differ(tmp_path, capsys):
    with pytest.raises(
        DataError, match="row 1: the columns 'answer' and 'Answer' hold different values; name one with"
    ):
        problems(tmp_path, ROW | {"Answer": "43"})
    with pytest.raises(DataError, match="the columns 'prompt' and 'Prompt' hold different values"):
        problems(tmp_path, ROW | {"Prompt": "?"})
    assert problems(tmp_path, ROW | {"Answer": "43"}, answer="Answer")[0].answer == "43"
    assert problems(tmp_path, ROW | {"Answer": "42", "ANSWER": None})[0].answer == "42"


@pytest.mark.parametrize(
    "content", [["What is ", "6 x 7?"], [{"type": "text", "text": "What is "}, {"text": "6 x 7?"}]]
)
def test_parts_that_are_all_text_are_joined(tmp_path, content):
    [problem] = problems(tmp_path, ROW | {"prompt": [TURN | {"content": content, "name": "Ann"}]})
    assert problem.prompt == ({"role": "user", "content": "What is 6 x 7?", "name": "Ann"},)


@pytest.mark.parametrize("answer", ["42", 42, "First, 6 x 7 is computed.\n#### 42", r"So the answer is \boxed{42}."])
def test_an_answer_that_ends_with_the_ground_truth_is_read(tmp_path, answer):
    [problem] = problems(tmp_path, ROW | {"answer": answer, "reward_model": {"ground_truth": "42"}})
    assert problem.answer == answer


def test_a_column_of_units_is_said_to_belong_to_the_answers(tmp_path, capsys):
    problems(tmp_path, ROW | {"unit": "cm"})
    [line] = said(capsys)
    assert line.startswith("ignored: unit (they may belong to the answers")


@pytest.mark.parametrize("part", [" ", "\n", "\t", "![", "![](", "**", "$", "[", "'", " = ", "```"])
def test_a_long_question_takes_a_time_that_grows_with_its_length_alone(tmp_path, part):
    begun = time.process_time()
    text = part * (100_000 // len(part))
    [whole, begin, end] = problems(
        tmp_path, *[ROW | {"prompt": long} for long in (f"a{text}b", f"{text}b", f"a{text}")]
    )
    assert asked(begin) and asked(end) and asked(whole) == asked(replace(whole, prompt=f"A{text}b"))
    assert time.process_time() - begun < 10  # with the square of the length: minutes


def test_links_to_pictures_are_counted(tmp_path, capsys):
    linked = {"prompt": "See ![](https://example.org/a.jpg). What is the angle?"}
    problems(tmp_path, ROW, ROW | linked, ROW | linked)
    [line] = said(capsys)
    problems(tmp_path, ROW, ROW | linked)
    assert said(capsys)[0].startswith("1 prompt links to pictures, ")
    assert line.startswith("2 prompts link to pictures, which the model does not see (first: ") and "row 2)" in line


@pytest.mark.parametrize("gold", ["NaN", "nan", " N/A ", "#N/A", "<NA>", "null"])
@pytest.mark.parametrize("verifier", ["math", "exact"])
def test_a_gold_that_says_it_is_missing_is_missing(tmp_path, gold, verifier):
    (tmp_path / "rows.csv").write_text(f"prompt,answer\n?,1\n?,{gold}\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"row 2 \(line 3\): the answer is .*, which says that it is missing; write an"):
        load_task("records", path=str(tmp_path / "rows.csv"), verifier=verifier).problems("train")


def test_a_list_of_missing_golds_is_missing_and_one_answer_of_a_list_is_enough(tmp_path):
    with pytest.raises(DataError, match="row 1: the answer is 'N/A', which says that it is missing"):
        problems(tmp_path, ROW | {"answer": ["N/A", "nan"]})
    assert problems(tmp_path, ROW | {"answer": ["N/A", "42"]})[0].answer == ["N/A", "42"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"images": ["a.png"]}, "row 2: images is a picture, film or sound, and a prompt is text alone"),
        ({"question": "<image_1> What is x?"}, "row 2: <image_1> is a picture"),
        ({"question": None, "prompt": [TURN, TURN]}, "row 2: the prompt is a chat of several messages"),
    ],
)
def test_rows_of_published_sets_are_texts_too(tmp_path, more, message):
    (tmp_path / "aime24.jsonl").write_text(
        "".join(json.dumps({"question": "6 x 7?", "answer": "42"} | change) + "\n" for change in ({}, more)),
        encoding="utf-8",
    )
    with pytest.raises(DataError, match=message):
        load_task("aime24", root=str(tmp_path), subset=True).problems("test")


def test_words_that_may_be_answers_are_answers(tmp_path):
    golds = ["unknown", "none", "-", "?", "NA"]
    found = problems(tmp_path, *(ROW | {"answer": gold} for gold in golds), verifier="exact")
    assert [problem.answer for problem in found] == golds


def test_a_column_without_a_name_is_said_if_it_has_values(tmp_path, capsys):
    (tmp_path / "rows.csv").write_text(",prompt,answer\n0,?,1\n", encoding="utf-8")
    load_task("records", path=str(tmp_path / "rows.csv"), verifier="math").problems("train")
    assert said(capsys) == ["ignored: a column without a name"]


TYPES: list[tuple[pa.DataType, Any, Any]] = [
    (pa.large_string(), "42", "42"),
    (pa.dictionary(pa.int32(), pa.large_string()), "42", "42"),
    (pa.dictionary(pa.int8(), pa.float32()), 0.1, 0.1),
    (pa.decimal128(10, 2), Decimal("3.50"), "3.50"),
    (pa.list_(pa.float32()), [0.1, 42.0], [0.1, 42.0]),
    (pa.large_list(pa.string()), ["42", "42.0"], ["42", "42.0"]),
    (pa.uint64(), 2**63 + 1, 2**63 + 1),
    (pa.timestamp("ns"), datetime.datetime(2020, 1, 2), None),
    (pa.date32(), datetime.date(2020, 1, 2), None),
    (pa.duration("s"), datetime.timedelta(seconds=1), None),
    (pa.time32("s"), datetime.time(1, 2), None),
    (pa.binary(), b"42", None),
    (pa.bool_(), True, None),
]


@pytest.mark.parametrize(("kind", "value", "gold"), TYPES)
def test_golds_of_every_type_of_arrow_are_read_or_refused(tmp_path, kind, value, gold):
    table = pa.table({"prompt": ["?"], "answer": pa.array([value], kind)})
    pq.write_table(table, tmp_path / "rows.parquet")
    task = load_task("records", path=str(tmp_path / "rows.parquet"), verifier="math")
    if gold is None:
        with pytest.raises(DataError, match="the answer must be text, a finite number, or a list of these") as refusal:
            task.problems("train")
        assert "datetime" not in str(refusal.value)
    else:
        [problem] = task.problems("train")
        assert problem.answer == gold


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("s")])
def test_dates_that_python_lacks_are_named_with_what_to_do(tmp_path, kind):
    days = kind == pa.date32()
    column = pa.array([10**9 if days else 10**14], pa.int32() if days else pa.int64()).cast(kind)
    pq.write_table(pa.table({"prompt": ["?"], "answer": column}), tmp_path / "rows.parquet")
    with pytest.raises(DataError, match=r"the column 'answer' .* outside of the years 1 to 9999; write the column as"):
        load_task("records", path=str(tmp_path / "rows.parquet"), verifier="math").problems("train")


def test_rows_for_supervised_training_follow_the_same_rule(tmp_path, capsys):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"prompt": "<image>?", "response": "x"}) + "\n", encoding="utf-8")
    assert "row 1: the prompt holds <image>" in complaint(capsys, "sft", "--data", path, "--out", tmp_path / "run")
    path.write_text(json.dumps({"prompt": "?", "response": "x", "images": ["a"]}) + "\n", encoding="utf-8")
    assert "row 1: the column 'images' holds" in complaint(capsys, "sft", "--data", path, "--out", tmp_path / "run")


# inputs that others tried, where they are beside the repository


_READ_NOW = {"d5-41": "ok: prompt='What is 6x7?' answer='42'", "d5-46": "ok: prompt='What is 6x7?' answer='42'"}
"""Inputs that were refused when they were tried, and what is read now: a bar between cells, and the line by which
Excel is told the separator."""


def test_inputs_of_others_are_read_as_meant_refused_or_said(shared_data, tmp_path, capsys):
    tried = 0
    for case in inputs(shared_data, "d"):
        (name, content), *_ = case["input"]["files"].items()
        if not name.endswith((".jsonl", ".csv")) or len(content) > 1000:
            continue  # the others are described in words or cut; the tests above and those of data sets are about them
        (tmp_path / name).write_text(content, encoding="utf-8", newline="")
        task = load_task("records", path=str(tmp_path / name), **case["input"]["options"])
        try:
            read = "; ".join(f"prompt={str(p.prompt)!r} answer={p.answer!r}" for p in task.problems(""))
            got = f"ok: {read}"
        except DataError as error:
            got = f"refused: {error}"
        mended = got != case["got"] or "ignored: " in capsys.readouterr().err
        refused = got.startswith("refused: ") and case["got"].startswith("refused: ")
        was_refused = got == _READ_NOW.get(case["id"])
        refused |= case["id"] == "d5-54" and got.endswith(
            "the prompt holds a NUL character, which no text has; remove it"
        )
        assert (got == case["got"] or refused or was_refused) if case["ok"] else mended, (case["id"], got)
        tried += 1
    assert tried > 25
