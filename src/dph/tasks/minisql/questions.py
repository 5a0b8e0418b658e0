"""Functions that draw a question of each kind, with its two readings as SQL. `kinds` defines the kinds."""

import random
from dataclasses import dataclass, field, replace

from dph.tasks.minisql.databases import Needs, Schema, Table
from dph.tasks.minisql.lexicon import BOUNDS, TEXT_VALUES
from dph.tasks.minisql.queries import Query


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its two readings."""

    words: dict[str, str]
    """The values of the phrasing's slots."""
    tables: tuple[str, ...]
    first: Query
    second: Query
    needs: Needs = field(default_factory=Needs)
    """What the rows must satisfy so that the readings can differ, and only by the kind's convention."""


def _comparison(rng: random.Random, table: Table) -> tuple[str, str, str, str]:
    """A number column, compared strictly: (column, operator in words, value, condition)."""
    column, value = rng.choice(table.numbers), rng.choice(BOUNDS)
    word, operator = rng.choice((("above", ">"), ("below", "<")))
    return column, word, str(value), f"{column} {operator} {value}"


def _equality(rng: random.Random, column: str) -> tuple[str, str]:
    """A value of a text column and the condition that the column equals it."""
    value = rng.choice(TEXT_VALUES)
    return value, f"{column} = '{value}'"


def _filter(rng: random.Random, table: Table, output: str) -> tuple[dict[str, str], str, Needs]:
    """A comparison or an equality on a column other than the output column: (words, condition, needs)."""
    if rng.random() < 0.5:
        column, word, number, condition = _comparison(rng, table)
        return {"with": f"{column} {word} {number}", "is": f"{column} is {word} {number}"}, condition, Needs()
    column = rng.choice([column for column in table.text if column != output])
    value, condition = _equality(rng, column)
    return (
        {"with": f"{column} '{value}'", "is": f"{column} is '{value}'"},
        condition,
        Needs(frequent=((column, value),)),
    )


def draw_list(rng: random.Random, _: Schema, table: Table) -> Question:
    """A column of the rows that pass a filter; duplicates kept, or DISTINCT."""
    column = rng.choice(table.text)
    words, condition, needs = _filter(rng, table, column)
    first = Query((column,), table.name, (condition,))
    return Question({"c": column, **words}, (table.name,), first, replace(first, distinct=True), needs)


def draw_both(rng: random.Random, _: Schema, table: Table) -> Question:
    """The same with two conditions."""
    column, other = rng.sample(table.text, 2)
    value, equal = _equality(rng, other)
    number, word, bound, compared = _comparison(rng, table)
    first = Query((column,), table.name, (equal, compared))
    words = {"c": column, "d": other, "w": value, "m": number, "above": word, "v": bound}
    return Question(words, (table.name,), first, replace(first, distinct=True), Needs(frequent=((other, value),)))


def draw_join(rng: random.Random, schema: Schema, table: Table) -> Question:
    """A column of the children whose parents pass a filter; duplicates kept, or DISTINCT."""
    column, parent = rng.choice(table.text), schema.parent
    words, condition, needs = _filter(rng, parent, column)
    first = Query((column,), schema.joined, (condition,))
    words = {"c": column, "b": parent.name, **words}
    return Question(words, (table.name, parent.name), first, replace(first, distinct=True), needs)


def draw_values(rng: random.Random, _: Schema, table: Table) -> Question:
    """The number of values in a column; all values, or DISTINCT ones."""
    column = rng.choice(table.text)
    words, condition, needs = _filter(rng, table, column)
    first = Query((f"count( {column} )",), table.name, (condition,))
    second = replace(first, outputs=(f"count( distinct {column} )",))
    return Question({"c": column, **words}, (table.name,), first, second, needs)


def draw_superlative(rng: random.Random, _: Schema, table: Table) -> Question:
    """A column of the row with the extreme number; one row, or all tied rows."""
    column, number = rng.choice(table.text), rng.choice(table.numbers)
    word, direction, function = rng.choice((("highest", " desc", "max"), ("lowest", "", "min")))
    first = Query((column,), table.name, tail=f"order by {number}{direction} limit 1")
    extreme = f"{number} = ( select {function}( {number} ) from {table.name} )"
    second = Query((column,), table.name, (extreme,), opaque=True)
    return Question({"c": column, "m": number, "highest": word}, (table.name,), first, second)


def draw_count(rng: random.Random, _: Schema, table: Table) -> Question:
    """The number of rows on one side of a bound; the bound is included, or excluded."""
    number, value = rng.choice(table.numbers), rng.choice(BOUNDS)
    words, closed, opened = rng.choice(((f"from {value} up", ">=", ">"), (f"up to {value}", "<=", "<")))
    first = Query(("count(*)",), table.name, (f"{number} {closed} {value}",))
    second = replace(first, where=(f"{number} {opened} {value}",))
    return Question({"m": number, "range": words}, (table.name,), first, second)


def draw_total(rng: random.Random, _: Schema, table: Table) -> Question:
    """The sum of a column's numbers between two bounds; the bounds are included, or excluded."""
    number = rng.choice(table.numbers)
    low, high = sorted(rng.sample(BOUNDS, 2))
    first = Query((f"sum( {number} )",), table.name, (f"{number} between {low} and {high}",))
    second = replace(first, where=(f"{number} > {low} and {number} < {high}",))
    return Question({"m": number, "v": str(low), "u": str(high)}, (table.name,), first, second)


def draw_unlike(rng: random.Random, _: Schema, table: Table) -> Question:
    """The number of rows that do not have a value; NULL is not counted (`<>`), or is counted (IS NOT)."""
    column = rng.choice(table.text)
    value = rng.choice(TEXT_VALUES)
    first = Query(("count(*)",), table.name, (f"{column} <> '{value}'",))
    second = replace(first, where=(f"{column} is not '{value}'",))
    needs = Needs(nullable=(column,), frequent=((column, value),))
    return Question({"d": column, "w": value}, (table.name,), first, second, needs)


def draw_average(rng: random.Random, _: Schema, table: Table) -> Question:
    """The mean of a number over the rows with a value; NULL is left out, or counts as zero."""
    number = rng.choice(table.numbers)
    column = rng.choice(table.text)
    value, equal = _equality(rng, column)
    first = Query((f"avg( {number} )",), table.name, (equal,))
    second = replace(first, outputs=(f"avg( ifnull( {number} , 0 ) )",))
    needs = Needs(nullable=(number,), frequent=((column, value),))
    return Question({"m": number, "d": column, "w": value}, (table.name,), first, second, needs)


def draw_group(rng: random.Random, _: Schema, table: Table) -> Question:
    """The number of rows per value; NULL is one of the values, or is left out."""
    column = rng.choice(table.text)
    first = Query((column, "count(*)"), table.name, tail=f"group by {column}")
    second = replace(first, where=(f"{column} is not null",))
    return Question({"c": column}, (table.name,), first, second, Needs(nullable=(column,)))


def draw_sort(rng: random.Random, _: Schema, table: Table) -> Question:
    """A column in the order of a number; rows where the number is NULL are included, or left out."""
    column, number = rng.choice(table.text), rng.choice(table.numbers)
    word, direction = rng.choice((("highest", " desc"), ("lowest", "")))
    first = Query((column,), table.name, tail=f"order by {number}{direction}")
    second = replace(first, where=(f"{number} is not null",))
    words = {"c": column, "m": number, "highest": word}
    return Question(words, (table.name,), first, second, Needs(nullable=(number,), unique=(number,)))


def draw_per(rng: random.Random, schema: Schema, table: Table) -> Question:
    """The number of children per parent; parents without children are left out, or get zero."""
    parent = schema.parent
    column = rng.choice(parent.text)
    join = f"join {table.name} on {schema.key} = {parent.name}.id"
    outputs, tail = (column, f"count( {schema.key} )"), f"group by {parent.name}.id"
    first = Query(outputs, f"{parent.name} {join}", tail=tail, opaque=True)
    second = replace(first, source=f"{parent.name} left {join}")
    return Question({"c": column, "b": parent.name}, (parent.name, table.name), first, second)
