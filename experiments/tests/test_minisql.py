"""The problems of minisql: what the readings mean, where they differ, and that prompts do not reveal them. Prompts of
minisql in plain English: the same problems as the compact ones, in other words.
"""

import itertools
import operator
import random
import re
from collections import Counter
from contextlib import closing
from sqlite3 import connect
from typing import Any

import numpy as np
import pytest

from dph.errors import SettingsError
from dph.tasks import load_task
from dph.verifiers import Verifiers
from experiments.minisql import MiniSql
from experiments.minisql.questions import KINDS
from experiments.minisql.task import in_english, response
from experiments.minisql.world import ask, draw_rows, held_out, samples
from experiments.styles import STYLES, style_of
from experiments.tests.support import PIECE, contents, execute, pattern, words_of

SQL_SPLITS = ("train", "dev", "test", "cross")


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    return MiniSql(cache_dir=str(tmp_path_factory.mktemp("minisql")))


@pytest.fixture(scope="module")
def world(task):
    """Every SQL problem of the default sizes, with the sample it was made of."""
    sizes = {"train": 420, "dev": 120, "test": 200, "cross": 100}
    return [
        (problem, sample)
        for split in SQL_SPLITS
        for problem, sample in zip(task.problems(split), samples(split, sizes[split], 0), strict=True)
    ]


# --- What the readings mean -------------------------------------------------------------------------------------

COMPARE = {"above": operator.gt, "below": operator.lt}


def drop_duplicates(values, second):
    return list(dict.fromkeys(values)) if second else values


def expected(kind, words, rows, key, second):
    """The rows that a question asks for, computed in Python from the words alone. `words` are the phrasing's slots,
    `key` is the foreign key's column."""
    table = rows[words["t"]]
    column, number = words.get("c"), words.get("m")

    def passes(row):
        name, *verb, value = words.get("with", words.get("is")).split()
        if value.startswith("'"):
            return f"'{row[name]}'" == value
        return COMPARE[verb[-1]](row[name], int(value))

    def single(values):
        return [(value,) for value in values]

    if kind == "list":
        return single(drop_duplicates([row[column] for row in table if passes(row)], second))
    if kind == "both":
        compare, bound = COMPARE[words["above"]], int(words["v"])
        chosen = [row for row in table if row[words["d"]] == words["w"] and compare(row[number], bound)]
        return single(drop_duplicates([row[column] for row in chosen], second))
    if kind == "join":
        parents = {row["id"]: row for row in rows[words["b"]]}
        return single(drop_duplicates([row[column] for row in table if passes(parents[row[key]])], second))
    if kind == "values":
        return [(len(drop_duplicates([row[column] for row in table if passes(row)], second)),)]
    if kind == "superlative":
        best = (max if words["highest"] == "highest" else min)(row[number] for row in table)
        tied = [row[column] for row in table if row[number] == best]
        return single(tied if second else tied[:1])
    if kind == "count":
        up, value = words["range"].endswith("up"), int(re.sub(r"\D", "", words["range"]))
        inside = (lambda x: x > value) if up else (lambda x: x < value)
        return [(sum(inside(row[number]) or (not second and row[number] == value) for row in table),)]
    if kind == "total":
        low, high = int(words["v"]), int(words["u"])
        inner = [row[number] for row in table if low < row[number] < high]
        return [(sum(inner) + (0 if second else sum(row[number] for row in table if row[number] in (low, high))),)]
    if kind == "unlike":
        others = [row[words["d"]] for row in table if row[words["d"]] != words["w"]]
        return [(len(others) if second else len([value for value in others if value is not None]),)]
    if kind == "average":
        found = [row[number] for row in table if row[words["d"]] == words["w"]]
        counted = [value or 0 for value in found] if second else [value for value in found if value is not None]
        return [(sum(counted) / len(counted),)]
    if kind == "group":
        return [pair for pair in Counter(row[column] for row in table).items() if not second or pair[0] is not None]
    if kind == "sort":
        down = words["highest"] == "highest"
        known = sorted((row for row in table if row[number] is not None), key=lambda row: row[number], reverse=down)
        unknown = [] if second else [row for row in table if row[number] is None]  # SQLite: NULL is the lowest
        return single(row[column] for row in (known + unknown if down else unknown + known))
    assert kind == "per"
    children = Counter(row[key] for row in table)
    return [(row[column], children[row["id"]]) for row in rows[words["b"]] if second or children[row["id"]]]


def test_both_readings_return_what_the_words_say(world):
    kinds = Counter()
    for problem, sample in world:
        rows, question = contents(problem.meta["db"]), sample.asked.question
        match = pattern(problem.meta["phrasing"]).fullmatch(words_of(problem.prompt))
        assert match is not None
        words = match.groupdict()
        for second, query in ((False, question.first), (True, question.second)):
            wanted = expected(problem.meta["kind"], words, rows, sample.asked.schema.key, second)
            if problem.meta["kind"] != "sort":
                wanted = sorted(wanted, key=repr)
            assert execute(problem.meta["db"], query.sql()) == wanted, (problem.prompt, query.sql())
        kinds[problem.meta["kind"]] += 1
    assert set(kinds) == {kind.name for kind in KINDS}


def test_every_style_of_either_reading_returns_that_readings_rows(world):
    for problem, sample in world:
        question = sample.asked.question
        for second, query in ((False, question.first), (True, question.second)):
            wanted = execute(problem.meta["db"], query.sql())
            for style in STYLES:
                text = response(question, style, second=second)
                assert style_of(text) == style
                sql = text.split("```sql ")[1].removesuffix(" ```")
                got = execute(problem.meta["db"], sql)
                # The wrapped form of a query has no outermost ORDER BY, so only the rows are compared there.
                assert sorted(got, key=repr) == sorted(wanted, key=repr), text
                assert got == wanted or problem.meta["kind"] != "sort", text


def test_the_words_before_the_query_do_not_tell_the_reading(world):
    for _, sample in world[:120]:
        for style in STYLES:
            first, second = (response(sample.asked.question, style, second=flag) for flag in (False, True))
            assert first != second
            assert first.split("```")[0] == second.split("```")[0]


def test_the_sql_verifier_accepts_the_golds_reading_in_every_style_and_the_other_one_only_where_they_agree(world):
    items, wanted = [], []
    for problem, sample in world[:: len(world) // 150]:
        for style in STYLES:
            for reading in ("first", "second"):
                items.append((problem, response(sample.asked.question, style, second=reading == "second")))
                wanted.append(reading == problem.meta["reading"] or not problem.meta["ambiguous"])
    with Verifiers() as verifiers:
        verdicts = verifiers.verify(items)
    wrong = [item for item, verdict, right in zip(items, verdicts, wanted, strict=True) if verdict.correct != right]
    assert not wrong
    assert all(verdict.scored for verdict in verdicts)


# --- Where the readings differ ----------------------------------------------------------------------------------


def test_problems_are_flagged_ambiguous_exactly_where_the_readings_differ(world):
    for problem, sample in world:
        first, second = (
            execute(problem.meta["db"], query.sql())
            for query in (sample.asked.question.first, sample.asked.question.second)
        )
        assert (first != second) == problem.meta["ambiguous"]
        gold = sample.asked.question.second if problem.meta["reading"] == "second" else sample.asked.question.first
        assert problem.answer == gold.sql()


def test_golds_are_not_empty_and_every_condition_of_the_question_matters(world):
    for problem, sample in world:
        first = sample.asked.question.first
        rows = execute(problem.meta["db"], first.sql())
        assert rows and any(cell not in (None, 0) for row in rows for cell in row)
        for i in range(len(first.where)):
            assert execute(problem.meta["db"], first.without(i).sql()) != rows


def test_shares_hold_within_every_kind(task):
    problems = task.problems("train")
    counts = Counter(problem.meta["kind"] for problem in problems)
    assert counts == {kind.name: 35 for kind in KINDS}  # 420 / 12
    for kind in KINDS:
        mine = [problem.meta for problem in problems if problem.meta["kind"] == kind.name]
        ambiguous = [meta for meta in mine if meta["ambiguous"]]
        assert len(ambiguous) in (19, 20)  # 35 * .56 = 19.6
        assert sum(meta["reading"] == "second" for meta in ambiguous) in (13, 14)  # 19 * .7 = 13.3, 20 * .7 = 14
    assert 0.55 < sum(problem.meta["ambiguous"] for problem in problems) / 420 < 0.57


# --- A prompt does not show which set its problem belongs to -----------------------------------------------------


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_rows_of_either_sort_are_found_for_any_prompt(kind):
    """No prompt is turned away for want of rows, so prompts are equally distributed over both sorts."""
    rng = random.Random(f"either/{kind.name}")
    for _ in range(25):
        asked = ask(rng, kind)
        assert all(draw_rows(rng, asked, ambiguous) is not None for ambiguous in (False, True)), asked.prompt


def held_out_accuracy(prompts, labels, folds=4):
    """Accuracy on unseen prompts of a linear classifier (ridge regression) on a prompt's words and pairs of words."""
    bags = [set(words) | set(itertools.pairwise(words)) for words in map(PIECE.findall, prompts)]
    counts = Counter(piece for bag in bags for piece in bag)
    features = sorted((piece for piece, count in counts.items() if count >= 8), key=repr)
    x = np.array([[1.0] + [piece in bag for piece in features] for bag in bags])
    y = np.where(labels, 1.0, -1.0)
    right = 0
    for fold in range(folds):
        test = np.arange(len(y)) % folds == fold
        gram = x[~test].T @ x[~test] + 30.0 * np.eye(x.shape[1])
        weights = np.linalg.solve(gram, x[~test].T @ y[~test])
        right += int(((x[test] @ weights > 0) == (y[test] > 0)).sum())
    return right / len(y)


def test_prompts_do_not_tell_the_ambiguous_problems():
    drawn = list(samples("separable", 1200, 0))
    prompts = [sample.asked.prompt for sample in drawn]
    # The classifier works: it finds a label that words do tell.
    assert held_out_accuracy(prompts, [sample.asked.kind.convention == "duplicates" for sample in drawn]) > 0.95
    # Majority .56, standard error of an accuracy over 1200 rows .0143; above majority + 3 errors words would tell.
    assert held_out_accuracy(prompts, [sample.ambiguous for sample in drawn]) < 0.603


# --- Splits -------------------------------------------------------------------------------------------------------


def test_databases_hold_their_foreign_keys(world):
    for problem, sample in world:
        with closing(connect(problem.meta["db"])) as connection:
            keys = connection.execute(f"pragma foreign_key_list({sample.asked.schema.child.name})").fetchall()
            assert [(row[2], row[3], row[4]) for row in keys] == [
                (sample.asked.schema.parent.name, sample.asked.schema.key, "id")
            ]
            assert connection.execute("pragma foreign_key_check").fetchall() == []


def test_splits_share_no_database_and_no_prompt(task, world):
    databases = [repr(contents(problem.meta["db"])) for problem, _ in world]
    assert len(set(databases)) == len(databases)
    prompts = [problem.prompt for problem, _ in world]
    assert len(set(prompts)) == len(prompts)
    assert not set(prompts) & {row["prompt"] for row in task.demonstrations(5000, seed=0)}
    ids = [problem.id for split in (*SQL_SPLITS, "ood") for problem in task.problems(split)]
    assert len(set(ids)) == len(ids)
    assert ids[:2] == ["minisql/train/0000", "minisql/train/0001"]


def readings_of_words(words):
    """(kind, table asked, held out phrasing) for each phrasing that the words of a prompt can be read as."""
    found = []
    for kind in KINDS:
        for phrasing in (*kind.phrasings, kind.held_out):
            if match := pattern(phrasing).fullmatch(words):
                found.append((kind, match["t"], phrasing == kind.held_out))
    return found


def test_combinations_and_phrasings_of_cross_are_trained_on_nowhere(task):
    seen = [row["prompt"] for row in task.demonstrations(3000, seed=0) if row["prompt"].startswith("sql")]
    seen += [problem.prompt for split in ("train", "dev", "test") for problem in task.problems(split)]
    for prompt in seen:
        [(kind, table, new_phrasing)] = readings_of_words(words_of(prompt))  # one: words tell kind and table
        assert not held_out(kind, table) and not new_phrasing
    for problem in task.problems("cross"):
        [(kind, table, new_phrasing)] = readings_of_words(words_of(problem.prompt))
        assert held_out(kind, table) and new_phrasing
        assert kind.name == problem.meta["kind"]


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
