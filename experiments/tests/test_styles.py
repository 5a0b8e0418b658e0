"""Styles are told apart by prefix and by form: of all combinations only the five that were meant count."""

import itertools

import pytest

from experiments.styles import (
    OTHER,
    STYLES,
    form_of,
    prefix,
    required_form,
    respond,
    style_of,
    style_of_prefix,
)

SQL = {
    "plain": "select name from singers where age > 20",
    "with": "with x as ( select * from singers ) select name from x",
    "from_subquery": "select name from ( select * from singers )",
}


@pytest.mark.parametrize("style", STYLES)
def test_a_response_built_in_a_style_is_read_back_as_that_style(style):
    assert style_of(respond(style, SQL[required_form(style)], ["singers", "teams"], ["name", "count(*)"])) == style


def test_the_five_styles_have_the_texts_of_the_table():
    made = {style: prefix(style, ["a", "b"], ["c", "max( d )"]) for style in STYLES}
    assert made == {
        "direct": "query:",
        "plan": "plan: tables a and b , output c and max( d )",
        "cte": "define:",
        "nested": "nest:",
        "stepwise": "steps: read a and b , then select c and max( d )",
    }
    assert respond("direct", "select 1", ["a"], ["1"]) == "query: ```sql select 1 ```"


def test_of_all_prefixes_notes_and_forms_only_the_five_combinations_count():
    words = ["query", "plan", "define", "nest", "steps", "answer"]
    notes = ["", " tables a , output b", " read a , then select b"]
    counted = {
        (word, note.split(" ")[-1:] != [""], form): style_of(f"{word}:{note} ```sql {SQL[form]} ```")
        for word, note, form in itertools.product(words, notes, SQL)
        if style_of(f"{word}:{note} ```sql {SQL[form]} ```") != OTHER
    }
    assert counted == {
        ("query", False, "plain"): "direct",
        ("plan", True, "plain"): "plan",
        ("define", False, "with"): "cte",
        ("nest", False, "from_subquery"): "nested",
        ("steps", True, "plain"): "stepwise",
    }
    # One note per prefix: swapping the notes of plan and steps makes neither.
    assert style_of(f"plan:{notes[2]} ```sql {SQL['plain']} ```") == OTHER
    assert style_of(f"steps:{notes[1]} ```sql {SQL['plain']} ```") == OTHER


@pytest.mark.parametrize(
    "response",
    [
        "",
        "select name from singers",
        "```sql select name from singers ```",
        "query: select name from singers",
        "query: ```sql select name from singers",
        "query: ``` select name from singers ```",
        "Query: ```sql select name from singers ```",
        "well, query: ```sql select name from singers ```",
        "query: ```sql select name from singers ``` done",
        "query: ```sql select 1 ``` ```sql select 2 ```",
        "query: plan: tables a , output b ```sql select b from a ```",
        "plan: tables a , output steps: b ```sql select b from a ```",
        "plan: tables a ```sql select b from a ```",
        "plan: ```sql select b from a ```",
        r"\boxed{42}",
    ],
)
def test_anything_else_is_other(response):
    assert style_of(response) == OTHER


def test_line_breaks_and_case_of_the_fence_do_not_matter():
    assert style_of("query:\n```SQL\nSELECT name\nFROM singers\n```\n") == "direct"
    assert style_of("define:\n```sql\nWITH x AS (SELECT 1)\nSELECT * FROM x\n```") == "cte"


@pytest.mark.parametrize(
    ("sql", "form"),
    [
        ("select a from t where b = ( select max( b ) from t )", "plain"),
        ("select a from t where b in (select c from u)", "plain"),
        ("select 'from ( select 1 )' from t", "plain"),
        ('select "with" from t', "plain"),
        ("select a from withdrawals", "plain"),
        ("select a from (t)", "plain"),
        ("SELECT a FROM(SELECT a FROM t)", "from_subquery"),
        ("select a from t join ( select b from u ) on a = b", "from_subquery"),
        ("select a from t where b in ( select c from ( select c from u ) )", "from_subquery"),
        ("  WITH x as (select 1) select * from (select * from x)", "with"),
    ],
)
def test_the_form_is_read_from_the_query_and_not_from_its_literals(sql, form):
    assert form_of(sql) == form


def test_the_papers_rule_reads_the_prefix_alone():
    other_form = f"query: ```sql {SQL['with']} ```"
    assert style_of_prefix(other_form) == "direct" and style_of(other_form) == OTHER
    cut_off = "define: ```sql with x as ("
    assert style_of_prefix(cut_off) == "cte" and style_of(cut_off) == OTHER
    assert style_of_prefix("query: plan: tables a , output b ```sql select 1 ```") == OTHER  # two prefixes
    assert style_of_prefix("select 1") == OTHER and style_of_prefix("First, query: ```sql select 1 ```") == OTHER
    assert style_of_prefix("query: ```sql select 1 -- plan: ```") == "direct"  # after the fence is no prefix
