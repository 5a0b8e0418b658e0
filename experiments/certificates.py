"""How often are certificates wrong, and which accuracy do methods have at a certified loss? In the SQL world.

    python -m experiments.certificates --out FOLDER           # 60 runs on one core; the same command continues
    python -m experiments.certificates --out FOLDER --report  # tables of the runs that are finished
    python -m experiments.certificates --counts experiments/results/certificates.parquet  # the published tables

One base model, one presample run that keeps most near-perfect problems aside, and a training run for each method and
seed, with a check every 20 steps on all problems kept aside, 8 samples each. (More would hardly change a mean over
1,000 problems: its error is that of choosing the problems.) The counts of every problem and check are in
counts.parquet. Each run is then certified as a user would: from 200 of these problems, with 4 of their samples.
The other problems with all samples are the truth. This is repeated for many random choices of the 200.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dph.cli.main import ending
from dph.errors import UserError
from dph.measure.certificate import upper_bound
from dph.measure.intervals import mean_interval
from dph.process.jobs import Job, is_complete, run_jobs
from dph.process.progress import say, show_messages
from dph.runs.coverage import CERTIFICATE, read_visits
from dph.runs.directory import read_metrics
from dph.runs.files import write_atomically, written_atomically
from experiments.finished import check_finished
from experiments.grid import let_jobs_import
from experiments.minisql import SETTINGS

METHODS = ("grpo", "grpo_kl", "dapo", "exp_only", "dph_f", "dph_js")
SEEDS = tuple(range(1, 11))
EPSILONS = (0.02, 0.05, 0.1)
SET, SAMPLES, CHOICES = 200, 4, 100
"""Problems and samples of a certificate, and random choices of the problems for each run."""
_SIZES: dict[str, dict[str, str]] = {
    "sft": {},
    "presample": {"task.options": "train_problems 3700", "certify": "0.75", "certify.samples": "8"},
    "train": {
        "task.options": "train_problems 3700",
        "steps": "60",
        **{"certify.every": "20", "certify.epsilon": "0.05", "checkpoint-every": "20", "keep-checkpoints": "1"},
        **{"monitor.every": "20", "monitor.split": "test", "monitor.limit": "200", "monitor.n": "4"},
    },
}
_SMOKE: dict[str, dict[str, str]] = {
    "sft": {"steps": "150", "demonstrations": "4000"},
    "presample": {"task.options": "train_problems 150", "threshold": "2", "certify.samples": "4"},
    "train": {
        "task.options": "train_problems 150",
        **{"steps": "4", "certify.every": "2", "certify.epsilon": "0.5", "rollout.prompts": "4", "rollout.n": "4"},
        **{"monitor.every": "2", "monitor.limit": "8"},
    },
}


def jobs(out: Path, methods: Sequence[str], seeds: Sequence[int], *, smoke: bool = False) -> list[Job]:
    """The commands: base model, presample run, and a training run for each method and seed, seed by seed."""

    def words(stage: str, *presets: str) -> tuple[str, ...]:
        flags = _SIZES[stage] | (_SMOKE[stage] if smoke else {})
        named = [word for preset in (SETTINGS, *presets) for word in ("--preset", preset)]
        sized = (word for key, value in flags.items() for word in (f"--{key}", *value.split()))
        return (stage, "--plugin", "experiments.minisql", *named, *sized, "--resume")

    base, pool = out / "base", out / "pool"
    model = ("--model.path", str(base / "model"))
    planned = [
        Job("base", (*words("sft"), "--out", str(base)), out=base),
        Job("pool", (*words("presample"), *model, "--out", str(pool)), ("base",), out=pool),
    ]
    for seed in seeds:
        for method in methods:
            run = _run(out, method, seed)
            further = (*model, "--rehearsal.path", str(pool), "--certify.set", str(pool), "--seed", str(seed))
            planned.append(Job(run.name, (*words("train", method), *further, "--out", str(run)), ("pool",), out=run))
    return planned


def _run(out: Path, method: str, seed: int) -> Path:
    return out / f"{method}-{seed}"


class Checks(NamedTuple):
    """The checks of one run."""

    method: str
    seed: int
    steps: list[int]
    samples: NDArray[np.int64]
    """Judged samples of each problem, [1 + steps, problems]; the first row is the base model's."""
    correct: NDArray[np.int64]
    accuracy: list[float]
    """Greedy accuracy on test problems at step 0 and at the steps."""


def collect(out: Path, methods: Sequence[str], seeds: Sequence[int]) -> Path:
    """Write the counts of all finished runs; returns the file. Raises UserError if there is none."""
    rows: list[dict[str, Any]] = []
    for method, seed in ((method, seed) for method in methods for seed in seeds):
        run = _run(out, method, seed)
        if not is_complete(run):
            continue
        greedy = {int(line["step"]): line["eval/greedy"] for line in read_metrics(run) if "eval/greedy" in line}
        for step, visits in read_visits(run, CERTIFICATE).items():
            for id, correct, samples in visits:
                facts = {"method": method, "seed": seed, "step": step, "greedy": greedy[step]}
                rows.append(facts | {"id": id, "samples": samples, "correct": correct})
    if not rows:
        raise UserError(f"{out} has no finished run yet; run the command without --report first")
    with written_atomically(out / "counts.parquet") as file:
        pq.write_table(pa.Table.from_pylist(rows), file, compression="zstd")
    return out / "counts.parquet"


def read_checks(file: Path) -> Iterator[Checks]:
    """The checks of each run in a file of counts."""
    runs: dict[tuple[str, int], dict[int, list[dict[str, Any]]]] = {}
    for row in pq.read_table(file).to_pylist():
        runs.setdefault((row["method"], row["seed"]), {}).setdefault(row["step"], []).append(row)
    for (method, seed), by_step in runs.items():
        checks = [sorted(by_step[step], key=lambda row: row["id"]) for step in sorted(by_step)]
        samples, correct = (
            np.array([[row[name] for row in rows] for rows in checks]) for name in ("samples", "correct")
        )
        yield Checks(method, seed, sorted(by_step)[1:], samples, correct, [rows[0]["greedy"] for rows in checks])


class Outcome(NamedTuple):
    """What random choices of the certification set certify of one run."""

    last: NDArray[np.int64]
    """Place of the last certified check, 0 for the base model, [choices]."""
    wrong: NDArray[np.bool_]
    """Whether a certified checkpoint had lost more than epsilon, by the other problems, [choices]."""
    lost: NDArray[np.float64]
    """The true loss of the last certified checkpoint, 0 for the base model, [choices]."""


def certify_run(checks: Checks, epsilon: float, size: int = SET, n: int = SAMPLES, choices: int = CHOICES) -> Outcome:
    """Certify a run from random sets of problems with n of their samples, by fixed-sequence testing."""
    rng = np.random.default_rng([checks.seed, *checks.method.encode()])
    rates = checks.correct / checks.samples
    count = rates.shape[1]
    last, wrong, lost = np.zeros(choices, int), np.zeros(choices, bool), np.zeros(choices)
    for choice in range(choices):
        order = rng.permutation(count)
        chosen, others = order[:size], order[size:]
        found = checks.correct[:, chosen]
        drawn = rng.hypergeometric(found, checks.samples[:, chosen] - found, n) / n
        for place in range(1, len(rates)):
            if upper_bound(drawn[0] - drawn[place]) > epsilon:
                break
            truth = float((rates[0] - rates[place])[others].mean())
            last[choice], lost[choice] = place, truth
            wrong[choice] |= truth > epsilon
    return Outcome(last, wrong, lost)


def report(file: Path, size: int = SET, n: int = SAMPLES) -> str:
    """Tables of the runs in a file of counts, as Markdown."""
    runs = list(read_checks(file))
    lines = [f"{len(runs)} runs; sets of {size} problems with {n} samples, {CHOICES} random choices for each run.", ""]
    for epsilon in EPSILONS:
        found = [certify_run(run, epsilon, size, n) for run in runs]
        wrong_first = [float(outcome.wrong[0]) for outcome in found]
        first, low_high = int(sum(wrong_first)), mean_interval(wrong_first)
        share = np.mean([outcome.wrong.mean() for outcome in found])
        lines += [
            f"ε = {epsilon:g}: {first} of {len(found)} runs have a wrong certificate with their first set (95 % "
            f"interval {100 * low_high.low:.1f}–{100 * low_high.high:.1f} %), {100 * share:.2f} % of all choices.",
            "",
            "| method | runs | loss at the end | accuracy: base | end | last certified | loss there | wrong |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for method in dict.fromkeys(run.method for run in runs):
            own = [(run, outcome) for run, outcome in zip(runs, found, strict=True) if run.method == method]
            end = 100 * np.mean([(r.correct[0] / r.samples[0] - r.correct[-1] / r.samples[-1]).mean() for r, _ in own])
            start, final = (100 * np.mean([run.accuracy[place] for run, _ in own]) for place in (0, -1))
            at_last = 100 * np.mean([np.take(run.accuracy, outcome.last).mean() for run, outcome in own])
            there = 100 * np.mean([outcome.lost.mean() for _, outcome in own])
            wrong = 100 * np.mean([outcome.wrong.mean() for _, outcome in own])
            cells = " | ".join(f"{value:.1f}" for value in (end, start, final, at_last, there, wrong))
            lines.append(f"| {method} | {len(own)} | {cells} |")
        lines.append("")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/certificates"))
    parser.add_argument("--methods", nargs="*", default=METHODS)
    parser.add_argument("--seeds", nargs="*", type=int, default=SEEDS)
    parser.add_argument("--report", action="store_true", help="run nothing: tables of the finished runs")
    parser.add_argument("--counts", type=Path, help="run nothing: print the tables of a file of counts")
    parser.add_argument("--smoke", action="store_true", help="a few steps, to see that everything works")
    options = parser.parse_args(arguments)
    show_messages()
    if options.counts is not None:
        print(report(options.counts))
        return
    let_jobs_import()
    with ending("certificates"):
        failures: list[str] = []
        if not options.report:
            planned = jobs(options.out, options.methods, options.seeds, smoke=options.smoke)
            failures = run_jobs(planned, options.out / "logs", 1, "certificates", keep_going=True)
        file = collect(options.out, options.methods, options.seeds)
        text = report(file, *((10, 2) if options.smoke else (SET, SAMPLES)))
        write_atomically(options.out / "certificates.md", text)
        say(f"wrote {options.out / 'certificates.md'} and {file}")
        check_finished(failures)


if __name__ == "__main__":
    main()
