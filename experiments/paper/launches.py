# pyright: reportMissingImports=false
"""`python -m experiments paper`: launches for the paper's own models and data. Nothing is run or loaded.

OUT/RECIPE/sft.toml, sft.sh               the base model of five styles (Figure 2), once for all arms
OUT/RECIPE/presample.toml, presample.sh   partition and rehearsal set of the base model, once for all arms
OUT/RECIPE/ARM/seed-N/                    the launch of `dph verl`: data.sh, ray.sh, train.sh, eval.sh
OUT/RECIPE/evaluate.sh                    every benchmark for the base model (twice: the noise floor) and every arm
OUT/README.md                             the order of it all, by table of the paper, with GPU-hours by estimate
OUT/tables.md                             the paper's tables from the evaluations that are finished (--report-only)
"""

import shlex
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dph.config import PresampleConfig, SftConfig, from_dict, merge_settings, to_toml, words_of
from dph.errors import UserError, how_to_install
from dph.integrations.verl.launch import preset_launch
from dph.integrations.verl.scripts import presample_script, script
from dph.process.progress import say
from dph.runs.files import write_atomically
from dph.tasks.benchmarks import BENCHMARKS
from experiments.config import ReproduceConfig
from experiments.paper.study import Arm, Recipe, Study, evaluation_folder, read_study
from experiments.paper.tables import paper_tables
from experiments.plan import AGAIN, AGAIN_SEED

NAME = "full"


def reproduce_full(config: ReproduceConfig) -> Path:
    """Write every launch and the evaluation commands; returns the README, or the tables with `report_only`.

    `config.methods` may name tables ("table-1", "figure-3"), recipes and arms; "core" is every table. With `dry_run`
    verl's own configuration has to accept each launch. `config.data` is the folder with one folder for each data set.
    Raises UserError for unknown names, and where `dph verl` does.
    """
    study = read_study()
    runs = _chosen(study, config.methods)
    out = Path(config.out or f"runs/reproduce-{NAME}").resolve()
    if config.report_only:
        return paper_tables(study, out)
    if config.dry_run and find_spec("verl") is None:
        raise UserError(f"--dry-run needs verl; install it with: {how_to_install('verl')}")
    data = Path(config.data or "data").resolve()
    written = 0
    for recipe, arms in runs.items():
        folder = out / recipe.name
        _write_before(recipe, folder, data)
        seeds = {arm: config.seeds or arm.seeds for arm in arms}
        for arm in arms:
            for seed in seeds[arm]:
                launch = _write_launch(recipe, arm, seed, folder, data, study.gpus)
                written += 1
                if config.dry_run:
                    check_launch(launch)
        write_atomically(folder / "evaluate.sh", _evaluation(recipe, seeds, folder, data))
        (folder / "evaluate.sh").chmod(0o755)
    write_atomically(out / "README.md", _readme(study, runs, config.seeds, out, data))
    checked = " and checked by verl" if config.dry_run else ""
    say(f"{written} launches are written{checked}; {out / 'README.md'} says what to run")
    return out / "README.md"


def check_launch(launch: Path) -> None:
    """Compose a launch as `train.sh` does and let verl validate it, without a GPU. Raises UserError if verl
    refuses it."""
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    from dph.integrations.verl.settings import configured

    with initialize_config_dir(str(launch), version_base=None):
        composed = compose("launch")
    plain: Any = OmegaConf.to_container(composed, resolve=True)
    configured(plain)
    try:
        validate_config(composed, need_reference_policy(composed), need_critic(composed))
    except (AssertionError, ValueError) as error:
        raise UserError(f"verl refuses the launch {launch}: {error}") from error


def _chosen(study: Study, names: Sequence[str]) -> dict[Recipe, list[Arm]]:
    """The arms to train for each recipe: those of every table, or of what is named."""
    everything = {"core", "wide", "all"}
    tables = {table.name: table for table in study.tables}
    recipes = {recipe.name for recipe in study.recipes}
    for name in names:
        if name not in {*everything, *tables, *recipes, *study.arms}:
            listed = ", ".join(["all", *tables, *sorted(recipes), *study.arms])
            raise UserError(f"the scale {NAME!r} has no table, recipe or method {name!r}; known are: {listed}")
    some_tables = [table for word, table in tables.items() if word in names] or study.tables
    some_recipes = [recipe for recipe in study.recipes if recipe.name in names] or study.recipes
    some_arms = [name for name in study.arms if name in names]
    runs = {}
    for recipe in some_recipes:
        rows = some_arms or [arm for table in some_tables for arm in table.rows.get(recipe.name, ())]
        if rows:
            runs[recipe] = [study.arms[name] for name in dict.fromkeys(rows)]
    return runs


def _base(recipe: Recipe, folder: Path) -> str:
    """The model that training begins with."""
    return str(folder / "base" / "model") if recipe.supervised else recipe.model


def _write_before(recipe: Recipe, folder: Path, data: Path) -> None:
    """What is done once for all arms: the supervised base model if there is one, and pre-sampling."""
    task, default = recipe.task(data), from_dict(PresampleConfig, merge_settings("presample", [recipe.preset], []))
    model = {"path": _base(recipe, folder)}
    own = {"out": str(folder / "presample"), "model": model, "sampler": {"engine": "vllm"}, **recipe.judge}
    presample = from_dict(PresampleConfig, own | task, default=default)
    title = f"Partition and rehearsal set for every method of {recipe.name}, sampled through vLLM."
    files = {
        "presample.toml": to_toml(presample),
        "presample.sh": presample_script(folder, title, words_of(presample)),
    }
    if recipe.supervised:
        model = {"path": recipe.model, **recipe.supervised.get("model", {})}
        supervised = from_dict(SftConfig, {**recipe.supervised, **task, "model": model})
        files["sft.toml"] = to_toml(supervised)
        code = "".join(f" {shlex.quote(word)}" for word in words_of(supervised))
        body = f'exec "$python" -m dph sft --config "$here/sft.toml" --out "$here/base"{code} --resume\n'
        files["sft.sh"] = script(folder, "The base model, on the task's own demonstrations; one GPU.", "dph-rl", body)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        write_atomically(folder / name, text)
        if name.endswith(".sh"):
            (folder / name).chmod(0o755)


def _monitor(recipe: Recipe, data: Path) -> dict[str, Any]:
    sets = recipe.monitor.get("sets", {})
    located = {name: {**one, "options": {"root": str(data / one["task"])}} for name, one in sets.items()}
    return {"monitor": {**recipe.monitor, "sets": located}}


def _launch_folder(folder: Path, arm: str, seed: int) -> Path:
    return folder / arm / f"seed-{seed}"


def _write_launch(recipe: Recipe, arm: Arm, seed: int, folder: Path, data: Path, gpus: int) -> Path:
    settings = {
        "method": arm.name,
        "model": {"path": _base(recipe, folder)},
        "rehearsal": {"path": str(folder / "presample")},
        "cluster": {"gpus": gpus},
        "seed": seed,
    }
    out = _launch_folder(folder, arm.name, seed)
    settings |= {**recipe.task(data), **recipe.judge, **_monitor(recipe, data), **arm.settings}
    preset_launch([recipe.preset, *arm.presets], out, settings, recipe.shape)
    return out


def _evaluation(recipe: Recipe, seeds: Mapping[Arm, Sequence[int]], folder: Path, data: Path) -> str:
    """`dph eval` of every benchmark for the base model, the base model again, and each training run's last model."""
    lines = ['newest() { ls -d "$1"/models/step-* | sort -V | tail -n 1; }', ""]

    def rule(name: str) -> list[str]:
        return ["--verifier.comparator", recipe.rule] if recipe.rule and recipe.judges_sql(name) else []

    def add(label: str, model: str, out: Path, seed: int) -> None:
        for name in [*recipe.benchmarks, *recipe.out_of_domain]:
            preset = recipe.other_preset if name in recipe.out_of_domain else recipe.preset
            words = ["--preset", preset, "--task", name, "--data", str(data / BENCHMARKS[name].task)]
            words += ["--rollout.n", str(2 * BENCHMARKS[name].k), "--label", label, *rule(name)]
            words += ["--seed", str(seed), "--sampler.engine", "vllm", "--out", str(out / name), "--resume"]
            lines.append(f'"$python" -m dph eval {shlex.join(words)} --model.path {model}')
        if recipe.splits:
            words = ["--preset", recipe.preset, "--plugin", *recipe.plugins, "--task.name", recipe.data]
            words += ["--task.options", "root", str(data), "--task.split", ",".join(recipe.splits)]
            words += ["--rollout.n", "32", "--label", label, "--seed", str(seed), "--sampler.engine", "vllm"]
            words += rule(recipe.data)
            words += ["--out", str(out / recipe.data), "--resume"]
            lines.append(f'"$python" -m dph eval {shlex.join(words)} --model.path {model}')

    base = shlex.quote(_base(recipe, folder))
    lines.append("# The base model, and other samples of it: the noise floor.")
    add("base", base, folder / "eval" / "base", 0)
    add("base" + AGAIN, base, folder / "eval" / "base-again", AGAIN_SEED)
    for arm, numbers in seeds.items():
        for seed in numbers:
            launch = _launch_folder(folder, arm.name, seed)
            lines += ["", f"# {arm.label}, seed {seed}: merged by its eval.sh first."]
            model = f'"$(newest {shlex.quote(str(launch))})"'
            add(arm.label, model, evaluation_folder(folder, arm.name, seed), seed)
    title = "Every benchmark; finished evaluations are left as they are, so that it can be started again."
    return script(folder, title, "dph-rl[vllm]", "\n".join(lines) + "\n")


def _told_rule(runs: Mapping[Recipe, Sequence[Arm]]) -> list[str]:
    """The sentence about the rule that compares results of SQL, if a recipe has one."""
    rules = {recipe.rule for recipe in runs if recipe.rule}
    told = "SQL is judged by the rule `{}` in every role: partition, reward, through training, and evaluation."
    return [told.format(rule) for rule in sorted(rules)]


def _readme(study: Study, runs: Mapping[Recipe, Sequence[Arm]], given: Sequence[int], out: Path, data: Path) -> str:
    parts = [
        "# The paper's experiments at their own size",
        f"Written by `python -m experiments paper`; nothing here was run. Each training run takes {study.gpus} GPUs of "
        f"80 GB as in the paper. The data are expected in {data}, a folder for each data set; every node must see both "
        "directories under the same path.",
        study.hours_table(runs, given),
        *_told_rule(runs),
    ]
    root = shlex.quote(str(Path(__file__).resolve().parents[2]))
    for recipe, arms in runs.items():
        rows = [
            f"## {recipe.name}",
            f"Model `{recipe.model}`, data `{recipe.data}`: {', '.join(arm.name for arm in arms)}.",
            "```sh",
            f"cd {shlex.quote(str(out / recipe.name))}",
            *([f"export PYTHONPATH={root}        # of the plug-in, on every node"] if recipe.plugin else []),
            *(["./sft.sh                               # once: the base model"] if recipe.supervised else []),
            "./presample.sh                         # once",
            "for launch in */seed-*; do             # one after the other, or on as many clusters as there are",
            '    "$launch"/data.sh && "$launch"/train.sh && "$launch"/eval.sh   # ray.sh on every node before',
            "done",
            "./evaluate.sh",
        ]
        for name in [*recipe.benchmarks, *recipe.out_of_domain]:
            rows.append(f"dph report eval/base/{name} eval/*/seed-*/{name} --out report/{name}")
        scored = [*recipe.benchmarks, *recipe.out_of_domain, *([recipe.data] if recipe.splits else [])]
        wanted = " ".join(f"eval/base/{name} eval/*/seed-*/{name}" for name in scored)
        rows.append(f"PYTHONPATH={root} python -m experiments.figures {wanted} */seed-* --out report/figures")
        parts += ["\n".join(rows[:2]), "\n".join([*rows[2:], "```"])]
    tables = f"python -m experiments paper --report-only --out {shlex.quote(str(out))}"
    parts.append(f"The paper's tables from what is finished, beside its own numbers:\n\n```sh\n{tables}\n```")
    return "\n\n".join(parts) + "\n"
