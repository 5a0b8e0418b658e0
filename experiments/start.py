"""The supervised start of a base model that ends by a rule instead of after a given number of steps.

    [bases.base.until]
    every = 250    # steps at a time
    most = 12      # so often at most
    rise = 0.02    # the part after which the greedy accuracy rose by less is the last one
    [bases.base.until.evaluate.task]
    split = "dev"
    limit = 128

The steps that it took become `sft.steps` of the base model, in the settings of the reproduction and of its counts.
"""

from dataclasses import replace
from pathlib import Path

from dph.config import read_settings, to_toml, words_of
from dph.errors import UserError
from dph.process.jobs import Job, is_complete, run_jobs
from dph.process.progress import say
from dph.report.data import read_eval
from dph.runs.files import write_atomically
from experiments.count_files import counts_file, recorded_settings
from experiments.grid import Base, joined, nested
from experiments.plan import Choice, RunPaths, stage_settings


def with_known_starts(choice: Choice, paths: RunPaths, counts: Path | None = None) -> Choice:
    """The choice with the steps of those base models whose settings are in the run directory or in a folder of
    counts."""
    for base in _open(choice):
        written = paths.settings("sft", base.name)
        if written.is_file():
            choice = _with_steps(choice, base, int(read_settings(written)["steps"]))
        elif counts is not None:
            recorded = recorded_settings(counts_file(choice, counts)).get(base.name)
            choice = _with_steps(choice, base, int(recorded["sft"]["steps"])) if recorded else choice
    return choice


def start_bases(choice: Choice, paths: RunPaths, slots: int) -> Choice:
    """Train the base models whose steps are open, until their rule ends it; returns the choice with the steps.

    An interrupted start goes on. Raises UserError when a stage fails, and for a start that its rule did not end.
    """
    for base in _open(choice):
        choice = _with_steps(choice, base, _start(choice, base, paths, slots))
    return choice


def _open(choice: Choice) -> list[Base]:
    return [base for base in choice.bases() if base.until and "steps" not in base.settings and not choice.smoke]


def _with_steps(choice: Choice, base: Base, steps: int) -> Choice:
    known = replace(base, settings=joined(base.settings, {"steps": steps}))
    return replace(choice, grid=replace(choice.grid, bases={**choice.grid.bases, base.name: known}))


def _start(choice: Choice, base: Base, paths: RunPaths, slots: int) -> int:
    until, folder, out = base.until, paths.root / "starts" / base.name, paths.base(base)
    split = str(until["evaluate"]["task"]["split"])
    once = joined(nested("rollout.n", 1), until["evaluate"])
    files, code = {}, []
    for stage, settings in (("sft", base.settings), ("eval", once)):
        files[stage] = folder / f"{stage}.toml"
        folder.mkdir(parents=True, exist_ok=True)
        config = stage_settings(choice, stage, base.name, settings, base)
        write_atomically(files[stage], to_toml(config))
        code = words_of(config)  # the plug-in of the world, in both
    before, steps = None, 0
    for part in range(1, int(until["most"]) + 1):
        scored, steps = folder / str(part), part * int(until["every"])
        if not is_complete(scored):
            sft = ("sft", "--config", str(files["sft"]), *code, "--steps", str(steps), "--out", str(out), "--resume")
            model = ("--model.path", str(out / "model"), "--label", f"{base.label}, {steps} steps")
            evaluated = ("eval", "--config", str(files["eval"]), *code, *model, "--out", str(scored), "--resume")
            jobs = [Job("base", sft, threads=slots), Job("probe", evaluated, ("base",), slots)]
            run_jobs(jobs, folder / "logs", slots, f"supervised start of {base.name}, part {part}", watch=True)
        greedy = read_eval(scored).splits[split].metrics["greedy"].mean
        say(f"{base.label}: after {steps} supervised steps the greedy accuracy on {split} is {100 * greedy:.1f} %")
        if before is not None and greedy - before < float(until["rise"]):
            return steps
        before = greedy
    raise UserError(
        f"after {steps} supervised steps the base model {base.name!r} still improves by {100 * until['rise']:g} points "
        "or more a part; raise `most` in the grid's table `until`"
    )
