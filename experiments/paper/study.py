"""The paper's study: its recipes, arms and tables as recipes.toml has them, and GPU-hours by estimate."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dph.config import VerlConfig, from_dict, merge_settings
from dph.integrations.verl.layout import ModelShape
from dph.tasks.benchmarks import BENCHMARKS, SIZES

FILE = Path(__file__).with_name("recipes.toml")


@dataclass(frozen=True, slots=True)
class Recipe:
    """One base model trained on one data set."""

    name: str
    preset: str
    model: str
    data: str
    """Task of the training data, and the name of its folder within the data folder."""
    benchmarks: tuple[str, ...]
    out_of_domain: tuple[str, ...]
    """Benchmarks of the other domain (Table 3)."""
    other_preset: str
    """The preset that samples those benchmarks."""
    prompt: int
    response: int
    """Mean lengths in tokens, assumed for the estimate of GPU-hours."""
    shape: ModelShape
    monitor: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """What training measures (Figure 5), as settings of `dph train`; a set's data are in the folder of its task."""
    plugin: str = ""
    """File in experiments/ that registers the task `data`, which then reads the folder of all data."""
    splits: tuple[str, ...] = ()
    """Splits of this task to evaluate with 32 samples, in the place of benchmarks (Figure 2)."""
    supervised: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Settings of `dph sft` that make the base model of `model`; empty: it is `model` itself."""
    rule: str = ""
    """Comparator of SQL results in training and evaluation; empty: `strict` in training, then the benchmark's."""

    @property
    def plugins(self) -> tuple[str, ...]:
        return (str(FILE.parents[1] / self.plugin),) if self.plugin else ()

    @property
    def judge(self) -> dict[str, Any]:
        """The settings of who judges the training task."""
        return {"verifier": {"comparator": self.rule}} if self.rule and self.judges_sql(self.data) else {}

    def judges_sql(self, name: str) -> bool:
        """Whether a benchmark, or the task of a plug-in, is judged by comparing results of SQL."""
        return bool(self.plugin) if name not in BENCHMARKS else bool(BENCHMARKS[name].rule)

    def task(self, data: Path) -> dict[str, Any]:
        """The settings of the training task with its data."""
        root = data if self.plugin else data / self.data
        named = {"name": self.data} if self.plugin else {}
        return {"task": {**named, "options": {"root": str(root)}}, "plugins": list(self.plugins)}


@dataclass(frozen=True, slots=True)
class Arm:
    """A method as it is trained: presets, the last of which is the method, and the settings that vary it."""

    name: str
    label: str
    presets: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    seeds: tuple[int, ...] = (1,)


@dataclass(frozen=True, slots=True)
class PaperTable:
    """A table of the paper: its columns, and the arms of each recipe."""

    name: str
    """Its name on the command line: table-1, figure-3."""
    title: str
    benchmarks: Sequence[str]
    metrics: Sequence[str]
    """greedy, pass@8 …; pass@k and mean@k stand for each benchmark's own k."""
    rows: Mapping[str, Sequence[str]]
    average: bool = False
    paper: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)
    """The published numbers by recipe and arm, in the order of the columns, in percent."""
    others: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Rows that others published, of which the paper quotes the first columns."""

    @property
    def columns(self) -> list[tuple[str, str]]:
        """Benchmark and metric of each column, with the benchmark's own k in the place of "k"."""
        return [
            (name, metric.replace("@k", f"@{BENCHMARKS[name].k}"))
            for name in self.benchmarks
            for metric in self.metrics
        ]


@dataclass(frozen=True, slots=True)
class Study:
    """All that recipes.toml holds."""

    gpus: int
    recipes: Sequence[Recipe]
    arms: Mapping[str, Arm]
    tables: Sequence[PaperTable]
    cost: Mapping[str, Any]

    def hours(self, recipe: Recipe, arm: Arm) -> float:
        """GPU-hours of one training run and its evaluation, by arithmetic: twice as many operations as parameters for a
        token in a forward pass, three times that in training and once more for recomputation, at the assumed shares of
        the peak rate. Each prompt is computed once for its responses."""
        settings = {"model": {"path": recipe.model}, "monitor": recipe.monitor, **arm.settings}
        default = from_dict(VerlConfig, merge_settings("verl", [recipe.preset, *arm.presets], []))
        config = from_dict(VerlConfig, settings, default=default)
        forward = 2 * recipe.shape.parameters
        draws = self.cost["draws"] if config.dynamic_sampling.enabled else 1
        group = recipe.prompt + config.rollout.n * recipe.response
        stored = config.stored_rows * (recipe.prompt + recipe.response)
        passes = 5 + (
            1 if config.loss.kl_coef or config.loss.estimator == "definition" else 0
        )  # old, 3 + 1 in training
        trained = forward * (passes * config.rollout.prompts * group + (passes - 1) * stored)
        sampled = forward * draws * config.rollout.prompts * group
        step = sampled / self.cost["sampling"] + trained / self.cost["training"]
        benchmarks = [BENCHMARKS[name] for name in (*recipe.benchmarks, *recipe.out_of_domain, *recipe.splits)]
        evaluated = sum(SIZES[b.task, b.split][0] * (recipe.prompt + 2 * b.k * recipe.response) for b in benchmarks)
        if every := config.monitor.every:
            limits = [config.monitor.limit, *(one.limit for one in config.monitor.sets.values())]
            problem = recipe.prompt + config.monitor.n * recipe.response
            evaluated += (config.steps // every + 1) * sum(limits) * problem
        operations = config.steps * step + forward * evaluated / self.cost["sampling"]
        return operations / self.cost["flops"] / 3600

    def hours_table(self, runs: Mapping[Recipe, Sequence[Arm]], given: Sequence[int]) -> str:
        """GPU-hours of every table as Markdown; a run that several tables share is counted in each.

        given: seeds in the place of each arm's own.
        """
        chosen = {(recipe.name, arm.name) for recipe, arms in runs.items() for arm in arms}
        recipes = {recipe.name: recipe for recipe in self.recipes}
        lines = ["| | runs | GPU-hours |", "|---|---:|---:|"]

        def line(title: str, cells: Sequence[tuple[str, str]]) -> str:
            runs = [(recipes[recipe], self.arms[arm]) for recipe, arm in cells for _ in given or self.arms[arm].seeds]
            return f"| {title} | {len(runs)} | {sum(self.hours(*run) for run in runs):,.0f} |"

        for table in self.tables:
            cells = [(recipe, arm) for recipe, arms in table.rows.items() for arm in arms if (recipe, arm) in chosen]
            if cells:
                lines.append(line(f"{table.name}: {table.title}", cells))
        lines.append(line("all, each run once", sorted(chosen)))
        share = f"{self.cost['training']:.0%} of the peak rate in training and {self.cost['sampling']:.0%} in sampling"
        note = f"GPU-hours are an estimate by arithmetic at {share}, and at assumed lengths (recipes.toml)."
        return "\n".join(lines) + f"\n\n{note}"


def evaluation_folder(recipe: Path, arm: str, seed: int) -> Path:
    """Where the evaluations of a training run are."""
    return recipe / "eval" / arm / f"seed-{seed}"


def read_study() -> Study:
    """The study of recipes.toml."""
    tree = tomllib.loads(FILE.read_text(encoding="utf-8"))
    recipes = []
    for name, value in tree["recipes"].items():
        lists = {key: tuple(value.get(key, ())) for key in ("benchmarks", "out_of_domain", "splits")}
        recipes.append(Recipe(name, **{**value, **lists, "shape": ModelShape(**value["shape"]), "rule": tree["rule"]}))
    arms = {}
    for name, value in tree["arms"].items():
        lists = {"presets": tuple(value.get("presets", (name,))), "seeds": tuple(value.get("seeds", (1,)))}
        arms[name] = Arm(name, **{**value, **lists})
    tables = [PaperTable(name, **value) for name, value in tree["tables"].items()]
    return Study(int(tree["gpus"]), recipes, arms, tables, tree["cost"])
