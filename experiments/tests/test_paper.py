"""The paper's study at its own size: launches, evaluations, GPU-hours, and tables of evaluations with known numbers."""

import re
import shlex
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from dph.cli.main import parse
from dph.errors import UserError
from experiments.config import ReproduceConfig
from experiments.paper.study import read_study
from experiments.run import reproduce
from helpers import needs
from report_support import interval, write_eval


def config(tmp_path: Path, *methods: str, **more: object) -> ReproduceConfig:
    return replace(ReproduceConfig(scale="full", methods=methods, out=str(tmp_path / "o"), data="d"), **more)


def evaluations(recipe: Path) -> list[list[str]]:
    lines = (recipe / "evaluate.sh").read_text().splitlines()
    return [shlex.split(line)[4:] for line in lines if "dph eval" in line]


def test_a_launch_of_every_method_and_evaluations_that_parse(tmp_path: Path) -> None:
    settings = config(tmp_path, "omnisql_32b", "grpo", "dph_js", seeds=(1,))
    page = reproduce(settings)
    recipe = page.parent / "omnisql_32b"
    assert sorted(path.name for path in page.parent.iterdir()) == ["README.md", "omnisql_32b"]
    train = tomllib.loads((recipe / "dph_js" / "seed-1" / "train.toml").read_text())
    assert train["loss"]["divergence"] == "js" and train["rehearsal"]["path"] == str(recipe / "presample")
    assert tomllib.loads((recipe / "presample.toml").read_text())["threshold"] == 7
    parsed = [parse("eval", words)[0] for words in evaluations(recipe)]
    labels = {(found.label, found.task.name, found.rollout.n, found.rollout.temperature) for found in parsed}
    names = ("base", "base (again)", "GRPO", "DPH-JS, η = 0.2")
    assert labels == {(label, task, 32, 1.0) for label in names for task in ("bird", "spider")}
    assert len({found.out for found in parsed}) == len(parsed) == 8
    with pytest.raises(UserError, match="recipe or method 'nothing'"):
        reproduce(replace(settings, methods=("nothing",)))


def test_out_of_domain_benchmarks_are_sampled_as_their_own_domain_asks(tmp_path: Path) -> None:
    page = reproduce(config(tmp_path, "llama_sql", "grpo"))
    seeds = {path.name for path in (page.parent / "llama_sql" / "grpo").iterdir()}
    assert seeds == {"seed-1", "seed-2", "seed-3"}  # App. G.1
    parsed = [parse("eval", words)[0] for words in evaluations(page.parent / "llama_sql")]
    found = {s.task.name: (s.rollout.n, s.rollout.temperature) for s in parsed}
    assert found["bird"] == (32, 1.0) and found["aime24"] == (128, 0.6) and found["math500"] == (32, 0.6)


@pytest.mark.parametrize(("rule", "roles", "evaluated"), [("paper", "paper", "paper"), ("", "strict", None)])
def test_sql_is_judged_by_one_rule_in_every_role(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: str, roles: str, evaluated: str | None
) -> None:
    """Partition, reward and figures through training, and evaluation: the paper's rule, or the engine's default and
    each benchmark's own."""
    study = read_study()
    chosen = replace(study, recipes=[replace(recipe, rule=rule) for recipe in study.recipes])
    monkeypatch.setattr("experiments.paper.launches.read_study", lambda: chosen)
    assert {recipe.rule for recipe in study.recipes} == {"paper"}
    page = reproduce(config(tmp_path, "grpo", seeds=(1,)))
    for name in ("llama_sql", "omnisql_32b", "llama_styles"):
        recipe = page.parent / name
        files = [recipe / "presample.toml", *(recipe / "grpo" / "seed-1").glob("*.toml")]
        written = {file.name: tomllib.loads(file.read_text()) for file in files}
        judges = {file: tree["verifier"]["comparator"] for file, tree in written.items() if "verifier" in tree}
        assert set(judges) >= {"presample.toml", "train.toml", "eval.toml"} and set(judges.values()) == {roles}
        parsed = [parse("eval", words)[0] for words in evaluations(recipe)]
        of_task = {found.task.name: found.verifier.comparator for found in parsed if found.verifier.policy != "qwen"}
        assert of_task == {task: evaluated or (task if name != "llama_styles" else "strict") for task in of_task}
    assert ("judged by the rule `paper` in every role" in page.read_text()) == bool(rule)


def test_every_published_table_has_its_arms_with_the_settings_that_the_paper_names(tmp_path: Path) -> None:
    page = reproduce(config(tmp_path, "core", seeds=(1,)))
    read = {
        path.parent.parent.relative_to(page.parent).as_posix(): tomllib.loads(path.read_text())
        for path in page.parent.glob("*/*/seed-1/train.toml")
    }
    sql = {arm: settings for key, settings in read.items() for recipe, arm in [key.split("/")] if recipe == "llama_sql"}
    assert [sql[f"alpha_{n}"]["loss"]["alpha"] for n in ("02", "05", "08")] == [0.2, 0.5, 0.8]
    for form, estimator in (("dph_js", "generator"), ("dph_js_def", "definition")):
        etas = [sql[form + strength]["loss"]["eta"] for strength in ("_001", "_005", "")]
        assert etas == [0.01, 0.05, 0.2] and sql[form]["loss"]["estimator"] == estimator
    betas = [sql[f"rkl{strength}"]["loss"]["kl_coef"] for strength in ("_0001", "_0003", "", "_003", "_01")]
    assert betas == [0.001, 0.003, 0.01, 0.03, 0.1]
    on_exp = sql["dapo_exp"]
    assert on_exp["prompt_set"] == "explore" and on_exp["rehearsal"]["rows"] == 0
    assert (
        on_exp["dynamic_sampling"] == sql["dapo"]["dynamic_sampling"] and on_exp["overlong"] == sql["dapo"]["overlong"]
    )
    assert {key.split("/")[0] for key in read} == {
        *("llama_sql", "llama_styles", "omnisql_32b", "llama_math", "qwen_math")
    }


def test_rehearsal_is_composed_with_dapo_where_it_is_named(tmp_path: Path) -> None:
    page = reproduce(config(tmp_path, "llama_sql", "dph_js_dapo"))
    assert [path.name for path in (page.parent / "llama_sql" / "dph_js_dapo").iterdir()] == ["seed-1"]
    train = tomllib.loads((page.parent / "llama_sql" / "dph_js_dapo" / "seed-1" / "train.toml").read_text())
    assert train["dynamic_sampling"]["enabled"] and train["overlong"]["buffer"] == 512
    assert train["rehearsal"]["rows"] == -1 and train["rollout"]["prompts"] * train["rollout"]["n"] // 8 == 256
    assert train["loss"]["divergence"] == "js"


def test_published_numbers_fill_every_column_and_averages_are_theirs() -> None:
    for table in read_study().tables:
        for recipe, rows in table.paper.items():
            assert set(rows) <= {"base", *table.rows[recipe]}
            for numbers in rows.values():
                assert len(numbers) == len(table.columns) + table.average
                if table.average:
                    *parts, average = numbers
                    assert abs(sum(parts) / len(parts) - average) < 0.1  # of rounded numbers


def test_figure_5_is_measured_on_both_sets(tmp_path: Path) -> None:
    page = reproduce(config(tmp_path, "llama_sql", "grpo", seeds=(1,)))
    launch = page.parent / "llama_sql" / "grpo" / "seed-1"
    monitor = tomllib.loads((launch / "train.toml").read_text())["monitor"]
    assert (monitor["every"], monitor["limit"], monitor["n"]) == (20, 256, 16)
    assert monitor["sets"]["spider"] == {
        "task": "spider",
        "options": {"root": str(Path("d").resolve() / "spider")},
        "split": "dev",
        "limit": 256,
        "n": 16,
    }
    assert tomllib.loads((launch / "eval-spider.toml").read_text())["task"]["name"] == "spider"
    assert "experiments.figures eval/base/bird eval/*/seed-*/bird eval/base/spider" in page.read_text()


def test_figure_2_begins_with_a_base_of_five_styles(tmp_path: Path) -> None:
    page = reproduce(config(tmp_path, "figure-2"))
    recipe = page.parent / "llama_styles"
    base, root = str(recipe / "base" / "model"), str(Path("d").resolve())
    files = {name: tomllib.loads((recipe / name).read_text()) for name in ("sft.toml", "presample.toml")}
    launches = {arm: tomllib.loads((recipe / arm / "seed-1" / "train.toml").read_text()) for arm in ("rkl", "dph_f")}
    assert files["sft.toml"]["model"]["path"] == "meta-llama/Llama-3.1-8B-Instruct"
    assert files["sft.toml"]["demonstrations"] == 20000 and files["sft.toml"]["model"]["lora_rank"] == 64
    for settings in (files["presample.toml"], *launches.values()):
        assert settings["model"]["path"] == base
    for settings in (*files.values(), *launches.values()):
        assert (settings["task"]["name"], settings["task"]["options"]) == ("styled_sql", {"root": root})
        [plugin] = settings["plugins"]
        assert Path(plugin).name == "styled.py" and Path(plugin).is_file()
    assert 'dph sft --config "$here/sft.toml" --out "$here/base"' in (recipe / "sft.sh").read_text()
    parsed = [parse("eval", words)[0] for words in evaluations(recipe)]
    assert {found.label for found in parsed} >= {"base", "base (again)", "GRPO", "DPH-F", "DPH-JS, η = 0.2"}
    assert {(found.task.name, found.task.split, found.rollout.n) for found in parsed} == {
        ("styled_sql", "bird,spider", 32)
    }
    assert "./sft.sh" in page.read_text() and "PYTHONPATH" in page.read_text()


def test_gpu_hours_follow_the_work() -> None:
    study = read_study()
    recipe = {recipe.name: recipe for recipe in study.recipes}
    hours = {name: study.hours(recipe["llama_sql"], arm) for name, arm in study.arms.items()}
    assert hours["grpo"] < hours["rkl"] < hours["dapo"]  # a reference model, and groups that are drawn again
    assert hours["exp_only"] < hours["dph_f"] == hours["dph_js"] < hours["dph_js_def"]
    # GRPO by hand: 209 steps of 128 groups, forward passes of 2 operations for each parameter.
    forward, group = 2 * 8_030_261_248, 2500 + 16 * 500
    step = 128 * group * forward * (1 / 0.08 + 5 / 0.35)
    tokens = sum(n * (2500 + 2 * k * 500) for n, k in ((1534, 16), (1034, 16), (30, 64), (30, 64), (40, 64)))
    tokens += 500 * (2500 + 2 * 16 * 500) + sum(n * (2500 + 2 * 8 * 500) for n in (675, 272, 2818))
    tokens += 11 * 2 * 256 * (2500 + 16 * 500)  # Figure 5: steps 0, 20, … 200 on two sets
    assert hours["grpo"] == pytest.approx((209 * step + forward * tokens / 0.08) / 312e12 / 3600)


def test_the_page_has_the_gpu_hours_of_every_table() -> None:
    study = read_study()
    rows = {
        recipe: [arm for table in study.tables for arm in table.rows.get(recipe.name, ())] for recipe in study.recipes
    }
    told = study.hours_table(
        {recipe: [study.arms[arm] for arm in dict.fromkeys(arms)] for recipe, arms in rows.items()}, ()
    )
    lines = re.findall(r"^\| ([a-z]+-\d): .* \| (\d+) \| ([\d,]+) \|$", told, re.MULTILINE)
    page = (Path(__file__).parents[2] / "docs" / "concepts" / "paper-to-code.md").read_text(encoding="utf-8")
    assert len(lines) == len(study.tables)
    for table, runs, hours in lines:
        cell = re.search(rf"`{table}`[^|]*", page)
        assert cell and f"{runs} " in cell[0] and (hours in cell[0] or table == "table-3"), (table, runs, hours)


def test_tables_are_made_of_what_is_finished(tmp_path: Path) -> None:
    settings = config(tmp_path, "core", report_only=True)
    with pytest.raises(UserError, match="no finished evaluation"):
        reproduce(settings)
    folder = tmp_path / "o" / "llama_sql" / "eval"
    correct = [16, 8, 0, 0]
    for where, greedy in (("base", 0.25), ("dapo/seed-1", 0.5), ("dapo/seed-2", 0.75)):
        found = {"greedy": interval(greedy)}
        write_eval(folder / where / "bird", where, correct, samples=16, splits=("dev",), metrics=found)
    text = reproduce(settings).read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if "DAPO" in line or "base model" in line or ": GRPO" in line]
    assert "62.5 \\[60.0\\] (50.0–75.0)" in next(row for row in rows if "DAPO (2 seeds)" in row)
    assert "| 25.0 \\[42.4\\]" in rows[0]
    assert "| – \\[58.5\\] |" in rows[1]  # GRPO was not run
    assert "table-1" in text and "table-2" not in text


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [recipe.name for recipe in read_study().recipes])
class TestWithVerl:
    pytestmark = needs("verl")

    def test_verls_own_configuration_accepts_every_launch(self, recipe: str, tmp_path: Path) -> None:
        reproduce(config(tmp_path, recipe, dry_run=True, seeds=(1,)))
        assert list((tmp_path / "o" / recipe).glob("*/seed-1/launch.yaml"))
