"""Rows that say something against their use: each is refused, or said, and none is trained on in silence."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from dph.errors import RowsError
from dph.tasks.records import Records
from dph.types import Problem


def problems(folder: Path, rows: list[dict[str, Any]], verifier: str = "math", **options: Any) -> list[Problem]:
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return Records(path=str(folder / "a.jsonl"), verifier=verifier, **options).problems("train")


CHOICES: list[dict[str, Any]] = [
    {"answer": 0, "choices": ["7", "0", "9"]},
    {"answer": "A", "choices": ["7", "0", "9"]},
    {"answer": "(b)", "options": ["A) 1", "B) 7"]},
    {"answer": "A", "choices": {"text": ["7", "1"], "label": ["A", "B"]}},
    {"answer": "a", "options": "a ) 7 , b ) 1 , c ) 2"},
    {"answer": "B", "Option A": 1, "Option B": 7},
    {"answer": "B", "A": "1", "B": "7", "C": "9"},
    {"answer": 2, "choice1": "1", "choice2": "7"},
]


@pytest.mark.parametrize("row", CHOICES)
def test_a_choice_that_the_prompt_does_not_show_is_refused(tmp_path: Path, row: dict[str, Any]):
    with pytest.raises(RowsError, match="is one of the choices in the column"):
        problems(tmp_path, [{"question": "What is 3 + 4?"} | row])
    shown = "What is 3 + 4? " + " ".join(map(str, [1, 7, 9, 0, 2, *row.get("options", [])]))
    assert problems(tmp_path, [{"question": shown} | {k: v for k, v in row.items() if v != "a ) 7 , b ) 1 , c ) 2"}])


@pytest.mark.parametrize(
    "row", [{"answer": "7", "choices": ["7", "9"]}, {"answer": 7, "choices": [7, 1]}, {"answer": "x"}]
)
def test_a_value_among_choices_is_an_answer(tmp_path: Path, row: dict[str, Any]):
    [made] = problems(tmp_path, [{"question": "What is 3 + 4?"} | row])
    assert made.answer == row["answer"]


@pytest.mark.parametrize("column", ["is_correct", "correct", "answer_correct"])
def test_a_row_whose_answer_is_wrong_is_refused(tmp_path: Path, column: str):
    right, wrong = ({"question": "3 + 4?", "answer": a, column: a == "7"} for a in ("7", "8"))
    assert len(problems(tmp_path, [right])) == 1
    with pytest.raises(RowsError, match=f"row 2: the column '{column}' says that the answer is wrong"):
        problems(tmp_path, [right, wrong])
    assert len(problems(tmp_path, [right, wrong], verifier="")) == 2  # a reward function reads the column


def test_the_column_correct_may_name_the_answer(tmp_path: Path):
    [made] = problems(tmp_path, [{"question": "3 + 4?", "correct": "0"}], answer="correct")
    assert made.answer == "0"


@pytest.mark.parametrize("word", ["Total", "AVERAGE:", "sum"])
def test_a_row_of_sums_at_the_end_is_refused(tmp_path: Path, word: str):
    with (tmp_path / "a.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("question", "answer"), ("3 + 4?", 7), (word, 5)])
    with pytest.raises(RowsError, match=r"row 2 \(line 3\): the prompt is .*, as in a row of sums; leave it out"):
        Records(path=str(tmp_path / "a.csv"), verifier="math").problems("train")


@pytest.mark.parametrize("verifier", ["math", "exact"])
def test_a_list_of_texts_as_text_is_a_list_of_accepted_answers(tmp_path: Path, verifier: str):
    rows = [
        {"question": f"{n}?", "answer": text} for n, text in enumerate(["['7', 'seven']", '["8"]', "[1, 2]", "[x]"])
    ]
    made = problems(tmp_path, rows, verifier=verifier)
    assert [problem.answer for problem in made] == [["7", "seven"], ["8"], "[1, 2]", "[x]"]


def test_what_may_belong_to_the_prompts_is_said_apart(tmp_path: Path, capsys):
    row = {"question": "How many &lt; 5?", "context": "There are 3 pens.", "answer": "3", "topic": "x"}
    problems(tmp_path, [row, {"question": "Why <b>5</b>?", "answer": "3"}])
    said = capsys.readouterr().err
    assert "ignored: context (they may belong to the prompts: see the option template)\n" in said
    assert "ignored: topic (a reward function" in said
    assert "2 prompts hold tags or entities of HTML, which the model reads too (first: " in said
