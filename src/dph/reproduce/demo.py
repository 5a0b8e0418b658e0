"""`dph demo`: base model → pre-sampling → GRPO and DPH-JS with equal budgets → evaluation → table and figure."""

import hashlib
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
    merge_settings,
    preset_label,
    preset_names,
    to_toml,
)
from dph.errors import UserError
from dph.process.jobs import Job, run_jobs
from dph.process.progress import say
from dph.report.write import report
from dph.reproduce.grid import joined, read_grid
from dph.runs.cache import cache_folder
from dph.runs.locks import waiting_for

GRID = "tiny"
"""The grid of `dph reproduce` whose world, monitor and smoke sizes the demo has."""


def jobs(config: DemoConfig, base: Path) -> list[Job]:
    """The demo's commands. `base` is the run directory of the supervised base model."""
    out, seed = Path(config.out), str(config.seed)
    model, sampled = str(base / "model"), str(out / "presample")

    grid = read_grid(GRID)

    def words(stage: str, *more: str) -> tuple[str, ...]:
        settings = grid.train if stage == "train" else {}
        tiny = grid.smoke["evaluate" if stage == "eval" else stage] if config.smoke else {}
        return (stage, "--preset", grid.world, *more, *_flags(joined(settings, tiny)), "--resume")

    def evaluation(name: str, label: str, model: str) -> Job:
        arguments = ("--model.path", model, "--label", label, "--out", str(out / "eval" / name))
        return Job(f"eval-{name}", words("eval", *arguments), (name,))

    planned = [Job("base", words("sft", "--out", str(base)), threads=config.jobs, out=base)]
    shared = ("--model.path", model, "--seed", seed)
    planned.append(Job("presample", words("presample", *shared, "--out", sampled), ("base",)))
    planned.append(evaluation("base", "base", model))
    # The longer runs are named last; started first, they keep all slots busy to the end.
    methods = [(preset, Path(preset).stem) for preset in config.methods[::-1]]
    for preset, name in methods:
        arguments = ("--preset", preset, *shared, "--rehearsal.path", sampled, "--out", str(out / name))
        planned.append(Job(name, words("train", *arguments), ("presample",)))
    planned += [evaluation(name, _label(preset), str(out / name / "model")) for preset, name in methods]
    return planned


def _check_methods(methods: Sequence[str]) -> None:
    """Raises UserError for what is no method preset, and for methods whose runs or labels would be the same."""
    known = [name for name in preset_names() if preset_label(name)]
    names, labels = {"base", "presample", "eval", "report", "logs"}, {"base"}
    for method in methods:
        if not method.endswith(".toml") and method not in known:
            raise UserError(
                f"no method preset is named {method!r}; known are: {', '.join(known)}; a preset file of your own is "
                "named by its path, which ends in .toml"
            )
        from_dict(
            TrainConfig, merge_settings("train", [read_grid(GRID).world, method], []), f"the settings of {method!r}"
        )
        name, label = Path(method).stem, _label(method)
        if name in names or label in labels:
            raise UserError(
                f"the method {method!r} has a name or label that is taken ({name!r}, {label!r}); name each method "
                "once, or rename the file and its label"
            )
        names.add(name)
        labels.add(label)


def _label(method: str) -> str:
    """The label of a method preset's `[meta]`, or the name of its file."""
    return preset_label(method) or Path(method).stem


def _flags(settings: Mapping[str, Any]) -> list[str]:
    return [word for key, value in flatten(settings).items() for word in (f"--{key.replace('_', '-')}", str(value))]


def demo(config: DemoConfig) -> Path:
    """Run the demo, or what is missing of it, and return the report's page."""
    check_bounds(config)
    _check_methods(config.methods)
    started = time.monotonic()
    out = Path(config.out)
    base = out / "base" if config.smoke else cache_folder() / "base" / _fingerprint()
    planned = jobs(config, base)
    if not config.smoke:
        make_base(planned[0], base, out / "logs", config.jobs)
    run_jobs(planned, out / "logs", config.jobs, "demo")
    names = [Path(method).stem for method in config.methods]
    evaluations = [out / "eval" / name for name in ("base", *names)]
    trained = [out / name for name in names]
    page = report([*evaluations, *trained], out / "report", base="base", title="DPH-RL in the embedded world")
    say(f"finished in {time.monotonic() - started:.0f} s; open {page}")
    return page


def make_base(job: Job, base: Path, logs: Path, slots: int) -> None:
    """Make the base model that all demos share, after waiting for another demo that is making it already."""
    try:
        base.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot make {base.parent} ({error.strerror}); name a writable folder with the variable DPH_CACHE"
        ) from error
    with waiting_for(base.parent):
        run_jobs([job], logs, slots, "base model")


def _fingerprint() -> str:
    """Hash of all that the base model depends on: settings, world, code of the stage, versions."""
    from importlib.metadata import version

    import dph
    from dph.config import SftConfig

    settings = from_dict(SftConfig, merge_settings("sft", [read_grid(GRID).world], []))
    digest = hashlib.blake2b(to_toml(settings).encode(), digest_size=8)
    root = Path(dph.__file__).parent
    sources = [
        root / "stages" / "sft.py",
        root / "sampling" / "seeding.py",
        root / "training" / "optim.py",
        *sorted((root / "models").glob("*.py")),
    ]
    for source in [*sources, root / "tasks" / "styles.py", *sorted((root / "tasks" / settings.task.name).glob("*.py"))]:
        digest.update(source.read_bytes())
    digest.update(f"{version('torch')} {version('transformers')}".encode())
    return digest.hexdigest()
