"""Prompts for SQL: a compact one for small models, and OmniSQL's prompt, which the paper uses."""

import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import lru_cache
from pathlib import Path

from dph.tasks.sql.schema import Column, ForeignKey, Schema, Table, column_values, connect

_WORDS = """
ACCESS ADD AFTER ALL ALTER ANALYZE AND AS ASC AVG BEFORE BEGIN BETWEEN BIGINT BINARY BIT BLOB BOOLEAN BOTH BREAK BY
CALL CASCADE CASE CAST CHAR CHARACTER CHECK CLOB COLLATE COLUMN COMMENT COMMIT CONDITION CONNECT CONSTRAINT CONTINUE
CONVERT COUNT CREATE CROSS CURRENT CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP CURSOR DATABASE DATE DAY DEC DECIMAL
DECLARE DEFAULT DELETE DESC DESCRIBE DISTINCT DO DOUBLE DROP EACH ELSE ELSEIF END ESCAPE EXCEPT EXEC EXECUTE EXISTS
EXIT EXPLAIN EXTEND EXTERNAL FALSE FETCH FILTER FLOAT FOR FOREIGN FROM FULL FUNCTION GENERATED GLOBAL GRANT GROUP
HAVING HOLD HOUR IDENTIFIED IF IGNORE ILIKE IN INDEX INNER INOUT INSENSITIVE INSERT INT INTEGER INTERSECT INTERVAL
INTO IS ITERATE JOIN KEY LANGUAGE LEADING LEAVE LEFT LIKE LIMIT LOCAL LOCALTIME LOCALTIMESTAMP LOCK LOOP MATCH MAX
MERGE MIN MINUTE MODIFIES MODULE MONTH NATURAL NCHAR NEW NO NOT NULL NUMERIC OF OFFSET OLD ON ONLY OPEN OR ORDER OUT
OUTER OVER PARTITION PERCENT PLACING POSITION PRECISION PRIMARY PROCEDURE RANGE READS REAL RECURSIVE REFERENCES
REGEXP RELEASE RENAME REPEAT REPLACE RESIGNAL RESTRICT RETURN REVOKE RIGHT RLIKE ROLE ROLLBACK ROW ROWNUM ROWS
SAVEPOINT SCHEMA SELECT SENSITIVE SESSION SET SIGNAL SMALLINT SOME SPECIFIC SQL SQLEXCEPTION SQLSTATE SQLWARNING
START STATIC SUBSTRING SUM SYSDATE TABLE TERMINATED THEN TIME TIMESTAMP TO TOP TRAILING TRIGGER TRUE UNDO UNION
UNIQUE UNKNOWN UNLOCK UPDATE USAGE USER USING VALUE VALUES VARCHAR VARYING VIEW WHEN WHERE WHILE WITH WITHIN YEAR
ZONE
"""
RESERVED = frozenset(_WORDS.split())
"""Keywords of SQL dialects, in capitals."""


PROMPT_STYLES = ("omnisql", "compact")

_FIRST = 2  # values of a column that are always shown
_EXAMPLES = 6  # most values of a column, including those that the question mentions
_EXAMPLE_LENGTH = 40  # characters of a text value
_PLAIN = re.compile(r"[a-zA-Z0-9_]*")

_OMNISQL = """Task Overview:
You are a data science expert. Below, you are provided with a database schema and a natural language question. Your \
task is to understand the schema and generate a valid SQL query to answer the question.

Database Engine:
SQLite

Database Schema:
{schema}
This schema describes the database's structure, including tables, columns, primary keys, foreign keys, and any \
relevant relationships or constraints.

Question:
{question}

Instructions:
- Make sure you only output the information that is asked in the question. If the question asks for a specific \
column, make sure to only include that column in the SELECT clause, nothing more.
- The generated query should return all of the information asked in the question without any missing or extra \
information.
- Before generating the final SQL query, please think through the steps of how to write the query.

Output Format:
In your answer, please enclose the generated SQL query in a code block:
```sql
-- Your SQL query
```

Take a deep breath and think step by step to find the correct SQL query.
"""


_STEPS = "- Before generating the final SQL query, please think through the steps of how to write the query.\n"
_LAST = "Take a deep breath and think step by step to find the correct SQL query.\n"
_BRIEF = "Answer with the query alone, without an explanation.\n"


def make_prompt(style: str, schema: Schema, db: Path, question: str, evidence: str = "", *, steps: bool = True) -> str:
    """The prompt for a question in one of PROMPT_STYLES; evidence (BIRD's hint) comes before the question. steps: the
    style omnisql asks for the steps before the query; otherwise for the query alone, which takes few tokens."""
    asked = f"{evidence}\n{question}" if evidence.strip() else question
    if style == "omnisql":
        from dph.tasks.sql.value_search import value_index  # needs numpy, which is slow to load

        mentioned = value_index(db).mentioned(asked)
        form = _OMNISQL if steps else _OMNISQL.replace(_STEPS, "").replace(_LAST, _BRIEF)
        return form.format(schema=omnisql_schema(schema, db, mentioned), question=asked)
    return f"{compact_schema(schema)} | {' '.join(asked.split())} |"


def compact_schema(schema: Schema) -> str:
    """Names only, in lower case: "table ( column , column ) ; table ( column )"."""
    return " ; ".join(
        f"{table.name} ( {' , '.join(column.name for column in table.columns)} )" for table in schema.tables
    ).lower()


def omnisql_schema(schema: Schema, db: Path, mentioned: Mapping[tuple[str, str], Sequence[str]] | None = None) -> str:
    """CREATE TABLE statements with example values, keys and constraints, as in OmniSQL's prompts: of each column at
    most six values, those `mentioned` in the question, by (table, column) in lower case, before its first two."""
    values = _first_values(db)
    tables = []
    for table in schema.tables:
        examples = []
        for column in table.columns:
            key = (table.name.lower(), column.name.lower())
            both = dict.fromkeys([*(mentioned or {}).get(key, ()), *values.get(key, ())])
            examples.append(list(both)[:_EXAMPLES])
        tables.append(_create_table(schema, table, examples))
    return "\n\n".join(tables)


def _create_table(schema: Schema, table: Table, examples: Sequence[Sequence[object]]) -> str:
    lines = [_column_line(column, values) for column, values in zip(table.columns, examples, strict=True)]
    names = [column.name for column in table.columns]
    primary = [name for name in dict.fromkeys(names) if name in table.primary_key]
    if primary:
        lines.append(f"PRIMARY KEY ({', '.join(map(_name, primary))}),")
    keys = sorted((k for k in schema.foreign_keys if k.table == table.name), key=lambda key: names.index(key.column))
    whole: dict[object, list[ForeignKey]] = {}
    for place, key in enumerate(keys):
        whole.setdefault((key.number,) if key.number >= 0 else place, []).append(key)
    lines += dict.fromkeys(map(_constraint, whole.values()))
    # The comma after the last line is removed, unless a comment follows it.
    body = "\n".join(f"    {line}" for line in lines).removesuffix(",")
    return f"CREATE {'VIEW' if table.is_view else 'TABLE'} {_name(table.name)} (\n{body}\n);"


def _constraint(keys: Sequence[ForeignKey]) -> str:
    """The declaration of a foreign key, of one column or of several."""
    name = "_".join(["fk", keys[0].table, *(key.column for key in keys)]).lower().replace(" ", "_")
    columns, to = (", ".join(map(_name, names)) for names in zip(*((k.column, k.to_column) for k in keys), strict=True))
    reference = f"REFERENCES {_name(keys[0].to_table)}" + (f" ({to})" if all(key.to_column for key in keys) else "")
    return f"CONSTRAINT {name} FOREIGN KEY ({columns}) {reference},"


def _column_line(column: Column, examples: Sequence[object]) -> str:
    """The declaration of a column, with its comment if it has one."""
    title = column.title.lower()
    says_nothing = not title.strip() or column.name.lower() in (title, title.replace(" ", "_"), title.replace(" ", ""))
    notes = [] if says_nothing else [column.title]
    if examples:
        notes.append(f"example: {list(examples)}")
    return f"{_name(column.name)} {column.type}".rstrip() + "," + (f" -- {', '.join(notes)}" if notes else "")


@lru_cache(maxsize=64)
def _first_values(db: Path) -> dict[tuple[str, str], list[object]]:
    """The first two distinct values of every column, in SQLite's order, by names in lower case; long texts are
    truncated."""
    with closing(connect(db)) as connection:
        return {
            (table.lower(), column.lower()): [v[:_EXAMPLE_LENGTH] if isinstance(v, str) else v for v in values]
            for table, column, values in column_values(connection, f" AND {{}} != '' LIMIT {_FIRST}", views=True)
        }


def _name(name: str) -> str:
    plain = _PLAIN.fullmatch(name) and name.upper() not in RESERVED
    return name if plain else f"`{name}`"
