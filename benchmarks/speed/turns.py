"""What a call of the SQL tool costs a training step: sampling, the query, and the update, in one thread.

    python -m benchmarks.speed.turns
    python -m benchmarks.speed.turns --smoke

Both cases write as many tokens. "one turn" writes them at once. "two turns" writes half, calls the tool, reads a
result, and writes the other half. Random weights; every response calls. Sampling and update in processor time, the
query in seconds of the clock, because a worker process runs it.
"""

import argparse
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from dph.config import LossConfig, NewModelConfig, OptimConfig
from dph.config.sampling import SamplingParams
from dph.models.policy import Policy
from dph.models.scratch import new_policy
from dph.objective.objective import Objective
from dph.process.distributed import World
from dph.sampling.generate import HFSampler
from dph.sampling.turns import CLOSING, OPENING, Conversations, Response
from dph.training.optim import Optimizer
from dph.training.rows import Row
from dph.training.update import Updater
from dph.types import Completion, Problem
from dph.verifiers.sql.tool import SqlTool

QUERY = "SELECT city, count(*), avg(price) FROM sale GROUP BY city"


class Halves(HFSampler):
    """Ends a turn that may call after half of the tokens, as a model would that calls there."""

    def stream(self, prompts: Sequence[Sequence[int]], params: SamplingParams, keys: Sequence[int]) -> Any:
        calls = CLOSING in params.stop
        drawn = replace(params, stop=(), max_tokens=params.max_tokens // 2 if calls else params.max_tokens)
        for index, group in super().stream(prompts, drawn, keys):
            yield index, [replace(one, finish_reason="stop") for one in group] if calls else group


class Speaker:
    """The policy's text side: every turn is read as a call, and a result has as many tokens as were asked for."""

    def __init__(self, policy: Policy, read: int) -> None:
        self.context_length, self._read = policy.context_length, read

    def decode(self, ids: Sequence[int]) -> str:
        return f"{OPENING}{QUERY}{CLOSING}"

    def encode_foreign(self, text: str) -> list[int]:
        return [5] * (self._read if text.strip() and "tool_response" not in text else 0)


def processor_seconds(action: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.process_time()
    result = action()
    return time.process_time() - begun, result


def database(folder: Path) -> str:
    """A table of 10,000 rows in 20 cities."""
    with closing(sqlite3.connect(folder / "shop.sqlite")) as connection, connection:
        connection.execute("CREATE TABLE sale (city TEXT, price REAL)")
        connection.executemany("INSERT INTO sale VALUES (?, ?)", [(f"city {i % 20}", i / 7) for i in range(10_000)])
    return str(folder / "shop.sqlite")


def rows_of(prompts: Sequence[Sequence[int]], found: dict[int, list[Response]]) -> list[list[Row]]:
    def row(prompt: Sequence[int], one: Completion, number: int) -> Row:
        return Row(prompt, one.token_ids, one.logprobs, advantage=1.0 - 2.0 * (number % 2), written=one.written)

    return [
        [row(prompt, one.completion, number) for number, one in enumerate(found[index])]
        for index, prompt in enumerate(prompts)
    ]


def measure(args: argparse.Namespace, tool: SqlTool, file: str) -> None:
    model = NewModelConfig("bpe", 300, args.hidden, args.layers, 8, 8, 3 * args.hidden, args.prompt + 4 * args.tokens)
    policy = new_policy(model, ["a b c"], 0)
    policy.eos_ids = frozenset()
    ids = torch.randint(3, 250, (args.prompts, args.prompt), generator=torch.Generator().manual_seed(0)).tolist()
    problem, keys = Problem("p", "?", "", "sql", {"db": file}), list(range(args.prompts))
    text: Any = Speaker(policy, args.read)
    print("| | tokens written | tokens read | sampling | update | step |\n|---|---:|---:|---:|---:|---:|")
    seconds: dict[str, list[tuple[float, float]]] = {"one turn": [], "two turns": []}
    for number in range(args.rounds + 1):
        for turns, name in enumerate(seconds, 1):
            params = SamplingParams(args.responses, max_tokens=args.tokens, turns=turns, tool_tokens=args.read + 1)
            talks = Conversations(text, Halves(policy), tool, params)
            sampling, found = processor_seconds(lambda talks=talks: dict(talks.stream([problem] * len(ids), ids, keys)))
            drawn = [one.completion for group in found.values() for one in group]
            assert all((one.length, one.calls) == (args.tokens, turns - 1) for one in drawn)
            assert all(len(one.token_ids) - one.length == (turns - 1) * args.read for one in drawn)
            objective = Objective(LossConfig(eta=0.0))
            optimizer = Optimizer(policy.trainable(), OptimConfig(lr=1e-9), 100)
            updater = Updater(policy, objective, optimizer, temperature=1.0, token_budget=args.budget, world=World())
            rows = rows_of(ids, found)
            update, _ = processor_seconds(lambda u=updater, r=rows: u.update([r], recompute_old=False))
            if number:  # the first round loads and tries
                seconds[name].append((sampling, update))
    medians = {name: [statistics.median(part) for part in zip(*each, strict=True)] for name, each in seconds.items()}
    for turns, (name, (sampling, update)) in enumerate(medians.items()):
        whole = f"{sampling:.2f} s | {update:.2f} s | {sampling + update:.2f} s"
        print(f"| {name} | {args.tokens} | {turns * args.read} | {whole} |")
    one, two = (sum(part) for part in medians.values())
    print(f"two turns / one turn: {two / one:.2f}")


def measure_query(tool: SqlTool, file: str, times: int) -> None:
    found = []
    for number in range(times + 1):
        begun = time.perf_counter()
        answer = tool.query(file, f"{QUERY} -- {number}")
        found.append(time.perf_counter() - begun)
        assert not answer.startswith("Error"), answer
    print(f"a query over 10,000 rows: {1000 * statistics.median(found[1:]):.1f} ms (median of {times})")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    sizes = {"hidden": 256, "layers": 6, "prompts": 4, "prompt": 256, "responses": 8, "tokens": 64, "read": 64}
    for name, value in (sizes | {"rounds": 3, "budget": 4096}).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    args = parser.parse_args()
    if args.smoke:
        small = {"hidden": 32, "layers": 1, "prompts": 1, "prompt": 8, "responses": 2, "tokens": 8, "read": 4}
        vars(args).update(small | {"rounds": 1})
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, SqlTool(workers=1) as tool:
        file = database(Path(folder))
        measure(args, tool, file)
        measure_query(tool, file, 5 if args.smoke else 50)


if __name__ == "__main__":
    main()
