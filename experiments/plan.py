"""From a grid of experiments to `dph` commands: settings files, run directories and dependencies."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dph.config import (
    STAGES,
    TrainConfig,
    differences,
    from_dict,
    merge_settings,
    read_settings,
    to_dict,
    to_toml,
    words_of,
)
from dph.errors import UserError
from dph.process.jobs import Job
from dph.process.progress import say
from dph.runs.files import write_atomically
from experiments.grid import Arm, Base, Grid, Store, joined, train_settings

AGAIN = " (again)"
"""Ending of the label of a base model's second evaluation, the noise floor."""
AGAIN_SEED = 54321
"""The seed of that evaluation, which no training seed equals."""


@dataclass(frozen=True, slots=True)
class RunPaths:
    """The directories and files of one reproduction."""

    root: Path

    def settings(self, stage: str, name: str) -> Path:
        return self.root / "settings" / f"{stage}-{name}.toml"

    def base(self, base: Base) -> Path:
        return self.root / "bases" / base.name

    def store(self, store: Store) -> Path:
        return self.root / "presample" / store.name

    def training(self, arm: Arm, seed: int) -> Path:
        return self.root / "train" / arm.trained / f"seed-{seed}"

    def evaluation(self, name: str, seed: int = 0) -> Path:
        return self.root / "eval" / name / (f"seed-{seed}" if seed else "")

    def interpolated(self, arm: Arm, seed: int) -> Path:
        return self.root / "interpolated" / arm.name / f"seed-{seed}"

    def again(self, base: Base) -> Path:
        return self.root / "eval" / f"{base.name}-again"


@dataclass(frozen=True, slots=True)
class Choice:
    """The part of a grid that is run: arms, each with its training seeds."""

    grid: Grid
    arms: Mapping[str, tuple[int, ...]]
    data: str = ""
    """Folder of the data set, if the world needs one."""
    smoke: bool = False

    def bases(self) -> list[Base]:
        used = {self.grid.arms[name].base for name in self.arms}
        return [base for base in self.grid.bases.values() if base.name in used]

    def stores(self) -> list[Store]:
        used = {self.grid.arms[name].store for name in self.arms}
        return [store for store in self.grid.stores.values() if store.name in used]

    def part(self, base: str, seed: int) -> "Choice":
        """The arms that are trained from one base model with one seed."""
        arms = {name: (seed,) for name, seeds in self.arms.items() if seed in seeds}
        return replace(self, arms={name: one for name, one in arms.items() if self.grid.arms[name].base == base})

    def without(self, done: Mapping[str, Collection[int]]) -> "Choice":
        """The part that is left to run, given the seeds of each arm that are done; says which arms cannot be run."""
        left = {name: tuple(s for s in seeds if s not in done.get(name, ())) for name, seeds in self.arms.items()}
        left = {name: seeds for name, seeds in left.items() if seeds}
        if retired := [name for name in left if self.grid.arms[name].retired]:
            say(f"this version does not train {', '.join(retired)}; --counts reads published runs of them")
        return replace(self, arms={name: seeds for name, seeds in left.items() if name not in retired})


def write_settings(choice: Choice, paths: RunPaths) -> None:
    """Write the complete settings of every stage and arm as TOML files, which the jobs read with `--config`.

    A file that holds the same settings is left as it is; settings that are new since it was written have their
    defaults.

    Raises UserError, before anything is written, when a file already holds other settings: its runs would not belong
    to this choice.
    """
    missing: dict[Path, str] = {}
    for (stage, name), config in settings_of(choice).items():
        path = paths.settings(stage, name)
        if path.exists():
            check_same(read_settings(path), config, str(path), "choose another --out")
        else:
            missing[path] = to_toml(config)
    for path, text in missing.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)


def check_settings(choice: Choice, paths: RunPaths, remedy: str) -> None:
    """Raises UserError with a remedy unless all settings of a choice were written and are those of the grid now."""
    for (stage, name), config in settings_of(choice).items():
        path = paths.settings(stage, name)
        if not path.exists():
            raise UserError(f"{path} is missing, so the settings of these runs are unknown; {remedy}")
        check_same(read_settings(path), config, str(path), remedy)


def check_same(recorded: Mapping[str, Any], config: Any, where: str, remedy: str) -> None:
    """Raises UserError unless recorded settings, with today's defaults for those that they lack, are a config's."""
    before = from_dict(type(config), recorded, where)
    changed = differences(_deciding(before), _deciding(config))
    if changed:
        raise UserError(
            f"{where} holds other settings than the grid does now ({changed[0]}); "
            f"{remedy}, or continue with the version that wrote it"
        )


def _deciding(config: Any) -> dict[str, Any]:
    """The settings that decide a run's numbers: not the module of a task, nor a check of its problems, nor how many
    responses are decoded at once, nor the rounding that SQL's rule strict allows (1e-9 when most counts were made: the
    worlds hold whole numbers and short decimals). Stored responses are counted, whether by a number or per rollout."""
    tree = to_dict(config)
    tree.pop("plugins", None)
    tree.get("task", {}).pop("requires", None)
    tree.get("sampler", {}).pop("rows", None)
    tree.get("verifier", {}).pop("tolerance", None)
    if isinstance(config, TrainConfig):
        tree["rehearsal"]["rows"] = config.stored_rows
    return tree


def settings_of(choice: Choice) -> dict[tuple[str, str], Any]:
    """The complete settings by stage and name, for every stage and arm of a choice but retired ones: their settings do
    not exist any more."""
    grid, configs = choice.grid, dict[tuple[str, str], Any]()

    def add(stage: str, name: str, settings: Mapping[str, Any], base: Base) -> None:
        config = stage_settings(choice, stage, name, settings, base)
        if changed := differences(to_dict(configs.setdefault((stage, name), config)), to_dict(config)):
            raise UserError(f"the arms of the training {name!r} have different settings ({changed[0]})")

    for base in choice.bases():
        add("sft", base.name, base.settings, base)
        add("eval", _eval_settings(grid, base), grid.evaluate, base)
    for store in choice.stores():
        add("presample", store.name, store.settings, grid.bases[store.base])
    for arm in (grid.arms[name] for name in choice.arms):
        if arm.retired:
            continue
        base = grid.bases[arm.base]
        add("train", arm.trained, train_settings(grid.world, arm, grid.train), base)
        if arm.evaluate:
            add("eval", arm.name, joined(grid.evaluate, arm.evaluate), base)
    return configs


def stages_of(grid: Grid, base: Base, arm: Arm | None = None) -> dict[str, str]:
    """The stages that made an evaluation of an arm, or of a base model, each with the name of its settings."""
    stages = {"sft": base.name}
    if arm is not None:
        stages |= {"presample": arm.store, "train": arm.trained}
    return stages | {"eval": _eval_settings(grid, base, arm)}


def stage_settings(choice: Choice, stage: str, name: str, settings: Mapping[str, Any], base: Base) -> Any:
    """The complete settings of a stage: those of the world's presets, what `settings` overrides, smoke sizes, data and
    the task of the base model. Raises UserError, before anything runs, for settings that the stage would refuse."""
    # The published studies were judged by this policy, which decides their questions from arithmetic
    judged = {} if stage == "sft" else {"verifier": {"policy": "math_verify"}}
    usual = joined(judged, merge_settings(stage, choice.grid.world, []))
    tiny = choice.grid.smoke.get("evaluate" if stage == "eval" else stage, {}) if choice.smoke else {}
    data = {"task": {"options": {"root": choice.data}}} if choice.data else {}
    task = {"task": base.task} if base.task else {}
    return from_dict(STAGES[stage], joined(usual, settings, tiny, data, task), f"the settings of {name!r}")


def _eval_settings(grid: Grid, base: Base, arm: Arm | None = None) -> str:
    """The name of the settings with which a model is evaluated: one for all, one for each world, or an arm's own."""
    if arm is not None and arm.evaluate:
        return arm.name
    return base.name if base.task else grid.name


def plan(choice: Choice, paths: RunPaths, slots: int) -> list[Job]:
    """All commands; one training seed of every arm comes before the next seed. Each arm is evaluated as soon as it is
    trained, so that an interrupted grid has whole arms. The base models' second evaluations come last."""
    grid = choice.grid
    jobs: list[Job] = []
    again: list[Job] = []
    for base in choice.bases():
        jobs.append(_job(f"base-{base.name}", "sft", paths, base.name, (), paths.base(base), threads=slots))
    for store in choice.stores():
        model = paths.base(grid.bases[store.base]) / "model"
        words = ("--model.path", str(model))
        jobs.append(
            _job(
                f"presample-{store.name}",
                "presample",
                paths,
                store.name,
                words,
                paths.store(store),
                [f"base-{store.base}"],
            )
        )
    for base in choice.bases():
        model = paths.base(base) / "model"
        needs = [f"base-{base.name}"]
        out = paths.evaluation(base.name)
        settings = _eval_settings(grid, base)
        jobs.append(_evaluation(settings, paths, f"eval-{base.name}", base.label, model, out, needs))
        name, out, drawn = f"again-{base.name}", paths.again(base), ("--seed", str(AGAIN_SEED))
        again.append(_evaluation(settings, paths, name, base.label + AGAIN, model, out, needs, drawn))
    for seed in dict.fromkeys(seed for seeds in choice.arms.values() for seed in seeds):
        for arm in (grid.arms[name] for name, seeds in choice.arms.items() if seed in seeds):
            known = {job.name for job in jobs}  # arms may share a training
            jobs += [job for job in _arm_jobs(grid, arm, seed, paths) if job.name not in known]
    code = {str(paths.settings(*key)): words_of(config) for key, config in settings_of(choice).items()}
    return [replace(job, arguments=(*job.arguments, *code.get(job.arguments[2], ()))) for job in jobs + again]


def _arm_jobs(grid: Grid, arm: Arm, seed: int, paths: RunPaths) -> list[Job]:
    """Training, interpolation if the arm asks for it, and evaluation."""
    base, run = grid.bases[arm.base], paths.training(arm, seed)
    words = (
        *("--model.path", str(paths.base(base) / "model"), "--seed", str(seed)),
        *("--rehearsal.path", str(paths.store(grid.stores[arm.store]))),
    )
    name, model = f"{arm.trained}-{seed}", run / "model"
    jobs = [_job(name, "train", paths, arm.trained, words, run, [f"presample-{arm.store}"])]
    if arm.share < 1:
        name, model = f"interpolate-{arm.name}-{seed}", paths.interpolated(arm, seed)
        words = ("interpolate", str(run), "--weight", f"{arm.share:g}", "--out", str(model))
        jobs.append(Job(name, words, (jobs[-1].name,), out=model, at_once=True))
    # With the random numbers of the base model's evaluation, a method would look like its base model.
    settings, drawn = _eval_settings(grid, base, arm), ("--seed", str(seed))
    out = paths.evaluation(arm.name, seed)
    jobs.append(_evaluation(settings, paths, f"eval-{arm.name}-{seed}", arm.label, model, out, [name], drawn))
    return jobs


def _job(
    name: str,
    stage: str,
    paths: RunPaths,
    settings: str,
    words: Sequence[str],
    out: Path,
    needs: Sequence[str] = (),
    threads: int = 1,
) -> Job:
    arguments = (stage, "--config", str(paths.settings(stage, settings)), *words, "--out", str(out), "--resume")
    return Job(name, arguments, tuple(needs), threads, out)


def _evaluation(
    settings: str,
    paths: RunPaths,
    name: str,
    label: str,
    model: Path,
    out: Path,
    needs: Sequence[str],
    words: Sequence[str] = (),
) -> Job:
    arguments = ("--model.path", str(model), "--label", label, *words)
    return _job(name, "eval", paths, settings, arguments, out, needs)
