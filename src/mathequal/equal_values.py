"""Equality of numbers, expressions, quantities, ratios and digits."""

import re
from collections.abc import Sequence
from fractions import Fraction

from mathequal.answers import VALUES, Answer, Digits, Expression, Proportion, Quantity, Time, Value, unit_in, words_in
from mathequal.asked import asks_for_percent, base_asked
from mathequal.asked_units import fits_question
from mathequal.comparison import HEAVY, Comparison, all_of, any_of
from mathequal.languages import thing
from mathequal.nodes import PI, Degrees, Node, Number, Product, Quotient, Ratio
from mathequal.rational import exact
from mathequal.trees import contains, numeral, operations, symbols
from mathequal.units import DEGREE, PERCENT, RADIAN, Unit, adds_a_name


def quantities(c: Comparison, gold: Value, answer: Value) -> bool | None:
    """Equal up to exact conversion; either side may leave its unit out."""
    if not _things_fit(gold, answer):
        return False
    left, right = unit_in(gold), unit_in(answer)
    if left and right:
        return _with_units(c, gold.value, left, answer.value, right)
    return _with_one_unit(c, gold.value, left, answer.value, right)


def _things_fit(gold: Value, answer: Value) -> bool:
    """Whether what is counted can be the same; either side may leave it out."""
    things, others = words_in(gold), words_in(answer)
    if things and others and not _same_words(things, others):
        return False
    if others and not things and not adds_a_name(others, exact(answer.value)):
        return False
    left, right = unit_in(gold), unit_in(answer)
    beside_unit = (things and right and right[0]) or (others and left and left[0])
    return not (beside_unit or (things[:1] == ("of",) and not others))


def _with_units(c: Comparison, gold: Node, gold_unit: Unit, answer: Node, answer_unit: Unit) -> bool | None:
    """Equality of two values with units."""
    (left, factor), (right, other) = gold_unit, answer_unit
    if (left == () and right) or (right == () and left):  # "units" are of length
        return (left or right) == (("L", 1),) and c.expressions(gold, answer)
    if {left, right} == {DEGREE, RADIAN}:
        return c.identical(*(Degrees(x) if unit == DEGREE else x for x, unit in ((gold, left), (answer, right))))
    if left != right:  # cm² in place of square units
        squared = {"U", "L"} == {left[0][0], right[0][0]} and left[0][1] == right[0][1] > 1
        return squared and len(left) == len(right) == 1 and c.expressions(gold, answer)
    if factor == other and left:
        return c.expressions(gold, answer)
    if not left:
        return _with_one_unit(c, gold, gold_unit, answer, answer_unit)
    worked_out = c.form_allowed(gold, answer) or (numeral(answer) and (exact(answer) or 1) % 1)
    return bool(worked_out) and c.identical(Product(Number(factor, ""), gold), Product(Number(other, ""), answer))


def _with_one_unit(c: Comparison, g: Node, gold: Unit | None, a: Node, answer: Unit | None) -> bool | None:
    """Equality of a value with a unit and one without; or of two without."""
    left, right = gold and gold[0], answer and answer[0]
    factor, other = gold[1] if gold else Fraction(1), answer[1] if answer else Fraction(1)
    if left is None and right == () and other != 1:  # mm per m
        return c.form_allowed(g, a) and c.identical(g, Product(Number(other, ""), a))
    fits = left is not None or answer is None or fits_question(answer, c.question)
    if PERCENT in (left, right):
        return _percentages(c, g, factor if left else None, a, other, fits=fits)
    if DEGREE in (left, right) and contains(a if left else g, PI):
        return c.identical(*((Degrees(g), a) if left else (g, Degrees(a))))
    return fits and c.expressions(g, a)


def _percentages(
    c: Comparison, g: Node, factor: Fraction | None, a: Node, other: Fraction, *, fits: bool
) -> bool | None:
    """Equality of a percentage and a number. factor: that of the gold answer, if this is the percentage; other: that of
    the answer."""
    if factor and asks_for_percent(c.question):  # 0.45 and 9/20 have yet to be converted
        return c.expressions(g, a)
    share = Product(Number((factor or other) / 100, ""), g if factor else a)
    plain = factor is not None or (value := exact(g)) is None or abs(value) >= 1 or value == 0
    asked = c.question != "" or numeral(g) in ("int", "dec", "mixed")  # 13/12 % is nobody's 13/12
    plain &= factor is not None or (fits and asked and other == 1)
    loose = c.form_allowed(g, a) or bool(numeral(g) and numeral(a))
    same = loose and c.identical(*((share, a) if factor else (g, share)))
    return any_of([plain and c.expressions(g, a), same])


def _same_words(left: Sequence[str], right: Sequence[str]) -> bool:
    """Whether words name the same thing, in singular or plural, and with or without what describes it."""
    texts = [re.sub(r"\w{4,}|\b\w[a-z]*\b", lambda word: word[0].lower(), thing(" ".join(x))) for x in (left, right)]
    first, second = (re.sub(r"[.,]|s\b", "", text.replace("/", " per ")).split() for text in texts)  # GB is not Gb
    things = {str(" ".join(words).partition(" of")[0].split()[-1:]) for words in (first, second)}
    extra = {*first} ^ {*second}
    if "more" in extra or ("of" in extra and len(things) > 1):
        return False
    return first == second or ("per" not in first + second and ({*first} <= {*second} or {*second} <= {*first}))


def converted(c: Comparison, known: Answer, other: Answer) -> bool | None:
    """Whether a quantity is another one in another unit."""
    if not isinstance(known, Quantity) or not isinstance(other, Quantity) or not known.unit or not other.unit:
        return False
    if known.unit == other.unit:
        return c.identical(known.value, other.value)
    return known.unit[0] == other.unit[0] and quantities(c, known, other)


def same_value(c: Comparison, gold: Answer, answer: Answer, *, last: bool) -> bool | None:
    """Equality of value, whatever the form. last: of the last member of a chain."""
    if not isinstance(gold, VALUES) or not isinstance(answer, VALUES):
        return False
    unit, is_plain = unit_in(gold), isinstance(answer, Expression)
    if not last and is_plain and unit and unit[0] == PERCENT:  # 19/25 = 76 %
        return c.identical(Product(Number(unit[1] / 100, ""), gold.value), answer.value)
    if last and operations(answer.value) & HEAVY:
        return False
    return is_plain and (isinstance(gold, Expression) or not last) and c.identical(gold.value, answer.value)


def approximates(c: Comparison, gold: Answer, answer: Answer) -> bool:
    """Whether a decimal number is the gold answer's value, rounded or, within 5 %, cut off."""
    if not isinstance(gold, VALUES) or not isinstance(answer, VALUES) or symbols(gold.value):
        return False
    left, right = unit_in(gold), unit_in(answer)
    if (left and right and left[0] != right[0]) or numeral(answer.value) not in ("int", "dec", "sci"):
        return False
    error, share = c.error(gold.value, answer.value)
    return bool(abs(error) <= 0.5001 or (0 <= error <= 1 and share <= 0.05))


def ratios(c: Comparison, gold: Answer, answer: Answer) -> bool | None:
    """Proportional terms; a ratio of two terms may be a fraction, or a time of day."""
    if isinstance(gold, Proportion) and isinstance(answer, Proportion):
        left, right = gold.terms, answer.terms
        if not all(rule.allows(Ratio(left), Ratio(right)) for rule in c.rules):
            return False
        if len(left) != len(right) or any(exact(term) == 0 for term in (*left, *right)) or _is_clock(left):
            return len(left) == len(right) and all_of(map(c.identical, left, right))
        pairs = zip(left[1:], right[1:], strict=True)
        return all_of(c.identical(Product(x, right[0]), Product(y, left[0])) for x, y in pairs)
    ratio, other = (gold, answer) if isinstance(gold, Proportion) else (answer, gold)
    assert isinstance(ratio, Proportion)
    if isinstance(other, Time):  # 16:30 is one of the 24-hour clock
        time = (*map(exact, ratio.terms), *[0] * (3 - len(ratio.terms)))
        return _is_clock(ratio.terms) and time == (other.hour, other.minute, other.second)
    if len(ratio.terms) != 2 or not isinstance(other, Expression) or numeral(other.value) != "frac":
        return False
    return c.identical(Quotient(*ratio.terms), other.value)


def _is_clock(terms: Sequence[Node]) -> bool:
    """Whether a:b may be a time, as 12:00 and 7:45, for which 14:90 is not another way to write it."""
    hour, minute = (exact(terms[0]), exact(terms[-1])) if len(terms) == 2 else (None, None)
    return hour is not None and minute is not None and 0 <= hour < 24 and 10 <= minute < 60


def bases(c: Comparison, gold: Answer, answer: Answer) -> bool:
    """Digits with their base, which the gold answer leaves out if the question asks for it."""
    if isinstance(gold, Expression) and isinstance(answer, Digits):
        asked = base_asked(c.question) == answer.radix and answer.digits.isdecimal()
        return asked and exact(gold.value) == int(answer.sign + answer.digits)
    return gold.says(answer)
