"""Experiment F again, as its protocol (experiments/results/confirm.md) has it: `grpo_sft` on new starts, against the
free mix, GRPO over more steps, and the supervised loss on the same rows without GRPO."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from dph.process.jobs import Job
from dph.rehearsal.presampled import Presampled
from dph.runs.files import write_atomically
from dph.tasks.countdown import Countdown
from dph.types import as_text
from experiments.anchor.counts import Evaluated, read
from experiments.anchor.design import DISTINCT, TRAINED, Arm, Flags, confirm_arms, evaluation
from experiments.anchor.run import SMOKE
from experiments.anchor.tables import LEAD, place, verdict
from experiments.factorial.tables import level, mean_at
from experiments.mixing import interpolated, mean_of, mix_at, pass_of
from experiments.starts import Course

STARTS = tuple(range(81, 89))
"""Seeds of the worlds. None was used before."""
LONG_STEPS = 375
MIXED = "grpo-24-5e-5"
"""GRPO whose samples the free mix has beside the base model's: the stronger control in the first eight starts."""
ROWS_ONLY = {"rows-only-1e-4": "1e-4", "rows-only-5e-5": "5e-5"}
"""The supervised loss on the lead's rows alone, by its learning rate: 250 updates of 32 rows, as many as the lead's."""
Start = Mapping[str, Evaluated]


def arms() -> tuple[Arm, ...]:
    """The runs of `dph train` in a start, in their order; each draws 48,000 responses, pre-sampling included."""
    found = [replace(one, shares=(0.5,)) if one.name == MIXED else one for one in confirm_arms()]
    length = ("--steps", str(LONG_STEPS))
    for lr in ("1.25e-5", "2.5e-5", "5e-5"):
        flags = ("--preset", "grpo", "--optim.lr", lr, *length)
        found.append(Arm(f"long-{lr}", "long", flags, None, trained=3 * TRAINED, steps=LONG_STEPS))
    return tuple(found)


def rows_jobs(start: int, root: Path, extra: Flags) -> Iterator[Job]:
    """The supervised runs on the stored rows of `DISTINCT`, which must be there, with their evaluations."""
    for name, lr in ROWS_ONLY.items():
        run = root / "train" / name
        words = ("sft", "--data", str(root / "rows.jsonl"), "--model.path", str(root / "base/model"))
        words += ("--steps", "5" if extra else "250", "--batch", "32", "--optim.lr", lr, "--optim.schedule", "constant")
        words += (
            "--optim.warmup-steps",
            "10",
            "--optim.beta2",
            "0.99",
            "--optim.weight-decay",
            "0",
            "--seed",
            str(100 * start + 1),
        )
        words += ("--out", str(run), "--resume")
        yield Job(name, words, out=run)
        yield evaluation(start, root, name, str(run / "model"), extra)


def write_rows(start: int, root: Path) -> None:
    """The stored rows of `DISTINCT` as prompts and responses, in the order of the set."""
    prompts = {one.id: as_text(one.prompt) for one in Countdown(seed=start).problems("train")}
    rows = (
        {"prompt": prompts[row.problem_id], "response": row.text} for row in Presampled.open(root / DISTINCT).stored
    )
    write_atomically(root / "rows.jsonl", "".join(json.dumps(row) + "\n" for row in rows))


def run(starts: Sequence[int], out: Path, counts: Path, *, smoke: bool) -> None:
    """Run what is missing; the counts are written after each arm. A failed arm does not stop the others."""
    extra = SMOKE if smoke else {}
    for start in starts:
        run_start(Course(start, out / f"start-{start}", counts, (DISTINCT,), extra=extra), arms())


def run_start(course: Course, arms: Sequence[Arm]) -> None:
    """The base model of a start, then its arms and the supervised loss alone."""
    every = (*arms, *(Arm(name, "rows-only", (), DISTINCT, trained=0) for name in ROWS_ONLY))
    if course.base():
        course.arms(arms, every)
        write_rows(course.start, course.root)
        jobs = list(rows_jobs(course.start, course.root, course.extra))
        course.run([jobs], "the supervised loss alone", every)


def report(starts: Sequence[int], counts: Path) -> Iterator[str]:
    """The primary comparison, then the others."""
    whole = {start: found for start in starts if LEAD in (found := read(counts, start))}
    yield "| pass@32 of the lead, at its mean | starts in range | points, 95 % |"
    yield "|---|---:|---|"
    for title, frontier in {
        f"− mix of {MIXED} with the base model (primary)": None,
        "− GRPO, 24 prompts a step": ["base", *(f"grpo-24-{lr}" for lr in ("1.25e-5", "2.5e-5", "5e-5"))],
        "− GRPO, 375 steps": ["base", *(f"long-{lr}" for lr in ("1.25e-5", "2.5e-5", "5e-5"))],
        "− k3, 24 prompts a step": ["base", "k3-24-1", "k3-24-0.3"],
        "− the same rows without GRPO": ["base", "rows-only-5e-5", "rows-only-1e-4"],
    }.items():
        differences = [value for one in whole.values() if (value := _difference(one, frontier)) is not None]
        yield f"| {title} | {len(differences)} of {len(whole)} | {verdict([100 * d for d in differences])[0]} |"
    yield ""
    yield "| mean@64 of the lead at equal pass@32 | points, 95 % |"
    yield "|---|---|"
    for title, names in {"GRPO, 24 prompts a step": "grpo-24", "GRPO, 375 steps": "long"}.items():
        frontier = ["base", *(f"{names}-{lr}" for lr in ("1.25e-5", "2.5e-5", "5e-5"))]
        both = [one for one in whole.values() if all(name in one for name in frontier)]
        gaps = []
        for one in both:
            points = [(level(one, (name,), "mean"), level(one, (name,), "pass@32")) for name in frontier]
            gaps.append(100 * (level(one, (LEAD,), "mean") - mean_at(points, level(one, (LEAD,), "pass@32"))))
        yield f"| − {title} | {verdict(gaps)[0]} |"


def _difference(start: Start, frontier: Sequence[str] | None) -> float | None:
    """pass@32 of the lead minus that of a frontier, or of the mix, at the lead's mean; None out of range, or if a model
    is missing."""
    own, (mean, passed) = start[LEAD].counts, place(start[LEAD])
    if frontier is None:
        if MIXED not in start or "base" not in start:
            return None
        free = mix_at(start[MIXED].counts, start["base"].counts, mean_of(own), 32)
        return None if free is None else pass_of(own, 32) - free
    if any(name not in start for name in frontier):
        return None
    other = interpolated([place(start[name]) for name in frontier], mean)
    return None if other is None else passed - other
