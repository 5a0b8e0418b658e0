r"""How far the math verifier agrees with published gradings.

    python -m benchmarks.verifiers.agreement_math DATA [--workers N]

DATA holds math/graded_outputs and math/grader_cases. Prints one line per file and policy, then every row that differs.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from dph.types import Problem, Verdict
from dph.verifiers.math.policy import PolicyName, judge_at_sight, make_policy
from dph.verifiers.math.verifier import MathVerifier

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """One graded answer."""

    name: str
    problem: Problem
    response: str
    correct: bool


@dataclass(frozen=True, slots=True)
class Agreement:
    """How one policy judged the cases of one file."""

    file: str
    policy: str
    cases: Sequence[Case]
    verdicts: Sequence[Verdict]
    seconds: float

    @property
    def different(self) -> list[tuple[Case, Verdict]]:
        pairs = zip(self.cases, self.verdicts, strict=True)
        return [(case, verdict) for case, verdict in pairs if verdict.correct is not case.correct]

    @property
    def line(self) -> str:
        count, agreed = len(self.cases), len(self.cases) - len(self.different)
        share = 100 * agreed / max(1, count)
        return f"{self.file:46} {self.policy:12} {agreed:5} of {count:5}  {share:6.2f} %  {self.seconds:6.1f} s"


def _qwen_outputs(rows: Sequence[Row]) -> Iterator[Case]:
    """Outputs of the Qwen evaluation: responses with the harness's scores, one or several per problem."""
    for row in rows:
        responses, scores = row.get("code") or [row["response"]], row["score"]
        for number, response in enumerate(responses):
            score = scores[number] if isinstance(scores, list) else scores
            yield Case(
                f"{row['idx']}.{number}", _problem(row["answer"], row.get("question", "")), response, bool(score)
            )


def _mathcoder(rows: Sequence[Row]) -> Iterator[Case]:
    """MathCoder's extracted answers with its own grades: equal text, equal tuples, or values within 0.01."""
    for number, row in enumerate(rows):
        yield Case(str(number), _problem(row["gt"], row.get("question", "")), boxed(row["pred"]), row["correct"])


def _grader_cases(source: str) -> Callable[[Sequence[Row]], Iterator[Case]]:
    """The cases from a grader's own tests that state an expected result."""

    def cases(rows: Sequence[Row]) -> Iterator[Case]:
        for number, row in enumerate(rows):
            if row["source"] == source and row["equal"] is not None:
                response = row["pred"] if source == "Math-Verify" else boxed(row["pred"])
                yield Case(f"{number} {row['test']}", _problem(row["gold"]), response, row["equal"])

    return cases


def _problem(answer: Any, question: str = "") -> Problem:
    return Problem("p", question, answer, "math")


def boxed(answer: str) -> str:
    """A response that boxes an answer which was extracted before."""
    return answer if "boxed" in answer else f"\\boxed{{{answer}}}"


_PATIENCE = 60.0  # seconds per comparison: the speed of this machine must not change a verdict
_QWEN = {"policy": "qwen"}
_LIBRARY = {"policy": "math_verify", "fallback": "library"}
_FILES: tuple[tuple[str, Callable[[Sequence[Row]], Iterator[Case]], dict[str, Any]], ...] = (
    ("graded_outputs/llama31_8b_instruct_math500_qwen_boxed", _qwen_outputs, _QWEN),
    ("graded_outputs/qwen25math_example_math_cot_100", _qwen_outputs, _QWEN),
    ("graded_outputs/llama31_8b_instruct_math500_qwen_boxed", _qwen_outputs, {"policy": "math_verify"}),
    ("graded_outputs/qwen25math_example_math_cot_100", _qwen_outputs, {"policy": "math_verify"}),
    ("graded_outputs/llama31_8b_instruct_math500_qwen_boxed", _qwen_outputs, {"policy": "typed"}),
    ("graded_outputs/qwen25math_example_math_cot_100", _qwen_outputs, {"policy": "typed"}),
    ("graded_outputs/mathcoder_l_7b_deepmind_mathematics", _mathcoder, _QWEN),
    ("graded_outputs/mathcoder_l_7b_deepmind_mathematics", _mathcoder, {"policy": "math_verify"}),
    ("graded_outputs/mathcoder_l_7b_deepmind_mathematics", _mathcoder, {"policy": "typed"}),
    ("grader_cases/answer_equivalence_cases", _grader_cases("Math-Verify"), _LIBRARY),
)


def _rows(data: Path, name: str) -> list[Row]:
    path = data / "math" / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def agreements(data: Path, *, workers: int = 1, every: int = 1) -> Iterator[Agreement]:
    """The agreement with each file that exists under `data`/math. every: judge only every n-th case."""
    for name, cases_of, options in _FILES:
        if rows := _rows(data, name):
            cases = list(cases_of(rows))[::every]
            started = time.monotonic()
            with MathVerifier(workers=workers, timeout=_PATIENCE, **options) as verifier:
                verdicts = verifier.verify([(case.problem, case.response) for case in cases])
            label = " ".join(options.values())
            yield Agreement(Path(name).name, label, cases, verdicts, time.monotonic() - started)


def speed(data: Path, name: PolicyName) -> str:
    """Milliseconds per verdict of a policy on responses that Qwen's evaluation judged.

    Three kinds: settled at sight (extraction included), by algebra in one worker process, and answered from the cache.
    """
    cases = [case for file, cases_of, _ in _FILES[:2] for case in cases_of(_rows(data, file))]
    policy, waiting = make_policy(name, None), []
    started = time.perf_counter()
    for case in cases:
        answer = policy.extract(case.problem, case.response)
        if answer is not None and isinstance(judge_at_sight(policy, policy.golds(case.problem), answer), tuple):
            waiting.append((case.problem, case.response))
    at_sight = time.perf_counter() - started
    with MathVerifier(policy=name, timeout=_PATIENCE) as verifier:
        verifier.verify([(_problem("x+1"), boxed("1+x"))])  # starts the worker
        seconds = []
        for pairs in (waiting, waiting):
            started = time.perf_counter()
            verifier.verify(pairs)
            seconds.append(time.perf_counter() - started)
    parts = (
        ("at sight", at_sight, len(cases)),
        ("by algebra", seconds[0], len(waiting)),
        ("again", seconds[1], len(waiting)),
        ("in all", at_sight + seconds[0], len(cases)),
    )
    return f"{name:12}" + ", ".join(f"{n} {kind} {1000 * taken / max(1, n):.2f} ms" for kind, taken, n in parts)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("data", type=Path)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--speed", action="store_true", help="measure only the time per verdict")
    options = parser.parse_args(arguments)
    if options.speed:
        for policy in get_args(PolicyName):
            print(speed(options.data, policy))
        return
    found = list(agreements(options.data, workers=options.workers))
    if not found:
        sys.exit(f"no graded outputs under {options.data / 'math'}")
    for agreement in found:
        print(agreement.line)
    for agreement in found:
        for case, verdict in agreement.different:
            label = "correct" if case.correct else "wrong"
            given = case.response[-80:].replace("\n", " ")
            print(f"{agreement.file} {case.name}: labelled {label}, {verdict.outcome}: "
                  f"{str(case.problem.answer)[:80]!r} | …{given!r} {verdict.detail}")  # fmt: skip


if __name__ == "__main__":
    main()
