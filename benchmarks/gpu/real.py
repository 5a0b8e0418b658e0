"""A real language model in the SQL world, for two methods: `experiments.language_demo`, and what it reached.

    python -m benchmarks.gpu.real --model MODEL.gguf --out FOLDER --lines FILE --seconds 400 [--page FILE.html]

--model also takes a folder with the pieces of a GGUF file (`gpu.pieces`). When the time is over, the demo is told to
stop; it saves its state, and the same command goes on from there.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks._support.lines import Lines
from benchmarks.gpu.pieces import SUMS, join
from benchmarks.gpu.toy_model import write_toy
from experiments.grid import let_jobs_import
from experiments.smollm2 import folder_of

_TO_SAVE = 45.0
"""Seconds for the demo to save its state."""


def model_file(given: Path) -> Path:
    """The GGUF file that was given, or joined from its pieces."""
    return join(given) if (given / SUMS).is_file() else given


def demo(words: list[str], seconds: float) -> int | None:
    """Run `experiments.language_demo`; returns its exit status, or None if it was stopped after that many seconds."""
    process = subprocess.Popen([sys.executable, "-m", "experiments.language_demo", *words], stdin=subprocess.DEVNULL)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_TO_SAVE)
        return None
    finally:
        if process.poll() is None:
            process.kill()


def last_line(file: Path) -> dict[str, Any]:
    """The last line of a file of JSON lines; empty if there is none."""
    try:
        return json.loads(file.read_text(encoding="utf-8").splitlines()[-1])
    except (OSError, ValueError, IndexError):
        return {}


def reached(out: Path, method: str) -> dict[str, Any]:
    """How far a method has come: its last step's metrics, its median step's seconds, and its scores."""
    run, found = out / method, {}
    last = last_line(run / "metrics.jsonl")
    if last:
        found = {"step": last["step"], "reward": last.get("reward")}
        found |= {"timings": last_line(run / "timings.jsonl")}
    with contextlib.suppress(OSError, ValueError):
        scores = json.loads((out / "eval" / method / "scores.json").read_text(encoding="utf-8"))
        found["scores"] = {split: values["metrics"] for split, values in scores["splits"].items()}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a GGUF file, or a folder with its pieces")
    parser.add_argument("--toy", action="store_true", help="a random model, and the demo's smoke run")
    parser.add_argument("--methods", nargs="+", default=["grpo", "dph_js"])
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=400.0)
    parser.add_argument("--page", type=Path, help="where the report's page goes")
    parser.add_argument("--lines", type=Path)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("DPH_CACHE", str(options.out / "cache"))
    if options.toy:
        options.model = options.out / "toy.gguf"
        write_toy(options.model)
    started, out = time.monotonic(), options.out / "demo"
    file = model_file(options.model)
    let_jobs_import()
    words = ["--model", str(folder_of(file)), "--out", str(out), "--jobs", str(options.jobs)]
    words += ["--methods", *options.methods]
    status = demo([*words, "--smoke"] if options.toy else words, options.seconds)
    lines, seconds = Lines(options.lines, model=file.name), round(time.monotonic() - started, 1)
    for method in ("base", *options.methods):
        if found := reached(out, method):
            lines.add("real", method=method, **found)
    lines.add("demo", end="stopped" if status is None else "failed" if status else "ok", seconds=seconds)
    page = out / "report" / "index.html"
    if options.page and page.is_file():
        shutil.copyfile(page, options.page)
    return status or 0


if __name__ == "__main__":
    sys.exit(main())
