"""What grows in the memory of a long training run: malloc's heap, Python's objects, or a cache?

    python -m benchmarks.memory.growth --minutes 15 --out runs/growth --base FOLDER

Trains in this process as `soak.py` does, and writes to growth.jsonl after every 20th step: resident memory, what malloc
holds free and in use, Python's allocated blocks, and the verifiers' cached verdicts. Prints least-squares slopes, each
with its R². Linux with glibc only.
"""

import argparse
import ctypes
import gc
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks._support.embedded import given, training
from benchmarks.reliability.soak import memory
from dph.cli import main as cli
from dph.runs.tracking import Metrics
from dph.verifiers.lru import LRU

EVERY = 20
_MIB = 1 << 20
_MALLOC = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks")
_SETTLED = 3
"""Samples at the start that the slopes leave out, while malloc's pools fill."""


class _Mallinfo(ctypes.Structure):
    """glibc's struct mallinfo2, in bytes."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in (*_MALLOC, "uordblks", "fordblks", "keepcost"))


def sample(step: int) -> dict[str, float]:
    """Memory in MiB, and counts, of this process."""
    gc.collect()
    glibc = ctypes.CDLL("libc.so.6")
    glibc.mallinfo2.restype = _Mallinfo
    malloc = glibc.mallinfo2()
    return {
        "step": step,
        "resident": round(memory(os.getpid()), 2),
        "malloc_free": round(malloc.fordblks / _MIB, 2),
        "malloc_used": round((malloc.uordblks + malloc.hblkhd) / _MIB, 2),
        "blocks": sys.getallocatedblocks(),
        "cached": sum(len(vars(found)["_entries"]) for found in gc.get_objects() if isinstance(found, LRU)),
    }


def fit(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Slope and R² of a line through points."""
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    square = sum((a - mean_x) ** 2 for a in x)
    slope = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / square
    rest = sum((b - mean_y - slope * (a - mean_x)) ** 2 for a, b in zip(x, y, strict=True))
    return slope, 1 - rest / sum((b - mean_y) ** 2 for b in y)


def summarise(rows: Sequence[dict[str, float]]) -> str:
    rows = rows[_SETTLED:]
    column: dict[str, list[float]] = {name: [row[name] for row in rows] for name in rows[0]}
    rest = [row["resident"] - row["malloc_free"] for row in rows]
    lines = [
        f"steps {rows[0]['step']:.0f} to {rows[-1]['step']:.0f}",
        *(f"{name}: {min(column[name]):.2f} to {max(column[name]):.2f}" for name in list(column)[1:]),
        f"resident − malloc_free: {min(rest):.2f} to {max(rest):.2f} MiB",
    ]
    for text, x, y in (
        ("MiB resident per MiB that malloc holds free", column["malloc_free"], column["resident"]),
        ("Python's blocks per cached entry", column["cached"], column["blocks"]),
        ("bytes (resident − malloc_free) per cached entry", column["cached"], [value * _MIB for value in rest]),
    ):
        slope, share = fit(x, y)
        lines.append(f"{text}: {slope:.2f}, R² {share:.4f}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--base", type=Path, required=True, help="folder with an existing base/ and presample/")
    parser.add_argument("--minutes", type=float, default=15.0)
    options, more = parser.parse_known_args()
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    began, rows, inner = time.monotonic(), list[dict[str, float]](), Metrics.log

    def log(self: Metrics, step: int, *values: Any) -> None:
        inner(self, step, *values)
        if step % EVERY == 0:
            rows.append(sample(step))
            with (out / "growth.jsonl").open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
        if time.monotonic() - began > 60 * options.minutes:
            signal.raise_signal(signal.SIGTERM)

    small = ("--monitor.limit", "8", "--monitor.n", "4", "--verifier.workers", "2", *more)
    try:
        with patch.object(Metrics, "log", log):
            cli.main(training(*given(options.base), out / "run", 10_000_000, EVERY, *small))
    except SystemExit as stop:
        print(summarise(rows))
        return 0 if stop.code == 128 + signal.SIGTERM else 1
    return 1


if __name__ == "__main__":
    sys.exit(main())
