"""Prompts for SQL: a compact one for small models, and the one of OmniSQL, which the paper uses."""

import sqlite3
from pathlib import Path
from typing import Literal

from dph.errors import UserError
from dph.tasks.schema import Column, Schema, Table, connect, quoted

PromptStyle = Literal["omnisql", "compact"]
PROMPT_STYLES: tuple[PromptStyle, ...] = ("omnisql", "compact")

_EXAMPLES = 2
_EXAMPLE_LENGTH = 40  # characters of a text value
_RESERVED = {"date", "language", "year"}  # written in backticks in the published prompts

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


def make_prompt(style: PromptStyle, schema: Schema, db: Path, question: str, evidence: str = "") -> str:
    """The prompt for a question in a style; evidence (BIRD's hints) stands before the question.

    Raises UserError for an unknown style.
    """
    asked = f"{evidence.strip()}\n{question}" if evidence.strip() else question
    if style == "omnisql":
        return _OMNISQL.format(schema=omnisql_schema(schema, db), question=asked)
    if style == "compact":
        return f"{compact_schema(schema)} | {' '.join(asked.split())} |"
    raise UserError(f"no SQL prompt style is named {style!r}; known are: {', '.join(PROMPT_STYLES)}")


def compact_schema(schema: Schema) -> str:
    """Names only, in lower case: "table ( column , column ) ; table ( column )"."""
    return " ; ".join(
        f"{table.name} ( {' , '.join(column.name for column in table.columns)} )" for table in schema.tables
    ).lower()


def omnisql_schema(schema: Schema, db: Path) -> str:
    """CREATE TABLE statements with example values, keys and constraints, as in the paper's prompts.

    The published prompts also show values that match the question; these show the first two of each column only.
    """
    connection = connect(db)
    try:
        return "\n\n".join(_create_table(connection, schema, table) for table in schema.tables)
    finally:
        connection.close()


def _create_table(connection: sqlite3.Connection, schema: Schema, table: Table) -> str:
    lines = [_column_line(connection, table, column) for column in table.columns]
    if table.primary_key:
        lines.append((f"PRIMARY KEY ({', '.join(map(_name, table.primary_key))})", ""))
    order = [column.name for column in table.columns]
    for key in sorted(schema.foreign_keys, key=lambda k: order.index(k.column) if k.table == table.name else -1):
        if key.table == table.name:
            name = f"fk_{key.table}_{key.column}".lower().replace(" ", "_")
            reference = f"REFERENCES {_name(key.to_table)} ({_name(key.to_column)})"
            lines.append((f"CONSTRAINT {name} FOREIGN KEY ({_name(key.column)}) {reference}", ""))
    body = []
    for index, (code, comment) in enumerate(lines):
        # The published prompts keep the comma before a comment even on the last line.
        comma = "," if comment or index < len(lines) - 1 else ""
        body.append(f"    {code}{comma}{comment}")
    return f"CREATE TABLE {_name(table.name)} (\n" + "\n".join(body) + "\n);"


def _column_line(connection: sqlite3.Connection, table: Table, column: Column) -> tuple[str, str]:
    """The declaration of a column, and its comment or nothing."""
    notes = []
    if _letters(column.title) != _letters(column.name):
        notes.append(column.title)
    examples = _examples(connection, table.name, column.name)
    if examples:
        notes.append(f"example: {examples}")
    return f"{_name(column.name)} {column.type}", f" -- {', '.join(notes)}" if notes else ""


def _examples(connection: sqlite3.Connection, table: str, column: str) -> list[object]:
    """The first two distinct values, in the order in which SQLite finds them; long texts are cut."""
    sql = f"SELECT DISTINCT {quoted(column)} FROM {quoted(table)} WHERE {quoted(column)} IS NOT NULL LIMIT {_EXAMPLES}"
    try:
        values = [row[0] for row in connection.execute(sql)]
    except sqlite3.Error:  # tables.json describes a table that the file lacks
        return []
    return [value[:_EXAMPLE_LENGTH] if isinstance(value, str) else value for value in values if value != ""]


def _name(name: str) -> str:
    plain = name.replace("_", "").isalnum() and name.lower() not in _RESERVED
    return name if plain else f"`{name}`"


def _letters(text: str) -> str:
    return text.lower().replace(" ", "").replace("_", "")
