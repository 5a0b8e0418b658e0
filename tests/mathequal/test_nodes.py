"""Trees: nodes of two classes are never equal, fields have names, and no reading holds anything but nodes."""

import pickle
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from mathequal import nodes, read
from mathequal.grammar import readings
from mathequal.nodes import Big, Brackets, Function, Negative, Node, Number, Power, Quotient, Relation, Sum, Symbol
from mathequal.text import plain_latex
from mathequal.trees import canonical, contains, functions, holds, integer_node, replaced, symbols, walk, with_sign

PAIRS = Path(nodes.__file__).parent / "data"
X, Y, TWO = Symbol("x"), Symbol("y"), integer_node(2)
CLASSES = [kind for kind in vars(nodes).values() if isinstance(kind, type) and issubclass(kind, Node) and kind.sign]


def tree(text: str) -> Node:
    """The first reading of a text with one item."""
    [item], _ = next(filter(None, readings(plain_latex(text))))[0]
    return item


def test_each_class_has_a_sign_of_its_own_so_that_two_are_never_equal():
    assert len({kind.sign for kind in CLASSES}) == len(CLASSES) == 30
    same = [kind(X, Y) for kind in CLASSES]
    assert all((one == other) == (one is other) for one in same for other in same)


@pytest.mark.parametrize("kind", CLASSES)
def test_fields_are_the_parts_by_name(kind: type[Node]):
    *names, last = kind.__match_args__
    node = kind(*map(Symbol, [*names, last, "more"]))
    assert [getattr(node, name) for name in names] == [Symbol(name) for name in names]
    assert getattr(node, last) in (Symbol(last), (Symbol(last), Symbol("more")))
    assert pickle.loads(pickle.dumps(node)) == node and type(pickle.loads(pickle.dumps(node))) is kind


def test_a_tree_is_built_of_named_parts():
    assert tree(r"\frac{x}{2}+y^2") == Sum(Quotient(X, TWO), Power(Y, TWO))
    assert tree("2.50") == Number(Fraction(5, 2), "dec", -2) and tree("2.50").detail == -2  # pyright: ignore
    assert tree("x=(1,-y)").sides[1] == Brackets("(", (integer_node(1), Negative(Y)), ")")  # pyright: ignore
    total = tree(r"\sum_{k=1}^{n} k")
    assert isinstance(total, Big) and (total.kind, total.sup, symbols(total)) == ("sum", Symbol("n"), {"n"})


def test_what_one_can_ask_of_a_tree():
    whole = tree(r"\sin(x)+|x|\cdot y")
    assert functions(whole) == {"sin", "abs"} and contains(whole, Function("sin", X)) and not contains(whole, TWO)
    assert holds(whole, Function) and not holds(whole, Relation)
    assert [node for node in walk(whole) if isinstance(node, Symbol)] == [X, X, Y]
    assert symbols(replaced(whole, {X: TWO})) == {"y"} and type(replaced(whole, {X: TWO})) is Sum
    assert with_sign(tree(r"x\pm y"), "m") == Sum(X, Negative(Y))
    assert canonical(tree("y+x")) == canonical(tree("x+y")) and canonical(tree("y-x")) != canonical(tree("x-y"))


def loose(part: Any) -> bool:
    """Whether a tuple in a tree looks like a node and is none."""
    signs = {kind.sign for kind in CLASSES}
    if not isinstance(part, tuple):
        return False
    if not isinstance(part, Node) and len(part) > 1 and part[0] in signs and any(isinstance(x, Node) for x in part[1:]):
        return True
    return any(map(loose, part))


@pytest.mark.parametrize("file", sorted(PAIRS.glob("*equal*.tsv")), ids=lambda file: file.stem)
def test_no_reading_holds_a_tuple_in_place_of_a_node(file: Path):
    texts = [text for line in file.read_text(encoding="utf-8").splitlines() for text in line.split("\t")[1:]]
    answers = [answer for text in texts[::3] if (answer := read(text))]
    assert len(answers) > 100
    held = [[getattr(part, field.name) for field in fields(part)] for x in answers for part in (x, *x.items)]
    assert [parts for parts in held if any(map(loose, parts))] == []


def test_nothing_asks_for_the_text_of_a_tree():
    home = Path(nodes.__file__).parent
    asking = {file.stem: file.read_text(encoding="utf-8").count("repr(") for file in home.glob("*.py")}
    assert {name: count for name, count in asking.items() if count} == {"trees": 1}  # of a name, in `canonical`
