"""`python -m mathequal`, and the examples of the package's README."""

import doctest
from pathlib import Path

import pytest

import mathequal
from mathequal.__main__ import main
from mathequal.judge import RULES

HOME = Path(mathequal.__path__[0])


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["3 m", "300 cm"], 0, ["equal: values and units", "3 m  (quantity 3)", "300 cm  (quantity 300)"]),
        (
            ["1,2", "(1,2)"],
            1,
            ["not equal: lists and sets", "list of number 1, number 2", "tuple of number 1, number 2"],
        ),
        (["3/4", "21/28", "--question", "Reduce 21/28 to lowest terms."], 1, ["asks for: in lowest terms"]),
        (["0.33", "1/3", "--decimals", "rounded"], 0, ["equal: values and units"]),
        (["x", r"\frac{"], 1, ["not equal: not read", r"\frac{  (not read)"]),
    ],
)
def test_the_command_says_the_verdict_its_rule_and_both_readings(words, status, said, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    printed = capsys.readouterr().out
    assert ended.value.code == status and [line for line in said if line not in printed] == []


@pytest.mark.parametrize(
    ("gold", "answer", "rule"),
    [
        ("2\\pi k", "2\\pi n", "families over the integers"),
        ("x=5", "5", "names and chains"),
        ("3:4", "6:8", "ratios"),
        (r"\begin{pmatrix}1\\2\end{pmatrix}", "(1,2)", "matrices and tuples"),
        ("x>3", "(3,\\infty)", "sets of reals"),
        ("1,2", "2,1", "lists and sets"),
        ("\\{1,2\\}", "\\{2,1\\}", "sets"),
        ("5", "\\{5\\}", "a set of one"),
        ("1/2", "1/2 or 0.5", "alternatives that are all equal"),
        ("B", "(B) 5", "letters of choices"),
        ("x+y=1", "2x+2y=2", "equations"),
        ("5", "about 5", "a hedge that nobody asked for"),
        ("5", "5", "the same reading"),
    ],
)
def test_a_verdict_names_its_rule(gold: str, answer: str, rule: str):
    assert mathequal.compare(gold, answer).rule == rule


def test_rules_have_names_of_their_own():
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_the_examples_of_the_readme_run():
    assert doctest.testfile(str(HOME / "README.md"), module_relative=False) == (0, 6)
