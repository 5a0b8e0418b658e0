"""Sets of mathematical problems (GSM8K, MATH, AIME and the paper's others), in the layouts of their publication."""

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from dph.errors import UserError
from dph.tables import read_rows
from dph.tasks.protocol import register_task
from dph.tasks.sqldata import first_file
from dph.types import Message, Problem
from dph.verifiers.math_answer import extract_answer

INSTRUCTION = r"Please reason step by step, and put your final answer within \boxed{}."
"""The instruction that Qwen2.5-Math was trained with; it is the system message."""

_HARNESS = "qwen25_math_eval"  # folder of the Qwen2.5-Math evaluation data
_SPLITS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "dapo_math_17k": {
        "train": ("dapo_math_17k/dapo_math_17k.jsonl.gz", "dapo_math_17k/dapo_math_17k.parquet")
    },
    "gsm8k": {"train": ("gsm8k_train/train.jsonl", "gsm8k/train.jsonl"), "test": ()},
    "math": {
        "train": ("math_train_7474/train.jsonl", "math/train.jsonl"),
        "test": ("math_test_5000/test.jsonl", "math/test.jsonl"),
    },
    "olymmath_easy": {"test": ("olymmath/OlymMATH-EN-EASY.jsonl",)},
    "olymmath_hard": {"test": ("olymmath/OlymMATH-EN-HARD.jsonl",)},
} | {
    name: {"test": ()}
    for name in (
        "aime24", "aime25", "amc23", "college_math", "gaokao2023en", "hmmt_feb_2025", "math500", "minerva_math",
        "olympiadbench", "sat_math", "svamp",
    )
}  # fmt: skip
_GSM8K = re.compile(r"####\s*(.+?)\s*$")


class MathSet:
    """One set of problems for the math verifier."""

    def __init__(self, name: str, *, root: str, system: str = INSTRUCTION) -> None:
        """root: folder that holds the sets, each as <name>/<split>.jsonl; system: the system message, "" for none."""
        self._name = name
        self._root = Path(root)
        self._system = system

    def problems(self, split: str) -> list[Problem]:
        splits = _SPLITS[self._name]
        if split not in splits:
            raise UserError(f"{self._name} has no split {split!r}; it has {', '.join(splits)}")
        usual = (f"{self._name}/{split}.jsonl", f"{_HARNESS}/{self._name}/{split}.jsonl")
        path = first_file(self._root, (*splits[split], *usual), f"file of {self._name}'s split {split!r}")
        problems = []
        for number, row in enumerate(read_rows(path)):
            question, answer = _question(row), _answer(row)
            if question is None or answer is None:
                what = "question" if question is None else "answer"
                raise UserError(f"{path}, row {number + 1}: no {what}; it has: {', '.join(row)}")
            id = f"{self._name}/{split}/{number:05d}"
            problems.append(Problem(id, self._prompt(question), answer, "math", {"set": self._name}))
        return problems

    def style(self, problem: Problem, response: str) -> str | None:
        """Mathematical responses have no named styles."""
        return None

    def _prompt(self, question: str) -> tuple[Message, ...]:
        user: Message = {"role": "user", "content": question}
        return ({"role": "system", "content": self._system}, user) if self._system else (user,)


@register_task("math_sets")
class MathSets:
    """All sets at once, for evaluation: the split is a set's name (its test split), or "set/split"."""

    def __init__(self, *, root: str, system: str = INSTRUCTION) -> None:
        """Options as for one set."""
        self._options = {"root": root, "system": system}

    def problems(self, split: str) -> list[Problem]:
        name, _, part = split.partition("/")
        if name not in _SPLITS:
            raise UserError(f"no math set is named {name!r}; known are: {', '.join(sorted(_SPLITS))}")
        return MathSet(name, **self._options).problems(part or "test")

    def style(self, problem: Problem, response: str) -> str | None:
        """Mathematical responses have no named styles."""
        return None


for _name in _SPLITS:
    register_task(_name)(partial(MathSet, _name))


def _question(row: Mapping[str, Any]) -> str | None:
    if row.get("Body"):  # SVAMP
        return f"{row['Body'].strip().rstrip('.')}. {row['Question'].strip()}"
    question = row.get("question") or row.get("problem") or row.get("prompt")
    if isinstance(question, str) and row.get("options"):  # SAT
        return f"{question.strip()}\n{row['options'].strip()}"
    return question.strip() if isinstance(question, str) else None


def _answer(row: Mapping[str, Any]) -> str | list[str] | None:
    """The published answer: a field of its own, GSM8K's "#### 18", or the box that closes the solution.

    It is "" where the field is there but empty, for the verifier's check to report; None without any such field.
    """
    fields = ("final_answer", "answer", "Answer")
    for field in fields:
        value = row.get(field)
        if isinstance(value, list) and value:
            return [str(answer) for answer in value]
        if value is not None and not isinstance(value, list):
            text = str(value).strip()
            marked = _GSM8K.search(text)
            return marked[1].replace(",", "") if marked else text
    solution = row.get("solution")
    if isinstance(solution, str):
        return extract_answer(solution) or ""
    return "" if any(field in row for field in fields) else None
