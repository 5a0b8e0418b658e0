"""Counts of finished runs: tables from them are those of the runs, and runs that they hold are not made again."""

import json
import math
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from dph.config import flatten
from dph.errors import UserError
from dph.process.jobs import Job
from dph.report.data import EvalRun, read_eval
from dph.report.tables import ReportTable, to_markdown
from experiments.config import ReproduceConfig
from experiments.core import core_table
from experiments.count_files import read_counts, recorded_settings, waiting_for, write_table
from experiments.finished import DOMAINS, Results, difference, mean_value, read_results
from experiments.grid import read_grid
from experiments.plan import Choice, RunPaths, write_settings
from experiments.run import reproduce, tables, write_results
from experiments.strata import kinds_table, strata_table
from experiments.tables import (
    accuracy_table,
    comparison_table,
    diversity_table,
    forgetting_table,
    free_table,
    sampling_table,
    variety_table,
)
from experiments.tests.support import small_grid
from report_support import interval, write_eval

ROOT = Path(__file__).resolve().parents[2]
COUNTS = ROOT / "experiments" / "counts"
SECOND_BASE = "second-base"
"""The folder of the counts from a second base model."""
LOG = ROOT / "experiments" / "results"
"""Folder of the pages with published tables."""
AGAIN = ("grpo", "grpo_wise", "dph_js", "dph_js_wise")
"""Arms of the second base model with two training seeds."""


@pytest.fixture
def choice() -> Choice:
    return Choice(small_grid(), {"grpo": (1, 2), "dph_js": (1, 2)})


@pytest.fixture
def counts(choice: Choice, tmp_path: Path) -> Path:
    """A folder with the counts of two methods with two seeds, and of their base model; the runs are gone."""
    paths = RunPaths(tmp_path / "runs")
    correct = {
        ("base", 0): [2, 1, 0, 0, 3],
        ("base-again", 0): [1, 2, 0, 0, 3],
        ("grpo", 1): [4, 0, 0, 0, 4],
        ("grpo", 2): [4, 2, 0, 0, 3],
        ("dph_js", 1): [4, 2, 1, 0, 4],
        ("dph_js", 2): [4, 2, 0, 0, 3],
    }
    for (name, seed), found in correct.items():
        label = choice.grid.arms[name].label if seed else "base" + " (again)" * name.endswith("again")
        metrics = {"distinct_sql": interval(1.5), "token_entropy": interval(0.1)}
        splits = ("test", "cross", "ood")
        run = write_eval(paths.evaluation(name, seed), label, found, splits=splits, metrics=metrics)
        rows = pq.read_table(run / "problems.parquet").to_pylist()
        measured = [row | {"distinct_sql": 1 + row["correct"] / 8, "token_entropy": 0.1} for row in rows]
        pq.write_table(pa.Table.from_pylist(measured), run / "problems.parquet")
    write_settings(choice, paths)
    write_results(choice, paths)
    (tmp_path / "tables.md").write_text(
        "\n".join(map(to_markdown, tables(read_results(choice, paths)))), encoding="utf-8"
    )
    shutil.copytree(tmp_path / "runs" / "report" / "counts", tmp_path / "counts")
    shutil.rmtree(tmp_path / "runs")
    return tmp_path / "counts"


def test_tables_from_counts_are_those_of_the_runs(choice: Choice, counts: Path, tmp_path: Path) -> None:
    assert [path.name for path in counts.iterdir()] == ["test.parquet"]
    recorded = recorded_settings(counts / "test.parquet")
    assert list(recorded) == ["base", "base-again", "grpo", "dph_js"]
    assert list(recorded["grpo"]) == ["sft", "presample", "train", "eval"] and list(recorded["base"]) == ["sft", "eval"]
    assert recorded["dph_js"]["train"]["loss"]["divergence"] == "js"
    found = read_results(choice, RunPaths(tmp_path / "nowhere"), read_counts(choice, counts))
    text = "\n".join(map(to_markdown, tables(found)))
    assert text == (tmp_path / "tables.md").read_text(encoding="utf-8")
    assert "base (again)" in text and "distinct SQL" in text
    page = write_results(choice, RunPaths(tmp_path / "new"), read_counts(choice, counts))
    assert page.name == "tables.md" and (page.parent / "figures" / "fig1_gap.png").exists()
    assert not (page.parent / "counts").exists()  # nothing was run here


def test_counts_of_a_study_that_was_cut_short_have_no_second_evaluation(choice: Choice, counts: Path) -> None:
    file = counts / "test.parquet"
    whole, table = read_counts(choice, counts), pq.read_table(file)
    pq.write_table(table.filter(pc.field("run") != "base-again"), file)
    cut = read_counts(choice, counts)
    assert set(whole) - set(cut) == {"base-again"} and "base" in cut
    results = read_results(choice, RunPaths(counts / "nowhere"), cut)
    assert not results.again and not any("(again)" in to_markdown(table) for table in tables(results))


def test_counts_of_styles_are_taken_from_the_completions_and_kept(tmp_path: Path) -> None:
    run = write_eval(tmp_path / "grpo", "GRPO", [2, 0, 0, 0, 0], splits=("test", "cross"))
    [id, *_] = [row["id"] for row in pq.read_table(run / "problems.parquet").to_pylist() if row["split"] == "test"]
    texts = [(0, "correct", "cte"), (1, "correct", "cte"), (2, "wrong", "plan"), (3, "correct", "")]
    texts += [(-1, "correct", "cte"), (4, "correct", "plan")]
    rows = [
        {"split": "test", "id": id, "sample": sample, "outcome": outcome, "style": style}
        for sample, outcome, style in texts
    ]
    pq.write_table(pa.Table.from_pylist(rows), run / "completions.parquet")
    write_table(tmp_path / "counts.parquet", {"grpo": {1: read_eval(run)}}, {"grpo": "{}"})
    stored = [row["style_counts"] for row in rows_of(tmp_path / "counts.parquet", "grpo")]
    assert stored[0] == '{"cte": 2, "plan": 1}' and set(stored[1:]) == {None}


def rows_of(file: Path, name: str) -> list[dict[str, Any]]:
    """The rows of a run in a file of counts, without its settings."""
    return [row for row in pq.read_table(file).drop(["settings"]).to_pylist() if row["run"] == name]


def test_counts_of_a_new_seed_hold_those_that_they_add_to(choice: Choice, counts: Path, tmp_path: Path) -> None:
    """A third seed of GRPO from a base model that answers otherwise: the new file has GRPO's three seeds, the other
    method as it was, and the base model of the known counts. The file that was read stays as it was."""
    more, paths = replace(choice, arms={"grpo": (1, 2, 3), "dph_js": (1, 2)}), RunPaths(tmp_path / "new")
    splits = ("test", "cross", "ood")
    write_eval(paths.evaluation("base"), "base", [0, 0, 0, 0, 0], splits=splits)
    write_eval(paths.evaluation("grpo", 3), choice.grid.arms["grpo"].label, [1, 1, 1, 1, 1], splits=splits)
    write_settings(more, paths)
    file = counts / "test.parquet"
    before = file.read_bytes()
    write_results(more, paths, read_counts(more, counts))
    written = paths.root / "report" / "counts" / "test.parquet"
    assert file.read_bytes() == before
    for name in ("base", "base-again", "dph_js"):
        assert rows_of(written, name) == rows_of(file, name)
    found = rows_of(written, "grpo")
    measured = {"distinct_sql", "token_entropy"}
    assert [row for row in found if row["seed"] != 3] == rows_of(file, "grpo")
    assert [row["correct"] for row in found if row["seed"] == 3] == [1] * 5 * len(splits)
    assert {row[name] for row in found if row["seed"] == 3 for name in measured} == {None}
    assert {name: sorted(seeds) for name, seeds in read_counts(more, written.parent).items() if name in more.arms} == {
        "grpo": [1, 2, 3],
        "dph_js": [1, 2],
    }


def test_what_counts_hold_is_not_run(counts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[str] = []

    def no_jobs(jobs: list[Job], *_: object, **__: object) -> list[str]:
        planned.extend(job.name for job in jobs)
        return []

    monkeypatch.setattr("experiments.run.run_jobs", no_jobs)
    monkeypatch.setattr("experiments.run.read_grid", lambda _: small_grid())
    config = ReproduceConfig(out=str(tmp_path / "out"), counts=str(counts))
    assert "| GRPO (2 seeds) |" in reproduce(config).read_text(encoding="utf-8")
    assert planned == []
    reproduce(replace(config, seeds=(2, 3)))
    trained = [name for name in planned if name.startswith(("grpo", "dph_js"))]
    assert trained == ["grpo-3", "dph_js-3"] and "base-base" in planned
    planned.clear()
    reproduce(replace(config, out=str(tmp_path / "third"), report_only=True))
    assert planned == []


def change_settings(file: Path, name: str, change: Callable[[dict[str, Any]], object]) -> None:
    """Rewrite the settings of a run in a file of counts."""
    table = pq.read_table(file)
    recorded = recorded_settings(file)
    change(recorded[name])
    texts = pa.array([json.dumps(recorded[run]) for run in table["run"].to_pylist()]).dictionary_encode()
    pq.write_table(table.drop(["settings"]).append_column("settings", texts), file)


def test_settings_that_are_gone_are_not_compared_and_new_ones_have_their_defaults(choice: Choice, counts: Path) -> None:
    def older(stages: dict[str, Any]) -> None:
        del stages["train"]["keep_checkpoints"]
        stages["train"]["rehearsal"]["former"] = 2

    change_settings(counts / "test.parquet", "grpo", older)
    assert read_counts(choice, counts)["grpo"].keys() == {1, 2}


def test_a_retired_arm_is_read_from_counts_and_never_run(
    counts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    planned: list[str] = []

    def no_jobs(jobs: list[Job], *_: object, **__: object) -> list[str]:
        planned.extend(job.name for job in jobs)
        return []

    grid = small_grid()
    arms = {**grid.arms, "dph_js": replace(grid.arms["dph_js"], retired="choice=adaptive")}
    monkeypatch.setattr("experiments.run.run_jobs", no_jobs)
    monkeypatch.setattr("experiments.run.read_grid", lambda _: replace(grid, arms=arms))
    change_settings(counts / "test.parquet", "dph_js", lambda stages: stages["train"].update(rehearsal={"choice": "x"}))
    config = ReproduceConfig(seeds=(1, 2, 3), out=str(tmp_path / "out"))
    text = reproduce(replace(config, counts=str(counts))).read_text(encoding="utf-8")
    assert "| DPH-JS (2 seeds) |" in text and "choice=adaptive |" in text
    reproduce(replace(config, out=str(tmp_path / "anew")))
    assert [name for name in planned if "dph_js" in name] == [] and "grpo-3" in planned
    assert not (tmp_path / "anew" / "settings" / "train-dph_js.toml").exists()
    assert "does not train dph_js" in capsys.readouterr().err


def test_another_base_model_than_that_of_the_counts_is_named(
    choice: Choice, counts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = RunPaths(tmp_path / "new")
    splits = ("test", "cross", "ood")
    for correct, said in (([2, 1, 0, 0, 3], False), ([2, 1, 0, 1, 3], True)):
        shutil.rmtree(paths.root, ignore_errors=True)
        write_eval(paths.evaluation("base"), "base", correct, splits=splits)
        page = write_results(choice, paths, read_counts(choice, counts))
        assert page.name == "index.html" and "GRPO" in page.with_name("tables.md").read_text(encoding="utf-8")
        assert ("are evaluations of different base models" in capsys.readouterr().err) == said


def without_columns(*names: str) -> Callable[[Path], None]:
    return lambda file: pq.write_table(pq.read_table(file).drop(list(names)), file)


def only_runs(*names: str) -> Callable[[Path], None]:
    return lambda file: pq.write_table(pq.read_table(file, filters=[("run", "in", names)]), file)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (Path.unlink, "test.parquet is missing; name the folder"),
        (only_runs("base", "base-again"), "holds no counts of grpo, dph_js"),
        (only_runs("grpo", "dph_js"), "test.parquet is damaged (it has no base"),
        (without_columns("settings"), "test.parquet is damaged ("),
        (without_columns("samples"), "test.parquet is damaged ("),
        (lambda file: file.write_bytes(b"PAR1"), "test.parquet is damaged ("),
    ],
)
def test_bad_counts_are_one_sentence(choice: Choice, counts: Path, spoil: Any, message: str) -> None:
    spoil(counts / "test.parquet")
    with pytest.raises(UserError, match=re.escape(message)):
        read_counts(choice, counts)


def test_counts_of_other_settings_are_refused(choice: Choice, counts: Path) -> None:
    changed = replace(choice, grid=small_grid(train={"steps": 3}))
    with pytest.raises(UserError, match=r"train grpo .*steps: 80 → 3.*--counts"):
        read_counts(changed, counts)


def test_runs_of_other_settings_leave_no_counts(
    choice: Choice, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = RunPaths(tmp_path)
    for name, seed in (("base", 0), ("grpo", 1)):
        write_eval(paths.evaluation(name, seed), name, [4, 2, 1, 0], splits=("test", "cross", "ood"))
    write_settings(replace(choice, grid=small_grid(train={"steps": 3})), paths)
    write_results(choice, paths)
    assert "no counts are written: " in capsys.readouterr().err
    assert not (tmp_path / "report" / "counts").exists()


def published(name: str, arms: Mapping[str, tuple[int, ...]] | None = None, data: str = "", seed: int = 1) -> Results:
    """The results of a grid from its published counts, in the folder `data` of another start; arms: their seeds, else
    `seed` of every arm with counts."""
    grid, folder = read_grid(name), COUNTS / data
    recorded = recorded_settings(folder / f"{name}.parquet")
    counted = {arm: (seed,) for arm in grid.arms if arm in recorded}
    choice = Choice(grid, counted if arms is None else arms)
    return read_results(choice, RunPaths(folder / "nowhere"), read_counts(choice, folder))


def test_the_published_core_table_is_that_of_the_published_counts() -> None:
    tiny = read_grid("tiny")
    results = published("tiny", {arm.name: tiny.seeds_of(arm) for arm in tiny.chosen(["core"])})
    base, text = tiny.bases["base"], (LOG / "tiny-core.md").read_text(encoding="utf-8")
    for table in (accuracy_table(results, base, ""), comparison_table(results, base)):
        cells = with_intervals(table, lambda _: True)
        assert cells and [cell for cell in cells if cell not in text] == []
    lines = text.splitlines()
    for table in (diversity_table(results, base), forgetting_table(results, base)):
        assert table is not None and len(table.rows) >= 6
        assert [line for line in to_markdown(table).splitlines()[4:] if line[:2] == "| " and line not in lines] == []
    assert [line for line in core_table(COUNTS) if line not in lines] == []


def test_free_baselines_of_the_core_comparison_by_hand() -> None:
    tiny = read_grid("tiny")
    results = published("tiny", {"grpo": (1, 2), "dph_f": (1,)})
    table = free_table(results, tiny.bases["base"])
    assert table is not None and [row[0].text for row in table.rows] == ["base", "GRPO (2 seeds)", "DPH-F (1 seed)"]
    assert table.columns[1:6] == [
        "mean@n",
        "pass@32",
        "cover@¼ of 32",
        "2 from the base: mean",
        "2 from the base: pass@32",
    ]
    base = {row["id"]: row["correct"] for row in results.bases["base"].problems if row["split"] == "test"}
    means, passed = [], []
    for run in results.arms["grpo"]:
        own = {row["id"]: row["correct"] for row in run.problems if row["split"] == "test"}
        means += [(30 * own[id] + 2 * base[id]) / 32 / 64 for id in base]
        lost = [math.comb(64 - own[id], 30) * math.comb(64 - base[id], 2) for id in base]
        passed += [1 - one / math.comb(64, 30) / math.comb(64, 2) for one in lost]
    cells = [f"{100 * sum(values) / len(values):.1f}" for values in (means, passed)]
    assert [cell.text for cell in table.rows[1][4:6]] == cells and len(base) == 400
    assert [cell.text for cell in table.rows[0][4:]] == ["–"] * 6


def test_the_published_diversity_of_the_core_comparison_is_that_of_the_published_counts() -> None:
    tiny = read_grid("tiny")
    results = published("tiny", {arm.name: tiny.seeds_of(arm) for arm in tiny.chosen(["core"])})
    table = variety_table(results, tiny.bases["base"])
    assert table is not None and sum(bool(entry.over) for row in table.rows for entry in row) == 5
    text = (LOG / "tiny-core.md").read_text(encoding="utf-8")
    for row in table.rows:
        for cells in (row[1:3], row[3:]):
            line = to_markdown(ReportTable("", ["", *"abcd"], [[row[0], *cells]])).splitlines()[4]
            assert line in text.splitlines()


def test_published_votes_are_absent_only_with_too_few_samples() -> None:
    files, evaluations = sorted(COUNTS.rglob("*.parquet")), 0
    for file in (file for file in files if "seed" in pq.read_schema(file).names):  # the anchor's have no votes
        names = {"maj@8", "maj@32"} & {*pq.read_schema(file).names}
        runs: dict[tuple[str, int], list[dict[str, Any]]] = {}
        for row in pq.read_table(file, columns=["run", "seed", "samples", *names]).to_pylist():
            runs.setdefault((row["run"], row["seed"]), []).append(row)
        for run, rows in runs.items():
            measured = [name for name in names if any(row[name] is not None for row in rows)]
            found = ((row[name] is None) == (row["samples"] < int(name[4:])) for row in rows for name in measured)
            assert all(found), (file, run)
        evaluations += len(runs)
    assert len(files) >= 10 and evaluations > 300


def with_intervals(table: ReportTable | None, shown: Callable[[str], bool]) -> list[str]:
    """The values that have an interval, as pages print them, of the columns whose titles are shown."""
    assert table is not None
    return [
        f"{entry.text} ({entry.interval})"
        for row in table.rows
        for title, entry in zip(table.columns, row, strict=True)
        if entry.interval and shown(title)
    ]


def only(table: ReportTable | None, titles: str) -> ReportTable:
    """The first column of a table and those whose titles begin so."""
    assert table is not None
    kept = [place for place, title in enumerate(table.columns) if not place or title.startswith(titles)]
    rows = [[row[place] for place in kept] for row in table.rows]
    return replace(table, columns=[table.columns[place] for place in kept], rows=rows)


def without_again(table: ReportTable | None) -> ReportTable:
    """A table without the second evaluation of the base model."""
    assert table is not None
    return replace(table, rows=[row for row in table.rows if "(again)" not in row[0].text])


def runs_of(results: Results, name: str) -> Sequence[EvalRun]:
    """The evaluations of an arm, or of the base model by the name "base"."""
    return results.arms.get(name, [results.bases["base"]])


def printed_as(metric: str) -> tuple[int, int]:
    """The factor and the decimals with which pages print a metric: styles as counts, everything else in percent."""
    return (1, 2) if metric.startswith("styles") else (100, 1)


def printed_difference(results: Results, one: str, other: str, split: str, metric: str) -> str:
    """Mean and interval of a paired difference, as pages print them."""
    gap = difference(runs_of(results, one), runs_of(results, other), split, metric)
    scale, places = printed_as(metric)
    mean, low, high = (f"{scale * value:+.{places}f}" for value in (gap.mean, gap.low, gap.high))
    return f"{mean} ({low} to {high})"


def difference_row(results: Results, one: str, other: str, columns: Sequence[tuple[str, str]]) -> str:
    """The cells of a row of paired differences, for columns of (split, metric)."""
    return f"| {' | '.join(printed_difference(results, one, other, *column) for column in columns)} |"


def test_the_published_tables_of_the_language_model_are_those_of_the_published_counts() -> None:
    results = published("llm_embedded")
    assert len(results.arms) >= 4
    base = results.choice.grid.bases["base"]
    text = (LOG / "language-model.md").read_text(encoding="utf-8")
    shown = ("greedy", "pass@8", "pass@32", "greedy − GRPO", "pass@32 − GRPO")
    for table in (accuracy_table(results, base, ""), comparison_table(results, base)):
        cells = with_intervals(table, lambda title: title.rpartition(": ")[2] in shown)
        assert cells and [cell for cell in cells if cell not in text] == []


def test_the_published_tables_of_the_second_base_model_are_those_of_the_published_counts() -> None:
    results = published("llm_embedded", data=SECOND_BASE, seed=2)
    base = results.choice.grid.bases["base"]
    page = (LOG / "language-model.md").read_text(encoding="utf-8")
    text = page.partition("### A second base model\n")[2].partition("\n## ")[0]
    domains = ("in-domain", "cross-domain", "out-of-domain")
    shown = {f"{domain}: {metric}" for domain in domains[:2] for metric in ("greedy", "mean@n", "pass@8", "pass@32")}
    shown |= {"mean@n", "styles in 32 samples", "styles among correct"}
    third, both = (published("llm_embedded", dict.fromkeys(AGAIN, seeds), SECOND_BASE) for seeds in ((3,), (2, 3)))
    tables = [kinds_table(found, base) for found in (results, third, both)]
    tables += [sampling_table(results, base, domain) for domain in domains]
    tables += [sampling_table(third, base, domain) for domain in domains[:2]]
    tables += [accuracy_table(results, base, "", (8, 32)), diversity_table(results, base)]
    tables.append(only(accuracy_table(third, base, "", (8, 32)), "in-domain"))
    tables.append(only(diversity_table(third, base), "styles among correct"))
    for table in map(without_again, tables):
        cells = with_intervals(table, lambda title: title in shown)
        assert cells and [cell for cell in cells if cell not in text] == []
    dynamic = ("dph_js_dynamic", "dph_js_dynamic_wise")
    pairs = [
        (name, "base") for name in ("grpo", "dapo", "dapo_wise", "dph_js", "dph_js_wise", "rkl", "rkl-0.3", *dynamic)
    ]
    pairs += [("dph_f", "exp_only"), ("dph_js", "exp_only"), ("dph_js_wise", "grpo_wise")]
    pairs += [(dynamic[0], "dph_js"), (dynamic[0], "dapo"), (dynamic[1], "dapo_wise")]
    pairs += [("rkl-0.3", "rkl"), ("rkl-0.3", "dph_js")]
    pairs += [(name, "grpo") for name in results.arms if name != "grpo"]
    compared = [(results, *pair) for pair in pairs] + [(third, name, "base") for name in AGAIN if name != "grpo_wise"]
    compared += [(third, name, "grpo") for name in AGAIN[1:]] + [(third, "dph_js_wise", "grpo_wise")]
    columns = [("test", metric) for metric in ("greedy", "mean", "pass@32", "styles_correct")]
    columns += [("cross", "mean"), ("cross", "pass@32")]
    for found, one, other in compared:
        assert difference_row(found, one, other, columns) in text, (one, other)


def table_row(runs: Sequence[Results | None], name: str) -> str:
    """The cells of an arm's row with a value for each run, a dash for a run without the arm."""
    cells = []
    for metric in ("mean", "pass@32", "styles_correct"):
        scale, places = printed_as(metric)
        # a base model counts with both of its evaluations
        of = [run and [*runs_of(run, name), *([run.again["base"]] if name == "base" else [])] for run in runs]
        means = [found and mean_value(found, "test", metric).mean for found in of]
        cells.append(" / ".join("–" if mean is None else f"{scale * mean:.{places}f}" for mean in means))
    return f"| {' | '.join(cells)} |"


def test_the_runs_of_the_language_model_in_the_readme_are_those_of_the_published_counts() -> None:
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())  # lines are wrapped
    runs = [published("llm_embedded"), published("llm_embedded", data=SECOND_BASE, seed=2)]
    runs.append(published("llm_embedded", dict.fromkeys(AGAIN, (3,)), SECOND_BASE))
    assert [name for name in ("grpo", "grpo_wise", "dph_js") if table_row(runs, name) not in text] == []
    assert table_row(runs[:2], "base") in text


def test_the_published_tables_of_the_language_model_on_spider_are_those_of_the_published_counts() -> None:
    results = published("llm_short")
    base = results.choice.grid.bases["base"]
    page = (LOG / "language-model-spider.md").read_text(encoding="utf-8")
    text = page.partition("## A short run\n")[2].partition("\n## ")[0]
    tables = (
        accuracy_table(results, base, "", (8, 16)),
        sampling_table(results, base, "in-domain"),
        comparison_table(results, base),
        strata_table(results, base),
    )
    shown = {"in-domain: greedy", "in-domain: pass@8", "mean@n", "greedy − GRPO", "styles_correct − GRPO"}
    for table in tables:
        cells = with_intervals(table, lambda title: title in shown or title.startswith("pass@8, "))
        assert cells and [cell for cell in cells if cell not in text] == []
    again = published("llm_short", {"grpo": (2,), "dph_js": (2,)})
    pairs = [(results, name, "grpo") for name in results.arms if name != "grpo"]
    pairs += [(results, "grpo", "base"), (results, "dph_js", "base"), (results, "dph_js", "exp_only")]
    pairs += [(results, "dph_f", "exp_only")]
    pairs += [(again, "grpo", "base"), (again, "dph_js", "base"), (again, "dph_js", "grpo")]
    for found, one, other in pairs:
        for metric in ("greedy", "mean", "pass@16", "styles", "styles_correct"):
            cell = printed_difference(found, one, other, "heldout_phrasing", metric)
            assert f"| {cell} |" in text, (one, other, metric)
    sixteen = [row[3].text for row in tables[0].rows]
    assert len(sixteen) == 1 + len(results.arms) and [cell for cell in sixteen if f"| {cell} |" not in text] == []


def test_the_published_tables_of_the_medium_run_on_spider_are_those_of_the_published_counts() -> None:
    results = published("llm_medium")
    base = results.choice.grid.bases["base"]
    page = (LOG / "language-model-spider.md").read_text(encoding="utf-8")
    text = page.partition("## A medium run\n")[2].partition("\n## ")[0]
    domains = ("in-domain", "cross-domain")
    shown = {f"{domain}: {metric}" for domain in domains for metric in ("greedy", "pass@8", "pass@32")}
    shown |= {"mean@n", "styles in 32 samples", "styles among correct"}
    tables = [accuracy_table(results, base, "", (8, 32)), without_again(diversity_table(results, base))]
    for domain in domains:
        tables += [sampling_table(results, base, domain), strata_table(results, base, domain)]
    for table in tables:
        cells = with_intervals(table, lambda title: title in shown or title.startswith("pass@8, "))
        assert cells and [cell for cell in cells if cell not in text] == []
    pairs = [(name, "base") for name in results.arms] + [(name, "grpo") for name in results.arms if name != "grpo"]
    pairs += [("dph_js", "exp_only"), ("dph_f", "exp_only"), ("dph_js_wise", "grpo_wise")]
    columns = [(s, m) for s in ("heldout_phrasing", "dev") for m in ("greedy", "mean", "pass@32", "styles_correct")]
    for one, other in pairs:
        assert difference_row(results, one, other, columns) in text, (one, other)
    repeated = ("grpo", "exp_only", "dph_f", "dph_js")
    second = published("llm_medium", dict.fromkeys(repeated, (2,)))
    pairs = [(name, "base") for name in repeated] + [(name, "grpo") for name in repeated[1:]]
    for one, other in [*pairs, ("dph_f", "exp_only"), ("dph_js", "exp_only")]:
        assert difference_row(second, one, other, columns) in text, (one, other)
    shown -= {"styles in 32 samples"}
    tables = [accuracy_table(second, base, "", (8, 32)), diversity_table(second, base)]
    tables += [sampling_table(second, base, domain) for domain in domains]
    for table in map(without_again, tables):
        cells = with_intervals(table, lambda title: title in shown)
        assert cells and [cell for cell in cells if cell not in text] == []
    both = published("llm_medium", {"grpo": (1, 2), "dph_js": (1, 2)})
    means = [
        mean_value(runs_of(both, "dph_js"), split, "pass@32").mean
        - mean_value(runs_of(both, "grpo"), split, "pass@32").mean
        for split in ("heldout_phrasing", "dev")
    ]
    assert f"are {100 * means[0]:+.1f} and {100 * means[1]:+.1f}; an interval" in text
    added = published("llm_medium", {"dph_f": (1, 2), "exp_only": (1, 2)})
    cell = printed_difference(added, "dph_f", "exp_only", "dev", "pass@32")
    assert f"over both seeds DPH-F has {cell}." in " ".join(text.split())


@pytest.mark.parametrize(("study", "title"), [("maths", "## Word problems"), ("bird", "## BIRD")])
def test_the_tables_of_the_miniatures_are_those_of_the_published_counts(study: str, title: str) -> None:
    results = published(study)
    base, domains = results.choice.grid.bases["base"], list(filter(results.split, DOMAINS))
    page = (LOG / "miniatures.md").read_text(encoding="utf-8").partition(f"{title}\n")[2].partition("\n## ")[0]
    tables = [accuracy_table(results, base, ""), comparison_table(results, base), forgetting_table(results, base)]
    tables += [sampling_table(results, base, domain) for domain in domains[:2]]
    tables += [diversity_table(results, base)] if study == "maths" else []
    lines = [line for table in tables if table for line in to_markdown(table).splitlines() if line.startswith("| ")]
    assert len(results.arms) == 3 and len(lines) > 12
    assert [line for line in lines if line not in page.splitlines()] == []
    words = " ".join(page.partition("**What it shows.**")[2].split())
    metrics = ("mean", "pass@8", "styles", "styles_correct", *(["pass@16"] if study == "maths" else []))
    known = {
        printed_difference(results, one, other, results.split(domain), metric)
        for one, other in product(results.arms, ("base", "grpo"))
        for domain, metric in product(domains, metrics)
        if one != other
    }
    stated = re.findall(r"[-+][\d.]+ \([-+][\d.]+ to [-+][\d.]+\)", words)
    assert stated and [one for one in stated if one not in known] == []


def test_the_published_pass_rates_of_problems_that_the_base_model_solves_now_and_then() -> None:
    """Means over both seeds and the problems with 1 or 2 of 32 samples right: pass@k = 1 − C(n−c, k)/C(n, k)."""
    file = COUNTS / "llm_medium.parquet"
    text = " ".join((LOG / "language-model-spider.md").read_text(encoding="utf-8").split())

    def rows(name: str) -> list[dict[str, Any]]:
        return rows_of(file, name)

    def mean(name: str, split: str, k: int) -> int:
        rare = {row["id"] for row in rows("base") if row["split"] == split and 1 <= row["correct"] <= 2}
        chosen = [row for row in rows(name) if row["split"] == split and row["id"] in rare]
        assert len(chosen) == 2 * len(rare) == 2 * {"dev": 25, "heldout_phrasing": 33}[split]
        passes = [1 - math.comb(row["samples"] - row["correct"], k) / math.comb(row["samples"], k) for row in chosen]
        return round(100 * statistics.mean(passes))

    named = ("exp_only", "dph_f", "dph_js", "grpo")
    one, two, three, four = (mean(name, "dev", 32) for name in named)
    assert f"pass@32 is {one} with D_exp alone, {two} with DPH-F, {three} with DPH-JS and {four} with GRPO" in text
    one, two, three, four = (mean(name, "dev", 8) for name in named)
    assert f"pass@8 is {one}, {two}, {three} and {four}" in text
    one, two, three, four = (mean(name, "heldout_phrasing", 32) for name in named)
    assert f"of phrasings (33) pass@32 is {one}, {two}, {three} and {four}" in text


def test_the_published_differences_of_the_language_model_over_kinds_are_those_of_the_published_counts() -> None:
    """Computed here a second time from the counts, with Student's t of a table."""
    file = COUNTS / "llm_embedded.parquet"
    results = published("llm_embedded", dict.fromkeys(("grpo", "dph_js"), (1,)))
    table = kinds_table(results, results.choice.grid.bases["base"])
    assert table is not None
    entries = dict(zip(table.columns, table.rows[0], strict=True))
    text = (LOG / "language-model.md").read_text(encoding="utf-8")
    rows = {name: {(row["split"], row["id"]): row for row in rows_of(file, name)} for name in results.arms}
    measures = {
        "greedy": lambda r: r["greedy"],
        "mean@n": lambda r: r["correct"] / r["samples"],
        "pass@32": lambda r: float(r["correct"] > 0),
    }
    for split, label in (("test", "in-domain"), ("cross", "cross-domain")):
        cells = []
        for metric, measure in measures.items():
            kinds: dict[str, list[float]] = {}
            for key, row in rows["dph_js"].items():
                if key[0] == split:
                    kinds.setdefault(row["kind"], []).append(100 * (measure(row) - measure(rows["grpo"][key])))
            means = [statistics.mean(values) for values in kinds.values()]
            assert len(means) == 12
            mean, half = statistics.mean(means), 2.201 * statistics.stdev(means) / 12**0.5  # 11 degrees of freedom
            cells.append(f"{mean:+.1f} ± {half:.1f}")
            entry = entries[f"{label}: {metric}"]
            assert (entry.text, entry.interval) == (f"{mean:+.1f}", f"{mean - half:+.1f} to {mean + half:+.1f}")
        assert f"| {label} | {' | '.join(cells)} |" in text


def test_the_published_means_of_single_kinds_are_those_of_the_published_counts() -> None:
    file = COUNTS / "llm_embedded.parquet"
    text = (LOG / "language-model.md").read_text(encoding="utf-8")

    def mean(name: str, kind: str) -> int:
        rows = rows_of(file, name)
        chosen = [row for row in rows if (row["split"], row["kind"]) == ("test", kind)]
        return round(100 * statistics.mean(row["correct"] / row["samples"] for row in chosen))

    assert f"(mean@32 {mean('base', 'sort')} → {mean('grpo', 'sort')})" in text
    assert f"to sort ({mean('grpo-lr-4e-05', 'sort')})" in text
    assert f"joins ({mean('grpo-lr-4e-05', 'join')}, where 2e-5 has {mean('grpo', 'join')})" in text


def test_the_published_row_of_each_spider_arm_is_that_of_the_published_counts() -> None:
    """Means over 245 problems: greedy, mean@32, pass@8 and pass@32 = 1 − C(n−c, k)/C(n, k), styles among correct."""
    text, table = (LOG / "spider.md").read_text(encoding="utf-8"), dict[str, str]()
    labels = {"base": "base (last", "dph_f": "DPH-F: near", "dph_f_three8": "DPH-F, rehearsed from 3"}
    for name, label in {**labels, "dph_f_by_class": "DPH-F, adaptive by class"}.items():
        rows = rows_of(COUNTS / "small.parquet", name)
        rows = [row for row in rows if row["split"] == "heldout_phrasing"]
        assert len(rows) == 245 and {row["samples"] for row in rows} == {32}

        def passes(k: int, rows: list[dict[str, Any]] = rows) -> float:
            return 100 * statistics.mean(1 - math.comb(32 - row["correct"], k) / math.comb(32, k) for row in rows)

        shares = [100 * statistics.mean(row["greedy"] for row in rows), passes(1), passes(8), passes(32)]
        styles = statistics.mean(row["styles_correct"] for row in rows)
        table[label] = " | ".join([*(f"{share:.1f}" for share in shares), f"{styles:.2f}"])
    last = text[text.index("## A rehearsal set that follows") :].splitlines()
    assert [label for label, cells in table.items() if not any(label in row and cells in row for row in last)] == []


@pytest.mark.parametrize(
    ("file", "retired", "plain"),
    [
        ("small", "dph_f_by_class", "dph_f"),
        *(
            ("bench-development-1", f"{method}_adaptive-{rest}", f"{method}-{rest}")
            for method, etas in (("dph_f", ("0.1", "0.3")), ("dph_js", ("0.3", "0.7")))
            for rest in (f"eta{eta}-lr{lr}.world-101" for eta in etas for lr in ("0.0001", "0.0002"))
        ),
    ],
)
def test_the_published_settings_of_a_retired_arm_name_what_made_it(file: str, retired: str, plain: str) -> None:
    """They are data: no version that reads them trains such a set. But for it they are those of the plain method."""
    recorded = recorded_settings(COUNTS / f"{file}.parquet")
    one, other = (flatten(recorded[name]["train"]) for name in (retired, plain))
    assert one["rehearsal.choice"] == "adaptive" and "rehearsal.choice" not in other
    differing = {key for key in one.keys() | other.keys() if one.get(key) != other.get(key)}
    assert differing <= {"method", "rehearsal.choice", "rehearsal.by_class", "rehearsal.falling"}


def test_the_published_classes_of_the_spider_arms_are_those_of_the_published_counts() -> None:
    results = published("small", dict.fromkeys(("dph_f", "dph_f_three8", "dph_f_by_class"), (1,)))
    table = strata_table(results, results.choice.grid.bases["base"])
    assert table is not None
    column = table.columns.index("pass@8, 6.25–25 %")
    page = (LOG / "spider.md").read_text(encoding="utf-8")
    last = page[page.index("## A rehearsal set that follows") :]
    cells = [f"| {row[column].text} ({row[column].interval}) |" for row in table.rows]
    assert len(cells) == 4 and [cell for cell in cells if cell not in last] == []


def test_the_published_figures_at_equal_rollouts_are_those_of_the_published_counts() -> None:
    arms = ("grpo", "dapo", "dapo_rollouts", "dph_js")
    results = published("tiny", dict.fromkeys(arms, (1, 2, 3, 4, 5)))
    text = (LOG / "tiny-core.md").read_text(encoding="utf-8").split("## DAPO at equal rollouts")[1].split("##")[0]
    for arm in arms:
        values = [mean_value(results.arms[arm], "test", metric) for metric in ("greedy", "mean", "pass@8", "pass@32")]
        cells = [f"{100 * value.mean:.1f} ({100 * value.low:.1f}–{100 * value.high:.1f})" for value in values]
        styles = mean_value(results.arms[arm], "test", "styles_correct").mean
        assert f" | {' | '.join(cells)} | {styles:.2f} |" in text, arm


def test_the_running_text_of_the_core_comparison_has_the_differences_of_its_table() -> None:
    """A difference of the text, as "7.0 points above GRPO (3.0 to 10.8)", is that of the table in size and interval."""
    page = (LOG / "tiny-core.md").read_text(encoding="utf-8")
    rows = {line.split(" | ")[0].strip("| "): line.split(" | ")[1:] for line in core_table(COUNTS)}
    text = " ".join(page.split())
    for row, column, said in (
        ("DPH-F − GRPO", 4, "pass@32 of DPH-F is {} points above GRPO ({})"),
        ("DPH-JS − GRPO", 4, "above GRPO (3.0 to 10.8), of DPH-JS {} ({})"),
        ("DPH-F − GRPO", 1, "DPH-F is {} points below GRPO ({})"),
        ("DPH-JS − GRPO", 1, "(1.7 to 4.7), DPH-JS {} ({})"),
        ("DPH-F − DPH-JS", 2, "{} points of pass@8 ({})"),
        ("DPH-F − DPH-JS", 3, "and {} of pass@32 ({})"),
        (
            "DAPO, equal rollouts (49 steps) − DAPO",
            3,
            "DAPO has lost {} points of pass@32 less than after 80 steps ({})",
        ),
        ("DAPO, equal rollouts (49 steps) − GRPO", 3, "pass@32 +{} ({})"),
        ("DAPO, equal rollouts (49 steps) − DPH-JS", 3, "stay {} ({}) and"),
        ("DAPO, equal rollouts (49 steps) − DPH-F", 3, "and {} ({}) points of pass@32 above it"),
    ):
        size, low, high = map(float, re.findall(r"[-+][\d.]+", rows[row][column]))
        if size < 0:
            size, low, high = -size, -high, -low
        assert said.format(f"{size:.1f}", f"{low:.1f} to {high:.1f}") in text.replace("−", "-").replace(
            "to +", "to "
        ), row
    assert all(
        "-" in low and "+" in high
        for row, cells in rows.items()
        if " − base" in row
        for low, high in (re.findall(r"[-+][\d.]+", cell)[1:] for cell in cells[5:])
    ), "on sums every interval includes 0"


def test_a_second_process_waits_for_a_folder(tmp_path, capsys):
    code = (
        f"import time; from pathlib import Path; from dph.runs.files import lock; lock(Path({str(tmp_path)!r})); "
        "print('held', flush=True); time.sleep(60)"
    )
    ended = []

    def use():
        with waiting_for(tmp_path):
            ended.append(time.monotonic())

    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        thread = threading.Thread(target=use)
        thread.start()
        time.sleep(1.0)
        assert ended == []
        killed = time.monotonic()
        process.kill()
        thread.join(20)
    assert len(ended) == 1 and ended[0] >= killed
    assert f"in use by process {process.pid}" in capsys.readouterr().err
