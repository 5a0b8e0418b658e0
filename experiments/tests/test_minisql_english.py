"""Prompts of minisql in plain English: the same problems as the compact ones, in other words."""

import re
from typing import Any

import pytest

from dph.errors import SettingsError
from dph.tasks import load_task
from experiments.minisql import MiniSql
from experiments.minisql.task import in_english

SIZES: dict[str, Any] = {"train_problems": 24, "cross_problems": 12, "ood_problems": 10}


def test_a_prompt_lists_every_table_and_asks_the_question():
    compact = "sql | movies ( id weight name ) ; cars ( id size movie_id ) | show the size of all cars |"
    assert in_english(compact) == (
        "The SQLite database has these tables:\nmovies(id, weight, name)\ncars(id, size, movie_id)\n"
        "Question: Show the size of all cars.\nWrite the query in a ```sql block."
    )
    assert in_english("math | 12 + 5 =") == r"What is 12 + 5? Write the number in \boxed{}."
    with pytest.raises(ValueError, match="not a compact prompt"):
        in_english("show the size of all cars")


def test_only_the_prompts_differ_and_no_word_of_them_is_lost(tmp_path):
    compact = MiniSql(cache_dir=str(tmp_path), **SIZES)
    english = MiniSql(cache_dir=str(tmp_path), prompts="english", **SIZES)
    for split in ("train", "cross", "ood"):
        for one, other in zip(compact.problems(split), english.problems(split), strict=True):
            assert (one.id, one.answer, one.meta) == (other.id, other.answer, other.meta)
            assert words(other.prompt) >= words(one.prompt) - {"sql", "math"}
    rows = compact.demonstrations(50, 1), english.demonstrations(50, 1)
    for one, other in zip(*rows, strict=True):
        assert one["response"] == other["response"]
        assert words(other["prompt"]) >= words(one["prompt"]) - {"sql", "math"}


def words(text):
    return set(re.findall(r"\w+", text.lower()))


def test_another_kind_of_prompts_is_refused():
    with pytest.raises(SettingsError, match="prompts is 'latin'; it must be compact"):
        load_task("minisql", prompts="latin")
