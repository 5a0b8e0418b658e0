"""`dph passk` beside five other tools, on the same counts:
`python -m benchmarks.reliability.passk_tools --logs ../shared/data/harness_logs [--tools inspect-ai …] [--trials 300]`.

Each tool is installed with pip into an environment of its own, in a temporary folder or in `--environments FOLDER`
(kept, and used again); HELM takes more than 6 GB. The tool's own functions compute its numbers
(`benchmarks/_support/passk_tool.py`). Prints Markdown: what each says about the public pair that is in the package,
about problems of few samples and about 20 problems that are all right; how often its intervals hold the truth, by
simulation; and which logs of harnesses it reads.
"""

import argparse
import json
import subprocess
import tempfile
import time
import venv
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._support.passk_tool import FEW
from benchmarks.reliability.bands import POPULATIONS as PAIRS
from benchmarks.reliability.intervals import POPULATIONS as MODELS
from benchmarks.reliability.intervals import solved
from dph.config import Reading
from dph.errors import UserError
from dph.measure.bands import band
from dph.measure.changes import compare
from dph.measure.example import FILES
from dph.measure.intervals import mean_interval
from dph.measure.passk import pass_at_k
from dph.measure.samples import Samples, read_samples

VERSIONS = {
    "passk-inference": "0.3.1",
    "inspect-ai": "0.3.285",
    "lm-eval": "0.4.13",
    "evalplus": "0.3.1",
    "crfm-helm": "0.5.16",
}
TITLES = {"inspect-ai": "Inspect", "lm-eval": "lm-eval", "evalplus": "EvalPlus", "crfm-helm": "HELM"}
OURS = "`dph passk`"
LOGS: Sequence[tuple[str, str, Reading]] = (
    ("inspect/popularity_epochs5.claude-sonnet-4.eval", "", Reading()),
    ("lm_eval/samples_mgsm_direct_en.qwen2.5-14b.jsonl", " --filter 2", Reading(filter=("2",))),
    ("human_eval/gpt35_10_samples.jsonl_results.jsonl.gz", "", Reading()),
    ("bigcode_harness/humaneval_k3_codeeval_results.json", "", Reading()),
    ("cruxeval/sample_scored_codellama-7b_temp0.2_output.json", "", Reading()),
    ("nemo_skills/gpqa", " --id line", Reading(id="line")),
    ("reasoning_gym/countdown.deepseek-r1.json", " --threshold 1", Reading(threshold=1.0)),
    ("verifiers/simpleqa_verified.gpt-5", " --id prompt", Reading(id="prompt")),
    ("qwen_math/amc23.after_rl.jsonl", "", Reading()),
    ("lighteval/details_math_500.after_grpo.parquet", "", Reading()),
    ("verl/rollout_step1.jsonl", "", Reading()),
)
"""Logs as harnesses write them, in the folder `--logs`, and the options with which they are read."""
ROOT = Path(__file__).parents[2]
WORKER = ROOT / "benchmarks" / "_support" / "passk_tool.py"
KS, SAMPLES, PROBLEMS, NORMAL = (1, 16, 128), 16, (30, 200), 1.96
"""k of the pair; samples and numbers of problems of the simulations; how many standard errors are 95 %."""

Row = list[str]
Answers = dict[str, dict[str, Any]]


def example() -> dict[str, list[list[int]]]:
    """Counts of the public pair: of each problem the correct and all samples."""
    sides = dict(zip(("before", "after"), map(read_samples, FILES), strict=True))
    if sides["before"].problems != sides["after"].problems:
        raise SystemExit("the two files of the example have other problems, or another order of them")
    return {name: _pairs_of(side) for name, side in sides.items()}


def _pairs_of(samples: Samples) -> list[list[int]]:
    return np.stack([samples.c, samples.n], axis=1).tolist()


def singles(trials: int) -> Iterator[tuple[str, int, int, float, list[list[int]]]]:
    """Simulated samples of one model: the end of the range that its pass@k is near, how many problems, k, the true
    pass@k, and the counts."""
    for near, populations in MODELS.items():
        for place, draw in enumerate(populations.values()):
            rng = np.random.default_rng([place, *map(ord, near)])
            every = draw(rng, 1_000_000)
            for problems in PROBLEMS:
                for k in (1, 8):
                    truth = float(solved(every, k).mean())
                    for _ in range(trials):
                        yield near, problems, k, truth, _counts(rng, draw(rng, problems), 8)


def pairs(trials: int) -> Iterator[tuple[str, int, np.ndarray, dict[str, list[list[int]]]]]:
    """Simulated samples before and after a training: the name of the population, how many problems, the true change of
    pass@k at all k, and the counts."""
    for place, population in enumerate(PAIRS):
        truth = population.change(SAMPLES)
        for problems in PROBLEMS:
            rng = np.random.default_rng([place, problems])
            for _ in range(trials):
                kinds = rng.choice(len(population.weights), problems, p=population.weights)
                chances = {"before": population.before[kinds], "after": population.after[kinds]}
                sides = {side: _counts(rng, each, SAMPLES) for side, each in chances.items()}
                yield population.name, problems, truth, sides


def _counts(rng: np.random.Generator, chances: Any, n: int) -> list[list[int]]:
    return [[int(c), n] for c in rng.binomial(n, chances)]


def asked(tool: str, request: dict[str, Any], environments: Path) -> dict[str, Any]:
    """The answers of a tool, which is installed first unless its environment is there, and its installed size in MB."""
    python = environment(tool, f"{tool}=={VERSIONS[tool]}", environments)
    found = subprocess.run([python, WORKER, tool], input=json.dumps(request), capture_output=True, text=True)
    if found.returncode:
        raise SystemExit(f"{tool} failed:\n{found.stderr[-2000:]}")
    return json.loads(found.stdout) | {"megabytes": megabytes(environments / tool)}


def environment(name: str, requirement: str, environments: Path) -> Path:
    """The Python of an environment, which is made first unless it is there."""
    python = environments / name / "bin" / "python"
    if not python.is_file():
        venv.create(environments / name, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", requirement], check=True)
    return python


def megabytes(place: Path) -> float:
    """What is installed in an environment, without pip."""
    packages = [path for path in place.glob("lib/python*/site-packages/*") if not path.name.startswith("pip")]
    return sum(map(_size, packages)) / 1e6


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file())


def of_pair(answers: Answers) -> Iterator[Row]:
    """What each tool says about the public pair."""
    yield ["", *(f"pass@{k}" for k in KS), "change of pass@128", "first k with a loss"]
    for tool, title in TITLES.items():
        if tool in answers:
            sides = [answers[tool]["pair"][side] for side in ("before", "after")]
            cells = [" → ".join(_summary(side[str(k)]) for side in sides) for k in KS]
            yield [title, *cells, "–", "–"]
    if "passk-inference" in answers:
        found = answers["passk-inference"]["pair"]
        at = [found["ks"].index(k) for k in KS]
        cells = [f"{100 * found['before'][i]:.1f} → {100 * found['after'][i]:.1f}" for i in at]
        change = found["after"][at[-1]] - found["before"][at[-1]]
        inside = (
            f"{_points(change)} (at all k at once {_points(found['low'][at[-1]])} to {_points(found['high'][at[-1]])})"
        )
        first = found["first_loss"]
        yield ["passk-inference", *cells, inside, f"{first[0]} to {first[1]}"]
    yield ours_of_pair()


def ours_of_pair() -> Row:
    """The row of this package, which needs no environment."""
    sides = [read_samples(path) for path in FILES]
    found = compare(*sides)
    change = found.changes[0]
    whole = band([(sides[0].n, sides[0].c)], [(sides[1].n, sides[1].c)])
    scores = [[score.metrics[f"pass@{k}"] for score in found.scores] for k in KS]
    cells = [
        " → ".join(f"{100 * m.estimate:.1f} ({100 * m.low:.1f}–{100 * m.high:.1f})" for m in side) for side in scores
    ]
    last, at = change.differences["pass@128"], whole.ks.index(128)
    inside = f"{_points(last.estimate)} ({_points(last.low)} to {_points(last.high)}; at all k at once "
    inside += f"{_points(whole.low[at])} to {_points(whole.high[at])})"
    return [OURS, *cells, inside, f"{whole.first_loss[0]} to {whole.first_loss[1]}"]


def _summary(found: dict[str, Any]) -> str:
    mean = f"{100 * found['mean']:.1f}"
    return f"{mean} ± {100 * found['stderr']:.1f}" if "stderr" in found else mean


def _points(value: float) -> str:
    return f"{100 * value:+.1f}"


def of_few(answers: Answers) -> Iterator[Row]:
    """What each tool says about problems of few samples, and about 20 problems that are all right."""
    yield ["", *FEW, "20 of 20 problems right, 95 %"]
    for tool, title in TITLES.items():
        if tool in answers:
            right = answers[tool]["all right"]
            bounds = _interval(right) if "stderr" in right else None
            whole = f"{100 * bounds[0]:.0f}–{100 * bounds[1]:.0f}" if bounds else "–"
            yield [title, *(_few(answers[tool]["few"][name]) for name in FEW), whole]
    if "passk-inference" in answers:
        yield ["passk-inference", *(_few(answers["passk-inference"]["few"][name]) for name in FEW), "–"]
    yield ours_of_few()


def ours_of_few() -> Row:
    cells = []
    for (c, n), k in FEW.values():
        try:
            cells.append(_few(float(pass_at_k(n, c, k))))
        except UserError:
            cells.append("refused")
    right = mean_interval(np.ones(20))
    return [OURS, *cells, f"{100 * right.low:.1f}–{100 * right.high:.0f}"]


def _few(value: float | str) -> str:
    if isinstance(value, float):
        return f"{100 * value:.1f}"
    return "not a number" if value == "nan" else "refused"


def _interval(found: dict[str, Any]) -> tuple[float, float]:
    """A tool's own interval, or the mean ± 1.96 of its standard errors."""
    if "interval" in found:
        return found["interval"][0], found["interval"][1]
    return found["mean"] - NORMAL * found["stderr"], found["mean"] + NORMAL * found["stderr"]


def coverage_of_one(answers: Answers, trials: int) -> Iterator[Row]:
    """How often the interval of one model's pass@k holds the truth: the lowest and the mean percentage over three
    populations and pass@1 and pass@8 of 8 samples, and the mean width in points."""
    cases = list(singles(trials))
    methods = {
        "Inspect, `ci()`": [_interval(each) for each in answers.get("inspect-ai", {}).get("singles", [])],
        "lm-eval, ± 1.96 standard errors": [_interval(each) for each in answers.get("lm-eval", {}).get("singles", [])],
        OURS: [],
    }
    for _, _, k, _, counts in cases:
        c, n = np.array(counts).T
        own = mean_interval(pass_at_k(n, c, k))
        methods[OURS].append((own.low, own.high))
    yield ["", *(f"{near}, {problems} problems" for near in MODELS for problems in PROBLEMS)]
    for name, bounds in methods.items():
        if bounds:
            yield [name, *(_covered(cases, bounds, near, problems) for near in MODELS for problems in PROBLEMS)]


def _covered(cases: Sequence[Any], bounds: Sequence[tuple[float, float]], near: str, problems: int) -> str:
    held: dict[float, list[bool]] = {}
    widths = []
    for (which, count, _, truth, _), (low, high) in zip(cases, bounds, strict=True):
        if (which, count) == (near, problems):
            held.setdefault(truth, []).append(low - 1e-9 <= truth <= high + 1e-9)
            widths.append(high - low)
    shares = [100 * np.mean(each) for each in held.values()]
    return f"{min(shares):.0f} / {np.mean(shares):.0f}, {100 * np.mean(widths):.1f}"


def coverage_of_pairs(answers: Answers, trials: int) -> Iterator[Row]:
    """How often statements about a change are true, in percent, and the mean width in points at the largest k: the
    difference of one k, the band over all k, and the first k with a loss."""
    cases = list(pairs(trials))
    rows: dict[str, list[tuple[Any, ...]]] = {}
    for (name, problems, truth, sides), number in zip(cases, range(len(cases)), strict=True):
        for method, statement in _statements(answers, sides, number).items():
            rows.setdefault(method, []).append((name, problems, *_true(statement, truth)))
    yield ["population", "problems", *rows]
    for population in PAIRS:
        for problems in PROBLEMS:
            cells = []
            for found in rows.values():
                mine = [each[2:] for each in found if each[:2] == (population.name, problems)]
                cells.append(" / ".join(f"{100 * np.mean(column):.0f}" for column in zip(*mine, strict=True)))
            yield [population.name, str(problems), *cells]


def _statements(answers: Answers, sides: dict[str, list[list[int]]], number: int) -> dict[str, tuple[Any, Any, Any]]:
    """By method: the lower and upper bounds, of the largest k or of all, and the set of the first loss or None."""
    found: dict[str, tuple[Any, Any, Any]] = {}
    if trials := answers.get("inspect-ai", {}).get("trials"):
        before, after = (trials[number][side] for side in ("before", "after"))
        change, error = after["mean"] - before["mean"], np.hypot(before["stderr"], after["stderr"])
        found["two standard errors, one k"] = (change - NORMAL * error, change + NORMAL * error, None)
    (c, n), (c_after, n_after) = (np.array(sides[side]).T for side in ("before", "after"))
    own = mean_interval(pass_at_k(n_after, c_after, SAMPLES) - pass_at_k(n, c, SAMPLES), -1.0, 1.0)
    found["`dph passk`, one k"] = (own.low, own.high, None)
    if trials := answers.get("passk-inference", {}).get("trials"):
        theirs = trials[number]
        found["passk-inference, band"] = (theirs["low"], theirs["high"], theirs["first_loss"])
    whole = band([(n, c)], [(n_after, c_after)])
    found["`dph passk`, band"] = (whole.low, whole.high, whole.first_loss)
    return found


def _true(statement: tuple[Any, Any, Any], truth: np.ndarray) -> tuple[float, ...]:
    """Whether the bounds hold the truth, their width at the largest k, and whether the set holds the first loss."""
    low, high, first = (np.atleast_1d(statement[0]), np.atleast_1d(statement[1]), statement[2])
    true = truth[-1:] if len(low) == 1 else truth
    held = bool(np.all((low - 1e-9 <= true) & (true <= high + 1e-9)))
    width = float(high[-1] - low[-1])
    if first is None:
        return held, width
    losses = np.flatnonzero(truth < -1e-12)
    at = losses[0] + 1 if losses.size else np.inf
    earliest, latest = (np.inf if end is None else end for end in first)
    return held, width, earliest <= at <= latest


def logs(folder: Path) -> Iterator[tuple[str, Path, Samples]]:
    """Logs of harnesses: how `dph passk` is called, the path, and what it reads."""
    for name, options, reading in LOGS:
        yield f"`{name}{options}`", folder / name, read_samples(folder / name, reading)


def of_logs(answers: Answers, read: Sequence[tuple[str, Path, Samples]]) -> Iterator[Row]:
    """What is in each log, the largest difference between all tools on its counts, and who reads it as it is."""
    yield [
        "log",
        "problems",
        "samples",
        "pass@1",
        "pass@k, k = (n + 1) / 2",
        "largest difference of a tool",
        "read by",
    ]
    for called, path, samples in read:
        k = _half(samples)
        own = float(pass_at_k(samples.n, samples.c, k).mean())
        theirs = [abs(found["logs"][called] - own) for found in answers.values()]
        readers = [TITLES.get(tool, tool) for tool, found in answers.items() if str(path) in found.get("read", [])]
        ones = f"{100 * np.mean(samples.c / samples.n):.1f}"
        most = f"{max(theirs, default=0.0):.0e}" if max(theirs, default=0.0) else "0"
        row = [called, str(len(samples.problems)), str(samples.n.min()), ones, f"{100 * own:.1f}", most]
        yield [*row, ", ".join([OURS, *readers])]


def _half(samples: Samples) -> int:
    """Half of the samples of a problem, rounded up: a k at which tools could differ."""
    return (int(samples.n.min()) + 1) // 2


def of_sizes(answers: Answers, own: float) -> Iterator[Row]:
    """What an installation takes, and the processor time for the public pair: passk-inference and `dph passk` compare
    it at all k, the others say three values of each model."""
    yield ["", "version", "installed, MB", "the pair, s"]
    for tool, found in answers.items():
        yield [TITLES.get(tool, tool), VERSIONS[tool], f"{found['megabytes']:.0f}", f"{found['seconds']:.2f}"]
    sides = [read_samples(path) for path in FILES]
    began = time.process_time()
    compare(*sides)
    yield [OURS, version("dph-rl"), f"{own:.0f}", f"{time.process_time() - began:.2f}"]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", nargs="*", choices=VERSIONS, default=list(VERSIONS))
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--logs", type=Path, help="a folder with logs of harnesses")
    parser.add_argument("--environments", type=Path, help="where the tools' environments are kept")
    given = parser.parse_args(arguments)
    read = list(logs(given.logs.resolve())) if given.logs else []
    request = {
        "pair": example(),
        "ks": KS,
        "k": SAMPLES,
        "singles": [[counts, k] for _, _, k, _, counts in singles(given.trials)],
        "trials": [sides for *_, sides in pairs(given.trials)],
        "logs": {name: [_pairs_of(samples), _half(samples)] for name, _, samples in read},
        "files": [str(path) for _, path, _ in read],
    }
    with tempfile.TemporaryDirectory() as temporary:
        environments = given.environments or Path(temporary)
        answers = {tool: asked(tool, request, environments) for tool in given.tools}
        own = 0.0
        if answers:
            environment("dph-rl", str(ROOT), environments)
            own = megabytes(environments / "dph-rl")
    tables = [of_pair(answers), of_few(answers), coverage_of_one(answers, given.trials)]
    tables += [coverage_of_pairs(answers, given.trials), of_logs(answers, read), of_sizes(answers, own)]
    for header, *rows in tables:
        print("\n| " + " | ".join(header) + " |\n|" + "---|" * len(header))
        for row in rows:
            print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
