r"""How far the SQL verifier agrees with official evaluators.

    python -m benchmarks.verifiers.agreement_sql DATA [--workers N]

DATA holds spider/ and bird/ with predictions that the official evaluators labelled. Prints one line per file and label,
then every row that differs.
"""

import argparse
import json
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dph.types import Problem, Verdict
from dph.verifiers.sql.verifier import SqlVerifier

TIMEOUT = 60.0
"""Seconds per query. The official evaluators wait 30 s (BIRD), 15 s (the paper's authors) or for ever (Spider)."""

_ROUNDING = 6e-7  # labels that are scores have six decimals


@dataclass(frozen=True, slots=True)
class Rule:
    """A column of labels, and the verifier options that must reproduce it."""

    label: str
    options: Mapping[str, Any]
    suite: bool = False
    score: bool = False
    """The label is a score, which the reward must equal; otherwise it says whether the prediction is correct."""


SPIDER = (
    Rule("ex", {"comparator": "spider"}),
    Rule("ex_keep_distinct", {"comparator": "spider", "keep_distinct": True}),
    Rule("ts", {"comparator": "spider"}, suite=True),
    Rule("bird_ex", {"comparator": "bird"}),
    Rule("dphrl_acc", {"comparator": "paper"}),
    Rule("dphrl_score", {"comparator": "paper", "reward": "paper"}, score=True),
)


@dataclass(frozen=True, slots=True)
class Agreement:
    """How one rule judged the predictions of one file."""

    file: str
    rule: Rule
    rows: Sequence[tuple[Problem, str, float]]
    """Problems, predictions and labels."""
    verdicts: Sequence[Verdict]
    seconds: float

    @property
    def different(self) -> list[tuple[Problem, str, float, Verdict]]:
        found = []
        for (problem, prediction, label), verdict in zip(self.rows, self.verdicts, strict=True):
            value = verdict.reward if self.rule.score else float(verdict.correct)
            if abs(value - label) > _ROUNDING:
                found.append((problem, prediction, label, verdict))
        return found

    @property
    def line(self) -> str:
        count, agreed = len(self.rows), len(self.rows) - len(self.different)
        share = 100 * agreed / max(1, count)
        return f"{self.file:46} {self.rule.label:17} {agreed:5} of {count:5}  {share:6.2f} %  {self.seconds:6.1f} s"


def agreements(
    data: Path, *, workers: int = 1, every: int = 1, files: Sequence[str] = (), suite: Path | None = None
) -> Iterator[Agreement]:
    """The agreement with every labelled file that exists under `data`.

    Args:
        every: judge only every n-th row.
        files: names (without suffix) of the files to judge; empty for all.
        suite: folder of the unpacked test suite; by default the archive in data is unpacked into a temporary folder.
    """
    yield from _spider(data / "spider", workers, every, files, suite)
    yield from _bird(data / "bird", workers, every, files)


def _spider(data: Path, workers: int, every: int, files: Sequence[str], suite: Path | None) -> Iterator[Agreement]:
    paths = _chosen(sorted((data / "predictions").glob("*.jsonl")), files)
    if not paths:
        return
    golds = [row["query"] for row in _read(data / "dev.jsonl")]
    archive = data / "test_suite_database.tar.xz"
    unpacked = tempfile.TemporaryDirectory(prefix="dph-suite-") if suite is None else nullcontext(str(suite))
    with unpacked as folder:
        if suite is None and archive.exists():
            with tarfile.open(archive) as tar:
                tar.extractall(folder, filter="data")
        suites = _suites(Path(folder))
        for rule in SPIDER:
            if rule.suite and not suites:
                continue
            limits = {"workers": workers, "timeout": TIMEOUT, "gold_timeout": TIMEOUT}
            with SqlVerifier(answer="whole", **limits, **rule.options) as verifier:
                for path in paths:
                    rows = []
                    for row in _read(path)[::every]:
                        if row[rule.label] is not None:  # null where the database is not published with the data
                            name = row["db_id"]
                            meta: dict[str, Any] = {"db": str(data / "database" / name / f"{name}.sqlite")}
                            if rule.suite:
                                meta["suite"] = suites.get(name, [])
                            problem = Problem(f"spider/{row['i']}", "", golds[row["i"]], "sql", meta)
                            rows.append((problem, row["pred"], float(row[rule.label])))
                    yield _judge(verifier, path.stem, rule, rows)


def _bird(data: Path, workers: int, every: int, files: Sequence[str]) -> Iterator[Agreement]:
    """BIRD's dev and mini-dev on the one database that `data` holds, with both published versions of dev's gold."""
    ending = ".superhero_labels"
    for part, questions, second in (("dev", "dev.json", "dev_gold_2023.sql"), ("mini_dev", "mini_dev_sqlite.json", "")):
        paths = _chosen(sorted((data / "predictions" / part).glob(f"*{ending}.jsonl")), files, ending)
        if not paths:
            continue
        golds = {"ex": [row["SQL"] for row in json.loads((data / questions).read_text(encoding="utf-8"))]}
        if second:
            lines = (data / second).read_text(encoding="utf-8").splitlines()
            golds["ex_gold2023"] = [line.split("\t")[0] for line in lines]
        db = str(data / "databases" / "superhero" / "superhero.sqlite")
        with SqlVerifier(
            comparator="bird", workers=workers, timeout=TIMEOUT, gold_timeout=TIMEOUT, answer="whole"
        ) as verifier:
            for label, answers in golds.items():
                for path in paths:
                    rows = [
                        (Problem(f"bird/{part}/{row['i']}", "", answers[row["i"]], "sql", {"db": db}), row["pred"],
                         float(row[label]))
                        for row in _read(path)[::every]
                        if row.get(label) is not None
                    ]  # fmt: skip
                    yield _judge(verifier, f"bird/{part}/{path.stem.removesuffix(ending)}", Rule(label, {}), rows)


def _suites(folder: Path) -> dict[str, list[str]]:
    """The files with ".sqlite" in their names by database folder, as the official evaluator chooses them."""
    found: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("*")):
        if ".sqlite" in path.name:
            found.setdefault(path.parent.name, []).append(str(path))
    return found


def _judge(verifier: SqlVerifier, file: str, rule: Rule, rows: Sequence[tuple[Problem, str, float]]) -> Agreement:
    started = time.monotonic()
    verdicts = verifier.verify([(problem, prediction) for problem, prediction, _ in rows])
    return Agreement(file, rule, rows, verdicts, time.monotonic() - started)


def _chosen(paths: Sequence[Path], files: Sequence[str], ending: str = "") -> list[Path]:
    return [path for path in paths if not files or path.stem.removesuffix(ending) in files]


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def report(found: Sequence[Agreement]) -> None:
    """Print one line per file and rule, then the rows that differ."""
    for agreement in found:
        print(agreement.line)
    for agreement in found:
        for problem, prediction, label, verdict in agreement.different:
            print(f"{agreement.file} {problem.id} {agreement.rule.label}: labelled {label:g}, {verdict.outcome} "
                  f"{verdict.reward:g}: {prediction!r} | gold {problem.answer!r} {verdict.detail}")  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("data", type=Path)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--suite", type=Path, help="folder of the unpacked test suite")
    options = parser.parse_args(arguments)
    found = list(agreements(options.data, workers=options.workers, suite=options.suite))
    if not found:
        sys.exit(f"no labelled predictions under {options.data / 'spider'} and {options.data / 'bird'}")
    report(found)


if __name__ == "__main__":
    main()
