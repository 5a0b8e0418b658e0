"""Prompts for SQL: schemas from files and entries, values that a question mentions, equality with published prompts."""

import json
import sqlite3
from pathlib import Path

import pytest

from dph.tasks import load_task
from dph.tasks.sql.prompt import compact_schema, make_prompt, omnisql_schema
from dph.tasks.sql.schema import Column, ForeignKey, Schema, Table, schema_of_entry, schema_of_file
from dph.tasks.sql.value_search import ValueIndex, analysed, queries, stems, tokenized

DDL = """CREATE TABLE Club (Club_ID INTEGER PRIMARY KEY, "Home Town" TEXT, Year INT);
CREATE TABLE member (id INT, club_id INT REFERENCES Club (Club_ID), note TEXT, PRIMARY KEY (id, club_id));
INSERT INTO Club VALUES (1, 'Bern', 1900), (2, 'Bern', 1901), (3, 'Oslo', NULL);
INSERT INTO member VALUES (7, 1, ''), (8, 3, 'a rather long note of more than forty characters');"""


def make_db(path: Path, ddl: str = DDL) -> Path:
    connection = sqlite3.connect(path)
    connection.executescript(ddl)
    connection.close()
    return path


def towns(path: Path, *names: str) -> ValueIndex:
    make_db(path, "CREATE TABLE town (name TEXT);")
    with sqlite3.connect(path) as connection:
        connection.executemany("INSERT INTO town VALUES (?)", [(name,) for name in names])
    connection.close()
    return ValueIndex(path)


# --- the schema ------------------------------------------------------------------------------------------------------


def test_prompts_from_a_database_file(tmp_path: Path):
    db = make_db(tmp_path / "clubs.sqlite")
    schema = schema_of_file(db)
    assert compact_schema(schema) == "club ( club_id , home town , year ) ; member ( id , club_id , note )"
    prompt = make_prompt("compact", schema, db, "How many\n clubs?", "a hint")
    assert prompt.endswith("note ) | a hint How many clubs? |")
    shown = make_prompt("omnisql", schema, db, "How many clubs?", "a hint")
    expected = """Database Schema:
CREATE TABLE Club (
    Club_ID integer, -- example: [1, 2]
    `Home Town` text, -- example: ['Bern', 'Oslo']
    `Year` int, -- example: [1900, 1901]
    PRIMARY KEY (Club_ID)
);

CREATE TABLE member (
    id int, -- example: [7, 8]
    club_id int, -- example: [1, 3]
    note text, -- example: ['a rather long note of more than forty ch']
    PRIMARY KEY (id, club_id),
    CONSTRAINT fk_member_club_id FOREIGN KEY (club_id) REFERENCES Club (Club_ID)
);
This schema"""
    assert expected in shown
    assert "\nQuestion:\na hint\nHow many clubs?\n" in shown


def test_a_tables_json_entry_says_the_same_as_the_file(tmp_path: Path):
    db = make_db(tmp_path / "clubs.sqlite")
    entry = {
        "table_names_original": ["Club", "member"],
        "column_names_original": [[-1, "*"], [0, "Club_ID"], [0, "Home Town"], [0, "Year"], [1, "id"], [1, "club_id"],
                                  [1, "note"]],
        "column_names": [[-1, "*"], [0, "club id"], [0, "home town"], [0, "year"], [1, "id"], [1, "club id"],
                         [1, "note"]],
        "column_types": ["text", "integer", "text", "int", "int", "int", "text"],
        "primary_keys": [1, [4, 5]],
        "foreign_keys": [[5, 1]],
    }  # fmt: skip
    assert schema_of_entry(entry) == schema_of_file(db)


def test_examples_are_mentioned_values_then_the_first_two_at_most_six(tmp_path: Path):
    db = make_db(tmp_path / "t.sqlite", "CREATE TABLE t (x TEXT, y); INSERT INTO t VALUES ('', 1), ('a', 1), ('b', 2);")
    schema = schema_of_file(db)
    mentioned = {("t", "x"): ["b"], ("t", "y"): ["q", "r", "s", "t", "u", "v"]}
    assert omnisql_schema(schema, db, mentioned) == (
        "CREATE TABLE t (\n    x text, -- example: ['b', 'a']\n    y , -- example: ['q', 'r', 's', 't', 'u', 'v']\n);"
    )
    assert "x text, -- example: ['a', 'b']" in omnisql_schema(schema, db)


def test_the_details_of_published_schemas(tmp_path: Path):
    """A key that is listed twice is printed once, after the columns. Reserved words and unusual names have backticks. A
    title is printed only if it differs from the name. The last line has no comma if it has no comment."""
    db = make_db(tmp_path / "t.sqlite", "CREATE TABLE other (x)")
    columns = (Column("year", "text", "year"), Column("ISBN-13", "text", "ISBN"), Column("a_b", "number", "a b"))
    key = ForeignKey("My t", "a_b", "other", "x")
    table = Table("My t", columns, ("a_b", "year"))
    assert omnisql_schema(Schema((table,), (key, ForeignKey("My t", "year", "user", "x"), key)), db) == (
        "CREATE TABLE `My t` (\n    `year` text,\n    `ISBN-13` text, -- ISBN\n    a_b number,\n"
        "    PRIMARY KEY (`year`, a_b),\n"
        "    CONSTRAINT fk_my_t_year FOREIGN KEY (`year`) REFERENCES `user` (x),\n"
        "    CONSTRAINT fk_my_t_a_b FOREIGN KEY (a_b) REFERENCES other (x)\n);"
    )


# --- values that the question mentions -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "expected"),
    [  # examples of Porter's paper, by its steps
        ("caresses", "caress"), ("ponies", "poni"), ("cats", "cat"), ("feed", "feed"), ("agreed", "agre"),
        ("plastered", "plaster"), ("bled", "bled"), ("motoring", "motor"), ("sing", "sing"), ("conflated", "conflat"),
        ("troubled", "troubl"), ("sized", "size"), ("hopping", "hop"), ("falling", "fall"), ("hissing", "hiss"),
        ("failing", "fail"), ("filing", "file"), ("happy", "happi"), ("sky", "sky"), ("relational", "relat"),
        ("conditional", "condit"), ("rational", "ration"), ("digitizer", "digit"), ("radically", "radic"),
        ("vietnamization", "vietnam"), ("operator", "oper"), ("sensibiliti", "sensibl"), ("triplicate", "triplic"),
        ("hopeful", "hope"), ("goodness", "good"), ("allowance", "allow"), ("adoption", "adopt"), ("probate", "probat"),
        ("rate", "rate"), ("cease", "ceas"), ("controll", "control"), ("roll", "roll"), ("generalizations", "gener"),
        ("is", "is"),
    ],
)  # fmt: skip
def test_stems(word: str, expected: str):
    assert stems([word]).get(word, word) == expected


def test_analysis_follows_words_not_spaces():
    assert analysed(["The Joneses' cats, and Brazil’s U.S.A. 3,000 low-priced A_1"]) == [[
        "jones", "cat", "brazil", "u.s.a", "3,000", "low", "price", "a_1"
    ]]  # fmt: skip


def test_marks_are_words_of_their_own():
    assert tokenized('Who isn\'t in "Bern"? Say so, at 3.5 (or don\'t).') == [
        "Who", "is", "n't", "in", '"', "Bern", '"', "?", "Say", "so", ",", "at", "3.5", "(", "or", "do", "n't", ")", "."
    ]  # fmt: skip
    assert queries("a b a") == ["a", "b", "a b", "b a", "a b a"]
    assert len(queries(" ".join(map(str, range(10))))) == 10 + 9 + 8 + 7 + 6 + 5 + 4 + 3 + 1


def test_values_must_stand_in_the_question_almost_wholly(tmp_path: Path):
    index = towns(tmp_path / "a", "New York", "York ", "Old York", "Yorkshire", "12", "x" * 41, "BERN", "")
    # "york " stands whole and is longer than "bern"; of "New York", "york" alone would be half
    assert index.mentioned("Is York in Bern?") == {("town", "name"): ["York ", "BERN"]}
    assert index.mentioned("is 12 " + "x" * 41) == {}
    # 6 of 7 letters are 85.7 %; 5 of 6 are 83.3 %
    found = towns(tmp_path / "b", "letters", "better").mentioned("a letter, a bette")
    assert found == {("town", "name"): ["letters"]}


def test_a_word_gives_at_most_ten_values_ties_by_name(tmp_path: Path):
    index = towns(tmp_path / "a", *(f"x {i}b" for i in range(12)))
    # equal scores: the numbers of the values in the order of text, 0, 1, 10, 11, 2 …
    assert [value.text for value in index.search(["x"])] == [f"x {i}b" for i in (0, 1, 10, 11, 2, 3, 4, 5, 6, 7)]
    assert index.search(["nothing", "of", "the", "kind"]) == []


def test_scores_are_bm25(tmp_path: Path):
    index = towns(tmp_path / "a", "red", "red red blue green", "blue", "grey one two")
    # Four values of mean length 9/4. "red" and "blue" occur in two each, so idf is the same, and what counts is
    # tf/(tf + 0.9(0.6 + 0.4 length/2.25)).
    # red: 1/(1 + 0.7) = 0.588; red red blue green: 2/(2 + 1.18) = 0.629 for red, 1/(1 + 1.18) = 0.459 for blue
    assert [value.text for value in index.search(["red"])] == ["red red blue green", "red"]
    assert [value.text for value in index.search(["blue"])] == ["blue", "red red blue green"]
    assert [value.text for value in index.search(["blue", "blue", "red"])] == ["red red blue green", "blue", "red"]


# --- the published prompts -------------------------------------------------------------------------------------------


def test_prompts_equal_the_published_ones_byte_for_byte(shared_data: Path):
    """On all 972 questions whose database is there (62 of the 1,034 ask wta_1)."""
    spider = shared_data / "spider"
    published = [json.loads(line) for line in (spider / "spider_dev_dphrl.jsonl").read_text().splitlines()]
    problems = load_task("spider", root=str(spider), skip_missing=True).problems("dev")
    by_id = {f"spider/dev/{row['id']:04d}": row for row in published}
    assert len(problems) == 972
    assert {row["reward_model"]["ground_truth"]["db_id"] for id, row in by_id.items()} - {
        f"{p.meta['db_id']}/{p.meta['db_id']}.sqlite" for p in problems
    } == {"wta_1/wta_1.sqlite"}
    assert [p.id for p in problems if by_id[p.id]["prompt"][0]["content"] != p.prompt] == []
    assert all(by_id[p.id]["reward_model"]["ground_truth"]["gold_sql"] == p.answer for p in problems)
