"""Grids of experiments: what is planned, and the tables and figures of runs whose every number is known."""

import json
import re
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dph.cli.main import parse
from dph.config import STAGES, flatten, from_dict
from dph.errors import UserError
from experiments.bird import SPLITS
from experiments.config import ReproduceConfig
from experiments.figures import figures
from experiments.finished import difference, mean_value, read_results, values
from experiments.grid import grid_names, read_grid, train_settings
from experiments.plan import Choice, RunPaths, plan, write_settings
from experiments.run import choose, reproduce, tables, write_results
from experiments.strata import kinds_table, strata_table
from experiments.tables import (
    accuracy_table,
    comparison_table,
    diversity_table,
    settings_table,
    variants_table,
)
from experiments.tests.support import small_grid
from experiments.word_problems import SHARES
from report_support import write_eval, write_train

SAMPLES = 32


# ---- grids --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", grid_names())
def test_every_grid_is_sound_and_its_settings_are_known(name: str) -> None:
    grid = read_grid(name)
    for arm in grid.arms.values():
        from_dict(STAGES["train"], train_settings(grid.world, arm, grid.train), arm.name)
    assert {"grpo", "dapo", "exp_only", "dph_f", "dph_js"} <= {arm.name for arm in grid.chosen(["core"])}


def test_the_tiny_grid_holds_what_the_paper_compares() -> None:
    grid = read_grid("tiny")
    presets = {arm.preset for arm in grid.arms.values()}
    assert {"grpo", "dapo", "rkl", "rkl_true", "alpha", "dph_f", "dph_js", "dph_js_def", "exp_only"} <= presets
    assert len(grid.seeds) >= 5 and len(grid.fewer_seeds) >= 2
    alphas = {dict(arm.settings["loss"])["alpha"] for arm in grid.arms.values() if arm.preset == "alpha"}
    assert alphas == {0.2, 0.5, 0.8}
    assert {sweep.setting for sweep in grid.sweeps.values()} >= {"loss.eta", "loss.kl_coef", "optim.lr"}


def test_a_sweep_makes_an_arm_for_each_value_and_counts_the_arms_own() -> None:
    grid = small_grid()
    own = flatten(train_settings(grid.world, grid.arms["dph_js"], {}))["loss.eta"]
    assert grid.sweeps["eta"].values == {"dph_js": own, "dph_js-eta-0.1": 0.1}
    varied = grid.arms["dph_js-eta-0.1"]
    assert flatten(train_settings(grid.world, varied, {}))["loss.eta"] == 0.1
    assert varied.sweep == "eta" and varied.tier == "wide"


def test_an_arm_without_a_label_has_its_presets() -> None:
    arms = {"one": {"preset": "rkl", "tier": "core"}, "two": {"label": "mine", "preset": "rkl", "tier": "core"}}
    grid = small_grid(arms=arms, sweeps={})
    assert [arm.label for arm in grid.arms.values()] == ["RKL", "mine"]


def test_an_interpolated_arm_takes_what_its_training_is_made_of() -> None:
    trained = {"preset": "dph_js", "tier": "core", "train": {"dynamic_sampling": {"enabled": True}}}
    halfway = {"label": "halfway", "tier": "wide", "training": "dynamic", "share": 0.5}
    grid = small_grid(arms={"dynamic": trained, "halfway": halfway}, sweeps={})
    one, other = grid.arms["dynamic"], grid.arms["halfway"]
    assert (other.trained, other.preset, other.settings, other.share) == ("dynamic", "dph_js", one.settings, 0.5)
    assert (other.label, other.tier) == ("halfway", "wide")
    with pytest.raises(UserError, match="'halfway' names neither a preset"):
        small_grid(arms={"halfway": halfway}, sweeps={})
    again = {"label": "a quarter", "tier": "wide", "training": "halfway", "share": 0.25}
    with pytest.raises(UserError, match="'again' names neither a preset"):
        small_grid(arms={"dynamic": trained, "halfway": halfway, "again": again}, sweeps={})


def test_unequal_budgets_are_refused_unless_meant() -> None:
    arms = {
        "grpo": {"label": "GRPO", "preset": "grpo", "tier": "core"},
        "dph_js": {"label": "DPH-JS", "preset": "dph_js", "tier": "core", "train": {"rollout": {"n": 4}}},
    }
    with pytest.raises(UserError, match=r"rollout\.n is 16 for 'grpo' and 4"):
        small_grid(arms=arms)
    arms["dph_js"]["other_budget"] = True
    with pytest.raises(UserError, match="compare it with as variant_of"):
        small_grid(arms=arms)
    arms["dph_js"]["variant_of"] = "grpo"
    assert small_grid(arms=arms).arms["dph_js"].other_budget


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"preset": "nothing"}, "names an unknown preset 'nothing'"),
        ({"store": "two"}, "names an unknown store 'two'"),
        ({"base": "strong"}, "names an unknown base 'strong'"),
        ({"tier": "best"}, "names an unknown tier 'best'"),
        ({"variant_of": "rkl"}, "'grpo' is a variant of 'rkl'"),
        ({"variant_of": "grpo"}, "'grpo' is a variant of 'grpo'"),
    ],
)
def test_unknown_names_in_a_grid(change: dict[str, str], message: str) -> None:
    arm = {"label": "GRPO", "preset": "grpo", "tier": "core"} | change
    with pytest.raises(UserError, match=re.escape(message)):
        small_grid(arms={"grpo": arm}, sweeps={})


def test_methods_are_chosen_by_name_or_tier() -> None:
    grid = small_grid()
    assert [arm.name for arm in grid.chosen(["dph_js", "wide"])] == ["dph_js", "dph_js-eta-0.1"]
    assert len(grid.chosen(["all"])) == 3
    with pytest.raises(UserError, match="no method 'grppo'; known are: core"):
        grid.chosen(["grppo"])


# ---- plans --------------------------------------------------------------------------------------------------------


def test_the_plan_names_every_run_once_and_what_it_needs(tmp_path: Path) -> None:
    grid, paths = small_grid(), RunPaths(tmp_path)
    jobs = plan(Choice(grid, {"grpo": (1, 2), "dph_js": (1, 2), "dph_js-eta-0.1": (1,)}), paths, slots=2)
    names = [job.name for job in jobs]
    assert len(set(names)) == len(names) == 1 + 1 + 2 + 5 + 5
    known: set[str] = set()
    for job in jobs:  # in an order in which nothing waits for what comes later
        assert known.issuperset(job.needs)
        known.add(job.name)
    assert names.index("eval-dph_js-1") < names.index("grpo-2")  # a whole seed before the next begins
    assert len({job.out for job in jobs}) == len(jobs)
    # Trained models are sampled anew; with the base model's own random numbers they would look like it.
    seeds = [job.arguments[job.arguments.index("--seed") + 1] for job in jobs if job.name.startswith("eval-dph_js-")]
    assert seeds == ["1", "1", "2"]


def test_settings_are_written_once_and_changed_ones_refused(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    write_settings(Choice(small_grid(), {"grpo": (1,), "dph_js": (1,)}), paths)
    before = {path: path.read_text() for path in sorted((tmp_path / "settings").iterdir())}
    assert [path.stem for path in before] == [
        *("eval-test", "presample-one", "sft-base", "train-dph_js", "train-grpo"),
    ]
    assert tomllib.loads(before[paths.settings("train", "dph_js")])["loss"]["divergence"] == "js"
    write_settings(Choice(small_grid(), {"grpo": (1,)}), paths)  # the same again, and more methods later, are fine
    with pytest.raises(UserError, match=r"train-grpo.toml .*steps: 80 → 3"):
        write_settings(Choice(small_grid(train={"steps": 3}), {"grpo": (1,)}), paths)
    assert {path: path.read_text() for path in before} == before
    # A version that did not know a setting yet wrote the same settings.
    older = before[paths.settings("train", "grpo")].replace("keep_checkpoints = 2\n", "")
    assert older != before[paths.settings("train", "grpo")]
    paths.settings("train", "grpo").write_text(older)
    write_settings(Choice(small_grid(), {"grpo": (1,)}), paths)
    assert paths.settings("train", "grpo").read_text() == older


def test_settings_with_a_name_that_is_gone_are_refused(tmp_path: Path) -> None:
    choice, paths = Choice(small_grid(), {"dph_js": (1,)}), RunPaths(tmp_path)
    write_settings(choice, paths)
    path = paths.settings("train", "dph_js")
    path.write_text(f"former = 2\n{path.read_text(encoding='utf-8')}", encoding="utf-8")
    with pytest.raises(UserError, match="unknown key 'former'"):
        write_settings(choice, paths)


@pytest.mark.parametrize("smoke", [False, True])
@pytest.mark.parametrize("name", grid_names())
def test_every_job_of_every_grid_has_settings_that_its_stage_takes(name: str, smoke: bool, tmp_path: Path) -> None:
    grid, paths = read_grid(name), RunPaths(tmp_path)
    choice = Choice(grid, dict.fromkeys(grid.arms, (1,)), data="spider" if grid.needs_data else "", smoke=smoke)
    choice = choice.without({})
    write_settings(choice, paths)
    stages = set()
    for job in plan(choice, paths, slots=2):
        stage, *words = job.arguments
        stages.add(stage)
        parse(stage, words)  # raises UserError for settings that the stage does not take
    interpolates = any(arm.share < 1 for arm in grid.arms.values())
    assert stages == {"sft", "presample", "train", "eval"} | ({"interpolate"} if interpolates else set())


def test_settings_that_a_stage_would_refuse_are_found_before_anything_runs(tmp_path: Path) -> None:
    for smoke, message in (
        ({"presample": {"threshold": 0}}, "'one': threshold is 0"),
        ({"presample": {"threshold": 9}}, "'one': threshold 9 must lie between"),
        ({"train": {"rollout": {"prompts": 1}}}, "'grpo': rollout.prompts 1"),
    ):
        choice = Choice(small_grid(smoke=smoke), {"grpo": (1,)}, smoke=True)
        with pytest.raises(UserError, match=re.escape(message)):
            write_settings(choice, RunPaths(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "known"), [("maths", {*SHARES, "longer"}), ("bird", {*SPLITS})])
@pytest.mark.parametrize("smoke", [False, True])
def test_a_language_models_grid_measures_splits_that_its_world_has(
    name: str, known: set[str], smoke: bool, tmp_path: Path
) -> None:
    """And it trains on the problems of which some were presampled: of another split nothing could be rehearsed."""
    grid = read_grid(name)
    paths = RunPaths(tmp_path)
    write_settings(Choice(grid, {"dph_js": (1,)}, data="d" if grid.needs_data else "", smoke=smoke), paths)
    train, presample = (
        from_dict(STAGES[stage], tomllib.loads((tmp_path / "settings" / f"{stage}-{of}.toml").read_text()))
        for stage, of in (("train", "dph_js"), ("presample", "one"))
    )
    assert presample.task.split == train.task.split and train.task.split in known
    if train.monitor.every:
        assert {train.monitor.split, *(one.split for one in train.monitor.sets.values())} <= known


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_smoke_run_of_the_small_grid_finishes(tmp_path: Path, shared_data: Path) -> None:
    config = ReproduceConfig("small", ("dph_f",), (1,), out=str(tmp_path / "o"), data=str(shared_data / "spider"))
    page = reproduce(replace(config, smoke=True))
    assert "| DPH-F (1 seed) |" in page.with_name("tables.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (ReproduceConfig(scale="huge"), "no scale is named 'huge'; known are:"),
        (ReproduceConfig(smoke=True), "a smoke run needs a directory"),
        (ReproduceConfig(methods=("nothing",)), "has no method 'nothing'"),
        (ReproduceConfig(scale="small"), "with --data, not ''"),
        (ReproduceConfig(scale="small", data="nowhere"), "with --data, not 'nowhere'"),
    ],
)
def test_bad_choices_are_one_sentence(config: ReproduceConfig, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        reproduce(config)


def test_published_counts_are_shown_without_the_data_set(tmp_path: Path) -> None:
    counts = Path(__file__).resolve().parents[1] / "counts"
    config = ReproduceConfig(
        scale="small",
        methods=("dph_f", "dph_f_by_class"),
        seeds=(1,),
        report_only=True,
        counts=str(counts),
        out=str(tmp_path),
    )
    tables = reproduce(config).with_name("tables.md").read_text(encoding="utf-8")
    assert "| DPH-F, adaptive by class (1 seed) |" in tables


# ---- results ------------------------------------------------------------------------------------------------------


@pytest.fixture
def finished(tmp_path: Path) -> tuple[Choice, RunPaths]:
    """Runs of two methods with two seeds, of two problems each: counts of correct samples out of 32."""
    choice, paths = Choice(small_grid(), {"grpo": (1, 2), "dph_js": (1, 2), "dph_js-eta-0.1": (1,)}), RunPaths(tmp_path)
    counts = {
        ("base", 0): [16, 8, 0, 0],
        ("grpo", 1): [32, 0, 0, 0],
        ("grpo", 2): [32, 16, 0, 0],
        ("dph_js", 1): [32, 16, 8, 0],
        ("dph_js", 2): [32, 16, 0, 0],
        ("dph_js-eta-0.1", 1): [32, 8, 0, 0],
    }
    splits = ("test", "cross", "ood")
    for (name, seed), correct in counts.items():
        label = "base" if name == "base" else choice.grid.arms[name].label
        kinds = ("join", "list")
        write_eval(paths.evaluation(name, seed), label, correct, samples=SAMPLES, splits=splits, kinds=kinds)
        if seed:
            run = write_train(paths.training(choice.grid.arms[name], seed), name, [0.1, 0.2 * seed])
            (run / "model").mkdir()
            lap = {"step": 1, "sample_seconds": 0.5, "update_seconds": 0.25, "peak_memory_gib": 0.5}
            (run / "timings.jsonl").write_text(json.dumps(lap) + "\n")
    write_settings(choice, paths)
    return choice, paths


def test_means_over_seeds_and_problems(finished: tuple[Choice, RunPaths]) -> None:
    results = read_results(*finished)
    runs = results.arms["grpo"]
    assert values(runs, "test", "mean").tolist() == [[1, 0, 0, 0], [1, 0.5, 0, 0]]
    assert values(runs, "test", "greedy").tolist() == [[1, 0, 0, 0], [1, 1, 0, 0]]
    # pass@16 of 16 correct in 32 is 1 − C(16, 16)/C(32, 16), all but 1.7e-9 of it.
    assert np.allclose(values(runs, "test", "pass@16"), [[1, 0, 0, 0], [1, 1, 0, 0]], atol=1e-8)
    found = mean_value(runs, "test", "greedy")
    assert found.mean == 3 / 8 and 0 <= found.low < found.mean < found.high <= 1
    gap = difference(runs, [results.bases["base"]], "test", "mean")
    assert gap.mean == pytest.approx(5 / 16 - 3 / 16)  # (1 + 1.5)/8 − (0.5 + 0.25)/4


def test_tables_hold_the_numbers(finished: tuple[Choice, RunPaths]) -> None:
    results = read_results(*finished)
    base = results.choice.grid.bases["base"]
    table = accuracy_table(results, base, "T", ks=(8,))
    assert table is not None and [row[0].text for row in table.rows] == ["base", "GRPO (2 seeds)", "DPH-JS (2 seeds)"]
    assert table.columns[:3] == ["", "in-domain: greedy", "in-domain: pass@8"]
    assert [row[1].text for row in table.rows] == ["50.0", "37.5", "62.5"]  # the sweep's arm is not a method
    gaps = comparison_table(results, base)
    assert gaps is not None
    row = next(row for row in gaps.rows if row[0].text.startswith("DPH-JS"))
    assert row[gaps.columns.index("greedy − base")].text == "+12.5"
    assert row[gaps.columns.index("greedy − GRPO")].text == "+25.0"
    compared = int(re.findall(r"(\d+) comparisons", gaps.note)[0])
    assert compared == sum(entry.text != "–" for row in gaps.rows for entry in row[1:])
    kept = diversity_table(results, base)
    assert kept is not None and "noise floor" in kept.note
    assert all("with one seed" in part.note and "over problems only" in part.note for part in (table, kept))
    assert "an arm with one seed counts as that very model" in gaps.note
    varied = variants_table(results, base)
    assert varied is not None
    # Of DPH-JS alone a setting is varied: 32 and 8 of 128 against means of 56/128 and 48/128.
    assert [row[0].text for row in varied.rows] == ["base", "DPH-JS (2 seeds)", "DPH-JS, eta 0.1 (1 seed)"]
    gaps_to_plain = [row[varied.columns.index("mean@n − plain")].text for row in varied.rows]
    assert gaps_to_plain == ["–", "–", f"{100 * (40 - (56 + 48) / 2) / 128:+.1f}"]
    listed = settings_table(results.choice)
    assert any("loss.eta=0.1" in row[-1].text for row in listed.rows)


def test_problems_are_classed_by_how_often_the_base_model_solves_them(finished: tuple[Choice, RunPaths]) -> None:
    results = read_results(*finished)
    base = results.choice.grid.bases["base"]
    assert strata_table(results, base) is None  # four problems are too few
    table = strata_table(results, base, smallest=1)
    # Base: 16, 8, 0 and 0 of 32, so two problems in no class but "none", one at 25 % and one at 50 %.
    assert table is not None and "none: 2, 6.25–25 %: 1, 25–62.5 %: 1" in table.note
    assert table.columns[:4] == ["", "mean@n, none", "mean@n, 6.25–25 %", "mean@n, 25–62.5 %"]
    found = {row[0].text: [entry.text for entry in row[1:4]] for row in table.rows}
    # GRPO: 32, 0, 0, 0 and 32, 16, 0, 0; DPH-JS: 32, 16, 8, 0 and 32, 16, 0, 0, of which 8/32 in one of four unsolved.
    assert found["GRPO (2)"] == ["0.0", "25.0", "100.0"]
    assert found["DPH-JS (2)"] == [f"{100 / 16:.1f}", "50.0", "100.0"]
    other = strata_table(results, base, "out-of-domain", smallest=1)  # the fixture has the same counts there
    assert other is not None and other.rows == table.rows and other.title.endswith(", out-of-domain")


def test_differences_over_the_kinds_of_problems(finished: tuple[Choice, RunPaths]) -> None:
    results = read_results(*finished)
    base = results.choice.grid.bases["base"]
    assert kinds_table(results, base) is None  # two kinds are too few
    assert kinds_table(results, base, against="dapo", fewest=2) is None  # which was not run
    table = kinds_table(results, base, fewest=2)
    assert table is not None and [row[0].text for row in table.rows] == ["DPH-JS (2)"]
    assert "in-domain: 2 kinds, cross-domain: 2 kinds, out-of-domain: 2 kinds" in table.note
    assert "Differences to GRPO" in table.title
    entry = table.rows[0][table.columns.index("in-domain: mean@n")]
    # Means over seeds: 1, 1/2, 1/8, 0 and 1, 1/4, 0, 0. The problems are joins and lists in turn: gaps of 1/16 and 1/8,
    # mean 3/32, standard error 1/32; Student's t with one degree of freedom is 12.706.
    assert (entry.text, entry.interval) == ("+9.4", "-30.3 to +49.1")


def test_everything_is_written_and_missing_runs_are_left_out(finished: tuple[Choice, RunPaths]) -> None:
    choice, paths = finished
    page = write_results(choice, paths)
    assert page.name == "index.html" and "Table 1" in page.read_text(encoding="utf-8")
    text = (page.parent / "tables.md").read_text(encoding="utf-8")
    assert "Table 1" in text and "Budgets and cost" in text and "| GRPO | " in text
    linked = re.findall(r"\(figures/(.*?)\)", text)
    assert {
        "fig1_gap.png",
        "fig1_modes.png",
        "greedy.png",
        "fig3_sweeps.png",
        "fig5_training.png",
        "frontier.png",
    } <= set(linked)
    for name in linked:
        assert (page.parent / "figures" / name).read_bytes().startswith(b"\x89PNG")
        assert (page.parent / "figures" / name).with_suffix(".svg").exists()
    for seed in (1, 2):
        (paths.evaluation("grpo", seed) / "scores.json").unlink()
    results = read_results(choice, paths)
    assert "grpo" not in results.arms and figures(results)
    assert not any(row[0].text.startswith("GRPO") for table in tables(results)[:-1] for row in table.rows)


def test_nothing_finished_is_no_error(tmp_path: Path) -> None:
    choice = Choice(small_grid(), {"grpo": (1,)})
    assert "Everything that was run" in write_results(choice, RunPaths(tmp_path)).read_text(encoding="utf-8")


def test_what_is_finished_is_reported_without_running_anything(
    finished: tuple[Choice, RunPaths], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("nothing is to be run")

    monkeypatch.setattr("experiments.run.run_jobs", never)
    config = ReproduceConfig(methods=("grpo", "dph_js", "rkl"), out=str(finished[1].root), report_only=True)
    text = reproduce(config).with_name("tables.md").read_text(encoding="utf-8")
    assert "| GRPO (2 seeds) |" in text and "| RKL |" not in text.split("Everything that was run")[0]
    with pytest.raises(UserError, match=r"there is no reproduction at"):
        reproduce(replace(config, out=str(tmp_path / "nowhere")))
    (tmp_path / "begun").mkdir()
    with pytest.raises(UserError, match="no base model has been evaluated"):
        reproduce(replace(config, out=str(tmp_path / "begun")))


def test_seeds_given_replace_the_grids() -> None:
    grid = small_grid()
    chosen = choose(grid, ReproduceConfig(methods=("grpo", "wide"), seeds=(7,)))
    assert chosen.arms == {"grpo": (7,), "dph_js-eta-0.1": (7,)}
    assert choose(grid, ReproduceConfig(methods=("grpo", "wide"))).arms == {"grpo": (1, 2), "dph_js-eta-0.1": (1,)}
