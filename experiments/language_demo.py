"""The whole method with a language model: supervised start, pre-sampling, GRPO and DPH-JS, evaluation, report.

    scripts/llm                    # SmolLM2-135M in the SQL world: less than an hour on two cores
    python -m experiments.language_demo --model smollm2 --world experiments/minisql/english.toml --out runs/llm

Its stages are those of `dph demo` (`dph.stages.demo`), with a model that is given instead of made from scratch. The
same command continues after an interruption.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dph.cli.main import ending
from dph.config import DemoConfig, is_settings_file, read_settings
from dph.errors import ModelError, SettingsError
from dph.models.loading import model_folder
from dph.process.jobs import Job, is_complete, run_jobs
from dph.process.progress import say, show_messages
from dph.runs.directory import RunDir
from dph.stages.demo import SMOKE, Course, check
from experiments.grid import let_jobs_import
from experiments.minisql import SETTINGS

WORLD = str(Path(SETTINGS).with_name("english.toml"))
_SIZES: Mapping[str, Mapping[str, Any]] = {
    "presample": {"task": {"limit": 240}},
    "train": {"task": {"limit": 240}, "steps": 30, "monitor": {"every": 0}},
    "eval": {"task": {"limit": 40}},
}
"""Settings by stage, for less than an hour on two cores."""
_SMOKE: Mapping[str, Mapping[str, Any]] = {
    "sft": {"steps": 12, "batch": 8, "demonstrations": 200},
    "presample": {"task": {"limit": 24}, "rollout": {"n": 4, "max_tokens": 64}},
    "train": {"task": {"limit": 24}, "rollout": {"max_tokens": 64}},
    "eval": {"task": {"limit": 2}, "rollout": {"max_tokens": 64}},
}
"""In a smoke run, which is slow with a language model: settings by stage, on top of the demo's."""
START_STEPS = 30
"""Steps of a part of the supervised start."""
MAX_PARTS = 12
MASTERED_SHARE = 1 / 8
"""The start ends after the part that makes this share of the probed prompts near-perfect."""
_PROBE = {"task": {"limit": 48}, "refine": "keep"}
"""Settings of the pre-sampling after each part of a supervised start."""


@dataclass(frozen=True)
class Language:
    """A demo with a language model."""

    demo: DemoConfig
    model: str
    """The model to start from: a folder, or the name of one in the cache."""
    data: str = ""
    """Folder of the world's data, the option `root` of its task; empty if it reads none."""

    @property
    def named(self) -> DemoConfig:
        """The demo with the plug-ins that its world's file names and that are modules of this folder; others a flag has
        to name."""
        world = self.demo.world
        plugins = read_settings(Path(world)).get("plugins", []) if is_settings_file(world) else []
        ours = [name for name in plugins if isinstance(name, str) and name.partition(".")[0] == "experiments"]
        return replace(self.demo, plugins=tuple(dict.fromkeys([*ours, *self.demo.plugins])))

    @property
    def course(self) -> Course:
        """The commands."""
        sizes = [_SIZES, *([SMOKE, _SMOKE] if self.demo.smoke else [])]
        options = ("--task.options", "root", self.data) if self.data else ()
        of_base = ("--model.path", self.model, "--seed", str(self.demo.seed))
        return Course(self.named, sizes, ("--preset", "smollm2", *options), of_base)

    def run(self) -> Path:
        """Run what is missing, and return the report's page. Raises UserError for a world, a folder or a model that is
        missing, and for a model that masters too little after its supervised start."""
        check(self.named)
        if self.demo.world == DemoConfig.world:
            raise SettingsError("a language model needs a world with prompts in plain English: add --world FILE.toml")
        if self.data and not Path(self.data).is_dir():
            raise SettingsError(f"there is no folder {self.data}; --data names the folder of the world's data")
        model_folder(self.model)
        if not self.demo.smoke:
            self.start()
        return self.course.run(watch=True)

    def start(self) -> None:
        """Train the model on demonstrations, a few steps at a time, until it masters `MASTERED_SHARE` of the probed
        prompts: one that masters nothing has nothing to rehearse, and one that masters all has nothing to learn."""
        out, course, threads, mastered = Path(self.demo.out), self.course, self.demo.jobs, ""
        base, seed = out / "base", str(self.demo.seed)
        for number in range(1, MAX_PARTS + 1):
            probe = out / "probes" / str(number)
            if not is_complete(probe):
                trained = course.words(
                    "sft", *course.of_base, "--out", str(base), settings={"steps": number * START_STEPS}
                )
                tried = ("--model.path", str(base / "model"), "--seed", seed, "--out", str(probe))
                steps = [
                    Job("base", trained, threads=threads),
                    Job("probe", course.words("presample", *tried, settings=_PROBE), ("base",), threads),
                ]
                run_jobs(steps, out / "logs", threads, f"supervised start, part {number}", watch=True)
            sizes = RunDir.open(probe, "presample").manifest["sizes"]
            perfect, total = sizes["perfect"], sum(sizes.values())
            mastered = f"masters {perfect} of {total} prompts"
            say(f"after part {number} the model {mastered}")
            if perfect >= MASTERED_SHARE * total:
                return
        result = f"after {MAX_PARTS * START_STEPS} supervised steps {self.model} {mastered}, too few to rehearse"
        raise ModelError(f"{result}; use a stronger model, or the stages by themselves")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2", help="folder of a model, or the name of one in the cache")
    parser.add_argument("--world", default=WORLD, help="preset of a task with prompts in plain English")
    parser.add_argument("--data", default="", help="folder of the world's data, if it reads any")
    parser.add_argument("--out", default="runs/llm")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--methods", nargs="*", default=DemoConfig.methods, help="method presets to compare")
    parser.add_argument("--jobs", type=int, default=DemoConfig.jobs, help="runs side by side, one thread each")
    parser.add_argument("--smoke", action="store_true", help="a few steps, to see that everything works")
    parser.add_argument("--plugin", action="append", default=[], help="Python file or module that the world needs")
    given = parser.parse_args(arguments)
    show_messages()
    let_jobs_import()
    with ending("language_demo"):
        named = {name: getattr(given, name) for name in ("out", "world", "seed", "smoke", "jobs")}
        demo = DemoConfig(**named, methods=tuple(given.methods), plugins=tuple(given.plugin))
        Language(demo, given.model, given.data).run()


if __name__ == "__main__":
    main()
