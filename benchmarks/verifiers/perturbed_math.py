r"""Which wrong answers each math policy accepts: `python -m benchmarks.verifiers.perturbed_math`.

It holds gold answers of many kinds, each with wrong answers that differ from it in one respect, and with other
spellings of it. Prints a table: respect, number of answers, and how many of them each policy accepts.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence

from dph.types import Outcome, Problem, Verdict
from dph.verifiers.math.policy import PolicyName
from dph.verifiers.math.verifier import MathVerifier

POLICIES: tuple[PolicyName, ...] = ("qwen", "math_verify", "typed")

WRONG: dict[str, dict[str, str]] = {
    "42": {"sign": "-42", "digit": "43", "factor 10": "420", "restated": r"\binom{42}{1}", "percent": r"0.42\%"},
    "-7": {"sign": "7", "digit": "-8", "factor 10": "-70", "restated": r"\gcd(7,14)-14"},
    "0": {"digit": "1", "restated": r"\sin 0", "number of answers": "0 or 1"},
    "1,024": {"digit": "1,025", "factor 10": "10,240", "number of answers": "1, 24", "restated": "2^{10}"},
    "5050": {"digit": "5051", "factor 10": "505", "restated": r"\sum_{k=1}^{100} k"},
    "0.75": {"sign": "-0.75", "digit": "0.76", "factor 10": "7.5", "percent": r"0.75\%"},
    "-2.5": {"sign": "2.5", "factor 10": "-25", "digit": "-2.6"},
    r"\frac{3}{4}": {"sign": r"-\frac{3}{4}", "upside down": r"\frac{4}{3}", "digit": "0.76", "factor 10": "7.5"},
    r"-\frac{7}{2}": {"sign": "3.5", "upside down": r"-\frac{2}{7}", "factor 10": "-35"},
    r"2\frac{1}{3}": {"sign": r"-2\frac{1}{3}", "digit": r"2\frac{2}{3}", "upside down": r"\frac{3}{7}"},
    r"6.02\times10^{23}": {
        "exponent": r"6.02\times10^{22}",
        "digit": r"6.03\times10^{23}",
        "sign": r"6.02\times10^{-23}",
    },
    r"50\%": {"unit": r"50^\circ", "factor 10": r"5\%", "digit": "0.51"},
    r"12.5\%": {"unit": r"12.5\text{ cm}", "factor 10": r"1.25\%", "percent": "1250"},
    r"\$36": {"unit": "36 cents", "factor 10": r"\$360", "digit": r"\$37"},
    r"5\text{ cm}": {"unit": r"5\text{ m}", "power of a unit": r"5\text{ cm}^2", "digit": r"6\text{ cm}"},
    r"12\text{ cm}^2": {
        "unit": r"12\text{ m}^2",
        "power of a unit": r"12\text{ cm}^3",
        "factor 10": r"1.2\text{ cm}^2",
    },
    "90 km": {"unit": "90 miles", "factor 10": "900 km", "power of a unit": "90 km^2"},
    "8 m/s": {"unit": r"8\text{ km/h}", "power of a unit": r"8\text{ m/s}^2"},
    r"60\text{ mph}": {"unit": r"60\text{ km/h}", "digit": r"61\text{ mph}"},
    r"3\text{ hours}": {"unit": r"3\text{ minutes}", "digit": r"4\text{ hours}"},
    r"5\text{ apples}": {"unit": r"5\text{ oranges}", "digit": r"6\text{ apples}"},
    r"45^\circ": {"unit": r"45\text{ rad}", "digit": r"46^\circ", "sign": r"-45^\circ"},
    "52_8": {"base": "52_9", "no base": "52", "digit": "53_8"},
    "1011_{2}": {"base": "1011_{3}", "no base": "1011", "digit": "1010_2"},
    "(3,4)": {"order": "(4,3)", "bracket": r"\{3,4\}", "end": "(3,4]", "sign": "(-3,4)", "missing element": "3"},
    r"\left(\frac{1}{2},-3\right)": {"order": r"(-3,\frac12)", "bracket": r"[\frac12,-3]", "sign": r"(\frac12,3)"},
    "(1,2,3)": {"order": "(3,2,1)", "bracket": r"\{1,2,3\}", "missing element": "(1,2)", "digit": "(1,2,4)"},
    "[0,5]": {"bracket": r"\{0,5\}", "end": "[0,5)", "digit": "[0,6]", "factor 10": "[0,50]"},
    "(0,1]": {"end": "[0,1]", "bracket": r"\{0,1\}", "sign": "(0,-1]", "missing element": "1"},
    r"(-\infty,3)": {"end": r"(-\infty,3]", "sign": r"(-\infty,-3)", "order": r"(3,\infty)"},
    r"(-\infty,-1)\cup(2,\infty)": {
        "end": r"(-\infty,-1]\cup(2,\infty)",
        "operator": r"(-\infty,-1)\cap(2,\infty)",
        "missing element": r"(2,\infty)",
    },
    r"\{1,2,3\}": {"bracket": "(1,2,3)", "missing element": r"\{1,2\}", "digit": r"\{1,2,4\}"},
    r"\{-4,4\}": {"bracket": "(-4,4)", "missing element": "4", "sign": r"\{4,4\}"},
    "2,5": {"bracket": "(2,5)", "missing element": "2", "digit": "2,6", "number of answers": "2,5,7"},
    r"\pm 6": {"missing element": "6", "digit": r"\pm 7", "bracket": "(-6,6)"},
    "x=5": {"relation": "x>5", "digit": "x=6", "sign": "x=-5", "number of answers": "x=5, x=6"},
    "y=2x+3": {"sign": "y=2x-3", "digit": "y=2x+4", "variable": "y=2z+3", "one side": "y=2x"},
    "x^2+y^2=25": {"one side": "25", "exponent": "x^3+y^2=25", "sign": "x^2-y^2=25", "relation": r"x^2+y^2\le 25"},
    "x+y=3": {"one side": "3", "sign": "x-y=3", "digit": "x+y=4", "variable": "x+z=3"},
    r"x\le 4": {"direction": r"x\ge 4", "strictness": "x<4", "relation": "x=4", "one side": "4"},
    "-1<x<2": {"direction": "-1>x>2", "strictness": r"-1\le x<2", "sign": "1<x<2", "bracket": r"\{-1,2\}"},
    r"x\ne 3": {"relation": "x=3", "one side": "3", "sign": r"x\ne -3"},
    "x^2+3x+2": {"sign": "x^2-3x+2", "variable": "y^2+3y+2", "exponent": "x^3+3x+2", "digit": "x^2+3x+3"},
    r"\frac{x+1}{x-1}": {"sign": r"\frac{x-1}{x-1}", "upside down": r"\frac{x-1}{x+1}", "variable": r"\frac{y+1}{y-1}"},
    "2n+1": {"sign": "2n-1", "variable": "2k+1", "digit": "2n+2", "factor 10": "20n+1"},
    "3t": {"variable": "3", "digit": "4t", "sign": "-3t"},
    r"3\sqrt{2}": {"digit": r"3\sqrt{3}", "factor 10": r"30\sqrt{2}", "index": r"3\sqrt[3]{2}"},
    r"\sqrt[3]{5}": {"index": r"\sqrt[4]{5}", "digit": r"\sqrt[3]{6}", "function": r"\sqrt{5}"},
    r"\frac{\sqrt{3}}{2}": {
        "restated": r"\sin 60^\circ",
        "sign": r"-\frac{\sqrt{3}}{2}",
        "digit": r"\frac{\sqrt{2}}{2}",
    },
    r"2\pi": {"variable": r"2\theta", "digit": r"3\pi", "approximation": "6.28"},
    r"\frac{\pi}{6}": {"unit": r"30^\circ", "upside down": r"\frac{6}{\pi}", "variable": r"\frac{\alpha}{6}"},
    r"\alpha+1": {"variable": r"\beta+1", "sign": r"\alpha-1"},
    r"\sin x": {"function": r"\cos x", "variable": r"\sin y", "sign": r"-\sin x", "power": r"\sin^2 x"},
    r"e^{2x}\cos x": {"function": r"e^{2x}\sin x", "exponent": r"e^{3x}\cos x", "variable": r"e^{2y}\cos y"},
    r"\ln 2": {"function": "2", "digit": r"\ln 3", "approximation": "0.69"},
    r"\log_2 5": {"index": r"\log_3 5", "digit": r"\log_2 6", "function": r"\ln 5"},
    "3+4i": {"sign": "3-4i", "digit": "3+5i", "variable": "3+4k", "missing element": "3"},
    "7!": {"digit": "8!", "function": "7"},
    r"\binom{8}{3}": {"order": r"\binom{3}{8}", "digit": r"\binom{8}{4}"},
    r"\begin{pmatrix}1\\2\end{pmatrix}": {"order": r"\begin{pmatrix}2\\1\end{pmatrix}", "bracket": r"\{1,2\}"},
    r"\begin{pmatrix}1&2\\3&4\end{pmatrix}": {
        "order": r"\begin{pmatrix}1&3\\2&4\end{pmatrix}",
        "sign": r"\begin{pmatrix}1&-2\\3&4\end{pmatrix}",
    },
    "3:5": {"order": "5:3", "digit": "3:6"},
    "C": {"digit": "D", "number of answers": "C, D", "sign": "-C"},
    "ABCD": {"order": "ABDC", "missing element": "ABC"},
    r"\text{Tuesday}": {"digit": r"\text{Thursday}", "number of answers": r"\text{Tuesday or Friday}"},
    "a_1": {"index": "a_2", "variable": "b_1", "no base": "a"},
}
"""Gold answer → respect → a wrong answer."""

_ADDED = {
    "number of answers": "{}, 99",
    "or": r"{} \text{{ or }} 99",
    "number in words": r"{}\text{{ (or 99)}}",
    "approximation": r"{} \approx 99",
    "false equation": "99 = {}",
    "modulo": r"{} \mod 99",
    "base": "{}_{{99}}",
}
"""Respect → what makes a wrong answer of any gold answer."""

RIGHT: dict[str, tuple[str, ...]] = {
    "42": ("42.0", "x = 42", r"42\text{ cm}", r"42\%", "$42$", r"\text{42}", "42 apples", r"\$42"),
    "1,024": ("1024", r"1{,}024", r"1,\!024", "1 024"),
    "5050": ("5,050", r"5.05\times10^{3}"),
    "0.75": (r"\frac{3}{4}", ".75", r"\frac34", "3/4"),
    r"\frac{3}{4}": ("0.75", r"\dfrac{3}{4}", "3/4", r"\frac{6}{8}", r"x=\frac34"),
    r"2\frac{1}{3}": (r"\frac{7}{3}", "7/3"),
    r"50\%": ("50", r"50 \%", "50 percent"),
    r"\$36": ("36", r"\$36.00", "$36$"),
    r"5\text{ cm}": ("5", "5 cm", r"5 \mathrm{~cm}", r"5\,\text{centimeters}"),
    r"12\text{ cm}^2": ("12", r"12 \text{ square cm}", r"12\,\mathrm{cm}^{2}"),
    "8 m/s": ("8  m / s",),
    r"45^\circ": ("45", r"45^{\circ}", r"45\text{ degrees}"),
    "52_8": ("52_{8}",),
    "(3,4)": (r"\left(3, 4\right)", "(x,y)=(3,4)", "x=3, y=4", "(3.0,4)"),
    "[0,5]": (r"\left[0, 5\right]", r"x \in [0,5]"),
    r"(-\infty,3)": (r"x \in (-\infty, 3)",),
    r"(-\infty,-1)\cup(2,\infty)": (r"(2,\infty)\cup(-\infty,-1)",),
    r"\{1,2,3\}": ("1, 2, 3", r"\{3,2,1\}", r"\left\{1,2,3\right\}"),
    "2,5": ("5, 2", r"\{2,5\}", r"2 \text{ and } 5", "x=2, x=5"),
    r"\pm 6": ("6,-6", "-6, 6", r"x=\pm 6"),
    "x=5": ("5", "x = 5.0"),
    "y=2x+3": ("y=3+2x", "2x+3", "y-2x=3"),
    "x+y=3": ("y+x=3", "x+y-3=0"),
    r"x\le 4": (r"x\leq 4", r"4 \ge x", r"(-\infty,4]"),
    "x^2+3x+2": ("(x+1)(x+2)", "2+3x+x^2", "f(x)=x^2+3x+2"),
    r"3\sqrt{2}": (r"\sqrt{18}", r"\sqrt{2}\cdot 3", r"3\sqrt2"),
    r"\sin x": (r"\sin(x)", r"\sin{x}"),
    "C": (r"\text{C}", "(C)", r"\textbf{(C)}"),
    r"\text{Tuesday}": ("Tuesday", r"\textbf{Tuesday}"),
}
"""Gold answer → other spellings of it."""


def wrong_answers() -> Iterator[tuple[str, str, str]]:
    """(respect, gold answer, wrong answer)."""
    for gold, answers in WRONG.items():
        for respect, answer in answers.items():
            yield respect, gold, answer
        for respect, frame in _ADDED.items():
            if respect != "base" or (gold[-1].isdigit() and "_" not in gold):
                yield respect, gold, frame.format(gold)


def right_answers() -> Iterator[tuple[str, str]]:
    """(gold answer, another spelling of it)."""
    for gold, answers in RIGHT.items():
        yield from ((gold, answer) for answer in answers)
    for gold in WRONG:
        yield from ((gold, spelling) for spelling in (gold, f" {gold} ", f"${gold}$", rf"\displaystyle {gold}"))


def judge(policy: PolicyName, cases: Sequence[tuple[str, str]]) -> list[Verdict]:
    """The verdicts of a policy on (gold answer, boxed answer); none may fail for lack of time."""
    with MathVerifier(policy=policy, timeout=60.0) as verifier:
        verdicts = verifier.verify([(Problem("p", "", gold, "math"), rf"\boxed{{{answer}}}") for gold, answer in cases])
    assert not {verdict.outcome for verdict in verdicts} & {Outcome.TIMEOUT, Outcome.INFRA_ERROR, Outcome.GOLD_ERROR}
    return verdicts


def accepted(policy: PolicyName) -> Counter[str]:
    """How many wrong answers a policy accepts, by the respect in which they differ; "right": other spellings."""
    wrong = list(wrong_answers())
    cases = [*wrong, *(("right", gold, spelling) for gold, spelling in right_answers())]
    verdicts = judge(policy, [(gold, answer) for _, gold, answer in cases])
    return Counter(respect for (respect, _, _), verdict in zip(cases, verdicts, strict=True) if verdict.correct)


def main() -> None:
    """Print the table."""
    found, seconds = {}, {}
    for policy in POLICIES:
        started = time.monotonic()
        found[policy], seconds[policy] = accepted(policy), time.monotonic() - started
    total = Counter(respect for respect, _, _ in wrong_answers())
    print("| differs in | answers |", *(f"`{policy}` |" for policy in POLICIES))
    print("|---" * (2 + len(POLICIES)) + "|")
    for respect, count in total.items():
        print(f"| {respect} | {count} |", *(f"{found[policy][respect]} |" for policy in POLICIES))
    print(f"| **all wrong answers** | {total.total()} |",
          *(f"{found[policy].total() - found[policy]['right']} |" for policy in POLICIES))  # fmt: skip
    print(f"| **other spellings, all correct** | {len(list(right_answers()))} |",
          *(f"{found[policy]['right']} |" for policy in POLICIES))  # fmt: skip
    print("seconds:", ", ".join(f"{policy} {taken:.1f}" for policy, taken in seconds.items()))


if __name__ == "__main__":
    main()
