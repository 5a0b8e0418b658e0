"""Speed of the SQL verifier: `python benchmarks/verifiers.py [--data DATA] [--rows N] [--rounds N]`.

It judges the same predictions by Spider's rule in several ways, in turns, and prints the best round of each, in wall
time and in processor time of all processes (which depends little on other load):

plain       in this process, like the official evaluator: gold and prediction run on a new connection each
official    the same with an event loop per query, which the official evaluator uses to limit the time
verifier    the SQL verifier with one worker and with two; its cache is off between rounds, but equal predictions for
            one question run once
remembered  the same with two workers and all verdicts in the cache
bare        in this process: each distinct prediction runs once on an open connection, and nothing else; the verifier
            with one worker minus this is the verifier's overhead

DATA holds Spider's questions, databases and predictions. Without it, queries of the built-in task minisql are judged,
each against the gold of its problem.
"""

import argparse
import asyncio
import json
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dph.tasks import load_task
from dph.types import Problem
from dph.verifiers.sql.rules import Options, get_rule
from dph.verifiers.sql.verifier import SqlVerifier

Item = tuple[Problem, str]
RULE, OPTIONS = get_rule("spider"), Options()


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
    problems = load_task("minisql", train_problems=max(2, rows // 2)).problems("train")
    return [(problem, str(other.answer)) for i, problem in enumerate(problems) for other in (problem, problems[i - 1])]


def distinct(items: Sequence[Item]) -> list[Item]:
    """The items without duplicates."""
    return list({(p.meta["db"], p.answer, predicted): (p, predicted) for p, predicted in items}.values())


def connect(problem: Problem) -> sqlite3.Connection:
    connection = sqlite3.connect(problem.meta["db"])
    connection.text_factory = partial(str, encoding="utf-8", errors="ignore")
    return connection


def bare(items: Sequence[Item]) -> list[bool]:
    connections: dict[str, sqlite3.Connection] = {}
    for problem, predicted in distinct(items):
        if problem.meta["db"] not in connections:
            connections[problem.meta["db"]] = connect(problem)
        fetch(connections[problem.meta["db"]], RULE.prepare_prediction(predicted, OPTIONS))
    for connection in connections.values():
        connection.close()
    return []


def fetch(connection: sqlite3.Connection, sql: str) -> list[Any] | None:
    try:
        return connection.execute(sql).fetchall()
    except (sqlite3.Error, sqlite3.Warning):
        return None


def run_once(problem: Problem, sql: str) -> list[Any] | None:
    """Run a query on a new connection."""
    connection = connect(problem)
    try:
        return fetch(connection, sql)
    finally:
        connection.close()


def run_in_loop(problem: Problem, sql: str) -> list[Any] | None:
    async def execute() -> list[Any] | None:
        return run_once(problem, sql)

    async def limited() -> list[Any] | None:
        return await asyncio.wait_for(execute(), 60)

    return asyncio.run(limited())


def plain(items: Sequence[Item], run: Callable[[Problem, str], list[Any] | None] = run_once) -> list[bool]:
    found = []
    for problem, predicted in items:
        gold = run(problem, RULE.prepare_gold(problem.answer, OPTIONS))
        rows = run(problem, RULE.prepare_prediction(predicted, OPTIONS))
        ordered = RULE.orders(problem.answer, OPTIONS)
        widths = (0, 0)  # Spider's rule does not use them
        found.append(gold is not None and rows is not None and RULE.equal(gold, rows, widths, ordered, OPTIONS))
    return found


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    items = spider_items(options.data, options.rows) if options.data else minisql_items(options.rows)
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
            for name, judge in ways.items():
                before, started = processor_time((one, two, remembering)), time.perf_counter()
                answers[name] = judge(items)
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
