"""`dph demo`: base model → pre-sampling → GRPO and DPH-JS with equal budgets → evaluation → table and figure.

The base model is made from scratch. `experiments.language_demo` takes a language model through the same stages.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dph.config import (
    DemoConfig,
    Permitted,
    TrainConfig,
    code_of,
    flatten,
    from_dict,
    is_settings_file,
    merge_settings,
    named_by,
    preset_label,
    preset_names,
)
from dph.errors import SettingsError, unknown
from dph.process.jobs import Job, run_jobs
from dph.process.progress import say
from dph.report.write import report

_SCRATCH: Mapping[str, Mapping[str, Any]] = {"train": {"monitor": {"every": 20}}}
"""With a base model made from scratch: settings by stage, which override those of the world."""
SMOKE: Mapping[str, Mapping[str, Any]] = {
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
"""In a smoke run: settings by stage, which override those of the whole demo."""


@dataclass(frozen=True, slots=True)
class Course:
    """The commands of a demo."""

    config: DemoConfig
    sizes: Sequence[Mapping[str, Mapping[str, Any]]]
    """Settings by stage, which override those of the world. Later ones override earlier ones."""
    flags: tuple[str, ...] = ()
    """Flags of every command."""
    of_base: tuple[str, ...] = ()
    """Flags of the command that trains the base model, if the base model is not made from scratch."""

    def words(self, stage: str, *flags: str, settings: Mapping[str, Any] | None = None) -> tuple[str, ...]:
        """The words of the command of a stage, without `dph`. `settings` override all other settings."""
        layers = [*(layer.get(stage, {}) for layer in self.sizes), settings or {}]
        values = {key: value for layer in layers for key, value in flatten(layer).items()}
        sized = [word for key, value in values.items() for word in (f"--{key.replace('_', '-')}", str(value))]
        plugins = [word for name in self.config.plugins for word in ("--plugin", name)]
        return (stage, *plugins, "--preset", self.config.world, *self.flags, *flags, *sized, "--resume")

    def jobs(self) -> list[Job]:
        """All commands as jobs. The run directory of the base model is `base`."""
        out, seed, methods = Path(self.config.out), str(self.config.seed), self.config.methods
        base, sampled = out / "base", str(out / "presample")

        def evaluation(name: str, label: str, model: str) -> Job:
            arguments = ("--model.path", model, "--label", label, "--out", str(out / "eval" / name))
            return Job(f"eval-{name}", self.words("eval", *arguments), (name,))

        threads = self.config.jobs
        planned = [Job("base", self.words("sft", *self.of_base, "--out", str(base)), threads=threads, out=base)]
        shared = ("--model.path", str(base / "model"), "--seed", seed)
        presets = (word for name in methods for word in ("--preset", name))  # they decide which responses are stored
        arguments = (*presets, *shared, "--out", sampled)
        planned.append(Job("presample", self.words("presample", *arguments), ("base",), threads if self.of_base else 1))
        planned.append(evaluation("base", "base", str(base / "model")))
        # The longer runs are named last. They are started first, which keeps all slots busy to the end.
        named = [(preset, Path(preset).stem) for preset in methods[::-1]]
        for preset, name in named:
            arguments = ("--preset", preset, *shared, "--rehearsal.path", sampled, "--out", str(out / name))
            planned.append(Job(name, self.words("train", *arguments), ("presample",)))
        planned += [evaluation(name, _label(preset), str(out / name / "model")) for preset, name in named]
        return planned

    def run(self, *, watch: bool = False) -> Path:
        """Run the commands, or those that are missing, and return the page of the report. watch: whether the last line
        of each command is shown."""
        started, out = time.monotonic(), Path(self.config.out)
        run_jobs(self.jobs(), out / "logs", self.config.jobs, "demo", watch=watch)
        names = [Path(method).stem for method in self.config.methods]
        runs = [*(out / "eval" / name for name in ("base", *names)), *(out / name for name in names)]
        page = report(runs, out / "report", base="base", title=f"DPH-RL on {Path(self.config.world).stem}")
        say(f"finished in {time.monotonic() - started:.0f} s; open {page}")
        return page


def _check_methods(methods: Sequence[str], world: str, permitted: Permitted) -> None:
    """Raise UserError for a method that is not a method preset, for methods whose runs or labels would be the same, and
    for code that is not permitted."""
    presets = [name for name in preset_names() if preset_label(name)]
    names, labels = {"base", "presample", "eval", "report", "logs", "probes"}, {"base"}
    for method in methods:
        if not is_settings_file(method) and method not in presets:
            hint = "a preset file of your own is named by its path, which ends in .toml or .yaml"
            raise SettingsError(f"{unknown('method preset', method, presets)}; {hint}")
        settings = merge_settings("train", [world, method], [])
        of_method = from_dict(TrainConfig, settings, f"the settings of {method!r}")
        permitted.check(code_of(of_method), f"{world} or {method}")
        name, label = Path(method).stem, _label(method)
        if name in names or label in labels:
            taken = f"the method {method!r} has a name or label that is taken ({name!r}, {label!r})"
            raise SettingsError(f"{taken}; name each method once, or rename the file and its label")
        names.add(name)
        labels.add(label)


def _label(method: str) -> str:
    """The label in the `[meta]` of a method preset, or else the name of its file."""
    return preset_label(method) or Path(method).stem


def check(config: DemoConfig) -> None:
    """Raise UserError, before anything runs, for settings that cannot be meant."""
    merge_settings("sft", [config.world], [])
    _check_methods(config.methods, config.world, named_by(config))


def course_of(config: DemoConfig) -> Course:
    """The commands of the demo, with a base model made from scratch."""
    return Course(config, [_SCRATCH, *([SMOKE] if config.smoke else [])])


def demo(config: DemoConfig) -> Path:
    """Run the demo, or the commands that are missing, and return the page of the report."""
    check(config)
    return course_of(config).run()
