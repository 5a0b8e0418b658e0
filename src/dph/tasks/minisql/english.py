"""Prompts in plain English, for pretrained language models. The compact ones suit models made from scratch."""

import re

_COMPACT = re.compile(r"sql \| (?P<schema>.*) \| (?P<question>.*) \|")
_TABLE = re.compile(r"(?P<name>\w+) \( (?P<columns>[\w ]+) \)")
_SUM = re.compile(r"math \| (?P<sum>.*) =")


def in_english(prompt: str) -> str:
    """A compact prompt in plain English: each table on a line, the question as a sentence, and the form of the answer.

    Raises ValueError for a text that is not a compact prompt of this task.
    """
    if match := _SUM.fullmatch(prompt):
        return f"What is {match['sum']}? Write the number in \\boxed{{}}."
    match = _COMPACT.fullmatch(prompt)
    if match is None:
        raise ValueError(f"not a compact prompt: {prompt!r}")
    tables = [f"{item['name']}({', '.join(item['columns'].split())})" for item in _TABLE.finditer(match["schema"])]
    question = match["question"]
    return (
        "The SQLite database has these tables:\n"
        + "\n".join(tables)
        + f"\nQuestion: {question[0].upper()}{question[1:]}.\nWrite the query in a ```sql block."
    )
