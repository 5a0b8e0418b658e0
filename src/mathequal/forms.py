"""Forms of an expression, beyond its value: whether it is factored, expanded, in lowest terms, and so on."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from math import gcd, lcm
from typing import Any

from mathequal.formula import Formula, formula_of, is_unfinished, negative
from mathequal.nodes import (
    IMAGINARY,
    Big,
    Call,
    Constant,
    Function,
    Negative,
    Node,
    Number,
    Power,
    Product,
    Quotient,
    Ratio,
    Sum,
    Symbol,
)
from mathequal.rational import exact
from mathequal.trees import canonical, contains, holds, integer_node, is_number, numeral, parts_of, symbols, walk


def _factors(node: Node) -> Iterator[tuple[Node, int]]:
    """The factors of a product that hold letters, with their powers."""
    match node:
        case Negative(inner):
            yield from _factors(inner)
        case Product(parts):
            for part in parts:
                yield from _factors(part)
        case Quotient(top, bottom):
            yield from _factors(top)
            yield from ((factor, -power) for factor, power in _factors(bottom))
        case Power(base, Number(power, "int")):
            yield from ((factor, own * int(power)) for factor, own in _factors(base))
        case _ if symbols(node):
            yield node, 1


def _content(formula: Formula) -> Fraction:
    """The largest number that divides every coefficient."""
    tops, bottoms = [x.numerator for _, x in formula], [x.denominator for _, x in formula]
    return Fraction(gcd(*tops), lcm(*bottoms)) if formula else Fraction(1)


def _common(formula: Formula) -> set[Any]:
    """What divides every term of a sum: the factors of a single term, letters, or the sum itself."""
    if len(formula) > 1:
        shared = set.intersection(*({factor for factor, power in product if power > 0} for product, _ in formula))
        return shared | {formula}
    return {factor for product, _ in formula for factor, power in product if power > 0}


def is_factored(node: Node) -> bool:
    """Whether a polynomial is a product of sums from which nothing more can be drawn out at sight."""
    for factor, power in _factors(node):
        formula = formula_of(factor)
        sum_of_powers = isinstance(factor, Sum) and len(formula) > 1 and not holds(factor, Function, Call, Big)
        if power < 0 or not (isinstance(factor, Symbol) or sum_of_powers):
            return False
        if any(exponent < 0 for product, _ in formula for _, exponent in product):  # x − 4/x
            return False
        if len(formula) > 1 and (_content(formula) != 1 or len(_common(formula)) > 1):
            return False
    return True


def number_of_factors(node: Node) -> int:
    return sum(power for _, power in _factors(node))


def is_expanded(node: Node) -> bool:
    """Whether an expression is a sum of terms without products of sums, like terms or common brackets."""
    terms = [x.inner if isinstance(x, Negative) else x for x in (node.terms if isinstance(node, Sum) else (node,))]
    sums = [[(f, p) for f, p in _factors(term) if isinstance(f, Sum) and p > 0] for term in terms]
    if any(len(some) > 1 or any(power > 1 for _, power in some) for some in sums):
        return False
    brackets = [formula_of(factor) for some in sums for factor, _ in some]
    return len(brackets) == len({*brackets}) and not is_unfinished(node) and not _holds_power_of_numbers(node)


def is_without_brackets(node: Node) -> bool:
    """Whether no term of an expanded sum multiplies a sum."""
    terms = [x.inner if isinstance(x, Negative) else x for x in (node.terms if isinstance(node, Sum) else (node,))]
    multiplied = any(
        isinstance(x, Product) and any(isinstance(f, Sum) and p > 0 for f, p in _factors(x)) for x in terms
    )
    return not multiplied and not any(isinstance(x, Sum) for x in terms if x is not node) and is_expanded(node)


def _holds_power_of_numbers(node: Any) -> bool:
    match node:
        case Power(Number(), Number(_, "int")):
            return True
    return isinstance(node, tuple) and any(map(_holds_power_of_numbers, parts_of(node)))


def is_finished(node: Node) -> bool:
    """Whether nothing is left to work out: no like terms, no term 0, no factor 1, no absolute value of a number."""
    return not is_unfinished(node) and not any(map(_is_idle, walk(node)))


def _is_idle(node: Node) -> bool:
    match node:
        case Sum(terms):
            return any(is_number(term, 0) for term in terms)
        case Product(factors):
            return any(is_number(factor, 1) for factor in factors[1:])  # 1x only has a coefficient
        case Function("abs", [inner]):
            return numeral(inner) != ""
    return False


def is_reduced(node: Node) -> bool:
    """Whether the fractions of an expression are in lowest terms."""
    match node:
        case Number(_, "frac" | "mixed", detail=common) if common is not None:
            return common == 1
        case Quotient(top, bottom):
            above, below = formula_of(top), formula_of(bottom)
            left, right = _content(above), _content(below)
            whole = left.denominator == right.denominator == 1
            numbers = not whole or gcd(left.numerator, right.numerator) == 1
            signs = _common(below) | {negative(x) for x in _common(below) if isinstance(x, frozenset)}
            return numbers and not _common(above) & signs and is_reduced(top) and is_reduced(bottom)
        case Ratio(terms):
            values = [exact(term) for term in terms]
            return not all(x and x.denominator == 1 for x in values) or gcd(*(int(x or 0) for x in values)) == 1
        case Negative(parts=parts) | Sum(parts) | Product(parts):
            return all(map(is_reduced, parts))
        case Function("sqrt" | "root", [inner, *_]):
            return is_reduced(inner)
    return True


def is_of_primes(node: Node) -> bool:
    """Whether a number is written as a product of powers of primes."""
    factors = node.factors if isinstance(node, Product) else (node,)
    bases = [x.base if isinstance(x, Power) and isinstance(x.exponent, Number) else x for x in factors]
    return (len(factors) > 1 or bases != [node]) and all(map(_is_prime, bases))


def _is_prime(node: Node) -> bool:
    value = node.value if isinstance(node, Number) and node.form == "int" else 0
    return 1 < value < 10**6 and all(int(value) % n for n in range(2, int(float(value) ** 0.5) + 1))


def is_simple_radical(node: Any) -> bool:
    """Whether each root is of what has no factor that can be drawn out, no two roots are multiplied, and none is below
    a fraction bar."""
    if not isinstance(node, tuple) or not node:
        return True
    if root := _root(node):  # roots of sums with roots are another way to write a sum of roots
        inner, index = root
        if _holds_root(inner):
            return isinstance(inner, Sum) or is_simple_radical(inner)
        return _is_without_powers(inner, index)
    if isinstance(node, Power) and not isinstance(node.base, Sum) and numeral(node.exponent) and _holds_root(node.base):
        return False
    if isinstance(node, Product) and sum(_root(x) is not None and not symbols(x) for x in node.factors) > 1:
        return False
    if isinstance(node, Quotient) and _holds_root(node.bottom):
        return False
    return all(map(is_simple_radical, parts_of(node)))


def _root(node: Any) -> tuple[Node, int] | None:
    """What a root is of, and its index: of √2, ∛2 and 2^{1/3}."""
    match node:
        case Function("sqrt", [inner]):
            return inner, 2
        case Function("root", [inner, Number(index, "int")]) if 1 < index < 100:
            return inner, int(index)
        case Power(base, exponent) if (
            isinstance(exponent, (Number, Quotient)) and (value := exact(exponent)) is not None
        ):
            return (base, value.denominator) if 1 < value.denominator < 100 else None
    return None


def _holds_root(node: Any) -> bool:
    return isinstance(node, tuple) and node != () and (_root(node) is not None or any(map(_holds_root, parts_of(node))))


def _is_without_powers(node: Node, index: int) -> bool:
    """Whether nothing can be drawn out of a root: no factor is a power of the index, and the index cannot be less."""
    formula = formula_of(node)
    if len(formula) != 1:
        return True
    [(product, value)] = formula
    if value.denominator != 1:
        return bool(product)
    number, powers = abs(value.numerator), [power for _, power in product]
    prime = 2
    while prime < 1000 and number > 1:
        power = 0
        while number % prime == 0:
            number, power = number // prime, power + 1
        powers += [power] * (power > 0)
        prime += 1
    if number > 1:
        whole = round(float(number) ** (1 / index)) if number.bit_length() < 900 else 0
        powers.append(index if whole**index == number else 1)
    return bool(powers) and max(powers) < index and gcd(index, *powers) == 1


def divides_by_no_letter(node: Any) -> bool:
    """Whether no polynomial of letters is below a fraction bar or has a negative power."""
    below = [part for part in walk(node) if isinstance(part, (Quotient, Power))]
    divisors = [part.bottom if isinstance(part, Quotient) else part.base if _is_inverse(part) else () for part in below]
    return not any(symbols(divisor) and not holds(divisor, Function, Call) for divisor in divisors)


def divides_by_real_numbers(node: Node) -> bool:
    """Whether i is neither below a fraction bar nor under a negative power."""
    below = [part for part in walk(node) if isinstance(part, (Quotient, Power))]
    return not any(
        contains(part.bottom if isinstance(part, Quotient) else part.base, IMAGINARY)
        for part in below
        if isinstance(part, Quotient) or _is_inverse(part)
    )


def _is_inverse(node: Power) -> bool:
    """Whether a power has a negative number for its exponent."""
    return numeral(node.exponent) != "" and (exact(node.exponent) or 0) < 0


def has_positive_exponents(node: Node) -> bool:
    return not any(isinstance(part, Power) and _is_inverse(part) for part in walk(node))


def _fractions(node: Node) -> list[Node]:
    """The terms of a sum, which a number may multiply or divide."""
    match node:
        case Negative(inner):
            return _fractions(inner)
        case Sum(terms):
            return [fraction for term in terms for fraction in _fractions(term)]
        case Quotient(Sum() as top, bottom) if not symbols(bottom):
            return _fractions(top)
        case Product(factors):
            letters = [factor for factor in factors if symbols(factor)]
            return _fractions(letters[0]) if len(letters) == 1 else [node]
    return [node]


def is_of_partial_fractions(node: Node) -> bool:
    """Whether each term divides by powers of one polynomial only, which is no product."""
    for fraction in _fractions(node):
        bottoms = {canonical(factor): factor for factor, power in _factors(fraction) if power < 0}
        if len(bottoms) > 1 or any(len(_common(formula_of(x))) > 1 for x in bottoms.values() if isinstance(x, Sum)):
            return False
    return True


def number_of_fractions(node: Node) -> int:
    return len(_fractions(node))


def is_single_fraction(node: Node) -> bool:
    """Whether no fraction with letters is a term of a sum."""
    terms = node.terms if isinstance(node, Sum) else ()
    return not any(isinstance(part, Quotient) and symbols(part.bottom) for term in terms for part in walk(term))


def is_power(node: Node) -> bool:
    """Whether an expression is a power of a number or letter with an exponent that has nothing to work out."""
    match node:
        case Number(_, "ten"):
            return True
        case Power(Number() | Symbol() | Constant() | Quotient(), exponent):
            return numeral(exponent) != "" or symbols(exponent) != set()
    return False


def base_of_power(node: Node) -> object:
    """The base of a power: a Fraction, or the text of another one."""
    base = node.base if isinstance(node, Power) else integer_node(10)
    return canonical(base) if (value := exact(base)) is None else value


def has_functions_of_letters(node: Node) -> bool:
    """Whether each function is of a single letter: sin x, but not sin 2x."""
    return all(isinstance(part.arguments[0], Symbol) for part in walk(node) if isinstance(part, Function))


def is_without_logs_of_products(node: Node) -> bool:
    """Whether no logarithm is of a product, a quotient or a power."""
    logs = [part for part in walk(node) if isinstance(part, Function) and part.name in ("ln", "log", "logb")]
    return not any(isinstance(part.arguments[0], (Product, Quotient, Power)) for part in logs)


def is_single_log(node: Node) -> bool:
    return (
        isinstance(node, Function)
        and node.name in ("ln", "log", "logb")
        and not holds(node.arguments[0], Function)
        and not is_unfinished(node.arguments[0])
    )


def has_one_letter_once(node: Node) -> bool:
    """Whether each letter is in one place only, as in a (x − h)² + k, and nothing is left to add."""
    return _places(node) == len(symbols(node)) > 0 and not is_unfinished(node)


def _places(node: Any) -> int:
    if not isinstance(node, tuple) or not node:
        return 0
    return 1 if isinstance(node, Symbol) else sum(map(_places, parts_of(node)))


def is_form(*forms: str) -> Callable[[Node], bool]:
    return lambda node: numeral(node) in forms


def is_scientific(node: Node) -> bool:
    """Whether a number is a × 10^n with one digit other than 0 before the point."""
    match node:
        case Negative(inner):
            return is_scientific(inner)
        case Number(value, "sci", power=power) if power is not None:
            return 1 <= abs(value) / Fraction(10) ** power < 10
    return numeral(node) == "ten"
