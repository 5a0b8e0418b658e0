"""`dph demo`: base model → pre-sampling → GRPO and DPH-JS with equal budgets → evaluation → table and figure."""

import hashlib
import time
from collections.abc import Callable
from pathlib import Path

from dph.config.load import preset_names, to_toml
from dph.config.schema import DemoConfig
from dph.errors import UserError
from dph.process.jobs import Job, run_jobs
from dph.process.progress import say
from dph.report.write import report
from dph.runs.cache import cache_folder
from dph.runs.locks import waiting_for

WORLD = "minisql"

LABELS = {
    "grpo": "GRPO",
    "dapo": "DAPO",
    "grpo_kl": "GRPO+KL",
    "rkl": "RKL",
    "rkl_true": "RKL (true)",
    "exp_only": "D_exp only",
    "dph_f": "DPH-F",
    "dph_js": "DPH-JS",
    "dph_js_def": "DPH-JS (def.)",
    "alpha": "alpha",
}
"""Names of the method presets in tables."""

_SMOKE = {
    "sft": ("--steps", "120", "--batch", "24", "--demonstrations", "3000"),
    "presample": ("--task.limit", "48", "--rollout.n", "4", "--threshold", "1", "--refine", "keep"),
    "train": (
        *("--steps", "2", "--rollout.prompts", "2", "--rollout.n", "4", "--task.limit", "48"),
        *("--monitor.limit", "2", "--monitor.n", "2"),
    ),
    "eval": ("--task.limit", "6", "--rollout.n", "4"),
}


def jobs(config: DemoConfig, base: Path) -> list[Job]:
    """The demo's commands. `base` is the run directory of the supervised base model."""
    out, seed = Path(config.out), str(config.seed)
    model, sampled = str(base / "model"), str(out / "presample")

    def words(stage: str, *more: str) -> tuple[str, ...]:
        return (stage, "--preset", WORLD, *more, *(_SMOKE[stage] if config.smoke else ()), "--resume")

    planned = [Job("base", words("sft", "--out", str(base)), threads=config.jobs, out=base)]
    shared = ("--model.path", model, "--seed", seed)
    planned.append(Job("presample", words("presample", *shared, "--out", sampled), ("base",)))
    planned.append(_evaluation(words, "base", "base", model, out, ("base",)))
    methods = config.methods[::-1]  # the longer runs are named last; begun first, they keep all slots busy to the end
    for method in methods:
        arguments = ("--preset", method, *shared, "--rehearsal.path", sampled, "--out", str(out / method))
        monitor = ("--monitor.every", "1" if config.smoke else "20")
        planned.append(Job(method, words("train", *arguments, *monitor), ("presample",)))
    for method in methods:
        planned.append(_evaluation(words, method, LABELS[method], str(out / method / "model"), out, (method,)))
    return planned


def _evaluation(
    words: Callable[..., tuple[str, ...]], name: str, label: str, model: str, out: Path, needs: tuple[str, ...]
) -> Job:
    arguments = ("--model.path", model, "--label", label, "--out", str(out / "eval" / name))
    return Job(f"eval-{name}", words("eval", *arguments), needs)


def demo(config: DemoConfig) -> Path:
    """Run the demo (again, where it was interrupted) and return the report's page."""
    unknown = [method for method in config.methods if method not in LABELS or method not in preset_names()]
    if unknown:
        raise UserError(f"no method preset is named {unknown[0]!r}; known are: {', '.join(LABELS)}")
    started = time.monotonic()
    out = Path(config.out)
    base = out / "base" if config.smoke else cache_folder() / "base" / _fingerprint()
    planned = jobs(config, base)
    if not config.smoke:
        _make_base(planned[0], base, out / "logs", config.jobs)
    run_jobs(planned, out / "logs", config.jobs, "demo")
    evaluations = [out / "eval" / name for name in ("base", *config.methods)]
    trained = [out / method for method in config.methods]
    page = report([*evaluations, *trained], out / "report", base="base", title="DPH-RL in the embedded world")
    say(f"finished in {time.monotonic() - started:.0f} s; open {page}")
    return page


def _make_base(job: Job, base: Path, logs: Path, slots: int) -> None:
    """Make the base model that all demos share; another demo that is making it already is waited for."""
    try:
        base.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot make {base.parent} ({error.strerror}); name a writable folder with the variable DPH_CACHE"
        ) from error
    with waiting_for(base.parent):
        run_jobs([job], logs, slots, "base model")


def _fingerprint() -> str:
    """Content hash of everything the base model depends on: settings, world, code of the stage, versions."""
    from importlib.metadata import version

    import dph
    from dph.config.load import from_dict, merge_settings
    from dph.config.schema import SftConfig

    settings = from_dict(SftConfig, merge_settings("sft", [WORLD], []))
    digest = hashlib.blake2b(to_toml(settings).encode(), digest_size=8)
    root = Path(dph.__file__).parent
    sources = [
        root / "stages" / "sft.py",
        root / "sampling" / "seeding.py",
        root / "training" / "optim.py",
        *sorted((root / "models").glob("*.py")),
    ]
    for source in [*sources, root / "tasks" / "styles.py", *sorted((root / "tasks" / WORLD).glob("*.py"))]:
        digest.update(source.read_bytes())
    digest.update(f"{version('torch')} {version('transformers')}".encode())
    return digest.hexdigest()
