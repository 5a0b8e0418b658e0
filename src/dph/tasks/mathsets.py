"""Sets of mathematical problems (GSM8K, MATH, AIME and the paper's other sets), in their published layouts."""

import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dph.columns import media_mark, media_of
from dph.errors import DataError, SettingsError, unknown
from dph.tasks import Task, register_task
from dph.tasks.benchmarks import check_size
from dph.tasks.sql.data import existing
from dph.tasks.tables import read_rows
from dph.types import Message, Problem
from dph.verifiers.exact import gold_fault, gold_list, gold_text
from mathequal.extract import find_answer, strip_dollars

INSTRUCTION = r"Please reason step by step, and put your final answer within \boxed{}."
"""The instruction with which Qwen2.5-Math was trained."""
BRIEF_INSTRUCTION = r"Put your final answer within \boxed{}, without an explanation."
"""For responses of few tokens."""

_PROMPTS: Mapping[str, tuple[str, str]] = {
    "qwen25-math-cot": (INSTRUCTION, "{question}"),
    "qwen-boxed": ("You are a helpful assistant.", "{question}\n" + INSTRUCTION),
    "boxed": ("", "{question}\n" + INSTRUCTION),
    "plain": ("", "{question}"),
}
"""System and user message; the first two are the Qwen2.5-Math evaluation's prompts of the same names."""

_HARNESS = ("", "qwen25_math_eval/", "evaluation/data/", "data/")  # where the Qwen2.5-Math evaluation keeps its sets
# Published file names, accepted besides <name>/<split>.jsonl and, last, <split>.jsonl.
_FILES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "dapo_math_17k": {
        "train": (
            *("dapo_math_17k/dapo_math_17k.jsonl.gz", "dapo_math_17k/dapo_math_17k.parquet"),
            *("dapo-math-17k.parquet", "data/dapo-math-17k.parquet"),
        )
    },
    "gsm8k": {"train": ("gsm8k_train/train.jsonl",), "test": ()},
    "math": {"train": ("math_train_7474/train.jsonl",), "test": ("math_test_5000/test.jsonl",)},
    "olymmath_easy": {"test": ("olymmath/OlymMATH-EN-EASY.jsonl", "OlymMATH-EN-EASY.jsonl")},
    "olymmath_hard": {"test": ("olymmath/OlymMATH-EN-HARD.jsonl", "OlymMATH-EN-HARD.jsonl")},
    "math500": {"test": ("MATH-500/test.jsonl",)},
    "aime24": {"test": ("AIME24.jsonl", "aime24.jsonl")},
    "aime25": {"test": ("AIME25.jsonl", "aime25.jsonl")},
    "olympiadbench": {"test": ("OlympiadBench/OE_TO_maths_en_COMP.json", "OE_TO_maths_en_COMP.json")},
} | {name: {"test": ()} for name in ("amc23", "college_math", "gaokao2023en", "hmmt_feb_2025", "minerva_math")}
_GSM8K = re.compile(r"####\s*(.+?)\s*$")
_DAPO = re.compile(
    r"Solve the following math problem step by step\..*?answer to the problem\.\s*(.*?)\s*"
    r'Remember to put your answer on its own line after "Answer:"\.?',
    re.DOTALL,
)


@dataclass
class MathSet(Task):
    """One set of problems for the math verifier. Raises UserError for an unknown style."""

    name: str
    _: KW_ONLY
    root: str
    """Folder of the sets, each as <name>/<split>.jsonl or under its published name, or the set's own folder."""
    prompt_style: str = "qwen25-math-cot"
    """qwen25-math-cot (instruction as system message), qwen-boxed (instruction after the question), boxed (the same
    without a system message) or plain."""
    subset: bool = False
    """The file intentionally holds only a part of the set."""

    def __post_init__(self) -> None:
        if self.prompt_style not in _PROMPTS:
            raise SettingsError(unknown("math prompt style", self.prompt_style, map(str, _PROMPTS)))

    def problems(self, split: str) -> list[Problem]:
        """The problems of a split. Raises UserError for an unknown split, missing files and rows without an answer."""
        name, splits = self.name, _FILES[self.name]
        if split not in splits:
            raise SettingsError(f"{name} has no split {split!r}; it has {', '.join(splits)}")
        usual = [f"{folder}{name}/{split}.jsonl" for folder in _HARNESS]
        places = (*usual, *splits[split], f"{split}.jsonl")
        [path, *_] = existing(Path(self.root), places, f"file of {name}'s split {split!r}")
        instruction, user = _PROMPTS[self.prompt_style]
        system = [Message(role="system", content=instruction)] if instruction else []
        problems: dict[str, Problem] = {}
        for number, row in enumerate(read_rows(path)):
            try:
                question, answer = _question(row), _answer(row)
                if shown := media_of(row, ()) or media_mark(question or ""):
                    raise ValueError(f"{shown} is a picture, film or sound, and a prompt is text alone")
            except ValueError as error:
                raise DataError(f"{path}, row {number + 1}: {error}") from error
            if question is None or answer is None:
                what = "question" if question is None else "answer"
                raise DataError(f"{path}, row {number + 1}: no {what}; it has: {', '.join(row)}")
            extra = row.get("extra_info")
            index = extra.get("index") if isinstance(extra, Mapping) else None
            key = str(number if index is None else index)  # DAPO's file contains repeated rows
            if key not in problems:
                id = f"{name}/{split}/{len(problems):05d}"
                prompt = (*system, Message(role="user", content=user.replace("{question}", question)))
                problems[key] = Problem(id, prompt, answer, "math", _meta(name, len(problems), row))
        check_size(name, split, len(problems), path, subset=self.subset)
        return list(problems.values())


for _name in _FILES:
    register_task(_name)(partial(MathSet, _name))


def _question(row: Mapping[str, Any]) -> str | None:
    """The question in the wording of the Qwen2.5-Math evaluation."""
    question = row.get("question") or row.get("problem") or row.get("prompt")
    if isinstance(question, list) and question and isinstance(question[-1], dict):  # DAPO: a chat of one message
        if len(question) > 1:
            raise ValueError("the prompt is a chat of several messages; --task records reads these")
        question = question[-1].get("content")
        wrapped = _DAPO.search(question) if isinstance(question, str) else None
        question = wrapped[1] if wrapped else question
    if not isinstance(question, str):
        return None
    answer = _answer(row)
    if isinstance(answer, str) and answer.lower() in ("true", "false"):
        question += " (True or False)"
    if isinstance(answer, str) and answer.lower() in ("yes", "no"):
        question += " (Yes or No)"
    return question.strip()


def _answer(row: Mapping[str, Any]) -> str | list[str] | None:
    """The published answer: its own field, GSM8K's "#### 18", or the final box of the solution; "" if it is empty,
    which the verifier's check reports; None if there is no such field. Raises ValueError for a value that is neither
    text nor a finite number nor a list of these."""
    fields = ("final_answer", "answer")
    model = row.get("reward_model")
    truth = model.get("ground_truth") if isinstance(model, Mapping) else None  # DAPO
    for value in (*map(row.get, fields), truth):
        if isinstance(value, list) and value:
            return [strip_dollars(text) for text in _texts(value)]
        if value is not None and not isinstance(value, list):
            [text] = _texts(value)
            marked = _GSM8K.search(text)
            return marked[1].replace(",", "") if marked else text
    solution = row.get("solution")
    if isinstance(solution, str):
        return read_answer(solution) if r"\boxed" in solution else ""
    return "" if any(field in row for field in fields) else None


def read_answer(value: Any) -> Any:
    """The answer in a published solution: behind GSM8K's ####, or else in its last box, None if that is not closed; a
    text without either, and what is not text, is the answer itself.

    >>> read_answer("2 + 3 = 5\\n#### 5"), read_answer(r"So \\boxed{\\frac{1}{2}}."), read_answer("7")
    ('5', '\\\\frac{1}{2}', '7')
    """
    if not isinstance(value, str):
        return value
    if marked := _GSM8K.search(value):
        return marked[1].replace(",", "")
    last_box = value.rfind(r"\boxed")
    return value.strip() if last_box < 0 else find_answer(value[last_box:])


def _texts(value: Any) -> list[str]:
    if fault := gold_fault(value):
        raise ValueError(fault)
    return [gold_text(gold).strip() for gold in gold_list(value)]


def _meta(name: str, index: int, row: Mapping[str, Any]) -> dict[str, Any]:
    """Set, position, and the row's difficulty and subject."""
    difficulty = row.get("level") or row.get("difficulty")
    subject = row.get("subject") or row.get("type") or row.get("data_topic") or row.get("subfield")
    meta: dict[str, Any] = {"set": name, "index": index}
    if difficulty is not None:
        numbered = isinstance(difficulty, int | float)
        meta["difficulty"] = f"level {difficulty:g}" if numbered else str(difficulty).lower()
    return meta | ({"subject": str(subject)} if subject else {})
