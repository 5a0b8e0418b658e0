r"""What stands in a model's thought only is no answer, for every verifier; what follows the thought is."""

import sqlite3
import time
from pathlib import Path

import pytest

from dph.measure.metrics import answer_of
from dph.rewards import reward_function
from dph.types import Outcome, Problem
from dph.verifiers.thoughts import without_thoughts

MARKS = [
    ("<think>", "</think>"),
    ("<Thinking>\n", "\n</Thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ('<reasoning effort="high">', "</reasoning>"),
    ("<scratchpad>", "</scratchpad>"),
    ("<seed:think>", "</seed:think>"),
    ("<inner_monologue>", "</inner_monologue>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
    ("<|channel>thought\n", "<channel|>"),
    ("<|im_start|>think\n", "<|im_start|>answer\n"),
    ("<thinking_process>", "</thinking_process>"),
    ("<inner_thoughts>", "</inner_thoughts>"),
    ("<plan>", "</plan>"),
    ("&lt;think&gt;", "&lt;/think&gt;"),
    ("<unused94>thought\n", "<unused95>"),
    ("```think\n", "\n```\n"),
    ("~~~thinking\n", "\n~~~\n"),
]
IN_WORDS = [
    ("analysisWe see ", "assistantfinal"),
    ("Here is my thought process:\n", "\nHere is my response:\n"),
    ("Here are my reasoning steps:\n", "\n[BEGIN FINAL RESPONSE]\n"),
    ("## Thinking\n", "\n## Final Response\n"),
]


def outcome(response: str, kind: str = "math", gold: str = "5", prompt: str = "?", **meta: str) -> Outcome:
    options = {"fallback": "last_number"} if kind == "math last_number" else {}
    judge = reward_function(kind.split()[0], **options)
    return judge.verdict(response, gold, prompt, **meta).outcome


@pytest.mark.parametrize(("opening", "closing"), [*MARKS, *IN_WORDS])
def test_a_box_in_a_thought_is_no_answer(opening: str, closing: str):
    assert outcome(rf"{opening}so \boxed{{5}}{closing} The answer is 6.") == Outcome.NO_ANSWER
    assert outcome(rf"{opening}so \boxed{{5}}{closing} It is \boxed{{6}}.") == Outcome.WRONG
    assert outcome(rf"{opening}so \boxed{{6}}{closing} It is \boxed{{5}}.") == Outcome.CORRECT
    assert outcome(rf"{opening}maybe 5{closing} It is 6.", "math last_number") == Outcome.WRONG


@pytest.mark.parametrize(("opening", "closing"), MARKS)
def test_a_thought_that_is_cut_off_has_no_answer(opening: str, closing: str):
    assert outcome(rf"{opening}maybe \boxed{{5}}. Let me check, because") == Outcome.NO_ANSWER
    assert outcome(rf"{opening}maybe 5", "math last_number") == Outcome.NO_ANSWER
    assert outcome(f"{opening}maybe\n5", "exact") == Outcome.NO_ANSWER
    assert outcome(f"{opening}maybe{closing}\n5", "exact") == Outcome.CORRECT


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (r"\boxed{5}</think> so it is 6", Outcome.NO_ANSWER),  # the prompt opened the thought
        (r"\boxed{6}</think> so it is \boxed{5}", Outcome.CORRECT),
        (r"<think>a <reflection>b</reflection> \boxed{5}", Outcome.NO_ANSWER),
        (r"<think>I have to use <think> tags.</think> \boxed{5}", Outcome.CORRECT),
        (r"<think>a <think>b</think> \boxed{5} </think> 6", Outcome.NO_ANSWER),
        (r"\boxed{5} <think>or \boxed{4}?</think>", Outcome.CORRECT),
        (r"<think>it is 5. <answer>\boxed{5}</answer>", Outcome.CORRECT),  # not closed, but said
        (r"<think>the form is <answer>\boxed{5}</answer>. Now", Outcome.NO_ANSWER),
        (r"I think in `<think>` tags. \boxed{5}", Outcome.CORRECT),
        (r"Here is my thought process: 2 + 3. \boxed{5}", Outcome.CORRECT),  # a response of another model
        (r"<reasoning>\boxed{5}</reasoning><answer>7</answer>", Outcome.WRONG),
        (r"<reasoning>\boxed{7}</reasoning><answer>5</answer>", Outcome.CORRECT),
        (r"<draft>\boxed{5}</draft>", Outcome.NO_ANSWER),
        (r"<internal>\boxed{5}</internal> 6", Outcome.NO_ANSWER),
        (r"\boxed{5} <!-- \boxed{6} -->", Outcome.CORRECT),
        (r"<del>\boxed{5}</del> 6", Outcome.NO_ANSWER),
        (r"~~\boxed{5}~~", Outcome.NO_ANSWER),
        (r"<details><summary>Thinking</summary>\boxed{5}</details>It is 6.", Outcome.NO_ANSWER),
    ],
)
def test_where_a_thought_begins_and_ends(response: str, expected: Outcome):
    assert outcome(response) == expected


@pytest.mark.parametrize(
    "response",
    [
        r"[THOUGHT]\boxed{5}[/THOUGHT] 6",
        r"[THOUGHT]\boxed{5}",
        r"[SCRATCHPAD]\boxed{5}[/SCRATCHPAD] 6",
        r"[reasoning]\boxed{5}[/reasoning] 6",
        "% \\boxed{5}\nThe answer is 6.",
        r"The answer is 6. % \boxed{5}",
        r"\iffalse \boxed{5} \fi 6",
        r"\begin{comment}\boxed{5}\end{comment} 6",
        r"\phantom{\boxed{5}} 6",
        r"$\phantom{x=\frac{1}{2}\boxed{\frac{5}{1}}}$ 6",
        r"\textcolor{white}{\boxed{5}}",
        r'<span style="display:none">\boxed{5}</span> 6',
    ],
)
def test_what_is_not_printed_has_no_answer(response: str):
    assert reward_function("math").verdict(response, "5").outcome != Outcome.CORRECT


@pytest.mark.parametrize(
    "response",
    [
        r"[THOUGHT]\boxed{6}[/THOUGHT] \boxed{5}",
        r"[REASONING] 2+3 [ANSWER] \boxed{5}",
        r"$x \iff y$, so $\boxed{5}$",
        r"50% of 10 is \boxed{5}",
        r"50 % of 10 is \boxed{5}",
        "% a comment\n\\boxed{5}",
        r"$\phantom{x}\boxed{5}$",
        r"\textcolor{blue}{\boxed{5}}",
    ],
)
def test_what_is_printed_has_an_answer(response: str):
    assert reward_function("math").verdict(response, "5").outcome == Outcome.CORRECT


def test_a_thought_that_the_prompt_opens():
    assert outcome(r"so \boxed{5}", prompt="What is 2 + 3?\n<think>\n") == Outcome.NO_ANSWER
    assert outcome(r"so </think> \boxed{5}", prompt="What is 2 + 3?\n<think>\n") == Outcome.CORRECT
    assert outcome(r"so \boxed{5}", prompt="Reason in <think> </think>") == Outcome.CORRECT


def test_queries_expressions_and_evaluations(tmp_path: Path):
    with sqlite3.connect(tmp_path / "d.sqlite") as database:
        database.execute("CREATE TABLE t (a)")
    block = "```sql\nSELECT count(*) FROM t\n```"
    sql = {"kind": "sql", "gold": "SELECT count(*) FROM t", "db": str(tmp_path / "d.sqlite")}
    assert outcome(f"<think>{block}</think> I do not know", **sql) == Outcome.NO_ANSWER
    assert outcome(f"<think>{block}", **sql) == Outcome.NO_ANSWER
    assert outcome(f"<think>hm</think>{block}", **sql) == Outcome.CORRECT
    for remark in ("-- <think>", "-- <think> x </think>", "/* <think> */", "/*\n<think>\n*/", "WHERE '<think>' <> 't'"):
        assert outcome(f"```sql\nSELECT count(*) FROM t {remark}\n```", **sql) == Outcome.CORRECT
    assert outcome(f"```sql\n<think>\n{block[7:]}", **sql) == Outcome.NO_ANSWER
    problem = Problem("p", "?", "5", "countdown", {"numbers": [2, 3]})
    count = reward_function("countdown")
    assert count.score("<think>2*3</think>2+3", "5", numbers=[2, 3]) == 1.0
    assert count.verdict("<think>2+3", "5", numbers=[2, 3]).outcome == Outcome.NO_ANSWER
    assert answer_of(Problem("p", "?", "5", "math"), r"<think>\boxed{5}</think>") is None
    assert answer_of(problem, "2+3") is None  # its verifier tells


def test_a_gold_text_may_hold_a_mark():
    assert outcome("so\n<think>a</think>", "exact", "<think>a</think>") == Outcome.CORRECT


@pytest.mark.parametrize(
    "text", ["<" * 20_000, "<think " * 4000, "<think>" + "<answer><solution>" * 2000, "< " * 20_000]
)
def test_no_response_keeps_the_search_busy(text: str):
    started = time.thread_time()
    without_thoughts(text, "?")
    assert time.thread_time() - started < 0.5
