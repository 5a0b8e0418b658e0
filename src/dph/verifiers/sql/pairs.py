"""SQL queries whose truth is known: right queries on a small database, with queries that say the same or do not.

Two queries say the same if they return the same rows on every database with these tables: in the same order if the
question asks for one, with the same columns in their order. The tests run all of them, also on other rows.
"""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TABLES = """
CREATE TABLE person (id INTEGER PRIMARY KEY, name TEXT NOT NULL, town TEXT, age INTEGER);
CREATE TABLE loan (id INTEGER PRIMARY KEY, person INTEGER NOT NULL, book INTEGER NOT NULL, days INTEGER);
CREATE TABLE book (id INTEGER PRIMARY KEY, title TEXT NOT NULL, author TEXT NOT NULL, pages INTEGER NOT NULL);
"""
ROWS = """
INSERT INTO person VALUES (1, 'Ada', 'Bonn', 36), (2, 'Ben', 'Bonn', 41), (3, 'Cleo', 'Turin', NULL),
    (4, 'Dan', NULL, 19), (5, 'Eve', 'Turin', 41), (6, 'Ada', 'Oslo', 23);
INSERT INTO book VALUES (1, 'Fog', 'Moor', 120), (2, 'Sand', 'Moor', 305), (3, 'Tide', 'Reed', 305),
    (4, 'Ash', 'Lund', 88), (5, 'Dune Grass', 'Reed', 210);
INSERT INTO loan VALUES (1, 1, 2, 10), (2, 1, 3, 25), (3, 2, 2, NULL), (4, 3, 1, 7), (5, 3, 2, 10), (6, 5, 5, 31),
    (7, 5, 3, 14);
"""


class SqlPair(NamedTuple):
    """A right query and another one."""

    kind: str
    question: str
    gold: str
    text: str
    right: bool


_RIGHT: dict[str, tuple[tuple[str, str, tuple[str, ...]], ...]] = {
    "other spellings": (
        (
            "How many people are there?",
            "SELECT count(*) FROM person",
            (
                "select COUNT(1) from person;",
                "SELECT COUNT(id) AS n FROM `person`",
                "SELECT count(*)\nFROM person -- all",
            ),
        ),
        (
            "Which people live in Bonn?",
            "SELECT name FROM person WHERE town = 'Bonn'",
            (
                "SELECT p.name FROM person AS p WHERE p.town IN ('Bonn')",
                "SELECT \"name\" FROM person WHERE 'Bonn' = town",
            ),
        ),
    ),
    "rows in any order": (
        (
            "Which titles have more than 200 pages?",
            "SELECT title FROM book WHERE pages > 200",
            (
                "SELECT title FROM book WHERE pages > 200 ORDER BY title DESC",
                "SELECT title FROM book WHERE NOT pages <= 200",
            ),
        ),
    ),
    "joins and subqueries": (
        (
            "Who borrowed the book Sand?",
            "SELECT DISTINCT p.id, p.name FROM person p JOIN loan l ON l.person = p.id JOIN book b ON b.id = l.book "
            "WHERE b.title = 'Sand'",
            (
                "SELECT id, name FROM person WHERE id IN (SELECT person FROM loan WHERE book IN (SELECT id FROM book "
                "WHERE title = 'Sand'))",
                "SELECT p.id, p.name FROM person p WHERE EXISTS (SELECT 1 FROM loan l JOIN book b ON b.id = l.book "
                "WHERE l.person = p.id AND b.title = 'Sand')",
                "WITH s AS (SELECT person FROM loan JOIN book ON book.id = loan.book WHERE title = 'Sand') "
                "SELECT id, name FROM person WHERE id IN s",
            ),
        ),
        (
            "Who borrowed nothing?",
            "SELECT name FROM person WHERE id NOT IN (SELECT person FROM loan)",
            (
                "SELECT p.name FROM person p LEFT JOIN loan l ON l.person = p.id WHERE l.id IS NULL",
                "SELECT name FROM person WHERE id IN (SELECT id FROM person EXCEPT SELECT person FROM loan)",
            ),
        ),
    ),
    "groups and order": (
        (
            "How many books has each author, by name?",
            "SELECT author, count(*) FROM book GROUP BY author ORDER BY author",
            (
                "SELECT author, SUM(1) FROM book GROUP BY 1 ORDER BY 1 ASC",
                "SELECT DISTINCT b.author, (SELECT count(*) FROM book c WHERE c.author = b.author) FROM book b "
                "ORDER BY 1",
            ),
        ),
        (
            "Which authors have more than one book?",
            "SELECT author FROM book GROUP BY author HAVING count(*) > 1",
            ("SELECT author FROM (SELECT author, count(*) AS n FROM book GROUP BY author) WHERE n >= 2",),
        ),
    ),
}
_WRONG: dict[str, tuple[tuple[str, str, tuple[str, ...]], ...]] = {
    "repeated rows": (
        (
            "Which names are there, each once?",
            "SELECT DISTINCT name FROM person",
            ("SELECT name FROM person", "SELECT name FROM person UNION ALL SELECT name FROM person"),
        ),
        ("Which names have the people?", "SELECT name FROM person", ("SELECT DISTINCT name FROM person",)),
        (
            "For each loan, who has the book?",
            "SELECT p.name FROM loan l JOIN person p ON p.id = l.person",
            ("SELECT name FROM person WHERE id IN (SELECT person FROM loan)",),
        ),
    ),
    "bounds and conditions": (
        (
            "Which titles have more than 210 pages?",
            "SELECT title FROM book WHERE pages > 210",
            (
                "SELECT title FROM book WHERE pages >= 210",
                "SELECT title FROM book WHERE pages < 210",
                "SELECT title FROM book",
            ),
        ),
        (
            "Who lives in Bonn or Turin and is above 40?",
            "SELECT name FROM person WHERE (town = 'Bonn' OR town = 'Turin') AND age > 40",
            ("SELECT name FROM person WHERE town = 'Bonn' OR town = 'Turin' AND age > 40",),
        ),
    ),
    "missing values": (
        (
            "How many people are there?",
            "SELECT count(*) FROM person",
            ("SELECT count(town) FROM person", "SELECT count(age) FROM person"),
        ),
        (
            "Who has no town?",
            "SELECT name FROM person WHERE town IS NULL",
            ("SELECT name FROM person WHERE town = NULL",),
        ),
        (
            "Who does not live in Bonn, or has no town?",
            "SELECT name FROM person WHERE town IS NOT 'Bonn'",
            ("SELECT name FROM person WHERE town <> 'Bonn'",),
        ),
        (
            "How long are loans on average?",
            "SELECT avg(days) FROM loan",
            ("SELECT sum(days) * 1.0 / count(*) FROM loan", "SELECT avg(coalesce(days, 0)) FROM loan"),
        ),
    ),
    "columns": (
        (
            "What are the fewest and the most pages?",
            "SELECT min(pages), max(pages) FROM book",
            ("SELECT max(pages), min(pages) FROM book", "SELECT min(pages) FROM book"),
        ),
        (
            "Which titles did Moor write?",
            "SELECT title FROM book WHERE author = 'Moor'",
            ("SELECT title, pages FROM book WHERE author = 'Moor'", "SELECT * FROM book WHERE author = 'Moor'"),
        ),
    ),
    "order and limits": (
        (
            "What are the titles, the longest name first?",
            "SELECT title FROM book ORDER BY length(title) DESC, title",
            ("SELECT title FROM book ORDER BY length(title), title", "SELECT title FROM book ORDER BY title"),
        ),
        (
            "Who are the two youngest people, the youngest first?",
            "SELECT name FROM person WHERE age IS NOT NULL ORDER BY age LIMIT 2",
            (
                "SELECT name FROM person ORDER BY age LIMIT 2",
                "SELECT name FROM person WHERE age IS NOT NULL ORDER BY age LIMIT 3",
                "SELECT name FROM person WHERE age IS NOT NULL ORDER BY age DESC LIMIT 2",
            ),
        ),
        (
            "Which titles have the most pages?",
            "SELECT title FROM book WHERE pages = (SELECT max(pages) FROM book)",
            ("SELECT title FROM book ORDER BY pages DESC LIMIT 1",),
        ),
    ),
    "numbers": (
        (
            "What share of the books has more than 200 pages?",
            "SELECT avg(pages > 200) FROM book",
            ("SELECT sum(pages > 200) / count(*) FROM book", "SELECT 100 * avg(pages > 200) FROM book"),
        ),
        (
            "How many pages have all books together?",
            "SELECT sum(pages) FROM book",
            ("SELECT total(DISTINCT pages) FROM book",),
        ),
    ),
    "joins": (
        (
            "How many loans has each person?",
            "SELECT p.id, count(l.id) FROM person p LEFT JOIN loan l ON l.person = p.id GROUP BY p.id",
            (
                "SELECT p.id, count(l.id) FROM person p JOIN loan l ON l.person = p.id GROUP BY p.id",
                "SELECT p.id, count(*) FROM person p LEFT JOIN loan l ON l.person = p.id GROUP BY p.id",
                "SELECT p.id, count(l.id) FROM person p, loan l GROUP BY p.id",
            ),
        ),
    ),
    "right by accident": (
        ("How many people are there?", "SELECT count(*) FROM person", ("SELECT 6", "SELECT count(*) + 1 FROM book")),
        (
            "Who is 19?",
            "SELECT name FROM person WHERE age = 19",
            ("SELECT 'Dan'", "SELECT name FROM person WHERE id = 4"),
        ),
        (
            "Which titles have more than 300 pages?",
            "SELECT title FROM book WHERE pages > 300",
            ("SELECT title FROM book WHERE id IN (2, 3)", "SELECT title FROM book WHERE pages = 305"),
        ),
    ),
    "no answers": (
        (
            "How many people are there?",
            "SELECT count(*) FROM person",
            (
                "",
                "SELECT count(*) FROM people",
                "SELECT count(* FROM person",
                "6",
                "SELECT count(*) FROM person SELECT",
            ),
        ),
        (
            "Who lives in Rome?",
            "SELECT name FROM person WHERE town = 'Rome'",
            ("SELECT name FROM people WHERE town = 'Rome'", "there is nobody"),
        ),
    ),
    "harm": (
        (
            "How many people are there?",
            "SELECT count(*) FROM person",
            (
                "DELETE FROM person",
                "SELECT 1; SELECT count(*) FROM person",
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
                "INSERT INTO person VALUES (99, 'Zed', NULL, 1) RETURNING 6",
            ),
        ),
    ),
}


def sql_pairs() -> list[SqlPair]:
    """All pairs; a right query is also paired with itself."""
    found: dict[SqlPair, None] = {}
    for table, right in ((_RIGHT, True), (_WRONG, False)):
        for kind, questions in table.items():
            for question, gold, queries in questions:
                found[SqlPair("the right query itself", question, gold, gold, True)] = None
                found |= dict.fromkeys(SqlPair(kind, question, gold, query, right) for query in queries)
    return list(found)


def make_database(path: Path, rows: str = ROWS) -> Path:
    """Write the database of the pairs as a SQLite file. rows: statements that fill its tables."""
    with sqlite3.connect(path) as connection:
        connection.executescript(TABLES + rows)
    connection.close()
    return path


def other_rows() -> Iterator[str]:
    """Further rows for the same tables, on which queries differ that only happened to agree."""
    yield ROWS + "INSERT INTO person VALUES (7, 'Flo', 'Rome', 19);"
    yield ROWS + "INSERT INTO book VALUES (6, 'Elm', 'Lund', 340), (7, 'Oar', 'Lund', 12);"
    yield ROWS.replace("(4, 'Ash', 'Lund', 88)", "(4, 'Ash', 'Lund', 301), (7, 'Zinc', 'Lund', 12)").replace(
        "(4, 'Dan', NULL, 19)", "(4, 'Dana', 'Rome', 20), (8, 'Gus', NULL, 19)"
    )
