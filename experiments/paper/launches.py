"""`python -m experiments paper`: launches for the paper's own models and data. Nothing is run or loaded.

OUT/RECIPE/presample.toml, presample.sh   partition and rehearsal set of the base model, once for all methods
OUT/RECIPE/METHOD/                        the launch of `dph verl`: data.sh, ray.sh, train.sh, eval.sh
OUT/RECIPE/evaluate.sh                    every benchmark for the base model (twice: the noise floor) and every method
OUT/README.md                             the order of it all, by table of the paper
"""

import shlex
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dph.config import PresampleConfig, from_dict, merge_settings, to_toml
from dph.errors import UserError
from dph.integrations.verl.launch import ModelShape, presample_script, preset_launch, script
from dph.process.progress import say
from dph.runs.files import write_atomically
from dph.tasks.benchmarks import BENCHMARKS
from experiments.config import ReproduceConfig
from experiments.plan import AGAIN, AGAIN_SEED

NAME = "full"
RECIPES = Path(__file__).with_name("recipes.toml")


@dataclass(frozen=True, slots=True)
class Recipe:
    """One base model trained on one data set by every method."""

    name: str
    tables: str
    """The paper's tables that it makes."""
    preset: str
    model: str
    data: str
    """Task of the training data, and the name of its folder within the data folder."""
    benchmarks: tuple[str, ...]
    out_of_domain: tuple[str, ...]
    """Benchmarks of the other domain (Table 3); its average is taken without AIME25."""
    other_preset: str
    """The preset that samples those benchmarks."""
    shape: ModelShape


def read_full() -> tuple[list[Recipe], list[str], int]:
    """The recipes, the methods, and the GPUs of the paper's runs."""
    tree = tomllib.loads(RECIPES.read_text(encoding="utf-8"))
    recipes = []
    for name, value in tree["recipes"].items():
        lists = {key: tuple(value[key]) for key in ("benchmarks", "out_of_domain")}
        recipes.append(Recipe(name, **{**value, **lists, "shape": ModelShape(**value["shape"])}))
    return recipes, list(tree["methods"]), int(tree["gpus"])


def reproduce_full(config: ReproduceConfig) -> Path:
    """Write every launch and the evaluation commands; returns the README.

    `config.methods` may name recipes, methods, or "core" for everything. `config.data` is the folder with one folder
    for each data set. Raises UserError for unknown names, and where `dph verl` does.
    """
    recipes, methods, gpus = read_full()
    recipes, methods = _chosen(recipes, methods, config.methods)
    out = Path(config.out or f"runs/reproduce-{NAME}").resolve()
    data = Path(config.data or "data").resolve()
    seeds = config.seeds or (1,)
    for recipe in recipes:
        folder = out / recipe.name
        _write_presample(recipe, folder, data)
        for method in methods:
            for seed in seeds:
                _write_launch(recipe, method, seed, folder, data, gpus)
        write_atomically(folder / "evaluate.sh", _evaluation(recipe, methods, seeds, folder, data))
        (folder / "evaluate.sh").chmod(0o755)
    write_atomically(out / "README.md", _readme(recipes, methods, seeds, out, data, gpus))
    say(f"{len(recipes) * len(methods) * len(seeds)} launches are written; {out / 'README.md'} says what to run")
    return out / "README.md"


def _chosen(recipes: Sequence[Recipe], methods: Sequence[str], names: Sequence[str]) -> tuple[list[Recipe], list[str]]:
    everything = {"core", "wide", "all"}
    known = {*everything, *methods, *(recipe.name for recipe in recipes)}
    for name in names:
        if name not in known:
            listed = ", ".join(["all", *(recipe.name for recipe in recipes), *methods])
            raise UserError(f"the scale {NAME!r} has no recipe or method {name!r}; known are: {listed}")
    some_recipes = [recipe for recipe in recipes if recipe.name in names] or list(recipes)
    some_methods = [method for method in methods if method in names] or list(methods)
    return some_recipes, some_methods


def _task(recipe: Recipe, data: Path) -> dict[str, Any]:
    return {"task": {"options": {"root": str(data / recipe.data)}}}


def _write_presample(recipe: Recipe, folder: Path, data: Path) -> None:
    default = from_dict(PresampleConfig, merge_settings("presample", [recipe.preset], []))
    own = {"out": str(folder / "presample"), "model": {"path": recipe.model}, "sampler": {"engine": "vllm"}}
    settings = from_dict(PresampleConfig, own | _task(recipe, data), default=default)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "presample.toml", to_toml(settings))
    title = f"Partition and rehearsal set for every method of {recipe.name}, sampled through vLLM."
    write_atomically(folder / "presample.sh", presample_script(folder, title))
    (folder / "presample.sh").chmod(0o755)


def _launch_folder(folder: Path, method: str, seed: int) -> Path:
    return folder / method / f"seed-{seed}"


def _write_launch(recipe: Recipe, method: str, seed: int, folder: Path, data: Path, gpus: int) -> None:
    settings = {
        "model": {"path": recipe.model},
        "rehearsal": {"path": str(folder / "presample")},
        "cluster": {"gpus": gpus},
        "seed": seed,
    }
    out = _launch_folder(folder, method, seed)
    preset_launch([recipe.preset, method], out, settings | _task(recipe, data), recipe.shape)


def _evaluation(recipe: Recipe, methods: Sequence[str], seeds: Sequence[int], folder: Path, data: Path) -> str:
    """`dph eval` of every benchmark for the base model, the base model again, and each training run's last model."""
    lines = ['newest() { ls -d "$1"/models/step-* | sort -V | tail -n 1; }', ""]

    def add(label: str, model: str, out: Path, seed: int) -> None:
        for name in [*recipe.benchmarks, *recipe.out_of_domain]:
            preset = recipe.other_preset if name in recipe.out_of_domain else recipe.preset
            words = ["--preset", preset, "--task", name, "--data", str(data / BENCHMARKS[name].task)]
            words += ["--rollout.n", str(2 * BENCHMARKS[name].k), "--label", label]
            words += ["--seed", str(seed), "--sampler.engine", "vllm", "--out", str(out / name), "--resume"]
            lines.append(f'"$python" -m dph eval {shlex.join(words)} --model.path {model}')

    lines.append("# The base model, and other samples of it: the noise floor.")
    add("base", shlex.quote(recipe.model), folder / "eval" / "base", 0)
    add("base" + AGAIN, shlex.quote(recipe.model), folder / "eval" / "base-again", AGAIN_SEED)
    for method in methods:
        for seed in seeds:
            launch = _launch_folder(folder, method, seed)
            lines += ["", f"# {method}, seed {seed}: merged by its eval.sh first."]
            model = f'"$(newest {shlex.quote(str(launch))})"'
            add(method, model, folder / "eval" / method / f"seed-{seed}", seed)
    title = "Every benchmark; finished evaluations are left as they are, so that it can be started again."
    return script(folder, title, "dph-rl[vllm]", "\n".join(lines) + "\n")


def _readme(
    recipes: Sequence[Recipe], methods: Sequence[str], seeds: Sequence[int], out: Path, data: Path, gpus: int
) -> str:
    parts = [
        "# The paper's experiments at their own size",
        f"Written by `python -m experiments paper`; nothing here was run. Each training run takes {gpus} GPUs of 80 "
        f"GB as in the paper. The data are expected in {data}, a folder for each data set; every node must see both "
        "directories under the same path.",
    ]
    for recipe in recipes:
        rows = [
            f"## {recipe.tables}",
            f"Model `{recipe.model}`, data `{recipe.data}`, methods {', '.join(methods)}, "
            f"seeds {', '.join(map(str, seeds))}.",
            "```sh",
            f"cd {shlex.quote(str(out / recipe.name))}",
            "./presample.sh                         # once",
            "for launch in */seed-*; do             # one after the other, or on as many clusters as there are",
            '    "$launch"/data.sh && "$launch"/train.sh && "$launch"/eval.sh   # ray.sh on every node before',
            "done",
            "./evaluate.sh",
        ]
        for name in [*recipe.benchmarks, *recipe.out_of_domain]:
            rows.append(f"dph report eval/base/{name} eval/*/seed-*/{name} --out report/{name}")
        parts += ["\n".join(rows[:2]), "\n".join([*rows[2:], "```"])]
    return "\n\n".join(parts) + "\n"
