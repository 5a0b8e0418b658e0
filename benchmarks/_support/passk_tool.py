# pyright: reportMissingImports=false
"""What one other tool says about counts: `python benchmarks/_support/passk_tool.py TOOL < REQUEST > ANSWER`, run by
`benchmarks.reliability.passk_tools` with the Python of the tool's own environment, where this package is not installed.

The tool's own functions compute every number. The request is JSON: "pair" has `before` and `after`, each a list of
[correct, samples], and is asked at `ks`; "singles" is a list of counts of one model with a k; "trials" is a list of
simulated pairs, of which tools for one model are asked at `k`; "logs" has counts of one model with a k by the name of
a log; "files" is a list of paths.
"""

import importlib
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

Counts = Sequence[Sequence[int]]
Summary = dict[str, Any]
"""Of one model at one k: `mean`, and as far as a tool computes them `stderr` and `interval`."""


def inspect_ai(counts: Counts, k: int) -> Summary:
    from inspect_ai.scorer import SampleScore, Score, ci, mean, stderr

    values = [_inspect_value(c, n, k) for c, n in counts]
    scores = [SampleScore(score=Score(value=value)) for value in values]
    bounds = ci()(scores)
    interval = [float(bounds["lower"]), float(bounds["upper"])]
    return {"mean": float(mean()(scores)), "stderr": float(stderr()(scores)), "interval": interval}


@cache
def _inspect_value(c: int, n: int, k: int) -> float:
    from inspect_ai.scorer import Score, pass_at

    return float(pass_at(k)([Score(value=1.0)] * c + [Score(value=0.0)] * (n - c)).value)


def lm_eval(counts: Counts, k: int) -> Summary:
    from lm_eval.api.metrics import mean, mean_stderr
    from lm_eval.tasks.cruxeval.utils import _pass_at_k

    values = [float(_pass_at_k(n, c, k)) for c, n in counts]
    return {"mean": float(mean(values)), "stderr": float(mean_stderr(values))}


def evalplus(counts: Counts, k: int) -> Summary:
    from evalplus.eval import estimate_pass_at_k

    correct, samples = zip(*counts, strict=True)
    return {"mean": float(estimate_pass_at_k(list(samples), list(correct), k).mean())}


def crfm_helm(counts: Counts, k: int) -> Summary:
    from helm.benchmark.metrics.evaluate_reference_metrics import pass_at_k_estimator
    from helm.benchmark.metrics.metric_name import MetricName
    from helm.benchmark.metrics.statistic import Stat

    stat = Stat(MetricName(f"pass@{k}"))
    for c, n in counts:
        stat.add(pass_at_k_estimator(n, c, k))
    return {"mean": stat.mean, "deviation": stat.stddev}


def passk_inference(pair: Summary, ks: Sequence[int] | None = None) -> Summary:
    """The comparison of two models; without ks at all k."""
    from passk_inference import compare

    sides = [list(zip(*pair[side], strict=True)) for side in ("before", "after")]
    found = compare(*sides[0], *sides[1], ks=ks)
    return {
        "ks": found["ks"],
        "before": found["base_pass_at_k"],
        "after": found["rl_pass_at_k"],
        "low": found["lower"],
        "high": found["upper"],
        "first_loss": found["first_loss_interval"],
        "above": found["certified_positive_budgets"],
        "below": found["certified_negative_budgets"],
        "crossing": found["certified_crossing"],
    }


OF_ONE_MODEL: dict[str, Callable[[Counts, int], Summary]] = {
    "inspect-ai": inspect_ai,
    "lm-eval": lm_eval,
    "evalplus": evalplus,
    "crfm-helm": crfm_helm,
}
FEW = {
    "2 of 4 right, k = 2": ([2, 4], 2),
    "0 of 4 right, k = 8": ([0, 4], 8),
    "1 of 4 right, k = 8": ([1, 4], 8),
}
"""Problems of few samples: correct and all, and k."""


def answer(tool: str, request: Summary) -> Summary:
    """All that the request asks of the tool."""
    return of_pairs(request) if tool == "passk-inference" else of_models(tool, request)


def of_pairs(request: Summary) -> Summary:
    began = time.process_time()
    pair = passk_inference(request["pair"])
    return {
        "seconds": time.process_time() - began,
        "pair": pair,
        "few": {name: _passk_inference_value(c, n, k) for name, ([c, n], k) in FEW.items()},
        "trials": [passk_inference(trial) for trial in request["trials"]],
        "logs": {name: _passk_inference_mean(counts, k) for name, (counts, k) in request["logs"].items()},
        "read": [path for path in request["files"] if _reads(path, "passk_inference", "load_counts")],
    }


def of_models(tool: str, request: Summary) -> Summary:
    of_one = OF_ONE_MODEL[tool]
    of_one(request["pair"]["before"][:2], 1)  # what is imported at the first call is not timed
    began = time.process_time()
    pair = {side: {k: of_one(counts, k) for k in request["ks"]} for side, counts in request["pair"].items()}
    found = {
        "seconds": time.process_time() - began,
        "pair": pair,
        "few": {name: of_one([counts] * 2, k)["mean"] for name, (counts, k) in FEW.items()},
        "all right": of_one([[1, 1]] * 20, 1),
        "logs": {name: of_one(counts, k)["mean"] for name, (counts, k) in request["logs"].items()},
    }
    if "stderr" in found["all right"]:
        k = request["k"]
        found["singles"] = [of_one(counts, at) for counts, at in request["singles"]]
        found["trials"] = [
            {side: of_one(trial[side], k) for side in ("before", "after")} for trial in request["trials"]
        ]
    if tool == "inspect-ai":
        found["read"] = [path for path in request["files"] if _reads(path, "inspect_ai.log", "read_eval_log")]
    return found


def _reads(path: str, module: str, reader: str) -> bool:
    """Whether a reader of a tool takes a file."""
    try:
        getattr(importlib.import_module(module), reader)(path)
    except Exception:
        return False
    return True


def _passk_inference_value(c: int, n: int, k: int) -> float | str:
    from passk_inference import pass_at_k

    try:
        return float(pass_at_k([c], n, k)[0])
    except ValueError as error:
        return str(error)


def _passk_inference_mean(counts: Counts, k: int) -> float:
    from passk_inference import pass_at_k

    correct, samples = zip(*counts, strict=True)
    return float(pass_at_k(correct, samples, k).mean())


def _plain(value: Any) -> Any:
    """Not-a-number as text, which JSON has no number for."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return "nan" if isinstance(value, float) and math.isnan(value) else value


if __name__ == "__main__":
    given = json.load(sys.stdin)
    out = sys.stdout
    sys.stdout = sys.stderr  # some tools print when they are imported
    json.dump(_plain(answer(sys.argv[1], given)), out)
