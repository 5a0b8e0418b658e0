r"""The policy `typed`: what it accepts and refuses, and what it costs."""

import json
import multiprocessing
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mathequal
from benchmarks.verifiers.perturbed_math import judge, right_answers, wrong_answers
from dph.errors import UserError
from dph.tasks import load_task
from dph.types import UNPARSED, Outcome, Problem
from dph.verifiers import Verifiers
from dph.verifiers.math.policy import gold_texts
from dph.verifiers.math.verifier import MathVerifier
from mathequal import compare, is_copied, read
from mathequal.budget import Budget, Unevaluable
from mathequal.extract import Fallback, find_answer
from mathequal.identity import identical
from mathequal.rational import exact

PAIRS = Path(mathequal.__path__[0]) / "data"  # kind, gold answer, answers


def pairs(side: str) -> dict[str, list[tuple[str, str]]]:
    kinds: dict[str, list[tuple[str, str]]] = {}
    for file in sorted(PAIRS.glob(f"{side}*.tsv")):
        for line in file.read_text(encoding="utf-8").splitlines():
            kind, gold, *answers = line.split("\t")
            kinds.setdefault(kind, []).extend((gold, answer) for answer in answers)
    return kinds


EQUAL, UNEQUAL = pairs("equal"), pairs("unequal")


def correct(gold: object, *answers: str, prompt: str = "?", **options: str) -> list[bool]:
    problem = Problem("p", prompt, gold, "math")
    verdicts = MathVerifier(**options).verify([(problem, f"So \\boxed{{{answer}}}.") for answer in answers])  # type: ignore[arg-type]
    assert all(verdict.scored for verdict in verdicts)
    return [verdict.correct for verdict in verdicts]


@pytest.mark.parametrize("kind", EQUAL)
def test_equal_answers_are_accepted(kind: str):
    assert [pair for pair in EQUAL[kind] if not compare(*pair)[0]] == []


@pytest.mark.parametrize("kind", UNEQUAL)
def test_other_answers_are_refused(kind: str):
    assert [pair for pair in UNEQUAL[kind] if compare(*pair)[0]] == []


def test_answers_changed_in_one_respect_are_refused():
    """An angle of 30° is π/6 by decision."""
    cases = list(wrong_answers())
    accepted = [
        case
        for case, verdict in zip(cases, judge("typed", [case[1:] for case in cases]), strict=True)
        if verdict.correct
    ]
    assert (len(cases), accepted) == (627, [("unit", r"\frac{\pi}{6}", r"30^\circ")])
    cases = list(right_answers())
    assert [case for case, verdict in zip(cases, judge("typed", cases), strict=True) if not verdict.correct] == []


def test_the_pairs_made_from_public_golds(shared_data: Path):
    for side, wanted in (("equal", True), ("unequal", False)):
        rows = [json.loads(line) for line in (shared_data / "math_pairs" / f"{side}.jsonl").read_text().splitlines()]
        wrong = [row["id"] for row in rows if compare(row["gold"], row["response"])[0] is not wanted]
        assert len(rows) > 2000 and len(wrong) <= (len(rows) // 100 if wanted else 0), wrong


def test_pairs_of_unusual_kinds(shared_data: Path):
    """Right answers that are refused at most 3 %, wrong ones that are paid at most 0.3 %."""
    path = shared_data / "math_pairs" / "blind_dev.jsonl"
    if not path.exists():
        pytest.skip("the pairs of unusual kinds are not on this machine")
    wrong: dict[str, list[str]] = {"equal": [], "unequal": []}
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        problem = Problem("p", row["question"] or "", row["gold"], "math")
        [verdict] = MathVerifier(**row.get("options", {})).verify([(problem, row["completion"])])
        if verdict.correct is not (row["truth"] == "equal"):
            wrong[row["truth"]].append(row["id"])
    count = {truth: sum(row["truth"] == truth for row in rows) for truth in wrong}
    assert min(count.values()) > 1000
    assert len(wrong["equal"]) <= 0.03 * count["equal"] and len(wrong["unequal"]) <= 0.003 * count["unequal"], wrong


def test_decisions_on_ambiguous_pairs(shared_data: Path):
    for line in (shared_data / "math_pairs" / "ambiguous.jsonl").read_text().splitlines():
        row = json.loads(line)
        assert compare(row["gold"], row["response"])[0] is (row["recommended"] == "accept"), row


def test_inputs_of_public_complaints(shared_data: Path):
    judged = 0
    for line in (shared_data / "complaints" / "inputs.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row["area"].startswith("math"):
            fallback = "phrase" if "phrase" in row["area"] else None
            problem = Problem("p", "?", row["input"]["gold"], "math")
            [verdict] = MathVerifier(fallback=fallback).verify([(problem, row["input"]["response"])])
            assert verdict.outcome == row["expected"], row
            judged += 1
    assert judged > 35


def test_published_golds_are_read_and_equal_themselves(shared_data: Path):
    sets = ("math", "math500", "gsm8k", "aime24", "aime25", "amc23", "minerva_math", "olympiadbench", "gaokao2023en")
    tasks = [load_task(name, root=str(shared_data / "math")) for name in sets]
    problems = [problem for task in tasks for problem in task.problems("test")]
    golds = {gold for problem in problems for gold in gold_texts(problem)}
    unread = [gold for gold in golds if not read(gold)]
    assert len(golds) > 2500 and len(unread) < len(golds) / 200
    assert [gold for gold in golds if not compare(gold, gold)[0]] == []


@pytest.mark.parametrize(
    ("gold", "answers", "expected"),
    [
        (
            "5",
            [r"5} or \boxed{7", r"7} \boxed{5", r"5} \boxed{", r"\boxed{5}", r"5}\boxed{5"],
            [False, False, False, True, True],
        ),
        ("5,7", [r"5} and \boxed{7", r"7}. So \boxed{5", r"5},\ \boxed{7"], [True, False, True]),
        ("1", ["9^{9^{9}}/9^{9^{9}}", "10^{99999999}", "1^{99999999}", "", " ", "{}"], [False] * 6),
        (
            "10",
            ["1О", "l0", "1\u0660", "１０", "−10", "10\u0336"],
            [False, False, True, True, False, False],
        ),  # look-alikes
        ("x", ["х", "X", "×", "𝑥", r"\chi"], [False, False, False, True, False]),
        (
            ["(0,1)", "x+y=3", "7"],
            ["(0,1)", r"\{0,1\}", "3", "y+x=3", "7.0", "3+4"],
            [True, False, False, True, True, False],
        ),
        (27.0, ["27", "27.0", "26"], [True, True, False]),
    ],
)
def test_attempts_at_a_reward(gold: object, answers: list[str], expected: list[bool]):
    assert correct(gold, *answers) == expected


@pytest.mark.parametrize(
    ("response", "fallback", "expected"),
    [
        (r"\boxed{1} no, \boxed{ \frac{1}{2} }.", "none", r"\frac{1}{2}"),
        (r"\boxed{42\\}", "none", r"42\\"),
        (r"\boxed{\{1, 2\}}", "none", r"\{1, 2\}"),
        (r"\boxed 7 apples", "none", "7"),
        (r"\boxed{1} and then \boxed{2", "none", None),
        (r"\boxed{}", "phrase", None),
        (r"$\boxed{1}$ and $\boxed{2}$", "none", "1, 2"),
        (r"\boxed{\boxed{5}}", "none", "5"),
        ("The answer is 5.", "none", None),
        ("The answer is 42 because 6 is even", "phrase", "42"),
        ("the answer is $x+1$, as 2", "phrase", "x+1"),
        ("The answer is 72, which is the total.", "phrase", "72"),
        ("The answer is 3.14. Done.", "phrase", "3.14"),
        ("2 * 9\n#### 1,018", "phrase", "1,018"),
        ("The answer is not 5", "phrase", "not 5"),
        ("about 18 or 3/4", "last_number", "3/4"),
        ("about", "last_number", None),
        ("Answer: **12**\nmore", "phrase", "12"),
    ],
)
def test_where_the_answer_of_a_response_is(response: str, fallback: Fallback, expected: str | None):
    assert find_answer(response, fallback) == expected


@pytest.mark.parametrize(
    ("question", "gold", "answers", "expected"),
    [
        ("How many of them are red?", "35", [r"35\%", "35", "35 percent", "35 marbles"], [False, True, False, True]),
        ("What percent of them are red?", "35", [r"35\%", "35", "0.35"], [True, True, False]),
        (r"A shop takes $20\%$ off. What is left?", "35", [r"35\%"], [True]),
        ("How likely is it?", "0.35", [r"35\%", r"0.35\%"], [True, False]),  # a value, not a number with a sign
        ("How many minutes does it take?", "150", ["150 minutes", "150 min", "150 hours"], [True, True, False]),
        (r"A side has $3\text{ cm}$. Find the area.", "9", [r"9\text{ cm}^2", r"9\text{ m}^2"], [True, False]),
        ("It costs \\$4 more in May. How much?", "9", ["9 dollars", "9 cents"], [True, False]),
        ("How far is it?", "9", ["9 km", r"9\text{ m}"], [True, True]),  # the question says nothing
        ("How far is it in km?", r"9\text{ miles}", ["9 miles", "9"], [True, True]),  # the gold answer says it
        ("", "35", [r"35\%"], [True]),
        ("", r"\frac{35}{3}", [r"\frac{35}{3}\%"], [False]),
        ("What percent?", r"\frac{35}{3}", [r"\frac{35}{3}\%"], [True]),
    ],
)
def test_a_unit_that_the_gold_answer_leaves_out_must_fit_the_question(question, gold, answers, expected):
    assert correct(gold, *answers, prompt=question) == expected


def test_an_answer_copied_from_the_question_is_wrong():
    question = r"Simplify $\sqrt{245}$, or state whether 49 is the square of 7."
    assert correct(r"7\sqrt{5}", r"\sqrt{245}", r"\sqrt {245}", r"7\sqrt5", prompt=question) == [False, False, True]
    [verdict] = MathVerifier().verify([(Problem("p", question, r"7\sqrt{5}", "math"), r"\boxed{\sqrt{245}}")])
    assert (verdict.outcome, verdict.detail) == (Outcome.WRONG, "copied")
    assert correct(r"\sqrt{245}", r"\sqrt{245}", prompt=question) == [True]  # the gold's own text
    assert correct("49.0", "49", prompt=question) == [True]  # a number
    assert correct("x+1", "1+x", prompt="Divide $(1+x)^2$ by $1+x$ .") == [False]
    assert correct("x+1", "1+x", prompt="Expand $2(1+x)-(1+x)$ , for x of 1+x+y") == [True]  # only parts of formulas
    chat = ({"role": "system", "content": "$1+x$"}, {"role": "user", "content": "Simplify."})
    assert MathVerifier().verify([(Problem("p", chat, "x+1", "math"), r"\boxed{1+x}")])[0].correct  # type: ignore[arg-type]


def test_golds_and_answers_that_cannot_be_read():
    prose = "We see that the function is increasing because its derivative is positive everywhere"
    problems = [
        Problem("a", "?", prose, "math"),
        Problem("b", "?", "5", "math"),
        Problem("c", "?", [prose, "5"], "math"),
    ]
    with Verifiers() as verifiers:
        faults = verifiers.check(problems)
        assert list(faults) == ["a"] and "cannot read" in faults["a"]
        verdicts = verifiers.verify([(problem, r"\boxed{5 +}") for problem in problems])
    assert [verdict.outcome for verdict in verdicts] == [Outcome.GOLD_ERROR, Outcome.WRONG, Outcome.WRONG]
    assert verdicts[1].detail == UNPARSED and not verdicts[0].scored


def test_decimals_may_be_rounded():
    golds = [("3.14", r"\pi"), ("0.67", r"\frac{2}{3}"), (r"\approx 8.24", "8.2416"), ("1.4e3", "1390")]
    assert [correct(gold, answer, decimals="rounded") for gold, answer in golds] == [[True]] * 4
    assert [correct(gold, answer) for gold, answer in golds] == [[False]] * 4
    assert correct("3.14", "3.15", "3.1", "3", decimals="rounded") == [False] * 3
    assert correct("5.00", "5.3", "5.004", decimals="rounded") == [False, True]  # zeros at the end are digits
    assert correct("100.0", "100.4", "100.04", decimals="rounded") == [False, True]
    for options in ({"decimals": "some"}, {"decimals": "rounded", "policy": "qwen"}):
        with pytest.raises(UserError, match="option decimals"):
            MathVerifier(**options)  # type: ignore[arg-type]


def test_the_policy_strict_is_refused():
    with pytest.raises(UserError, match="use typed"):
        MathVerifier(policy="strict")  # type: ignore[arg-type]


_PIECES = st.sampled_from(
    [
        *"0125abcxmio,;:=<>()[]{}_^/.'!|@⟨⟩¦ \n\\$%",
        r"\frac",
        r"\text{",
        r"\{",
        r"\}",
        r"\cup",
        r"\in",
        " or ",
        "per ",
        r"\sum_{k=1}^{9}",
        "cm",
        "square ",
        r"\pm",
        r"\circ",
        r"\left(",
        "1,000",
        "π",
        "\x00",
        "\x01",
        "\x02",
        r"\begin{pmatrix}",
        r"\end{pmatrix}",
        r"\\",
        "&",
    ]
)
_TEXTS = st.lists(_PIECES, max_size=25).map("".join)


@given(
    _TEXTS,
    st.one_of(_TEXTS, st.sampled_from(["5", "x^2", "(1,2)", r"\{1,2\}", "x>3", r"\begin{pmatrix}1\\2\end{pmatrix}"])),
)
@settings(max_examples=500, deadline=None)
def test_any_text_gets_a_verdict(one: str, other: str):
    assert isinstance(compare(other, one)[0], bool)
    if read(one):
        assert compare(one, one)[0]


@given(st.fractions(max_denominator=50), st.fractions(max_denominator=50))
def test_fractions_are_equal_iff_their_values_are(one, other):
    assert compare(rf"\frac{{{one.numerator}}}{{{one.denominator}}}", f"{other.numerator}/{other.denominator}")[0] is (
        one == other
    )


@given(st.integers(-9, 9), st.integers(-9, 9), st.integers(-9, 9), st.integers(-9, 9))
def test_products_of_sums_are_compared_by_value(a: int, b: int, c: int, d: int):
    """(x+a)(x+b) = x² + (a+b)x + ab."""
    assert compare(f"x^2+({c})x+({d})", f"(x+{a})(x+{b})")[0] is (a + b == c and a * b == d)


def test_values_need_no_tolerance():
    def parsed(text: str):
        return read(text).value  # type: ignore[union-attr]

    pairs = [
        (r"\sqrt{2}+\sqrt{3}", r"\sqrt{5+2\sqrt{6}}", True),
        (r"\sin 1", r"\sin 1+10^{-200}", False),
        ("e^x", r"e^x+10^{-90}", False),
        (r"\cos 2x", r"1-2\sin^2 x", True),
        ("2^{2020}-1", "4^{1010}-1", True),
        ("2^{2020}-1", "4^{1010}-2", False),
    ]
    assert [identical(parsed(x), parsed(y), Budget(20_000)) for x, y, _ in pairs] == [same for *_, same in pairs]
    assert exact(parsed(r"\binom{6}{2}+3!-\frac{1}{2}")) == 20.5
    with pytest.raises(Unevaluable):
        Budget(3).spend(4)


BOMBS = [
    "9^{9^{9^{9}}}", "(((((x!)!)!)!)!)!", "10000000!!!", r"\frac{1}{" * 100 + "x" + "}" * 100, "x" * 100_000,
    "(" * 900 + "x" + ")" * 900, "9" * 1900, r"\sum_{k=1}^{300}\sum_{j=1}^{300}\sum_{i=1}^{300} kjx", "x/" * 900 + "x",
    "5 ft " * 300, r"\pm" * 600 + "1", "1" + r"\pm 1" * 300, "{" * 1900, ", " * 900 + "1", r"\text{" * 300,
    "1,000" * 300,
    r"\binom{1999}{999}^{200}x", r"\prod_{k=1}^{300}(x+k)^k", ",".join(rf"\sqrt{{{k}}}" for k in range(60)), "x!" * 900,
    "a" + ".-' " * 450 + "1", "5" + "%" * 1900, r"10^{3900}\sqrt{2}+2x-10^{3900}\sqrt{2}", "0." + "3" * 1900,
    "f(" * 400 + "x" + ")" * 400, "on " * 600 + "5", "one third and " * 11, r"\frac5.{y9mph",
    r"k\in[41,10]", r"\begin{pmatrix}1&2\end{pmatrix}+x", "171 [pm]",
]  # fmt: skip


def _judged_in_a_fork(results: "multiprocessing.SimpleQueue[bool]") -> None:
    results.put(compare(r"\sin 2x", r"2\sin x\cos x")[0])


def test_a_fork_judges_while_threads_of_its_parent_do():
    context, stop = multiprocessing.get_context("fork"), threading.Event()
    results = context.SimpleQueue()

    def work() -> None:
        while not stop.is_set():
            assert compare(r"\cos 2x", r"1-2\sin^2 x")[0]

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            child = context.Process(target=_judged_in_a_fork, args=(results,))
            child.start()
            assert results.get()
            child.join(60)
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("gold", ["x", r"\{1,2\}", r"2^{2020}\sqrt{3}", "1,2", r"\sum_{k=1}^{n} k"])
def test_no_answer_keeps_the_judge_busy(gold: str):
    """The comparison runs in the caller's process. Seconds of this thread: the machine may be busy."""
    for bomb in BOMBS:
        started = time.thread_time()
        assert not correct(gold, bomb)[0]
        assert time.thread_time() - started < 2.0, bomb[:40]


def test_the_cost_of_a_verdict(shared_data: Path):
    rows = [
        json.loads(line)
        for side in ("equal", "unequal")
        for line in (shared_data / "math_pairs" / f"{side}.jsonl").read_text().splitlines()
    ]
    seconds = []
    for row in rows[::3]:
        started = time.thread_time()
        compare(row["gold"], row["response"])
        seconds.append(time.thread_time() - started)
    seconds.sort()
    assert seconds[len(seconds) // 2] < 0.005 and seconds[len(seconds) * 99 // 100] < 0.1  # five times the aims


@pytest.mark.parametrize("between", [r"\text{ or }", r"\lor", r"\quad", " or maybe ", r"\\", r"\text{, }"])
def test_boxes_that_something_joins_are_one_answer(between):
    assert find_answer(rf"\boxed{{8}} {between} \boxed{{9}}") == "8, 9"


@pytest.mark.parametrize(
    ("question", "gold", "answer", "outcome"),
    [
        ("Factor $x^2+5x+6$.", "(x+2)(x+3)", "6+5x+x^2", Outcome.WRONG),
        ("Factor $x^2+5x+6$.", "(x+2)(x+3)", "(x+3)(x+2)", Outcome.CORRECT),
        (r"Expand \((x+2)(x+3)\).", "x^2+5x+6", "(x+3)(x+2)", Outcome.WRONG),
        ("Solve $2x+3y=6$ for y.", r"y=2-\frac{2x}{3}", "3y+2x=6", Outcome.WRONG),
        (r"Which is larger, $\sqrt2+\sqrt5$ or $3$?", r"\sqrt2+\sqrt5", r"\sqrt5+\sqrt2", Outcome.CORRECT),
    ],
)
def test_the_question_with_its_terms_in_another_order_is_copied_too(question, gold, answer, outcome):
    problem = Problem("p", question, gold, "math")
    with MathVerifier() as verifier:
        [verdict] = verifier.verify([(problem, rf"\boxed{{{answer}}}")])
    assert verdict.outcome == outcome


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"$-\,\boxed{5}$", "-(5)"),
        (r"$-\left(\boxed{5}\right)$", "-(5)"),
        ("$x = −\\boxed{5}$", "-(5)"),
        (r"$-\mathbf{\boxed{5}}$", "-(5)"),
        (r"$-$ $\boxed{5}$", "-(5)"),
        (r"$\sqrt2\,\boxed{5}$", r"\sqrt2(5)"),
        (r"${\boxed{5}}^2$", "(5)^2"),
        (r"$\boxed{5}\,000$", "(5)000"),
        (r"$\boxed{5} \cdot 10^3$", r"(5)\cdot10^3"),
        (r"$\frac{\boxed{5}}{2}$", r"\frac{(5)}{2}"),
        (r"$y = 10^{\boxed{5}}$", "10^{(5)}"),
        (r"$|\boxed{5}| + 1$", "|(5)|+1"),
        (r"$\boxed{5} \text{ million}$", r"(5)\text{million}"),
        (r"\[ x = \boxed{5}. \]", "5"),
        (r"$\therefore \boxed{5}$", "5"),
        (r"$\text{Answer: } \boxed{5}$ cm", "5"),
        (r"$x \in \boxed{(1,2)}$", "(1,2)"),
        (r"$\textcolor{red}{\boxed{5}}$", "5"),
        (r"$(x, y) = (3, \boxed{5})$", "5"),
        (r"$$\begin{aligned} x &= 2 + 3\\ &= \boxed{5} \end{aligned}$$", "5"),
        (r"$\boxed{5} \approx 5.01$", "5"),
        (r"It costs $5 so \boxed{8} in all, not $3", "8"),
        (r"The answer is not $\boxed{5}$.", r"\text{not }(5)"),
        (r"$\boxed{5}$ is wrong.", r"\text{not }(5)"),
        (r"The answer is not 4 but \boxed{5}.", "5"),
        (r"\boxed{91, \boxed{88}}", "91, {88}"),
        (r"$17^{-1} \equiv \boxed{44} \pmod{83}$", "44"),
        (r"$5!=\boxed{120}$", "120"),
        (r"$S \ge \boxed{12}$", "12"),
        (r"$3 \le x \le \boxed{458}$", r"3\lex\le(458)"),
        (r"$\boxed{840} < x$", "(840)<x"),
        (r"$0.\boxed{123}$", "0.(123)"),
        (r"$\boxed{3}:\boxed{5}$", r"\boxed{3}:(5)"),
        (r"$\boxed{3}+\boxed{5}i$", r"\boxed{3}+(5)i"),
        (r"$(\boxed{3,4})$", "((3,4))"),
        (r"$\boxed{9.3} \mathrm{~m/s}$ or so", "9.3"),
        (r"$x = \boxed{9.3} \mu \mathrm{m}$", "9.3"),
        (r"$\boxed{4.5e-6} {m} / {s}^{2}$", "4.5e-6"),
        (r"$\boxed{\text{(B)}} 3x = 7$", r"\text{(B)}"),
        (r"$\boxed{12}$ or $13$", "(12) or 13"),
        (r"\boxed{\boxed{88}^2}", "{88}^2"),
        (r"\boxed{{x \over 2}}", r"{x \over 2}"),
        (r"$x=\boxed{12}$ or $x=\boxed{9}$", "x= 12, x= 9"),
        (r"$x=\boxed{12}$ and $y=\boxed{9}$", "x= 12, y= 9"),
        (r"\boxed{12} or possibly \boxed{9}", "12, 9"),
        (r"$a=\boxed{3}$, $b=\boxed{4}$, so $a+b=\boxed{7}$", "7"),
    ],
)
def test_what_belongs_to_a_box(response, answer):
    assert find_answer(response) == answer


DISGUISES = (
    *("1(F)", "F+0", "0+F", "(F)^1", "-(-(F))", "F/1", r"\frac{F}{1}", "2(F)-(F)", r"\frac{2(F)}{2}", "(F)-1+1"),
    *(r"e^{\ln(F)}", r"\{F\}", r"(F)\text{ units}", "F = F"),
)


@pytest.mark.parametrize(
    ("question", "formula", "gold", "rights"),
    [
        ("Expand $(x+1)(x+2)$.", "(x+1)(x+2)", "x^2+3x+2", ["2+3x+x^2", "(x+1)(x+2)=x^2+3x+2"]),
        ("Factor $x^2-9$.", "x^2-9", "(x-3)(x+3)", ["(x+3)(x-3)", "-(3-x)(x+3)", "x^2-9=(x-3)(x+3)"]),
        (
            r"Simplify $\frac{1}{e^{-x}+e^x}$.",
            r"\frac{1}{e^{-x}+e^x}",
            r"\frac{e^x}{1+e^{2x}}",
            [r"\frac{e^x}{e^{2x}+1}"],
        ),
        (r"Simplify \((2x-3)-(3x+4)\).", "2x-3-(3x+4)", "-x-7", ["-7-x", "-(x+7)"]),
    ],
)
def test_a_formula_of_the_question_is_copied_in_any_disguise(question, formula, gold, rights):
    copies = [formula, *(form.replace("F", formula) for form in DISGUISES)]
    problem = Problem("p", question, gold, "math")
    with MathVerifier() as verifier:
        verdicts = verifier.verify([(problem, rf"\boxed{{{answer}}}") for answer in (*copies, *rights, gold)])
    assert [verdict.correct for verdict in verdicts] == [False] * len(copies) + [True] * (len(rights) + 1)


def test_formulas_are_compared_in_bounded_time_and_memory():
    """Deep nesting, and coefficients with more digits than Python writes."""
    deep = r"\sin " * 29 + "x"
    powers = r"\cdot".join(["9^{999}"] * 6)
    fractions = "+".join(f"1/{n}^{{999}}" for n in range(3, 160))
    cases = [
        (deep, "y"),
        (rf"x\cdot{powers}", "y"),
        (rf"\sqrt2+{powers}+{powers}", r"\sqrt2+1"),
        (fractions, r"\sqrt2+1"),
    ]
    start = time.process_time()
    for answer, gold in cases:
        assert not compare(gold, answer)[0]
        is_copied(answer, [gold], f"Find ${answer}+0$ and $x+1$.")
    assert time.process_time() - start < 2
    assert is_copied(rf"{deep}+0+0", ["y"], f"Find ${deep}$.")


@pytest.mark.parametrize("gold", ["Ans. 15", "Solution. 15", "Sol: $15$", "Answer 15", "[Solution] 15", "ANS: 15"])
def test_a_label_before_a_gold_is_no_part_of_it(gold):
    assert correct(gold, "15", "Ans. 15", "16") == [True, True, False]
    assert correct("15", gold) == [True]


@pytest.mark.parametrize(
    "gold",
    [
        "Six times seven is forty-two.",
        "There are fifteen apples in the basket.",
        r"[Solution] $S=\frac{1}{2}\cdot 3\cdot 4=6$ so (B) is correct.",
        "Ans.5",
        *("NaN", "N/A", "unknown", "Proof", "?"),
    ],
)
def test_a_gold_that_is_no_answer_is_left_out(gold):
    """It was a text, which every answer fails."""
    problem = Problem("p", "?", gold, "math")
    with Verifiers() as verifiers:
        assert list(verifiers.check([problem])) == ["p"]
        [verdict] = verifiers.verify([(problem, rf"\boxed{{{gold}}}")])
    assert verdict.outcome is Outcome.GOLD_ERROR


@pytest.mark.parametrize(
    "gold",
    [
        *("None", "Nan", "Yes, because it has 3 roots.", "The two quantities are equal", "infinitely many solutions"),
        "There might be a solution. If so, there are infinitely many.",
    ],
)
def test_words_that_are_answers_stay_answers(gold):
    assert correct(gold, gold, "7") == [True, False]
