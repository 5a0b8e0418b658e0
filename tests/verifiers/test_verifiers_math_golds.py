"""Gold answers of mathematics: each is an answer to the judge, or is cleaned by one rule and counted, or is left out
and named; none is taken for a text that every answer fails."""

import json
from pathlib import Path

import pytest

from dph.cli.main import main
from dph.rewards import reward_function
from dph.types import Problem
from dph.verifiers import Verifiers
from dph.verifiers.golds import tried_golds

FIFTEEN = [
    *("Thus, 15", "Hence 15", "So 15", "A: 15", "Key: 15", "Final answer - 15", "Ans = 15", "Sum: 15"),
    *("1. 15", "3) 15", "(b) 15", "#4 15", "Q1: 15", "Exercise 4. 15", "15 (see page 3)", "15 (p. 3)", "15 [see p. 3]"),
    *("15, page 12", "15; see p. 4", "15 - see solution", "15 (approx.)", "15 or so", "15 // checked", "15 # note"),
    *("15 ✓", "#### 15", "She has 5 + 10 = 15.\n#### 15", "<answer>15</answer>", "```15```", "```\n15\n```"),
    *("answer: ```15```", "15 is the answer", r"15 \quad \text{(see page 3)}"),
]
"""Golds that say 15 with more than the answer."""
NO_ANSWERS = [
    *(
        "see above",
        "See page 12",
        "answers vary",
        "Answers will vary.",
        "pending",
        "Proof omitted",
        "left to the reader",
    ),
    *(
        "to be determined",
        "TBA",
        "N.A.",
        "not available",
        "no answer given",
        "omitted",
        "FIXME",
        "ditto",
        "…",
        "#VALUE!",
    ),
    *("under review", "Q.E.D.", "placeholder", "the proof is left as an exercise", r"\text{see above}"),
]
ANSWERS = [
    *(
        "none",
        "no solution",
        "Yes",
        "undefined",
        "does not exist",
        "infinitely many",
        "Monday",
        r"\text{even}",
        "15 apples",
    ),
    *("(B) 15", "x", "May 14", "diverges, 0", "15%", "1, 2", "(2) (x+2) (x-2)", "2:3", r"\{\}", "valid", "open", "Eve"),
    *(
        "Team 2",
        "Quadrant 1",
        "log 5",
        "ln 2",
        "sin 30",
        "Page 5",
        "Player 2 wins",
        "5 and x",
        "Yes, because it has 3 roots.",
    ),
]
"""Golds that stay what they are where no question asks for a value."""


def problem(gold: str, question: str = "", id: str = "a") -> Problem:
    return Problem(id, question, gold, "math", {})


@pytest.mark.parametrize("gold", FIFTEEN)
def test_what_is_no_part_of_an_answer_is_taken_off_and_counted(gold):
    score = reward_function("math").score
    assert [score(rf"\boxed{{{answer}}}", gold) for answer in ("15", "3", "1, 15", "4")] == [1, 0, 0, 0]
    with Verifiers() as verifiers:
        usable, lines = tried_golds(verifiers, [problem(gold)])
    assert len(usable) == 1
    assert lines == ["the answer is read without a label, its number in a list or a remark: 1 gold: a"]


def test_a_reason_that_the_judge_reads_itself_is_not_counted():
    gold = r"15 (since $3\cdot 5=15$)"
    score = reward_function("math").score
    assert [score(rf"\boxed{{{answer}}}", gold) for answer in ("15", "3", "1, 15", "4")] == [1, 0, 0, 0]
    with Verifiers() as verifiers:
        assert tried_golds(verifiers, [problem(gold)]) == ([problem(gold)], [])


@pytest.mark.parametrize("gold", NO_ANSWERS)
def test_what_says_that_there_is_no_answer_is_left_out_and_named(gold):
    with Verifiers() as verifiers:
        usable, [line] = tried_golds(verifiers, [problem(gold)])
    assert not usable and line.startswith("left out: a: the answer is ") and "says that it is missing" in line


@pytest.mark.parametrize("gold", ANSWERS)
def test_answers_stay_what_they_are(gold):
    with Verifiers() as verifiers:
        usable, lines = tried_golds(verifiers, [problem(gold), problem("words", id="b")])
        [verdict] = verifiers.verify([(problem(gold), rf"\boxed{{{gold}}}")])
    assert len(usable) == 2 and not lines and verdict.correct


@pytest.mark.parametrize(
    ("question", "gold", "left_out"),
    [
        ("What is 7 + 8?", "none", True),
        ("What is 7 + 8?", "apples", True),
        ("How many apples has she?", "several", True),
        ("How many apples has she?", "a dozen", False),
        ("How many apples has she?", "twenty-one", False),
        ("What part of it is left?", "half", False),
        ("How many real solutions has it?", "none", False),
        ("Find the value of the limit.", "does not exist", False),
        ("Which student has the largest number of apples?", "Eve", False),
        ("What is 7 + 8? red, blue or apples", "apples", False),
        ("Compute the sum.", r"\text{Evelyn}", False),
    ],
)
def test_words_are_no_answer_to_a_question_for_a_value(question, gold, left_out):
    with Verifiers() as verifiers:
        faults = verifiers.check([problem(gold, question)])
    assert list(faults.values()) == [f"the question asks for a value, and the answer is {gold!r}"] * left_out


@pytest.mark.parametrize("gold", ["There are fifteen apples in the box.", "15 probably correct"])
def test_a_gold_that_is_not_read_comes_with_what_to_do(gold):
    with Verifiers() as verifiers:
        [reason] = verifiers.check([problem(gold)]).values()
    assert "write the answer alone, or name it in a longer text with the option answer_pattern" in reason


def test_init_says_what_is_cleaned_left_out_or_words_among_values(tmp_path, capsys):
    golds = ["Thus, 15", "see above", "Tom", *map(str, range(20))]
    rows = [{"id": f"p{i}", "question": f"Riddle {i}?", "answer": gold} for i, gold in enumerate(golds)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    main(["init", "maths", str(tmp_path / "a.jsonl"), "--out", str(tmp_path / "made")])
    said = capsys.readouterr().out
    [line] = [line for line in said.splitlines() if "can be judged against" in line]
    assert line.startswith("22 of 23 gold answers can be judged against; left out: p1: the answer is 'see above'")
    assert "the answer is read without a label, its number in a list or a remark: 1 gold: p0" in line
    assert "read as words, which only the same words equal, while the others are values: 1 gold: p2" in line


def test_no_gold_that_others_publish_is_lost(shared_data: Path):
    """The published sets hold golds with labels and words; those that are answers stay answers."""
    rows = shared_data / "math" / "qwen25_math_eval" / "college_math" / "test.jsonl"
    golds = [json.loads(line)["answer"] for line in rows.read_text(encoding="utf-8").splitlines()]
    problems = [problem(gold, id=str(i)) for i, gold in enumerate(golds)]
    with Verifiers() as verifiers:
        faults = verifiers.check(problems)
    assert len(problems) == 2818
    told = [reason for reason in faults.values() if "says that it is missing" in reason]
    assert not told
