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
from dph.verifiers.math.verifier import MathVerifier

FIFTEEN = [
    *("Thus, 15", "Hence 15", "So 15", "A: 15", "Key: 15", "Final answer - 15", "Ans = 15", "Sum: 15"),
    *("1. 15", "3) 15", "(b) 15", "#4 15", "Q1: 15", "Exercise 4. 15", "15 (see page 3)", "15 (p. 3)", "15 [see p. 3]"),
    *("15, page 12", "15; see p. 4", "15 - see solution", "15 (approx.)", "15 or so", "15 // checked", "15 # note"),
    *("15 ✓", "#### 15", "She has 5 + 10 = 15.\n#### 15", "<answer>15</answer>", "```15```", "```\n15\n```"),
    *("answer: ```15```", "15 is the answer", r"15 \quad \text{(see page 3)}"),
    *("15 (2 marks)", "15 [2 marks]", "15 [2]", "15 M1A1", "15 (1 pt)", "15 oe", "15 o.e.", "15 (oe)", "15 cao"),
    *("15 or equivalent", "15 (or equivalent)", "15 or any equivalent form", "x = 15 oe", "15 (accept 15.0)"),
    *("15; allow 15.0", "15, do not accept 3", "15 (nearest integer)"),
    *("15 because it is", "15, as shown in Fig. 3", "15 since 3 and 12 make it", "There are 15 of them"),
    *("R: 15", "Q: 15", "A. 15", "B. 15", "C) 15", "Ans=15", "Ans:15", "Accept 15", "Rpta. 15"),
    *("sum = 15", "15 / 15", "15 / fifteen", "15 or 15.0", "15; 15.0"),
    *("15, fifteen", "15 (?)", "15 (was 14)"),
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
    *("various", "[removed]", "[deleted]", "blank", "left blank", "obvious", "self-evident", "N/A (15)"),
    *("student's own answer", "Students' own responses", "own answer", "any reasonable answer", "open-ended"),
    *("your answer here", "[ANSWER]", "As an AI, I cannot", "I cannot answer this", "略", "见解析", "k.A."),
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


@pytest.mark.parametrize("gold", [r"15 (since $3\cdot 5=15$)", "15 (2 s.f.)", "15 (to 1 decimal place)"])
def test_a_remark_that_the_judge_reads_itself_is_not_counted(gold):
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
    assert len(usable) == 2 and verdict.correct
    assert all("only the same" in line for line in lines)


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
    assert "\n22 of 23 gold answers can be judged against\nleft out: p1: the answer is 'see above'" in said
    assert "\nthe answer is read without a label, its number in a list or a remark: 1 gold: p0\n" in said
    assert "\nread as words, which only the same words equal, while others are values: 1 gold: p2\n" in said


@pytest.mark.parametrize(
    ("gold", "why"),
    [
        *((gold, "of which the policy typed cannot read") for gold in ("No. 15", "15 of 20", "Yes (15)", "option 2")),
        *((gold, "a range, a product or a difference") for gold in ("15 (2)", "15 (C)", "14-16", "14 - 16", "1-1/2")),
        *((gold, "as spreadsheets write them") for gold in ("2-Jan", "Jan-15", "00:15:00", "2024-05-12 00:00:00")),
        *(
            (gold, "the question lists no choices")
            for gold in ("none of the above", "All of the above.", "both of these")
        ),
    ],
)
def test_a_gold_that_says_something_else_to_a_reader_is_left_out_and_named(gold, why):
    with Verifiers() as verifiers:
        [reason] = verifiers.check([problem(gold, "What is it?")]).values()
    assert why in reason


def test_choices_that_a_question_lists_are_answers():
    question = "What is 7 + 8? (A) 14 (B) 15 (C) none of the above"
    score = reward_function("math").score
    assert [score(r"\boxed{B}", "B. 15", question), score(r"\boxed{A}", "B. 15", question)] == [1, 0]
    with Verifiers() as verifiers:
        assert verifiers.check([problem("B. 15", question), problem("none of the above", question, "b")]) == {}


@pytest.mark.parametrize(
    ("gold", "flag"), [("12-05-2024", "codes"), ("12.05.2024", "codes"), ("555-1234", "codes"), ("Team 2", "names")]
)
def test_golds_that_only_the_same_text_equals_are_kept_and_noted(gold, flag):
    with Verifiers() as verifiers:
        assert verifiers.flags([problem(gold)]) == {"a": [flag]}
        right, wrong = verifiers.verify([(problem(gold), rf"\boxed{{{given}}}") for given in (gold, "-2017")])
    assert right.correct and not wrong.correct


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


@pytest.mark.parametrize(
    "gold", ["99,50 Kč", "99,50 Ft", "99,50 kr", "99,50 kr.", "99,50 lei", "99,50 грн", "3,5 · 10^4"]
)
def test_a_decimal_comma_with_a_currency_or_a_power_of_ten_is_left_out(gold: str):
    problem = Problem("p", "How much is it?", gold, "math")
    assert "p" in MathVerifier().check([problem])


@pytest.mark.parametrize("gold", ["0,5", "-0,25", "3,50", "x = 0,75"])
def test_what_is_hardly_a_list_is_left_out_unless_several_numbers_are_asked(gold: str):
    asked = [Problem("one", "How much is it?", gold, "math"), Problem("all", "Find all solutions.", gold, "math")]
    assert [*MathVerifier().check(asked)] == ["one"]
    assert MathVerifier().flags(asked[1:]) == {"all": ["decimal_comma"]}
