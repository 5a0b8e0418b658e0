"""The bench: what is tried, the rule that chooses, figures of merit by hand and by simulation, and a smoke run."""

import math
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from dph.config import flatten, load_settings
from dph.errors import SettingsError, UserError
from dph.report.data import read_eval
from experiments.bench import run
from experiments.bench.choose import (
    ROLES,
    Point,
    best_methods,
    chosen,
    freeze,
    halved,
    read_frozen,
    target_of,
    write_frozen,
)
from experiments.bench.design import Rule, arm_of, read_bench
from experiments.bench.figure import attainment_figure, frontier_figure
from experiments.bench.merit import attained, attainment, components, hypervolume, over_worlds, undominated
from experiments.bench.results import Phase, by_name, frontier
from experiments.bench.tables import (
    attempts_table,
    chosen_settings,
    chosen_table,
    gaps_table,
    merit_table,
    seeds_table,
    tried_table,
    variance_table,
)
from experiments.config import ReproduceConfig
from experiments.finished import Results
from experiments.grid import train_settings
from experiments.plan import Choice, RunPaths, plan, write_settings
from report_support import write_eval

RULE = Rule("grpo", near=0.005, far=0.02, k=32, corner=(0.6, 0.5), always=frozenset({"grpo"}), others=1)


# The design ---------------------------------------------------------------------------------------------------------


def test_every_method_has_settings_that_its_stage_accepts(tmp_path):
    """Writing the settings checks their names, bounds, options and budgets."""
    bench = read_bench()
    every = [setting for settings in bench.methods.values() for setting in settings]
    assert len(bench.methods) >= 20 and all(len(settings) == 4 for settings in bench.methods.values())
    assert len({setting.name for setting in every}) == len(every)
    grid = bench.grid("bench-test", every, bench.test[:1], [1])
    write_settings(Choice(grid, dict.fromkeys(grid.arms, (1,))), RunPaths(tmp_path))
    trained = {setting.training or setting.name for setting in every if not setting.retired}
    files = {file.name for file in (tmp_path / "settings").glob("train-*.toml")}
    assert files == {f"train-{name}.world-{bench.test[0]}.toml" for name in trained} and len(files) < len(every)
    assert bench.rule.always <= bench.methods.keys()
    assert bench.twice <= bench.methods.keys() and not set(bench.development) & set(bench.test)


def test_what_refills_is_also_trained_at_equal_rollouts(tmp_path):
    """The shorter training follows its setting, is shared by what shares the longer one, and counts for no frontier."""
    bench = read_bench(["dapo", "dapo_wise"])
    assert bench.equal_rollouts.keys() <= by_name(bench).keys()
    plain, half = "dapo-lr5e-05", "dapo_wise-trained_share0.5-lr0.0002"
    frozen = {"dapo": dict.fromkeys(ROLES, plain), "dapo_wise": dict.fromkeys(ROLES, half)}
    settings = chosen_settings(bench, frozen)
    short = (f"{plain}-steps{bench.equal_rollouts[plain]}", f"{half}-steps{bench.equal_rollouts[half]}")
    assert [setting.name for setting in settings] == [plain, short[0], half, short[1]]
    assert [setting.method in bench.methods for setting in settings] == [True, False, True, False]
    grid = bench.grid("bench-test", settings, [1], [11])
    assert grid.arms[f"{short[1]}.world-1"].variant_of == f"{half}.world-1"
    write_settings(Choice(grid, dict.fromkeys(grid.arms, (11,))), RunPaths(tmp_path))
    steps = {
        file.stem.removeprefix("train-").removesuffix(".world-1"): tomllib.loads(file.read_text())["steps"]
        for file in (tmp_path / "settings").glob("train-*.toml")
    }
    expected = {plain: 80, short[0]: bench.equal_rollouts[plain]}
    expected |= {"dapo-lr0.0002": 80, f"dapo-lr0.0002-steps{bench.equal_rollouts[half]}": bench.equal_rollouts[half]}
    assert steps == expected


def test_a_strength_of_two_settings_and_an_option_written_as_text():
    mara = read_bench(["mara"]).methods["mara"]
    found = [flatten(setting.settings) for setting in mara]
    names = ("advantage.options.beta", "loss.kl_coef", "optim.lr")
    assert [tuple(one[name] for name in names) for one in found] == [
        ("0.03", 0.03, 1e-4), ("0.03", 0.03, 2e-4), ("0.1", 0.1, 1e-4), ("0.1", 0.1, 2e-4),
    ]  # fmt: skip


def test_each_world_has_its_own_problems_in_every_stage():
    bench = read_bench(["maxrl"])
    [first, *_] = bench.methods["maxrl"]
    grid = bench.grid("bench-test", [first], [3, 4], [1])
    assert [dict(base.task["options"]) for base in grid.bases.values()] == [{"seed": "3"}, {"seed": "4"}]
    arm = grid.arms[arm_of(first, 4)]
    assert (arm.base, arm.store) == ("world-4", "world-4")
    assert train_settings(grid.world, arm, grid.train)["optim"]["lr"] == 5e-5


def test_settings_that_differ_in_their_evaluation_share_a_training(tmp_path):
    """GRPO's own training at that learning rate, once; each has its own evaluation."""
    bench = read_bench(["grpo_warm"])
    settings = [s for s in [*bench.methods["grpo_warm"], *bench.methods["grpo"]] if s.settings["optim"]["lr"] == 1e-4]
    grid = bench.grid("bench-test", settings, [5], [1])
    choice, paths = Choice(grid, dict.fromkeys(grid.arms, (1,))), RunPaths(tmp_path)
    write_settings(choice, paths)
    jobs = {job.name: job for job in plan(choice, paths, 1)}
    assert [name for name, job in jobs.items() if job.arguments[0] == "train"] == ["grpo-lr0.0001.world-5-1"]
    warm = jobs["eval-grpo_warm-temperature1.5-lr0.0001.world-5-1"].arguments
    assert str(tmp_path / "train" / "grpo-lr0.0001.world-5" / "seed-1" / "model") in warm
    files = [Path(jobs[f"eval-{setting.name}.world-5-1"].arguments[2]) for setting in settings]
    read = [load_settings("eval", files=[file], overrides={"plugins": ["experiments.minisql"]}) for file in files]
    assert [config.rollout.temperature for config in read] == [1.2, 1.5, 1.0]


def test_interpolated_weights_of_one_training(tmp_path):
    """Each share of GRPO's weights is made from its training, then evaluated."""
    bench = read_bench(["grpo_wise"])
    settings = [s for s in bench.methods["grpo_wise"] if s.settings["optim"]["lr"] == 1e-4]
    grid = bench.grid("bench-test", settings, [5], [1])
    jobs = plan(Choice(grid, dict.fromkeys(grid.arms, (1,))), RunPaths(tmp_path), 1)
    training, *rest = [job for job in jobs if "-lr" in job.name]
    assert training.name == "grpo-lr0.0001.world-5-1" and "train" in training.arguments
    for setting, (made, judged) in zip(settings, [rest[:2], rest[2:]], strict=True):
        folder = tmp_path / "interpolated" / f"{setting.name}.world-5" / "seed-1"
        expected = ("interpolate", str(training.out), "--weight", f"{setting.share:g}", "--out", str(folder))
        assert (made.arguments, made.needs) == (expected, (training.name,)) and not made.done
        assert judged.needs == (made.name,) and str(folder) in judged.arguments
        folder.mkdir(parents=True)
        assert made.done


def test_shares_and_evaluations_that_mean_nothing_are_refused(tmp_path):
    text = '[meta]\nstrength = ["{}"]\nvalues = [1.5]\n[train]\nmethod = "mine"\n'
    (tmp_path / "share.toml").write_text(text.format("trained_share"))
    bench = read_bench([str(tmp_path / "share.toml")])
    with pytest.raises(UserError, match=r"the share of .* is 1\.5"):
        bench.grid("bench-test", bench.methods["share"], [5], [1])
    (tmp_path / "all.toml").write_text(text.format("evaluate"))
    with pytest.raises(UserError, match=r"no setting of .* after 'evaluate'"):
        read_bench([str(tmp_path / "all.toml")])


def test_arms_of_one_training_train_alike(tmp_path):
    bench = read_bench(["grpo_wise"])
    [first, second, *_] = bench.methods["grpo_wise"]
    grid = bench.grid("bench-test", [first, replace(second, training=first.training)], [5], [1])
    with pytest.raises(UserError, match=r"'grpo-lr0\.0001.* different settings"):
        write_settings(Choice(grid, dict.fromkeys(grid.arms, (1,))), RunPaths(tmp_path))
    assert not any(tmp_path.iterdir())


def test_a_second_seed_waits_until_every_world_has_the_first(tmp_path, monkeypatch):
    """So that a bench which is stopped has as many worlds as possible."""
    ran = []
    monkeypatch.setattr(run, "run_jobs", lambda jobs, *_, **__: ran.extend(job.name for job in jobs) or [])
    bench = read_bench(["grpo"])
    setting = bench.methods["grpo"][0]
    run.Run(ReproduceConfig(), bench, tmp_path).phase("test", {setting: {1: (11, 12), 2: (11, 12)}})
    assert [name for name in ran if name.startswith("eval-grpo")] == [
        f"eval-{setting.name}.world-{world}-{seed}" for seed in (11, 12) for world in (1, 2)
    ]


def test_a_method_of_the_user(tmp_path):
    (tmp_path / "mine.toml").write_text(
        '[meta]\nlabel = "Mine"\nstrength = ["loss.eta"]\nvalues = [0.1]\nlr = [1e-4]\n[train]\nmethod = "mine"\n'
    )
    bench = read_bench([str(tmp_path / "mine.toml")])
    assert list(bench.methods) == ["grpo", "mine"]  # the target is always there
    [setting] = bench.methods["mine"]
    assert (setting.label, bench.label("mine")) == ("Mine, eta 0.1, lr 0.0001", "Mine")
    (tmp_path / "yours.yaml").write_text("meta: {label: Yours, lr: [1e-4]}\ntrain: {method: yours}\n")
    bench = read_bench([str(tmp_path / "yours.yaml")])
    assert [setting.label for setting in bench.methods["yours"]] == ["Yours, lr 0.0001"]
    assert bench.grid("bench-test", bench.methods["yours"], [1], [1]).arms  # a grid takes it too
    (tmp_path / "half.toml").write_text('[meta]\nstrength = ["loss.eta"]\n')
    with pytest.raises(UserError, match=r"meta\.strength is a list"):
        read_bench([str(tmp_path / "half.toml")])


def test_unknown_methods_are_refused():
    with pytest.raises(UserError, match="no method 'maxlr'; known are: grpo, "):
        read_bench(["maxlr"])
    with pytest.raises(SettingsError, match="cannot read the settings file"):
        read_bench(["nowhere.toml"])


# The rule -----------------------------------------------------------------------------------------------------------

GRPO = {
    "a": Point(0.80, 0.75, 0.90),
    "b": Point(0.79, 0.72, 0.93),
    "c": Point(0.70, 0.735, 0.92),
    "d": Point(0.60, 0.60, 0.60),
}
WEAK = {"e": Point(0.70, 0.65, 0.95), "f": Point(0.72, 0.68, 0.91)}


def test_the_choice_is_the_highest_coverage_near_the_target():
    """Only a has .795 of greedy accuracy; a and b have .78; a and c have .73 of mean@n."""
    target = target_of({"grpo": GRPO}, RULE)
    assert chosen(GRPO, target, RULE) == {"accurate": "a", "diverse": "b", "sampled": "c"}
    assert set(chosen(WEAK, target, RULE).values()) == {"f"}  # none comes near: the most accurate one
    assert freeze({"grpo": GRPO, "weak": WEAK}, RULE)["weak"]["diverse"] == "f"


def test_the_choices_go_on_and_others_until_half_of_the_settings_do():
    assert halved({"grpo": GRPO, "weak": WEAK}, RULE) == {"grpo": ["a", "b", "c"], "weak": ["f"]}
    near = {"a": Point(0.80, 0.7, 0.90), "b": Point(0.75, 0.6, 0.99), "c": Point(0.76, 0.6, 0.8), "d": GRPO["d"]}
    assert halved({"grpo": near}, RULE) == {"grpo": ["a", "b"]}  # one choice, and the next by the sum


def test_the_best_of_the_other_methods_go_on():
    """Above (.6, .5), WEAK covers .05·.45 + .03·.41 = .0348 and the other one .2·.15 = .03."""
    points = {"other": {"g": Point(0.9, 0.8, 0.65)}, "weak": WEAK, "grpo": GRPO}
    assert [*freeze(points, RULE)] == [*halved(points, RULE)] == ["weak", "grpo"]
    assert best_methods(points, replace(RULE, always=frozenset({"grpo", "other"}))) == ["other", "weak", "grpo"]


def test_a_choice_is_final(tmp_path):
    file = tmp_path / "frozen.toml"
    write_frozen({"grpo": dict.fromkeys(ROLES, "a")}, file)
    write_frozen({"maxrl": dict.fromkeys(ROLES, "c")}, file)
    assert read_frozen(file).keys() == {"grpo", "maxrl"}
    with pytest.raises(UserError, match="another choice for grpo"):
        write_frozen({"grpo": dict.fromkeys(ROLES, "b")}, file)
    file.write_text('[grpo]\naccurate = "a"\n')
    with pytest.raises(UserError, match="needs accurate, diverse and sampled"):
        read_frozen(file)


# Figures of merit ---------------------------------------------------------------------------------------------------


def test_hypervolume_by_hand():
    # (0.8, 0.9) covers 0.2 × 0.1; (0.7, 1.0) adds 0.1 × 0.1; (0.65, 0.85) is dominated; (0.5, 1.0) is outside.
    points = [(0.7, 1.0), (0.8, 0.9), (0.65, 0.85), (0.5, 1.0)]
    assert hypervolume(points, (0.6, 0.8)) == pytest.approx(0.02 + 0.01)
    assert hypervolume([(0.5, 0.9)], (0.6, 0.8)) == 0 == hypervolume([], (0.6, 0.8))


def test_hypervolume_is_the_share_of_random_points_that_are_dominated():
    rng = np.random.default_rng(0)
    points = rng.uniform(0, 1, (6, 2))
    drawn = rng.uniform(0, 1, (40_000, 2))
    dominated = np.any((drawn[:, None] <= points).all(-1), axis=-1).mean()
    assert hypervolume([tuple(point) for point in points], (0.0, 0.0)) == pytest.approx(dominated, abs=0.01)


def test_undominated_points():
    points = [(0.7, 1.0), (0.8, 0.9), (0.65, 0.95), (0.8, 0.85), (0.8, 0.9), (0.5, 1.0)]
    assert undominated(points) == [(0.7, 1.0), (0.8, 0.9)] and undominated([]) == []


def test_beaten_settings_are_hollow(known):
    bench, phase = known
    grpo = bench.methods["grpo"]
    phase.points[grpo[1].name] = {1: (0.7, 0.70, 0.8), 2: (0.7, 0.70, 0.8)}
    figure: Any = frontier_figure(bench, phase)
    [axes] = (axes for axes in figure.axes if axes.get_title(loc="left") == "GRPO")
    found = [(line.get_fillstyle(), line.get_linestyle(), len(line.get_xdata())) for line in axes.lines]
    assert found == [("full", "-", 1), ("none", "None", 1)]


def test_settings_worse_than_the_base_models_lie_at_the_edge(known):
    bench, phase = known
    phase.base_means = lambda metric: {1: {"greedy": 0.76, "pass@32": 1.0}[metric]}
    figure: Any = frontier_figure(bench, phase)
    [axes] = (axes for axes in figure.axes if axes.get_title(loc="left") == "DPH-JS")
    cross, _, line, triangle = axes.lines
    assert [list(cross.get_xdata()), list(line.get_xdata())] == [[76.0], [79.0]]
    assert (triangle.get_marker(), list(triangle.get_xdata()), list(triangle.get_ydata())) == ("<", [75.0], [100.0])


def test_attained_coverage():
    points = [(0.7, 1.0), (0.8, 0.9)]
    assert (attained(points, 0.6), attained(points, 0.75)) == (1.0, 0.9) and math.isnan(attained(points, 0.81))


def test_the_attainment_curve_is_a_mean_over_all_worlds():
    """World one attains 1 at .5 and .9 at .75, world two .8 at .75; both goals are .75."""
    curve = attainment([[(0.5, 1.0), (0.75, 0.9)], [(0.75, 0.8)]], [0.75, 0.75], [-0.25, 0.0, 0.125])
    assert curve[:2] == pytest.approx([0.9, 0.85]) and math.isnan(curve[2])


class Known:
    """A phase whose means are given: {setting: {world: (greedy, mean, pass@32)}}."""

    def __init__(self, points: dict[str, dict[int, tuple[float, float, float]]]) -> None:
        self.points = points

    worlds = (1, 2)
    settings: Any = ()

    def seen(self, setting: Any) -> list[int]:
        return list(self.points.get(setting.name, {}))

    def means(self, setting: Any, metric: str, _: Any = ()) -> dict[int, float]:
        known = ("greedy", "mean", "pass@32")
        if metric not in known:
            return {}
        place = known.index(metric)
        return {world: values[place] for world, values in self.points.get(setting.name, {}).items()}

    def base_means(self, _: str) -> dict[int, float]:
        return {}


@pytest.fixture
def known() -> tuple[Any, Any]:
    """Tuned GRPO has greedy accuracy .8 and mean@n .75 in both worlds. DPH-JS comes near the one with its first
    setting, and near the other in world 1 only."""
    bench = read_bench(["grpo", "dph_js"])
    grpo, js = (bench.methods[name] for name in ("grpo", "dph_js"))
    points = {
        grpo[0].name: {1: (0.8, 0.75, 0.9), 2: (0.8, 0.75, 0.92)},
        js[0].name: {1: (0.79, 0.74, 0.97), 2: (0.79, 0.70, 0.97)},
        js[1].name: {1: (0.71, 0.64, 1.0), 2: (0.71, 0.60, 1.0)},
    }
    return bench, Known(points)


def test_gains_near_the_targets_accuracies_by_hand(known):
    """Greedy: .97 − .90 and .97 − .92, mean .06. mean@n: only in world 1, .07. Hypervolume above (.6, .8): GRPO .02 and
    .024; DPH-JS .19·.17 + .11·.03 = .0356. With mean@n GRPO has .015 and .018; DPH-JS .14·.17 + .04·.03 = .025 in
    world 1 and, in world 2, where its second setting is at the corner, .1·.17 = .017: gains .01 and −.001."""
    bench, phase = known
    table = merit_table(bench, phase)
    assert table is not None
    target, row = ([cell.text for cell in line] for line in table.rows)
    assert target == ["GRPO", "220", "–", "–", "–", "–", "2/2", "–"]
    assert row == ["DPH-JS", "356", "+136", "+45", "+6.0", "+7.0", "2/2", "2/2"]


def test_intervals_end_where_a_share_does(known):
    """GRPO's pass@32 of .90 and .92: mean .91, standard error .01, Student's t with one degree of freedom 12.706."""
    bench, phase = known
    phase.settings = [bench.methods["grpo"][0]]
    table = chosen_table(bench, phase)
    assert table is not None
    entry = table.rows[1][table.columns.index("pass@32")]
    assert (entry.text, entry.interval) == ("91.0", "78.3–100.0")


def test_differences_of_settings_are_paired_by_world(known):
    """DPH-JS with its first setting against GRPO: .79 − .8 in both worlds; .74 − .75 and .70 − .75, mean −3 points,
    standard error 2, Student's t with one degree of freedom 12.706; .97 − .90 and .97 − .92."""
    bench, phase = known
    phase.settings = [bench.methods["grpo"][0], bench.methods["dph_js"][0]]
    table = gaps_table(bench, phase, "grpo")
    assert table is not None
    target, row = table.rows
    assert [entry.text for entry in target[1:]] == ["–"] * 3
    assert [entry.text for entry in row[1:]] == ["-1.0", "-3.0", "+6.0"]
    assert [entry.interval for entry in row[1:3]] == ["-1.0 to -1.0", "-28.4 to +22.4"]


def test_differences_are_paired_by_training_seed(tmp_path):
    """In world 1 both settings have seed 11, where GRPO solves 1 of 4 samples and DPH-JS 2; GRPO's second seed, with 4
    of 4, belongs to no pair. In world 2 they have no seed in common. In world 3 both have two."""
    bench = read_bench(["grpo", "dph_js"])
    grpo, js = (bench.methods[name][0] for name in ("grpo", "dph_js"))
    solved = {
        (grpo, 1): {11: 1, 12: 4},
        (js, 1): {11: 2},
        (grpo, 2): {12: 4},
        (js, 2): {11: 2},
        (grpo, 3): {11: 1, 12: 3},
        (js, 3): {11: 1, 12: 4},
    }
    grid, runs, seeds = bench.grid("bench-test", [grpo, js], [1, 2, 3], [11, 12]), {}, {}
    for (setting, world), by_seed in solved.items():
        arm = arm_of(setting, world)
        folders = [tmp_path / arm / str(seed) for seed in by_seed]
        for folder, correct in zip(folders, by_seed.values(), strict=True):
            write_eval(folder, arm, [correct], splits=["test"])
        runs[arm], seeds[arm] = [read_eval(folder) for folder in folders], [*by_seed]
    results = Results(Choice(grid, {arm: (11, 12) for arm in runs}), {}, {}, runs, seeds, {}, {})
    phase = Phase(results, [grpo, js], [1, 2, 3])
    assert phase.means(grpo, "mean") == {1: 0.625, 2: 1.0, 3: 0.5}
    assert phase.means(grpo, "mean", [js]) == {1: 0.25, 3: 0.5}
    assert phase.means(js, "mean", [grpo]) == {1: 0.5, 3: 0.625}
    assert frontier(phase, [grpo], "mean", "greedy", [js]) == {1: [(0.25, 1.0)], 3: [(0.5, 1.0)]}
    table = gaps_table(bench, phase, "grpo")
    assert table is not None and table.rows[1][2].text == "+18.8"  # (.25 + .125) / 2
    table = seeds_table(bench, phase, grpo.name)  # seed 11: worlds 1 and 3, +.25 and 0; seed 12: world 3 alone, +.25
    assert table is not None
    assert [entry.text for entry in table.rows[0]] == [
        js.label,
        "+12.5",
        "–",
        "+25.0",
        "–",
    ]  # 4 samples have no pass@32
    assert table.columns[1] == "seed 11, 2 worlds: mean@n" and table.columns[3] == "seed 12, 3 worlds: mean@n"
    assert phase.of_seed(11).seen(grpo) == [1, 3] and phase.of_seed(13).seen(grpo) == []
    assert seeds_table(bench, phase, "another") is None


def test_before_the_first_run_there_are_no_tables():
    bench, phase = read_bench(["grpo"]), cast(Phase, Known({}))
    for table in (chosen_table, merit_table, attempts_table, variance_table):
        assert table(bench, phase) is None
    assert gaps_table(bench, phase, "grpo") is None
    assert seeds_table(bench, phase, "grpo-lr5e-05") is None


def test_attempts_are_compared_with_what_they_change(known):
    """Hypervolumes of MaxRL with rehearsal: .19·.19 = .0361 with greedy accuracy in both worlds, DPH-JS .0356,
    so the gain has no spread; with mean@n .1·.19 = .019 against .025, and .12·.19 = .0228 against .017."""
    _, phase = known
    bench = read_bench(["grpo", "dph_js", "dph_js_maxrl", "dph_f_raw"])
    [first, *_] = bench.methods["dph_js_maxrl"]
    phase.points[first.name] = {1: (0.79, 0.70, 0.99), 2: (0.79, 0.72, 0.99)}
    table = attempts_table(bench, phase)
    assert table is not None
    [row] = [[cell.text for cell in line] for line in table.rows]  # MaxRL alone and the raw divergence were not run
    assert row == ["DPH-JS with MaxRL", "DPH-JS", "+5", "-1", "+2.0", "+2.0", "yes"]
    assert attempts_table(read_bench(["grpo", "dph_js"]), phase) is None


def test_the_table_of_what_was_tried_has_what_was_run(known):
    bench, phase = known
    chosen = {"grpo": {"accurate": bench.methods["grpo"][0].name, "diverse": bench.methods["grpo"][3].name}}
    rows = [[entry.text for entry in row] for row in tried_table(bench, [phase], chosen).rows]
    assert rows[0] == ["GRPO, lr 5e-05", "80.0", "75.0", "90.0", "80.0", "75.0", "92.0", "accurate"]
    assert [row[0] for row in rows[1:]] == [setting.label for setting in bench.methods["dph_js"][:2]]


def lines_of(figure: Any, title: str) -> list[np.ndarray]:
    """The points of each line in a figure's panel."""
    [axes] = (axes for axes in figure.axes if axes.get_title(loc="left") == title)
    return [np.column_stack([line.get_xdata(), line.get_ydata()]) for line in axes.lines]


def test_the_figures_show_the_known_points(known):
    bench, phase = known
    grey, own = lines_of(attainment_figure(bench, phase), "DPH-JS")
    at = {round(float(x), 2): float(y) for x, y in own}
    assert at[-10.0] == pytest.approx(100) and at[-2.0] == pytest.approx(97) and math.isnan(at[0.0])
    assert float(grey[-1][0]) == pytest.approx(5) and math.isnan(grey[-1][1])
    own = lines_of(frontier_figure(bench, phase, "mean"), "DPH-JS")[1]
    assert own.ravel().tolist() == pytest.approx([62.0, 100.0, 72.0, 97.0])


def test_intervals_over_worlds_cover_as_they_say():
    rng = np.random.default_rng(1)
    found = [over_worlds(list(rng.normal(0.3, 0.05, 6))) for _ in range(2000)]
    assert np.mean([value.low <= 0.3 <= value.high for value in found]) == pytest.approx(0.95, abs=0.015)
    assert math.isnan(over_worlds([0.5, math.nan]).low) and math.isnan(over_worlds([]).mean)


def test_components_of_variance_are_found_again():
    """Effects of known size: problems .3/√400, seeds .02, worlds .04."""
    rng, found = np.random.default_rng(2), []
    for _ in range(200):
        worlds = []
        for _ in range(6):
            problems, seeds = rng.normal(0, 0.3, 400), rng.normal(0, 0.02, (2, 1))
            worlds.append(rng.normal(0.8, 0.04) + seeds + problems + rng.normal(0, 0.1, (2, 400)))
        found.append(components(worlds))
    for name, size in (("problems", 0.3 / 20), ("seeds", 0.02), ("worlds", 0.04)):
        mean_square = float(np.mean([getattr(parts, name) ** 2 for parts in found]))
        assert math.sqrt(mean_square) == pytest.approx(size, rel=0.12), name
    one = components([np.array([[0.0, 1.0]])])
    assert math.isnan(one.seeds) and math.isnan(one.worlds) and one.problems == pytest.approx(0.5)
