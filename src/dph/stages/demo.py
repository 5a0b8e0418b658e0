"""`dph demo`: base model → pre-sampling → GRPO and DPH-JS with equal budgets → evaluation → table and figure.

The base is made from scratch or, with `--model`, is a language model after a supervised start.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dph.config import (
    DemoConfig,
    TrainConfig,
    check_bounds,
    flatten,
    from_dict,
    is_settings_file,
    merge_settings,
    preset_label,
    preset_names,
)
from dph.errors import ModelError, SettingsError, unknown
from dph.models.loading import model_folder
from dph.process.jobs import Job, is_complete, run_jobs
from dph.process.progress import say
from dph.report.write import report
from dph.runs.directory import RunDir

_SCRATCH: Mapping[str, Mapping[str, Any]] = {"train": {"monitor": {"every": 20}}}
"""With a base made from scratch: settings by stage, on top of the world's."""
_SMOKE: Mapping[str, Mapping[str, Any]] = {
    "sft": {"steps": 120, "batch": 24, "demonstrations": 3000},
    "presample": {"threshold": 1, "refine": "keep", "task": {"limit": 48}},
    "train": {
        "steps": 2,
        "task": {"limit": 48},
        "rollout": {"prompts": 2, "n": 4},
        "monitor": {"every": 1, "limit": 2, "n": 2},
    },
    "eval": {"task": {"limit": 6}, "rollout": {"n": 4}},
}
"""In a smoke run: settings by stage, on top of the whole demo's."""
_LANGUAGE: Mapping[str, Mapping[str, Any]] = {
    "presample": {"task": {"limit": 240}},
    "train": {"task": {"limit": 240}, "steps": 30, "monitor": {"every": 0}},
    "eval": {"task": {"limit": 40}},
}
"""With a language model: settings by stage, for less than an hour on two cores."""
_LANGUAGE_SMOKE: Mapping[str, Mapping[str, Any]] = {
    "sft": {"steps": 12, "batch": 8, "demonstrations": 200},
    "presample": {"task": {"limit": 24}, "rollout": {"n": 4, "max_tokens": 64}},
    "train": {"task": {"limit": 24}, "rollout": {"max_tokens": 64}},
    "eval": {"task": {"limit": 2}, "rollout": {"max_tokens": 64}},
}
"""In a smoke run with a language model, which is slow: settings by stage, on top of `_SMOKE`."""
START_STEPS = 30
"""Steps of a part of a language model's supervised start."""
MAX_PARTS = 12
MASTERED_SHARE = 1 / 8
"""The start ends after the part that makes this share of the probed prompts near-perfect."""
_PROBE = {"task": {"limit": 48}, "refine": "keep"}
"""Settings of the pre-sampling after each part of a supervised start."""


def _words(config: DemoConfig, stage: str, *flags: str, settings: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    """The command of a stage; `settings` override the demo's."""
    presets, sizes = (config.world,), [_SCRATCH, *([_SMOKE] if config.smoke else [])]
    if config.model:
        presets = (config.world, "smollm2")
        sizes = [_LANGUAGE, *([_SMOKE, _LANGUAGE_SMOKE] if config.smoke else [])]
    options = ("--task.options", "root", config.data) if config.data else ()
    layers = [*(layer.get(stage, {}) for layer in sizes), settings or {}]  # later ones override earlier ones
    values = {key: value for layer in layers for key, value in flatten(layer).items()}
    sized = [word for key, value in values.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    return (stage, *_presets(presets), *options, *flags, *sized, "--resume")


def _presets(names: Sequence[str]) -> list[str]:
    return [word for name in names for word in ("--preset", name)]


def jobs(config: DemoConfig, base: Path) -> list[Job]:
    """The demo's commands. `base` is the run directory of the supervised base model."""
    out, seed = Path(config.out), str(config.seed)
    model, sampled = str(base / "model"), str(out / "presample")

    def evaluation(name: str, label: str, model: str) -> Job:
        arguments = ("--model.path", model, "--label", label, "--out", str(out / "eval" / name))
        return Job(f"eval-{name}", _words(config, "eval", *arguments), (name,))

    language = ("--model.path", config.model, "--seed", seed) if config.model else ()
    planned = [Job("base", _words(config, "sft", *language, "--out", str(base)), threads=config.jobs, out=base)]
    shared = ("--model.path", model, "--seed", seed)
    arguments = (*_presets(config.methods), *shared, "--out", sampled)  # which responses are stored
    threads = config.jobs if config.model else 1
    planned.append(Job("presample", _words(config, "presample", *arguments), ("base",), threads))
    planned.append(evaluation("base", "base", model))
    # The longer runs are named last; started first, they keep all slots busy to the end.
    methods = [(preset, Path(preset).stem) for preset in config.methods[::-1]]
    for preset, name in methods:
        arguments = ("--preset", preset, *shared, "--rehearsal.path", sampled, "--out", str(out / name))
        planned.append(Job(name, _words(config, "train", *arguments), ("presample",)))
    planned += [evaluation(name, _label(preset), str(out / name / "model")) for preset, name in methods]
    return planned


def start_language_model(config: DemoConfig, base: Path) -> None:
    """Train a language model on demonstrations, a few steps at a time, until it masters `MASTERED_SHARE` of the probed
    prompts: one that masters nothing has nothing to rehearse, and one that masters all has nothing to learn."""
    out, seed, mastered = Path(config.out), str(config.seed), ""
    for number in range(1, MAX_PARTS + 1):
        probe = out / "probes" / str(number)
        if not is_complete(probe):
            extended = {"steps": number * START_STEPS}
            model = ("--model.path", config.model, "--seed", seed, "--out", str(base))
            tried = ("--model.path", str(base / "model"), "--seed", seed, "--out", str(probe))
            steps = [
                Job("base", _words(config, "sft", *model, settings=extended), threads=config.jobs),
                Job("probe", _words(config, "presample", *tried, settings=_PROBE), ("base",), config.jobs),
            ]
            run_jobs(steps, out / "logs", config.jobs, f"supervised start, part {number}", watch=True)
        sizes = RunDir.open(probe, "presample").manifest["sizes"]
        perfect, total = sizes["perfect"], sum(sizes.values())
        mastered = f"masters {perfect} of {total} prompts"
        say(f"after part {number} the model {mastered}")
        if perfect >= MASTERED_SHARE * total:
            return
    result = f"after {MAX_PARTS * START_STEPS} supervised steps {config.model} {mastered}, too few to rehearse"
    raise ModelError(f"{result}; use a stronger model, or the stages by themselves")


def _check_methods(methods: Sequence[str], world: str) -> None:
    """Raises UserError for anything but a method preset, and for methods whose runs or labels would be the same."""
    presets = [name for name in preset_names() if preset_label(name)]
    names, labels = {"base", "presample", "eval", "report", "logs", "probes"}, {"base"}
    for method in methods:
        if not is_settings_file(method) and method not in presets:
            hint = "a preset file of your own is named by its path, which ends in .toml or .yaml"
            raise SettingsError(f"{unknown('method preset', method, presets)}; {hint}")
        from_dict(TrainConfig, merge_settings("train", [world, method], []), f"the settings of {method!r}")
        name, label = Path(method).stem, _label(method)
        if name in names or label in labels:
            taken = f"the method {method!r} has a name or label that is taken ({name!r}, {label!r})"
            raise SettingsError(f"{taken}; name each method once, or rename the file and its label")
        names.add(name)
        labels.add(label)


def _check_world(config: DemoConfig) -> None:
    """Raises UserError for settings that need others, and for a preset, a folder or a model that is missing."""
    embedded = config.world == DemoConfig.world
    if config.model and embedded:
        raise SettingsError("--model needs a world with prompts in plain English: add --world FILE.toml")
    if config.data and embedded:
        raise SettingsError("--data needs the preset of a task that reads it: add --world FILE.toml")
    if config.data and not Path(config.data).is_dir():
        raise SettingsError(f"there is no folder {config.data}; --data names the folder of the world's data")
    merge_settings("sft", [config.world], [])
    if config.model:
        model_folder(config.model)


def _label(method: str) -> str:
    """The label of a method preset's `[meta]`, or the name of its file."""
    return preset_label(method) or Path(method).stem


def demo(config: DemoConfig) -> Path:
    """Run the demo, or what is missing of it, and return the report's page."""
    check_bounds(config)
    _check_world(config)
    _check_methods(config.methods, config.world)
    started, out = time.monotonic(), Path(config.out)
    if config.model and not config.smoke:
        start_language_model(config, out / "base")
    run_jobs(jobs(config, out / "base"), out / "logs", config.jobs, "demo", watch=bool(config.model))
    names = [Path(method).stem for method in config.methods]
    runs = [*(out / "eval" / name for name in ("base", *names)), *(out / name for name in names)]
    page = report(runs, out / "report", base="base", title=f"DPH-RL on {Path(config.world).stem}")
    say(f"finished in {time.monotonic() - started:.0f} s; open {page}")
    return page
