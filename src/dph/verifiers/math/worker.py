"""The worker process of the math verifier: it decides equality by computer algebra, and the parent may kill it.

An expression can take unbounded time and memory, and importing the parsers takes a second. Model output is never
evaluated as Python: sympy's `parse_expr` and `sympify` would do so and are not called.
"""

import ast
import logging
import operator
from collections.abc import Callable
from contextlib import suppress
from functools import cache, lru_cache, partial
from importlib.metadata import version
from math import isclose
from typing import Any

import sympy
from latex2sympy2_extended import NormalizationConfig, latex2sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig
from math_verify import LatexExtractionConfig, parse, verify
from sympy.parsing import sympy_parser

from dph.verifiers.math.qwen import qwen_equal
from dph.verifiers.sandbox.loop import Forked, Message, limit_cpu, serve

Equality = Callable[[str, str], bool]
"""(answer, gold answer) → whether they are equal."""

_CONSTANTS: dict[str, Any] = {"pi": sympy.pi, "E": sympy.E, "I": sympy.I, "oo": sympy.oo}
_FUNCTIONS: dict[str, Any] = {
    name: getattr(sympy, name)
    for name in (
        "sqrt", "cbrt", "root", "Abs", "sin", "cos", "tan", "sec", "csc", "cot", "asin", "acos", "atan", "sinh", "cosh",
        "tanh", "log", "ln", "exp", "factorial", "Rational", "Max", "Min",
    )
}  # fmt: skip
_MADE_BY_TOKENIZER: dict[str, Any] = {name: getattr(sympy, name) for name in ("Symbol", "Integer", "Float")}
_KNOWN = _CONSTANTS | _FUNCTIONS | _MADE_BY_TOKENIZER
_OPERATIONS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Pow: operator.pow, ast.USub: operator.neg, ast.UAdd: operator.pos,
}  # fmt: skip
_NO_REWRITING = NormalizationConfig(
    basic_latex=False, units=False, malformed_operators=False, nits=False, boxed="none", equations=False
)
_AS_WRITTEN = ConversionConfig(lowercase_symbols=False)
_COLLECTIONS: dict[type[ast.AST], Callable[..., Any]] = {ast.Tuple: tuple, ast.List: list, ast.Set: set}


def read_python(text: str) -> Any:
    """A sympy object, or a tuple, list or set of them.

    Raises any error of the tokenizer, the Python parser or sympy, and ValueError for anything but numbers, names and
    known functions.
    """
    code = sympy_parser.stringify_expr(text.strip(), {}, dict(_KNOWN), sympy_parser.standard_transformations)
    return _build(ast.parse(code, mode="eval").body)


def _build(node: ast.AST) -> Any:
    match node:
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            return sympy.Integer(value)
        case ast.Name(id=name):
            return _CONSTANTS[name]
        case ast.BinOp(left=left, op=operation, right=right):
            return _OPERATIONS[type(operation)](_build(left), _build(right))
        case ast.UnaryOp(op=operation, operand=operand):
            return _OPERATIONS[type(operation)](_build(operand))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return _call(name, arguments)
        case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
            return _COLLECTIONS[type(node)](map(_build, elements))
    raise ValueError(f"not read: {type(node).__name__}")


def _call(name: str, arguments: list[ast.expr]) -> Any:
    if name in _MADE_BY_TOKENIZER:  # Symbol('x'), Integer(2), Float('1.5'): plain values, which sympy does not evaluate
        return _MADE_BY_TOKENIZER[name](*(ast.literal_eval(argument) for argument in arguments))
    return _FUNCTIONS[name](*map(_build, arguments))


def algebra_equal(given: str, gold: str) -> bool:
    """Whether two LaTeX expressions are equal: as parsed, by simplification, as equations up to sign, by value to a
    relative 1e-4, or as matrices to three decimals. Text that cannot be parsed equals only itself."""
    left, right = read_expression(given), read_expression(gold)
    unread = isinstance(left, str) or isinstance(right, str)  # sympy would evaluate it
    for rule in _RULES[: 1 if unread else None]:
        with suppress(Exception):  # sympy can raise anything
            if rule(left, right):
                return True
    return False


@lru_cache(maxsize=2048)
def read_expression(text: str) -> Any:
    """Parse a text with sympy's LaTeX grammar (which may read only its beginning), else as Python notation, else with
    latex2sympy. Returns the text itself if all three fail.

    Each parser first tries the text with double backslashes replaced by single ones.
    """
    for read in (_sympy_parser(), read_python, _read_extended_latex):
        for variant in (text.replace("\\\\", "\\"), text):
            with suppress(Exception):  # the parsers can raise anything
                return read(variant)
    return text


@cache
def _sympy_parser() -> Callable[[str], Any]:
    """Sympy's LaTeX parser, which can run on the installed ANTLR runtime.

    Its grammar was generated by ANTLR 4.11 and insists on that runtime. The tables have had the same format since 4.10,
    so the parser runs unchanged on the 4.13 runtime that math-verify installs.
    """
    from sympy.parsing.latex import _parse_latex_antlr as sympy_latex  # half a second, which only `qwen` needs

    found = tuple(int(part) for part in version("antlr4-python3-runtime").split(".")[:2])
    if (4, 10) <= found < (5, 0):
        sympy_latex.version = lambda _: "4.11"
        for generated in (sympy_latex.LaTeXLexer, sympy_latex.LaTeXParser):
            generated.checkVersion = lambda *_: None  # it prints to standard output, which is our pipe
    return sympy_latex.parse_latex


def _read_extended_latex(text: str) -> Any:
    if not text.isascii():  # the evaluation's own latex2sympy does not know π or √
        raise ValueError("not read: symbols outside ASCII")
    return latex2sympy(text, normalization_config=_NO_REWRITING, conversion_config=_AS_WRITTEN)


_RULES: tuple[Callable[[Any, Any], bool], ...] = (
    lambda left, right: str(left) == str(right) or left == right,
    lambda left, right: left.equals(right) or sympy.simplify(left - right) == 0,
    lambda left, right: abs(left.lhs - left.rhs).equals(abs(right.lhs - right.rhs)),
    lambda left, right: isclose(float(sympy.N(right)), float(sympy.N(left)), rel_tol=1e-4),
    lambda left, right: left.shape == right.shape and _three_decimals(left).equals(_three_decimals(right)),
)


def _three_decimals(matrix: Any) -> Any:
    return matrix.applyfunc(lambda x: round(x, 3))


def _library_equality(*, boxed: bool) -> Equality:
    # Only the box is read: the library's other extractors could pick a matching number from a sentence.
    box = [LatexExtractionConfig(boxed_match_priority=0, try_extract_without_anchor=False)]

    @lru_cache(maxsize=4096)
    def read(text: str) -> list[Any]:  # the parent enforces the limit
        return parse(f"\\boxed{{{text}}}", box, parsing_timeout=0) if boxed else parse(text, parsing_timeout=0)

    return lambda given, gold: bool(verify(read(gold), read(given), timeout_seconds=0))


_EQUALITIES: dict[str, Equality] = {
    "math_verify": _library_equality(boxed=True),
    "math_verify_text": _library_equality(boxed=False),
    "qwen": partial(qwen_equal, algebra=algebra_equal),
}


def handle(request: Message, equal: Equality) -> Message:
    """Whether request["given"] equals one of request["golds"]."""
    limit_cpu(request["timeout"])
    try:
        correct = any(equal(request["given"], gold) for gold in request["golds"])
        return {"outcome": "correct" if correct else "wrong", "detail": ""}
    except MemoryError:
        return {"outcome": "error", "detail": "out of memory"}
    except Exception as error:  # the algebra system can raise anything
        return {"outcome": "error", "detail": f"{type(error).__name__}: {error}"[:300]}


def main(memory_mb: int, algebra: str) -> None:
    """Entry point of the process."""
    logging.disable(logging.CRITICAL)  # the library logs a warning for every text that it cannot parse
    equal = _EQUALITIES[algebra]
    equal(r"So \boxed{\frac{x+1}{2}}", r"$\frac{1}{2} + 0.5x$")
    equal(r"\frac{x+1}{2}", r"\frac{1}{2} + 0.5x")  # the parsers build their tables before any limit counts
    serve(Forked(partial(handle, equal=equal)), memory_mb)
