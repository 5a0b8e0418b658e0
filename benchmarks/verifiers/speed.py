"""Speed of the SQL verifier: `python -m benchmarks.verifiers.speed [--data DATA] [--rows N] [--rounds N] [--command]`.

It judges the same predictions by Spider's rule in several ways, in turns, and prints the best round of each, in wall
time and in processor time of all processes (which depends little on other load):

plain       in this process, like the official evaluator: gold and prediction run on a new connection each
official    the same with an event loop per query, which the official evaluator uses to limit the time; both are in
            verifiers_loop.py
verifier    the SQL verifier with one worker and with two; its cache is off between rounds, but equal predictions for
            one question run once
remembered  the same with two workers and all verdicts in the cache
bare        in this process: each distinct prediction runs once on an open connection, and nothing else; the verifier
            with one worker minus this is the verifier's overhead

With --command it times whole processes instead, in turns: `dph verify` with two workers, and the two loops of
verifiers_loop.py. Each starts, reads the same files, judges, prints the number of correct predictions and ends.

DATA holds Spider's questions, databases and predictions. Without it, queries of the task minisql
(experiments/minisql) are judged, each against the gold of its problem.
"""

import argparse
import json
import os
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from benchmarks.verifiers.plain_loop import OPTIONS, RULE, Run, connect, fetch, judge, run_in_loop, run_once
from dph.types import Problem
from dph.verifiers.sql.verifier import SqlVerifier
from experiments.minisql import MiniSql

Item = tuple[Problem, str]


def spider_items(data: Path, rows: int) -> list[Item]:
    """About `rows` real predictions, evenly from all files."""
    folder = data / "spider"
    golds = [json.loads(line)["query"] for line in (folder / "dev.jsonl").read_text().splitlines()]
    files = sorted((folder / "predictions").glob("*.jsonl"))
    items = []
    for path in files:
        read = [json.loads(line) for line in path.read_text().splitlines()]
        step = max(1, len(files) * len(read) // rows)
        for row in read[::step]:
            db = folder / "database" / row["db_id"] / f"{row['db_id']}.sqlite"
            if db.exists():
                items.append((Problem(str(row["i"]), "", golds[row["i"]], "sql", {"db": str(db)}), row["pred"]))
    return items


def minisql_items(rows: int) -> list[Item]:
    """Generated problems, each with its own gold and with a neighbour's, which is usually wrong."""
    problems = MiniSql(train_problems=max(2, rows // 2)).problems("train")
    return [(problem, str(other.answer)) for i, problem in enumerate(problems) for other in (problem, problems[i - 1])]


def distinct(items: Sequence[Item]) -> list[Item]:
    """The items without duplicates."""
    return list({(p.meta["db"], p.answer, predicted): (p, predicted) for p, predicted in items}.values())


def bare(items: Sequence[Item]) -> list[bool]:
    connections: dict[str, sqlite3.Connection] = {}
    for problem, predicted in distinct(items):
        if problem.meta["db"] not in connections:
            connections[problem.meta["db"]] = connect(problem.meta["db"])
        fetch(connections[problem.meta["db"]], RULE.prepare_prediction(predicted, OPTIONS))
    for connection in connections.values():
        connection.close()
    return []


def plain(items: Sequence[Item], run: Run = run_once) -> list[bool]:
    return judge([(problem.meta["db"], problem.answer, predicted) for problem, predicted in items], run)


def verified(verifier: SqlVerifier, items: Sequence[Item]) -> list[bool]:
    return [verdict.correct for verdict in verifier.verify(items)]


def processor_time(verifiers: Sequence[SqlVerifier]) -> float:
    """Processor seconds of this process and the workers; NaN where the system does not report them."""
    total = time.process_time()
    for verifier in verifiers:
        for pid in verifier.workers():
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                return float("nan")
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # user and system time
    return total


def time_commands(items: Sequence[Item], rounds: int) -> None:
    """Print the wall time and the processor time of whole processes that judge the items."""
    here = Path(__file__).parent
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        golds, predictions = [], []
        for problem, predicted in items:
            db = Path(problem.meta["db"])
            link = folder / "databases" / db.stem / f"{db.stem}.sqlite"
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.exists():
                link.symlink_to(db)
            golds.append(f"{' '.join(str(problem.answer).split())}\t{db.stem}\n")
            predictions.append(" ".join(predicted.split()) + "\n")
        (folder / "gold.sql").write_text("".join(golds))
        (folder / "predictions.sql").write_text("".join(predictions))
        files = ["--gold", "gold.sql", "--databases", "databases", "--predictions", "predictions.sql"]
        commands = {
            "dph verify": ["-m", "dph", "verify", *files, "--rule", "spider"],
            "plain loop": [str(here / "plain_loop.py"), ".", "plain"],
            "official loop": [str(here / "plain_loop.py"), ".", "official"],
        }
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for _ in range(rounds):
            for name, words in commands.items():
                before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
                subprocess.run([sys.executable, *words], cwd=folder, check=True, capture_output=True)
                wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
                times[name].append((wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))
    print(f"{len(items)} predictions; median of {rounds} rounds of whole processes, and their range")
    for name, found in times.items():
        wall, processor = ([values[kind] for values in found] for kind in (0, 1))
        ratio = statistics.median(plain[0] / own[0] for plain, own in zip(times["plain loop"], found, strict=True))
        print(
            f"{name:14} {statistics.median(wall):6.2f} s ({min(wall):.2f} to {max(wall):.2f})  processor "
            f"{statistics.median(processor):6.2f} s  {ratio:5.2f} times as fast as the plain loop"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--command", action="store_true")
    options = parser.parse_args()
    items = spider_items(options.data, options.rows) if options.data else minisql_items(options.rows)
    if options.command:
        time_commands(items, options.rounds)
        return
    limits = {"comparator": "spider", "answer": "whole", "timeout": 60.0, "gold_timeout": 60.0}
    with (
        SqlVerifier(workers=1, cache_size=0, **limits) as one,
        SqlVerifier(workers=2, cache_size=0, **limits) as two,
        SqlVerifier(workers=2, **limits) as remembering,
    ):
        remembering.verify(items)
        ways: dict[str, Callable[[Sequence[Item]], list[bool]]] = {
            "bare": bare,
            "verifier, 1 worker": partial(verified, one),
            "verifier, 2 workers": partial(verified, two),
            "remembered, 2 workers": partial(verified, remembering),
            "plain": plain,
            "official": partial(plain, run=run_in_loop),
        }
        best = dict.fromkeys(ways, float("inf"))
        least = dict.fromkeys(ways, float("inf"))
        answers: dict[str, list[bool]] = {}
        for _ in range(options.rounds):
            for name, way in ways.items():
                before, started = processor_time((one, two, remembering)), time.perf_counter()
                answers[name] = way(items)
                best[name] = min(best[name], time.perf_counter() - started)
                least[name] = min(least[name], processor_time((one, two, remembering)) - before)
    judged = {name: found for name, found in answers.items() if found}
    if len(set(map(tuple, judged.values()))) > 1:
        raise AssertionError(f"the ways differ: { {name: sum(found) for name, found in judged.items()} }")
    print(f"{len(items)} predictions, {sum(judged['plain'])} correct; best of {options.rounds} rounds")
    for name, seconds in best.items():
        rate = len(items) / seconds
        ratio = f"{best['plain'] / seconds:6.1f} times plain  {best['official'] / seconds:6.1f} times official"
        processor = f"{1e6 * least[name] / len(items):6.0f} µs of processor time each"
        print(f"{name:22} {seconds:8.3f} s  {rate:8.0f} a second  {ratio}  {processor}")
    count = len(distinct(items))
    added = [1e6 * (taken["verifier, 1 worker"] - taken["bare"]) / count for taken in (best, least)]
    print(
        f"{count} judgements are distinct; each by one worker takes {added[0]:.0f} µs more than the bare query, "
        f"and {added[1]:.0f} µs more processor time"
    )


if __name__ == "__main__":
    main()
