"""The task minisql: demonstrations, lexicon, determinism, the cache, and what users can get wrong."""

import hashlib
import json
import os
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dph.build import load_problems
from dph.config import TaskConfig
from dph.errors import DataError, SettingsError
from dph.tasks import load_task
from experiments.minisql import MiniSql
from experiments.minisql.task import MATH_SHARE, SECOND_READING, STYLE_WEIGHTS
from experiments.styles import STYLES, style_of
from experiments.tests.support import PIECE, contents

SMALL = {"train_problems": 24, "dev_problems": 12, "test_problems": 12, "cross_problems": 12, "ood_problems": 10}
SPLITS = ("train", "dev", "test", "cross", "ood", "sums")


def small(folder, **options):
    return load_task("minisql", cache_dir=str(folder), **SMALL, **options)


def digest(task):
    """Of everything a seed generates: prompts, answers, meta, rows of the databases, demonstrations."""
    parts = []
    for split in SPLITS:
        for problem in task.problems(split):
            meta = {key: value for key, value in problem.meta.items() if key != "db"}
            parts.append([problem.id, problem.prompt, problem.answer, problem.verifier, meta])
            parts.append(contents(problem.meta["db"]) if "db" in problem.meta else {})
    parts.append(task.demonstrations(50, seed=3))
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


# --- Demonstrations -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows():
    return MiniSql().demonstrations(20_000, seed=0)


def test_demonstrations_show_styles_and_readings_as_often_as_declared(rows):
    sql = [row for row in rows if row["prompt"].startswith("sql")]
    # Standard errors: sqrt(.15 * .85 / 20000) = .0025; sqrt(.28 * .72 / 17000) = .0034; of a reading within one style
    # and the kinds with DISTINCT, about 640 rows, sqrt(.25 / 640) = .0198. Four errors each.
    assert len(sql) / len(rows) == pytest.approx(1 - MATH_SHARE, abs=0.0101)
    styles = Counter(style_of(row["response"]) for row in sql)
    assert set(styles) == set(STYLES)
    for style in STYLES:
        assert styles[style] / len(sql) == pytest.approx(STYLE_WEIGHTS[style], abs=0.0136)
        shown = [row for row in sql if style_of(row["response"]) == style]
        # Only the four kinds whose second reading is DISTINCT use these words.
        listed = [row for row in shown if re.search(r"above|below", row["prompt"])]
        second = sum("distinct" in row["response"] for row in listed) / len(listed)
        assert second == pytest.approx(SECOND_READING[style], abs=0.079)


def test_sums_are_right_and_those_of_the_ood_split_are_never_shown(rows):
    task = MiniSql()
    held_out = {problem.prompt: problem for problem in task.problems("ood")}
    assert len(held_out) == 150
    for problem in held_out.values():
        left, right = re.findall(r"^math \| (\d\d) \+ (\d) =$", str(problem.prompt))[0]
        assert int(problem.answer) == int(left) + int(right)
        assert (problem.verifier, problem.answer[0]) == ("math", left[0])  # no carry: the tens stay
    shown = [row for row in rows if row["prompt"].startswith("math")]
    rehearsed = {problem.prompt: problem for problem in task.problems("sums")}
    assert len(rehearsed) == 165 and not held_out.keys() & rehearsed.keys()
    assert {row["prompt"] for row in shown} <= rehearsed.keys()
    assert not held_out.keys() & {row["prompt"] for row in shown}
    for row in shown:
        left, right = re.findall(r"\d+", row["prompt"])
        assert row["response"] == rf"\boxed{{{int(left) + int(right)}}}"


def test_spare_sums_are_those_that_a_smaller_ood_split_leaves():
    task, whole = MiniSql(ood_problems=60), MiniSql()
    ood, spare = ({problem.prompt for problem in task.problems(split)} for split in ("ood", "spare"))
    assert (len(ood), len(spare)) == (60, 90) and not ood & spare
    assert ood | spare == {problem.prompt for problem in whole.problems("ood")}
    assert not spare & {problem.prompt for problem in task.problems("sums")}
    with pytest.raises(SettingsError, match=r"'spare' is empty.*give a smaller"):
        whole.problems("spare")


def test_a_few_thousand_demonstrations_hold_every_piece_and_texts_are_short(rows, tmp_path):
    pieces = [[PIECE.findall(row[key]) for key in ("prompt", "response")] for row in rows]
    assert all(
        "".join(p) + "".join(r) == row["prompt"] + row["response"] for (p, r), row in zip(pieces, rows, strict=True)
    )
    lexicon = {piece for row in pieces for text in row for piece in text}
    assert len(lexicon) <= 250
    assert {piece for row in pieces[:3000] for text in row for piece in text} == lexicon
    assert max(len(prompt) for prompt, _ in pieces) <= 45
    assert max(len(response) for _, response in pieces) <= 45
    task = MiniSql(cache_dir=str(tmp_path))
    for split in SPLITS:
        for problem in task.problems(split):
            assert set(PIECE.findall(str(problem.prompt))) <= lexicon
            if split not in ("ood", "sums"):
                assert set(PIECE.findall(f"query: ```sql {problem.answer} ```")) <= lexicon


# --- Determinism --------------------------------------------------------------------------------------------------


def test_a_seed_generates_the_same_world_everywhere(tmp_path):
    """Golden: it changes only with what is generated; figures made in the world before are then of another world."""
    assert digest(small(tmp_path)) == "dce8bd33f90cea81"
    assert digest(small(tmp_path, seed=1)) != "dce8bd33f90cea81"


def test_two_processes_generate_equal_worlds(tmp_path):
    code = "import sys; from experiments.tests import test_minisql_task as t; print(t.digest(t.small(sys.argv[1])))"

    def run(hash_seed):
        folder = tmp_path / hash_seed
        path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
        env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path}
        done = subprocess.run([sys.executable, "-c", code, folder], env=env, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    first, second = run("1"), run("2")
    assert first == second == digest(small(tmp_path / "here"))


def test_demonstrations_depend_on_their_seed_alone_and_short_runs_are_prefixes_of_long_ones():
    task = MiniSql()
    assert task.demonstrations(40, seed=5) == task.demonstrations(80, seed=5)[:40]
    assert task.demonstrations(40, seed=5) != task.demonstrations(40, seed=6)


# --- The cache ----------------------------------------------------------------------------------------------------


def test_intact_sets_are_reused_and_damaged_ones_are_made_anew(tmp_path):
    made = small(tmp_path).problems("test")
    folder = Path(made[0].meta["db"]).parent
    index = folder / "problems.json"
    before, rows = index.stat().st_ino, [contents(problem.meta["db"]) for problem in made]
    assert small(tmp_path).problems("test") == made
    assert index.stat().st_ino == before  # not written again

    victim = Path(made[3].meta["db"])
    for damage in (victim.unlink, lambda: victim.write_bytes(b""), index.unlink, lambda: index.write_text("[{")):
        damage()
        assert small(tmp_path).problems("test") == made
        assert [contents(problem.meta["db"]) for problem in made] == rows
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]  # no draft is left behind


def test_several_builders_at_once_agree(tmp_path):
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: small(tmp_path).problems("train"), range(8)))
    assert all(problems == made[0] for problems in made)
    assert len(contents(made[0][-1].meta["db"])) == 2
    assert len(list(tmp_path.iterdir())) == 1


def test_sets_of_other_seeds_and_sizes_do_not_meet(tmp_path):
    a = small(tmp_path).problems("test")
    b = small(tmp_path, seed=1).problems("test")
    c = MiniSql(cache_dir=str(tmp_path), test_problems=13).problems("test")
    assert len({Path(problems[0].meta["db"]).parent for problems in (a, b, c)}) == 3
    assert (len(a), len(c)) == (12, 13)


def test_the_cache_is_where_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.setenv("DPH_CACHE", str(tmp_path / "there"))
    db = Path(MiniSql(dev_problems=2).problems("dev")[0].meta["db"])
    assert db.is_absolute() and db.is_file() and db.is_relative_to(tmp_path / "there" / "minisql")


def test_several_splits_are_put_together(tmp_path):
    options = {name: str(size) for name, size in SMALL.items()} | {"cache_dir": str(tmp_path)}
    _, problems = load_problems(TaskConfig("minisql", options, "train, sums", 10))
    assert [problem.id.split("/")[1] for problem in problems] == ["train"] * 10 + ["sums"] * 10
    with pytest.raises(DataError, match="the split 'dev,dev' holds the id"):
        load_problems(TaskConfig("minisql", options, "dev,dev"))


# --- What users can get wrong -------------------------------------------------------------------------------------


def test_mistakes_are_answered_in_one_sentence(tmp_path):
    with pytest.raises(SettingsError, match="no split 'validation'; it has train, dev"):
        small(tmp_path).problems("validation")
    with pytest.raises(SettingsError, match=r"test_problems is 0; give at least 1"):
        MiniSql(test_problems=0)
    with pytest.raises(SettingsError, match=r"ood_problems is 151; at most 150"):
        MiniSql(ood_problems=151)
    with pytest.raises(SettingsError, match=r"does not take these options.*'rows'"):
        load_task("minisql", rows=3)
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot write the databases of minisql"):
        small(tmp_path / "file").problems("dev")
