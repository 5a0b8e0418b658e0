"""`python -m experiments.harnesses`: the same samples read by `dph passk` and by the harness that wrote them.

    python -m experiments.harnesses --before MODEL --after MODEL --out DIR --python ENV/bin/python ...

Two models of Countdown (folders that `dph demo` wrote) are sampled by lm-eval, Inspect AI and TRL, as far as an
environment of `--python` has them, and by `dph eval`. The table has the harness's own mean and
pass@1 of `dph passk`; they must agree to the digits that the harness gives, or the command ends with status 1.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Protocol

from dph.measure import compare, read_samples
from dph.tasks.countdown import Countdown


class Harness(Protocol):
    """Samples `args.n` responses of a model to each problem, writes the log, and returns the mean that it reports."""

    def __call__(self, python: str, args: argparse.Namespace, model: Path, log: Path) -> float: ...


HERE = Path(__file__).resolve().parent
LM_EVAL = """\
task: countdown
dataset_path: json
dataset_kwargs:
  data_files: {{test: {problems}}}
test_split: test
output_type: generate_until
doc_to_text: question
doc_to_target: answer
repeats: {n}
generation_kwargs: {{do_sample: true, temperature: 1.0, max_gen_toks: 24, until: ["\\n"]}}
process_results: !function judge.graded
metric_list:
  - {{metric: acc, aggregation: mean, higher_is_better: true}}
"""


def lm_eval(python: str, args: argparse.Namespace, model: Path, log: Path) -> float:
    """lm-eval with its default filter: all repeats are logged and the first is judged."""
    task = log.parent / "lm-eval-task"
    task.mkdir(exist_ok=True)
    (task / "judge.py").write_bytes((HERE / "judge.py").read_bytes())
    text = LM_EVAL.format(problems=log.parent / "problems.jsonl", n=args.n)
    (task / "countdown.yaml").write_text(text, encoding="utf-8")
    words = ["--model", "hf", "--model_args", f"pretrained={model}", "--include_path", task, "--tasks", "countdown"]
    words += ["--device", "cpu", "--batch_size", "64", "--log_samples", "--output_path", log]
    _printed([python, "-m", "lm_eval", *words])
    (results,) = log.glob("*/results_*.json")
    return json.loads(results.read_text(encoding="utf-8"))["results"]["countdown"]["acc,none"]


def inspect_ai(python: str, args: argparse.Namespace, model: Path, log: Path) -> float:
    """Inspect AI, one epoch for each response."""
    words = [python, HERE / "inspect_log.py", log.parent / "problems.jsonl", model, args.n, log]
    return float(_printed(words).splitlines()[-1])


def trl(python: str, args: argparse.Namespace, model: Path, log: Path) -> float:
    """TRL's completions of one training step."""
    words = [python, HERE / "trl_log.py", log.parent / "problems.jsonl", model, args.n, log]
    return float(_printed(words).splitlines()[-1])


def own(python: str, args: argparse.Namespace, model: Path, log: Path) -> float:
    """`dph eval`."""
    words = [python, "-m", "dph", "eval", "--preset", "countdown", "--task.split", "test", "--model.path", model]
    words += ["--task.options", "test_problems", args.problems, "--rollout.n", args.n, "--out", log]
    _printed(words)
    scores = json.loads((log / "scores.json").read_text(encoding="utf-8"))
    return scores["splits"]["test"]["metrics"]["pass@1"]["mean"]


HARNESSES: dict[str, Harness] = {"lm_eval": lm_eval, "inspect_ai": inspect_ai, "trl": trl, "dph": own}


def _printed(words: list[Any]) -> str:
    return subprocess.run([str(word) for word in words], check=True, stdout=subprocess.PIPE, text=True).stdout


def _imports(python: str, name: str) -> bool:
    return subprocess.run([python, "-c", f"import {name}"], capture_output=True).returncode == 0


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--before", type=Path, required=True, help="a model of Countdown")
    parser.add_argument("--after", type=Path, required=True, help="the trained model")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--python", nargs="*", default=[], help="the Python of environments with harnesses")
    parser.add_argument("--problems", type=int, default=60)
    parser.add_argument("--n", type=int, default=4, help="responses to each problem")
    args = parser.parse_args()
    args.python.insert(0, sys.executable)
    out = args.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    rows = [
        {"id": problem.id, "question": problem.prompt, "answer": problem.answer, "numbers": problem.meta["numbers"]}
        for problem in Countdown(test_problems=args.problems).problems("test")
    ]
    (out / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    models = {"before": args.before.resolve(), "after": args.after.resolve()}
    agree = True
    for name, harness in HARNESSES.items():
        installed = [python for python in args.python if _imports(python, name)]
        if not installed:
            print(f"{name}: not installed in {', '.join(args.python)}", file=sys.stderr)
            continue
        logs = {kind: out / f"{name}-{kind}" for kind in models}
        means = {kind: harness(installed[0], args, models[kind], logs[kind]) for kind in models}
        scores = compare(*(read_samples(log) for log in logs.values())).scores
        for (kind, mean), score in zip(means.items(), scores, strict=True):
            found = score.metrics["pass@1"]
            agree &= abs(mean - found.estimate) < 1e-3  # some round
            interval = f"{100 * found.low:.1f} to {100 * found.high:.1f}"
            print(
                f"{name} {kind}, {score.problems} × {score.samples[0]}: {100 * mean:.1f} by the harness, "
                f"{100 * found.estimate:.1f} ({interval}) by dph passk"
            )
    sys.exit(not agree)


if __name__ == "__main__":
    main()
