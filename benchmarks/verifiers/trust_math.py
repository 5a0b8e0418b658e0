r"""Which right answers each math policy refuses, and which wrong ones it accepts.

    python -m benchmarks.verifiers.trust_math PAIRS [--every N] [--by kind]

PAIRS holds equal.jsonl and unequal.jsonl, with rows of gold, response, area and kind. The policy `typed` judges every
pair, the others every N-th pair of each file. Prints one line per area: pairs, and shares of wrong verdicts in percent.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from dph.types import Problem
from dph.verifiers.math.policy import PolicyName
from dph.verifiers.math.verifier import MathVerifier

_PATIENCE = 5.0  # seconds per comparison
Pair = dict[str, str]


def by_policy(name: PolicyName, pairs: Sequence[Pair]) -> list[bool]:
    """Whether a policy accepts the response of each pair, in a box."""
    with MathVerifier(policy=name, timeout=_PATIENCE) as verifier:
        items = [(Problem("p", "", pair["gold"], "math"), rf"\boxed{{{pair['response']}}}") for pair in pairs]
        return [verdict.correct for verdict in verifier.verify(items)]


def by_library(pairs: Sequence[Pair]) -> list[bool]:
    """Whether math-verify alone accepts each, with its own defaults."""
    from math_verify import parse, verify

    def accepts(pair: Pair) -> bool:
        gold = parse(f"${pair['gold'].strip().strip('$')}$")
        return bool(verify(gold, parse(rf"\boxed{{{pair['response']}}}")))

    return [accepts(pair) for pair in pairs]


JUDGES: dict[str, Callable[[Sequence[Pair]], list[bool]]] = {
    "typed": partial(by_policy, "typed"),
    "math_verify": partial(by_policy, "math_verify"),
    "qwen": partial(by_policy, "qwen"),
    "math-verify alone": by_library,
}


def table(folder: Path, every: int, key: str) -> list[str]:
    """Lines of a Markdown table: refused right answers / accepted wrong answers, in percent."""
    counts: dict[str, dict[str, list[list[bool]]]] = defaultdict(lambda: {name: [[], []] for name in JUDGES})
    for side, wanted in (("equal", True), ("unequal", False)):
        lines = (folder / f"{side}.jsonl").read_text(encoding="utf-8").splitlines()
        pairs = [json.loads(line) for line in lines]
        for name, judge in JUDGES.items():
            part = pairs[:: 1 if name == "typed" else every]
            for pair, accepted in zip(part, judge(part), strict=True):
                for row in (pair[key], "**all**"):
                    counts[row][name][1 - wanted].append(accepted is not wanted)
    found = ["| " + " | ".join((key, "pairs", *JUDGES)) + " |", "|---" * (2 + len(JUDGES)) + "|"]
    for row in [*sorted(set(counts) - {"**all**"}), "**all**"]:
        shares = (" / ".join(_percent(wrong) for wrong in counts[row][name]) for name in JUDGES)
        found.append("| " + " | ".join((row, str(sum(map(len, counts[row]["typed"]))), *shares)) + " |")
    return found


def _percent(wrong: Sequence[bool]) -> str:
    return f"{100 * sum(wrong) / len(wrong):.1f}" if wrong else "–"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--by", choices=("area", "kind"), default="area")
    options = parser.parse_args(arguments)
    print("\n".join(table(options.pairs, options.every, options.by)))


if __name__ == "__main__":
    main()
