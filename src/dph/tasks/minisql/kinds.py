"""Twelve kinds of question, each with a convention that its wording leaves open.

Every kind has two readings, like the conventions of different annotators in BIRD:

| convention   | first reading                       | second reading            | kinds                    |
|--------------|-------------------------------------|---------------------------|--------------------------|
| `duplicates` | equal rows stay                     | DISTINCT                  | list, both, join, values |
| `ties`       | one row (LIMIT 1)                   | all rows at the extreme   | superlative              |
| `bounds`     | "from" and "to" include the bound   | they do not               | count, total             |
| `nulls`      | `<>` leaves NULL out                | IS NOT counts it          | unlike                   |
|              | AVG leaves NULL out                 | NULL counts as zero       | average                  |
|              | NULL is a group, or has a rank      | such rows are left out    | group, sort              |
| `childless`  | parents with children               | all parents (LEFT JOIN)   | per                      |

The wording never reveals which reading is meant. The rows decide whether the two give different results.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from dph.tasks.minisql import questions
from dph.tasks.minisql.databases import Schema, Table
from dph.tasks.minisql.questions import Question


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of question: its convention, its phrasings, and the function that draws one question."""

    name: str
    convention: str
    phrasings: tuple[str, ...]
    """Phrasings in demonstrations and in every split except "cross"."""
    held_out: str
    """The phrasing in "cross", composed of words and expressions from the others."""
    draw: Callable[[random.Random, Schema, Table], Question] = field(repr=False)
    of_child: bool = False
    """The question needs a join, so it can only be asked about the child table."""


KINDS: tuple[Kind, ...] = (
    Kind(
        "list",
        "duplicates",
        (
            "list the {c} of {t} with {with}",
            "{c} of {t} where {is}",
            "show the {c} of all {t} whose {is}",
        ),
        "show the {c} of all {t} with {with}",
        questions.draw_list,
    ),
    Kind(
        "both",
        "duplicates",
        (
            "list the {c} of {t} with {d} '{w}' and {m} {above} {v}",
            "{c} of {t} where {d} is '{w}' and {m} is {above} {v}",
            "show the {c} of all {t} whose {d} is '{w}' and {m} is {above} {v}",
        ),
        "show the {c} of all {t} with {d} '{w}' and {m} {above} {v}",
        questions.draw_both,
    ),
    Kind(
        "join",
        "duplicates",
        (
            "list the {c} of {t} in {b} with {with}",
            "{c} of {t} whose {b} have {with}",
            "show the {c} of all {t} in {b} where {is}",
        ),
        "list the {c} of {t} whose {b} have {with}",
        questions.draw_join,
        of_child=True,
    ),
    Kind(
        "values",
        "duplicates",
        (
            "how many values of {c} do {t} with {with} have",
            "number of {c} values of {t} whose {is}",
            "count the {c} values of {t} where {is}",
        ),
        "number of {c} values of {t} with {with}",
        questions.draw_values,
    ),
    Kind(
        "superlative",
        "ties",
        (
            "list the {c} of {t} with the {highest} {m}",
            "{c} of {t} where {m} is the {highest}",
            "show the {c} of all {t} whose {m} is the {highest}",
        ),
        "show the {c} of all {t} with the {highest} {m}",
        questions.draw_superlative,
    ),
    Kind(
        "count",
        "bounds",
        (
            "how many {t} have {m} {range}",
            "number of {t} whose {m} is {range}",
            "count the {t} with {m} {range}",
        ),
        "number of {t} with {m} {range}",
        questions.draw_count,
    ),
    Kind(
        "total",
        "bounds",
        (
            "total {m} of {t} from {v} to {u}",
            "what is the total of all {m} from {v} to {u} of {t}",
            "add the {m} of {t} from {v} to {u}",
        ),
        "what is the total {m} of {t} from {v} to {u}",
        questions.draw_total,
    ),
    Kind(
        "unlike",
        "nulls",
        (
            "how many {t} have {d} not '{w}'",
            "number of {t} whose {d} is not '{w}'",
            "count the {t} with {d} not '{w}'",
        ),
        "number of {t} with {d} not '{w}'",
        questions.draw_unlike,
    ),
    Kind(
        "average",
        "nulls",
        (
            "average {m} of {t} with {d} '{w}'",
            "what is the average {m} of {t} whose {d} is '{w}'",
            "mean {m} of {t} where {d} is '{w}'",
        ),
        "what is the average {m} of {t} with {d} '{w}'",
        questions.draw_average,
    ),
    Kind(
        "group",
        "nulls",
        (
            "for each {c} how many {t}",
            "number of {t} per {c}",
            "count the {t} by {c}",
        ),
        "for each {c} count the {t}",
        questions.draw_group,
    ),
    Kind(
        "sort",
        "nulls",
        (
            "list the {c} of {t} by {m} from the {highest}",
            "{c} of {t} in order of {m} from the {highest}",
            "show the {c} of all {t} from the {highest} {m}",
        ),
        "show the {c} of all {t} by {m} from the {highest}",
        questions.draw_sort,
    ),
    Kind(
        "per",
        "childless",
        (
            "list the {c} of {b} and how many {t} they have",
            "{c} of {b} with their number of {t}",
            "show the {c} of all {b} and count their {t}",
        ),
        "show the {c} of all {b} with their number of {t}",
        questions.draw_per,
        of_child=True,
    ),
)
"""All kinds, in a fixed order."""
