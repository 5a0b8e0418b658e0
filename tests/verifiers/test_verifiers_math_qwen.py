r"""The math verifier's policy `qwen` (the Qwen2.5-Math evaluation), rule by rule.

The expected verdicts are those of the rules as published; each row of the tables exercises the rule in its comment.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from word2number.w2n import word_to_num

from dph.errors import UserError
from dph.types import Outcome, Problem
from dph.verifiers.math.policy import make_policy
from dph.verifiers.math.qwen import as_number, extract_choice, extract_qwen, normalize_qwen, qwen_equal
from dph.verifiers.math.verifier import MathVerifier
from dph.verifiers.math.worker import read_python


@pytest.fixture(scope="module")
def qwen():
    with MathVerifier(policy="qwen", timeout=20.0) as made:
        yield made


def judge(verifier: MathVerifier, gold: object, response: str, kind: str = "math500") -> bool:
    [verdict] = verifier.verify([(Problem("p", "?", gold, "math", {"set": kind}), response)])
    assert verdict.outcome in (Outcome.CORRECT, Outcome.WRONG, Outcome.NO_ANSWER), verdict
    return verdict.correct


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (r"first \boxed{1}, then \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        (r"\fboxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"so \boxed{3", "3"),  # never closed: the evaluation takes the rest
        (r"$\boxed 7$ apples", "7"),
        ("The answer is $12$.", "$12$"),
        ("My final answer is 12/", "12"),
        ("The final answer is $x+1$. I hope it is correct. The answer is 3", "x+1"),
        ("2 + 2 = 4\n#### 1,234", "1234"),
        ("It costs 3.50 or -.5", "-.5"),
        ("The answer is 5, not the boxed", ""),  # the word alone counts as a box
        ("答案是12\n\nfurther", "12"),
        ("nothing", ""),
        ("the answer is: 1\n   2.", " 12"),
    ],
)
def test_where_the_evaluation_finds_an_answer(response: str, expected: str):
    assert extract_qwen(response) == expected


def test_what_may_answer_a_response_without_a_box():
    response = "The answer is 4. Surely 5"
    assert extract_qwen(response, phrases=False) == "5"
    assert extract_qwen(response, phrases=False, last_number=False) == ""
    problem = Problem("p", "?", "4", "math")
    found = [make_policy("qwen", fallback).extract(problem, "so 4") for fallback in (None, "phrase", "none")]
    assert found == ["4", None, None]


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("The answer is (B), not C.", "B"),  # the first letter after the phrase
        ("B or maybe D", "D"),  # without a phrase the last one
        ("the choice is b", "B"),
        ("answer is A\n\nQ2. the answer is C", "A"),  # the model went on with a question of its own
        ("12 cows.", "12 cows"),
    ],
)
def test_choice_letters(response: str, expected: str):
    assert extract_choice(response) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\dfrac12", r"\frac{1}{2}"),
        (r"\frac1{72}", r"\frac{1}{72}"),
        ("3/4", r"\frac{3}{4}"),
        ("3.0/4", r"\frac{3}{4}"),
        ("x/4", "x/4"),
        (r"\sqrt2/3", r"\frac{\sqrt{2}}{3}"),
        ("k = 5", "5"),
        ("abc = 5", "abc=5"),
        (r"5\text{ cm}", "5"),
        (r"\text{blue}", "blue"),
        ("12 dollars", "12dollars"),
        ("30 degrees", "30"),
        (r"30^\circ", "30"),
        (r"\$36.00", "36"),
        (r"25\%", "25"),
        ("twenty five", "25"),
        ("3j", "3i"),
        (".5", "0.5"),
        ("7.000", "7"),
        ("7.050", "7.050"),
        (r"\left[ 1, \infty \right)", r"[1,\infty)"),
        ("(-inf, 2)", r"(-\infty,2)"),
        (r"\begin{bmatrix}1\\2\end{bmatrix}", r"\begin{pmatrix}1\\2\end{pmatrix}"),
        (r"x\in[1,2]", "[1,2]"),
        (r"x \in [1,2]", r"x\in[1,2]"),
        ("1,\n2", "1,2"),
    ],
)
def test_normalization(text: str, expected: str):
    assert normalize_qwen(text) == expected


def test_units_are_kept_where_they_matter():
    assert (normalize_qwen("5 m"), normalize_qwen("5 m", keep_units=True)) == ("5", "5m")


@pytest.mark.parametrize(
    ("gold", "answer", "equal"),
    [
        # numbers: relative 1e-4, and the gold's hundredth and hundredfold
        ("1000", "1000.09", True),
        ("1000", "1000.2", False),
        ("0", "0.00001", False),
        ("12", "0.12", True),
        ("0.12", "12", True),
        ("12", "12%", True),
        ("12", "1.2", False),
        ("1,234", "1234", True),
        # brackets and case
        ("(1,2)", "{1,2}", True),
        (r"\{1,2\}", "(1,2)", True),
        ("[1,2]", "(1,2)", True),  # elements are equal, ends are not looked at
        ("Yes", "yes", True),
        # tuples element by element
        (r"(\frac{1}{2}, 3)", "(0.5,3)", True),
        ("(1,2)", "(2,1)", False),
        ("(1,2,3)", "(1,2)", False),
        # matrices
        (r"\begin{pmatrix} 1 & \frac12 \\ 3 & 4 \end{pmatrix}", r"\begin{bmatrix}1&0.5\\3&4\end{bmatrix}", True),
        (r"\begin{pmatrix} 1 & 2 \end{pmatrix}", r"\begin{pmatrix} 1 & 3 \end{pmatrix}", False),
        # equations
        ("x=5", "5", True),
        ("5", "n = 5", True),
        ("x^2+y^2=r^2", "r^2 = x^2 + y^2", True),
        ("34x+45y-20z+100=0", "-34x-45y+20z-100=0", True),
        ("x^2+y^2=4", "x^2+y^2=5", False),
        ("y = 2x+3", "2x - y + 3 = 0", False),  # "y=" is dropped beforehand
        # algebra
        (r"\frac{x+2}{7}", r"\frac{x}{7}+\frac{2}{7}", True),
        (r"\cos(2y)", r"1-2\sin^2(y)", True),
        (r"\tan^2(y)+1", r"\sec^2(y)", False),  # "sec" is one of its units
        (r"\frac{100}{3}", "33.333", True),
        (r"\frac{100}{3}", "33.3", False),
        (r"\sqrt{8}", r"2\sqrt{2}", True),
        (r"\frac{1+\sqrt{5}}{2}", "2", False),
        ("x+2n+1", "x+1", False),
        # letters
        ("B", r"\text{(B)}", True),
        ("B", "C", False),
        # oddities that are kept: a direction is a unit, so every direction equals it
        (r"\text{east}", "west", True),
        (r"x \in [-2,7]", "[-2, 7]", True),
    ],
)
def test_equality_of_the_qwen_evaluation(qwen: MathVerifier, gold: str, answer: str, equal: bool):
    assert judge(qwen, gold, f"So \\boxed{{{answer}}}.") is equal


def test_the_set_decides_how_a_response_is_read(qwen: MathVerifier):
    response = "The answer is C: 5 m"
    assert judge(qwen, "C", response, "sat_math")
    assert judge(qwen, "C", r"We pick \boxed{\text{the third, } C}", "math500")  # a gold letter: of the whole response
    assert judge(qwen, "C", "Answer: C", "math500")  # nothing that is an answer, but a letter
    policy, gold = make_policy("qwen", None), r"$\min$ at $x=1$"
    golds = [policy.golds(Problem("p", "?", gold, "math", {"set": kind})) for kind in ("math500", "college_math")]
    assert golds == [("at1",), (r"\at1",)]  # "min" is a unit before a $; without any, it stands before "at"
    assert judge(qwen, "AC", r"\boxed{A, C}", "gaokao_math_qa")
    assert not judge(qwen, "AC", r"\boxed{A, B}", "gaokao_math_qa")
    assert judge(qwen, "5", r"\boxed{5 m}", "math500")
    assert not judge(qwen, "5 s", r"\boxed{5 m}", "minerva_math")


def test_an_empty_gold_answer_is_never_met(qwen: MathVerifier):
    for gold, response in (("", r"\boxed{x}"), ("", ""), ([], r"\boxed{x}")):
        [verdict] = qwen.verify([(Problem("p", "?", gold, "math", {"set": "math500"}), response)])
        assert verdict.outcome is Outcome.GOLD_ERROR


def test_any_of_several_golds_will_do(qwen: MathVerifier):
    assert judge(qwen, ["7", r"\frac{1}{2}"], r"\boxed{0.5}")
    assert not judge(qwen, ["7", "8"], r"\boxed{0.5}")


def test_an_unknown_policy_is_named():
    with pytest.raises(UserError, match=r"'guess'.*typed.*qwen.*math_verify"):
        MathVerifier(policy="guess")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="'paper'"):  # the reward of the authors' code, which earlier versions had
        MathVerifier(policy="paper")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="only the math policy math_verify"):
        MathVerifier(policy="qwen", fallback="library")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1,234.5", 1234.5), ("50%", 0.5), (r"50\%", 0.5), ("1e3", 1000.0), ("x", None), ("", None), ("5%%", None)],
)
def test_numbers(text: str, expected: float | None):
    assert as_number(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("two hundred and thirty-five", "235"),
        ("three million forty", "3000040"),
        ("point five", "0.5"),
        ("007", "7"),
        ("five of the ten", "15"),
        ("million two", "milliontwo"),
        ("none", "none"),
        ("two point five point one", "twopointfivepointone"),
    ],
)
def test_number_words(text: str, expected: str):
    assert normalize_qwen(text) == expected


_SMALL = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_SCALES = ((10**9, "billion"), (10**6, "million"), (10**3, "thousand"), (100, "hundred"))


def in_words(number: int, hyphen: str, conjunction: str) -> str:
    """An English numeral, for example "two hundred and thirty-five"."""
    for value, name in _SCALES:
        if number >= value:
            high, rest = divmod(number, value)
            tail = f"{conjunction}{in_words(rest, hyphen, conjunction)}" if rest else ""
            return f"{in_words(high, hyphen, conjunction)} {name}{tail}"
    if number < 20:
        return _SMALL[number]
    return _TENS[number // 10 - 2] + (f"{hyphen}{_SMALL[number % 10]}" if number % 10 else "")


_NUMERALS = st.builds(
    in_words,
    st.sampled_from([99, 9999, 10**6, 10**9]).flatmap(lambda largest: st.integers(0, largest)),
    st.sampled_from(["-", " "]),
    st.sampled_from([" ", " and ", ", "]),
)
_WORDS = st.sampled_from([*_SMALL, *_TENS, *(name for _, name in _SCALES), "and", "point"])
_FRAMES = st.sampled_from(["{}", "{}.", " the {} ", "{} men", "${}$"])


@given(_NUMERALS | st.lists(_WORDS, min_size=1, max_size=7).map(" ".join), _FRAMES)
@settings(max_examples=600, deadline=None)
def test_number_words_are_read_as_word2number_reads_them(words: str, frame: str):
    try:
        expected = str(word_to_num(words))
    except (ValueError, IndexError):  # "two million thousand": the evaluation keeps such a text
        expected = words.replace(" ", "").replace("and", "")
    assert normalize_qwen(frame.format(words)) in (expected, f"the{expected}")


@pytest.mark.parametrize(
    "code", ["__import__('os').system('true')", "().__class__", "x.__class__", "open('x')", "[i for i in x]"]
)
def test_python_notation_is_never_run_as_python(code: str):
    with pytest.raises((ValueError, KeyError, SyntaxError, TypeError, AttributeError)):
        read_python(code)


@pytest.mark.parametrize(
    "rewrite",
    [
        lambda a: f" {a} ",
        lambda a: a.replace(",", " , "),
        lambda a: a.replace("(", r"\left(").replace(")", r"\right)"),
        lambda a: a.replace(r"\frac", r"\dfrac"),
        lambda a: a.replace(r"\frac", r"\tfrac"),
        lambda a: f"${a}$",
        lambda a: f"{a}.",
        lambda a: f"{a}\\text{{ cm}}",
        lambda a: f"\\!{a}",
    ],
)
@pytest.mark.parametrize(
    ("gold", "other"),
    [
        ("7", "8"),
        (r"\frac{3}{4}", r"\frac{4}{3}"),
        (r"(1,\frac{\pi}{2})", r"(1,\frac{\pi}{3})"),
        (r"3\sqrt{2}", r"2\sqrt{3}"),
        ("x^2+1", "x^2-1"),
        (r"[0,\infty)", r"[1,\infty)"),
    ],
)
def test_spelling_changes_no_verdict(qwen: MathVerifier, gold: str, other: str, rewrite):
    response = f"\\boxed{{{rewrite(gold)}}}"
    assert judge(qwen, gold, response)
    assert not judge(qwen, other, response)


_PIECES = st.sampled_from(
    [*"012589abcxyzijABCDE+-*/^=.,;:%$&(){}[]|_ \n\\'\"!<>∞π√", r"\frac", r"\boxed{", r"\text{", r"\sqrt", r"\left(",
     r"\begin{pmatrix}", r"\end{pmatrix}", r"\\", "answer is", "inf", "and", "one", "hundred", "m", "°", "é", "\x00"]
)  # fmt: skip
_TEXTS = st.lists(_PIECES, max_size=25).map("".join)


def _by_text(given_: str, gold: str) -> bool:
    return given_ == gold


@given(_TEXTS, _TEXTS)
@settings(max_examples=400)
def test_no_text_upsets_the_qwen_rules(response: str, gold: str):
    problem = Problem("p", "?", gold, "math")
    policy = make_policy("qwen", None)
    answer = policy.extract(problem, response)
    for accepted in policy.golds(problem):
        if answer is not None:
            assert qwen_equal(answer, answer, _by_text)
            assert policy.at_sight(answer, accepted) in (True, False, None)


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_numbers_are_judged_as_their_rule_says(a: float, b: float):
    left, right = f"{a:.6f}", f"{b:.6f}"
    x, y = float(left), float(right)
    close = any(abs(x - z) <= 1e-4 * max(abs(x), abs(z)) for z in (y / 100, y, y * 100))
    assert qwen_equal(left, right, _by_text) is close


@given(st.lists(st.integers(-99, 99), min_size=2, max_size=5), st.lists(st.integers(-99, 99), min_size=2, max_size=5))
def test_tuples_are_equal_iff_their_elements_are(a: list[int], b: list[int]):
    def text(numbers: list[int]) -> str:
        return f"({','.join(map(str, numbers))})"

    elements = len(a) == len(b) and all(x in (y, 100 * y, y / 100) for x, y in zip(a, b, strict=True))
    assert qwen_equal(text(a), text(b), _by_text) is elements
