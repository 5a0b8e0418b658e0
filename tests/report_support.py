"""What the tests of reports share: small synthetic run directories whose every number is known."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dph.runs.samples import MONITOR, Sample, write_samples
from dph.types import Completion, Outcome, Problem, Rollout, Verdict

ATTACK = "<script>alert(1)</script><img src=x onerror=alert(2)>"
SAMPLES = 4


def interval(mean: float) -> dict[str, float]:
    return {"mean": mean, "low": mean - 0.05, "high": mean + 0.05}


def write_eval(
    path: Path,
    label: str,
    correct: Sequence[int],
    *,
    samples: int = SAMPLES,
    splits: Sequence[str] = ("test", "ood"),
    model: Path | str = "model",
    text: str = "select 1",
    prefix: str = "",
    metrics: dict[str, Any] | None = None,
    wrong: int = 2,
    shares: Mapping[str, float] | None = None,
    kinds: Sequence[str] = ("join",),
    columns: Mapping[str, Sequence[Any]] = {},
) -> Path:
    """An evaluation of len(correct) problems, of which problem i has correct[i] correct samples, greedy iff any.

    wrong: how many distinct wrong completions there are. shares: of the solution styles. kinds: of the problems, in
    turn. columns: of problems.parquet, in place of or besides the usual ones.
    """
    path.mkdir(parents=True)
    share = sum(correct) / samples / len(correct)
    found = {"greedy": interval(0.5), "pass@1": interval(share), "styles": interval(3.25)}
    found |= {name: dict(value) for name, value in (metrics or {}).items()}
    split = {
        "problems": len(correct),
        "samples": samples,
        "metrics": found,
        "pass_curve": {"1": interval(share), "2": interval(0.6), "4": interval(0.75)},
        "style_shares": shares or {"direct": 0.75, "other": 0.25},
    }
    problems: list[dict[str, Any]] = []
    completions = []
    for name in splits:
        for i, count in enumerate(correct):
            kind = kinds[i % len(kinds)]
            row = {"split": name, "id": f"{prefix}p{i}", "kind": kind, "samples": samples, "correct": count}
            problems.append(
                row
                | {"greedy": count > 0, "styles": 2, "styles_correct": 1, "prompt": f"question {i} & more"}
                | {"content": f"hash {i}"}
                | {column: values[i] for column, values in columns.items()}
            )
            for sample in range(-1, samples):
                good = sample < count
                completions.append(
                    {
                        "split": name,
                        "id": f"{prefix}p{i}",
                        "sample": sample,
                        "text": text if good else f"wrong {sample % wrong}",
                    }
                    | {"outcome": "correct" if good else "wrong", "reward": float(good), "style": "direct"}
                    | {"tokens": 3, "finish_reason": "stop"}
                )
    of_split = [row for row in problems if row["split"] == splits[0]]
    for name, value in [*found.items(), *((f"pass@{k}", value) for k, value in split["pass_curve"].items())]:
        kind, _, k = name.partition("@")
        needed = int(k) if kind == "pass" else int(kind == "mean")
        has_it = [row["samples"] >= needed if needed else row.get(name) is not None for row in of_split]
        if any(has_it):
            value["problems"] = sum(has_it)
    scores = {"label": label, "model": str(model), "splits": dict.fromkeys(splits, split)}
    (path / "scores.json").write_text(json.dumps(scores))
    pq.write_table(pa.Table.from_pylist(problems), path / "problems.parquet")
    pq.write_table(pa.Table.from_pylist(completions), path / "completions.parquet")
    return path


def write_train(path: Path, method: str, values: Sequence[float], answers: Mapping[str, Sequence[str]] = {}) -> Path:
    """A training run with these metrics at steps 0, 1, 2 …; answers: to each monitored problem, the greedy response at
    these steps, correct if it begins with "right"."""
    path.mkdir(parents=True)
    for step in range(max(map(len, answers.values()), default=0)):
        samples = []
        for name, texts in answers.items():
            verdict = Verdict(Outcome.CORRECT if texts[step].startswith("right") else Outcome.WRONG, 0.0)
            rollout = Rollout(Completion([1, 2], [-0.5, -0.5], "stop"), texts[step], verdict)
            problem = Problem(name, f"prompt of {name}", "", "exact")
            samples.append(Sample.of(step, MONITOR, problem, -1, rollout))
        write_samples(path, step, MONITOR, samples)
    (path / "manifest.json").write_text(json.dumps({"stage": "train", "status": "complete"}))
    (path / "config.toml").write_text(f'method = "{method}"\n')
    lines = [json.dumps({"step": i, "reward": v, "eval/pass@8": v}) for i, v in enumerate(values)]
    (path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    return path
