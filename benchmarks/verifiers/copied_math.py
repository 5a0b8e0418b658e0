r"""How many problems of public sets pay for a formula of their own question, alone or in a wrapper that does no work.

    python -m benchmarks.verifiers.copied_math DATA [--tasks college_math math] [--every N]

DATA holds the math sets (shared/data/math). Prints a line for each set, and for each wrapper that was paid. Formulas
that are the gold answer's own text are left out.
"""

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from dph.tasks import load_task
from dph.types import Problem
from dph.verifiers.math.policy import gold_texts
from dph.verifiers.math.verifier import MathVerifier
from mathequal.extract import FORMULA
from mathequal.text import bare_text

WRAPPERS = (
    r"F", r"(F)^{2-1}", r"(\sqrt{F})^2", r"\sqrt{(F)^2}", r"\sqrt[3]{(F)^3}", r"((F)^2)^{1/2}", r"((F)^{-1})^{-1}",
    r"\frac{1}{(F)^{-1}}", r"i^4(F)", r"(F)\cdot\cos 0", r"(F)^{\cos 0}", r"F+\ln 1", r"F+0\pi", r"(F)+x-x",
    r"\frac{x(F)}{x}", r"\frac{(F)^2}{F}", r"(F)(\sin^2x+\cos^2x)", r"\log_{10}10^{F}", r"2^{\log_2(F)}", r"\ln e^{F}",
    r"e^{\ln(F)}", r"\left|F\right|", r"(F)\cdot\frac{7}{7}", r"-(-1)(F)", r"(F)\cdot 2^0", r"y=F", r"F=F", r"\{F\}",
)  # fmt: skip
"""An answer without work: F is a formula of the question."""


def copies(problem: Problem) -> Iterator[tuple[str, str]]:
    """Wrappers, and answers that are a formula of a problem's question in one of them."""
    question = problem.prompt if isinstance(problem.prompt, str) else problem.prompt[-1]["content"]
    golds = {bare_text(gold) for gold in gold_texts(problem)}
    formulas = {"".join(found.groups("")).strip() for found in FORMULA.finditer(question)}
    for formula in sorted(formulas):
        if bare_text(formula) not in golds:
            yield from ((wrapper, wrapper.replace("F", formula)) for wrapper in WRAPPERS)


def paid_wrappers(problem: Problem, verifier: MathVerifier) -> set[str]:
    """The wrappers in which a formula of the question is paid."""
    made = [*copies(problem)]
    verdicts = verifier.verify([(problem, rf"\boxed{{{answer}}}") for _, answer in made])
    return {wrapper for (wrapper, _), verdict in zip(made, verdicts, strict=True) if verdict.correct}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("data", type=Path)
    parser.add_argument("--tasks", nargs="+", default=["college_math", "math"])
    parser.add_argument("--every", type=int, default=1, help="take every n-th problem")
    options = parser.parse_args(arguments)
    with MathVerifier() as verifier:
        for name in options.tasks:
            problems = load_task(name, root=str(options.data)).problems("test")[:: options.every]
            paid = [paid_wrappers(problem, verifier) for problem in problems]
            any_paid = sum(map(bool, paid))
            print(f"{name:14} {len(problems):5} problems, {any_paid:4} pay for a formula of their question")
            for wrapper, count in Counter(wrapper for some in paid for wrapper in some).most_common():
                print(f"    {wrapper:24} {count:5}")


if __name__ == "__main__":
    main()
