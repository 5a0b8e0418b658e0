"""The same short DPH-JS run in the embedded world on a CPU and on a device: do their metrics agree?

    python -m benchmarks.gpu.devices --device cuda --base FOLDER --out FOLDER --lines FILE

Random numbers belong to what is sampled, so both runs draw the same tokens until rounding moves a probability past the
random number of a token. Every metric of the first step must agree within `FIRST`. After it, rounding grows; the mean
rewards of all steps must agree within `REWARD`.
"""

import argparse
import json
import math
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks._support.embedded import dph, given, training
from benchmarks._support.lines import Lines

FIRST = 1e-3
"""Difference, relative to one plus the value."""
REWARD = 0.1
SMALL = ("--rollout.prompts", "4", "--rollout.n", "8", "--task.limit", "48", "--monitor.every", "0")
Metrics = Mapping[str, float]


def metrics_of(run: Path) -> list[Metrics]:
    """A run's metrics by step."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def distance(one: Metrics, other: Metrics) -> tuple[float, str]:
    """The largest difference of two steps' metrics, relative to one plus the value, and its name."""
    if one.keys() != other.keys():
        return float("inf"), f"only one run has {', '.join(sorted(one.keys() ^ other.keys()))}"
    gaps = [(abs(one[name] - other[name]) / (1 + abs(other[name])), name) for name in one]
    return max((math.inf if math.isnan(gap) else gap, name) for gap, name in gaps)


def judge(found: Sequence[Metrics], expected: Sequence[Metrics]) -> dict[str, object]:
    """How far two runs are apart, and whether that is rounding."""
    apart = [distance(one, other) for one, other in zip(found, expected, strict=True)]
    rewards = [sum(step["reward"] for step in run) / len(run) for run in (found, expected)]
    ok = apart[0][0] <= FIRST and abs(rewards[0] - rewards[1]) <= REWARD
    facts = {"first": apart[0][0], "first_metric": apart[0][1], "by_step": [gap for gap, _ in apart]}
    return {"ok": ok, **facts, "reward": rewards[0], "reward_cpu": rewards[1]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--base", type=Path, required=True, help="folder with base/ and presample/")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--lines", type=Path)
    options = parser.parse_args()
    model, sampled = given(options.base)
    runs = {}
    for name, device in (("here", options.device), ("cpu", "cpu")):
        runs[name] = options.out / name
        shutil.rmtree(runs[name], ignore_errors=True)
        more = ("--model.device", device, *SMALL)
        dph(*training(model, sampled, runs[name], options.steps, options.steps, *more))
    found = judge(metrics_of(runs["here"]), metrics_of(runs["cpu"]))
    Lines(options.lines, device=options.device).add("devices", steps=options.steps, **found)
    print(json.dumps(found))
    return 0 if found["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
