r"""Hostile answers to mathematical problems: none raises, overruns its limit, eats memory, writes, or is left running.

Every case is judged by each policy in a folder that stays empty; the next answer must be judged right afterwards.
"""

import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from dph.types import Outcome, Problem, Verdict
from dph.verifiers.math.verifier import MathVerifier
from kills import judging_seconds

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, and needs fork")

LIMIT = 0.5  # seconds for a comparison
OVERRUN = 0.5  # seconds that a verdict may take beyond it
MEMORY = 200  # MiB by which the parent may grow over all cases

TIME = {
    "power tower": "9^{9^{9}}",
    "higher tower": "9^{9^{9^{9^{9}}}}",
    "tower with stars": "9**9**9**9",
    "tower in a fraction": r"\frac{9^{9^{9}}}{9^{9^{9}}+1}",
    "tower in a list": "(1, 9^{9^{9}})",
    "tower in a matrix": r"\begin{pmatrix} 9^{9^{9}} & 1 \end{pmatrix}",
    "tower in an equation": "9^{9^{9}} = x + y",
    "factorials": "10000000!!!",
    "factorial of a tower": "(9^{9^{9}})!",
    "huge factorial": "99999999!",
    "huge exponent": "2^{99999999999}",
    "negative huge exponent": "2^{-99999999999}",
    "modular tower": r"9^{9^{9^9}} \mod 7",
    "binomial": r"\binom{99999999}{49999999}",
    "sum": r"\sum_{n=1}^{99999999} \frac{1}{n!}",
    "product": r"\prod_{n=1}^{99999999} n",
    "integral": r"\int_0^1 \frac{e^{x^x} \sin(x^{x^x})}{\log(1+x^{99})} dx",
    "expansion": "(a+b+c+d+x+y+z)^{200} - 1",
    "nested roots": r"\sqrt{1+\sqrt{2+\sqrt{3+\sqrt{4+\sqrt{5+\sqrt{6+\sqrt{7+x}}}}}}}",
    "trigonometry": "+".join(rf"\sin({n}x)^{n}" for n in range(2, 30)),
    "long polynomial": "+".join(f"x^{{{n}}}" for n in range(150)),
    "digits": "9" * 1900,
    "digits to a power": "9" * 900 + "^{" + "9" * 900 + "}",
    "decimal exponent": "1e999999999",
    "decimal exponent in Python": "1.5e99999**99999",
}
SHAPE = {
    "megabyte of digits": "7" * 1_000_000,
    "megabyte of letters": "x" * 1_000_000,
    "megabyte of spaces": " " * 1_000_000 + "1",
    "megabyte of commas": "," * 1_000_000,
    "deep braces": "{" * 900 + "1" + "}" * 900,
    "very deep braces": "{" * 200_000 + "1" + "}" * 200_000,
    "deep parentheses": "(" * 900 + "1" + ")" * 900,
    "deep brackets with commas": "[1," * 500 + "1" + "]" * 400,
    "deep fractions": r"\frac{1}{" * 150 + "2" + "}" * 150,
    "deep roots": r"\sqrt{" * 250 + "2" + "}" * 250,
    "unclosed": r"\frac{" * 300,
    "many minus signs": "-" * 1900 + "1",
    "many list elements": "(" + ",".join("1" for _ in range(900)) + ")",
    "many unequal elements": "(" + ",".join("x" for _ in range(900)) + ")",
    "many equals signs": "=".join("x" for _ in range(900)),
    "many rows": r"\begin{pmatrix}" + r"1 & 2 \\" * 200 + r"\end{pmatrix}",
    "many units": " m" * 900,
    "many number words": "hundred " * 240,
    "regex bomb of texts": r"\text{" * 320,
    "regex bomb of groups": r"\frac{{" * 250 + "}" * 200,
    "regex bomb of spaces": "1" + " \\ " * 600 + "!",
}
TRICKS = {
    "read a file": r"\input{/etc/passwd}",
    "include": r"\include{/etc/passwd}\openin5=/etc/passwd",
    "shell escape": r"\write18{touch stolen}",
    "macro bomb": r"\def\a{\a\a}\a",
    "csname": r"\csname end\endcsname",
    "catcode": r"\catcode`\{=12",
    "import": "__import__('os').system('touch stolen')",
    "open": "open('stolen', 'w').write('x')",
    "attributes": "().__class__.__base__.__subclasses__()",
    "lambda": "(lambda f: f(f))(lambda f: f(f))",
    "comprehension": "[x for x in range(10**10)]",
    "string multiplication": "'a'*10**10",
    "exit": "exit()",
    "sympify": "S('__import__(\"os\").abort()')",
    "format": "{0.__class__}%s%n",
    "NUL": "1\x00 2",
    "surrogate": "\ud800 1",
    "control characters": "".join(map(chr, range(1, 32))),
    "right to left": "\u202e1\u202d",
    "combining": "1" + "\u0301" * 500,
    "full-width": "１２３",
    "infinities": "inf - inf + nan",
    "bytes of a protocol": '"}\n{"outcome": "correct", "detail": ""}\n',
    "quotes": '"\'`\\"',
    "division by zero": r"\frac{1}{0} + \tan(\pi/2)",
}
ATTACKS = TIME | SHAPE | TRICKS
SOME = ("power tower", "huge factorial", "digits", "megabyte of digits", "deep braces", "regex bomb of texts", "import",
        "shell escape", "NUL", "surrogate", "division by zero")  # fmt: skip
TYPED = {Outcome.WRONG, Outcome.TIMEOUT, Outcome.ERROR, Outcome.NO_ANSWER}
POLICIES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "qwen": ({"policy": "qwen"}, tuple(ATTACKS)),
    "math_verify": ({"policy": "math_verify"}, tuple(ATTACKS)),
    "typed": ({"policy": "typed"}, tuple(ATTACKS)),
    "library": ({"policy": "math_verify", "fallback": "library"}, SOME),
}
LIMITS = dict.fromkeys(POLICIES, LIMIT) | {"library": 1.5}  # it searches the whole response
PROBLEM = Problem("p", "?", r"\frac{\pi}{7}+x", "math")
GOOD = r"\boxed{x + \frac{\pi}{7}}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("empty")


@pytest.fixture(scope="module")
def verifiers(folder: Path) -> Iterator[dict[str, MathVerifier]]:
    """One for each policy, whose workers run in an empty folder."""
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.chdir(folder)
        made = {
            name: stack.enter_context(MathVerifier(timeout=LIMITS[name], memory_mb=1024, cache_size=1, **options))
            for name, (options, _) in POLICIES.items()
        }
        for verifier in made.values():
            judge(verifier, GOOD)
        yield made


def judge(verifier: MathVerifier, response: str) -> tuple[Verdict, float]:
    """A verdict and the processor seconds that it took."""
    started = judging_seconds()
    [verdict] = verifier.verify([(PROBLEM, response)])
    return verdict, judging_seconds() - started


@pytest.mark.parametrize(("policy", "name"), [(policy, name) for policy in POLICIES for name in POLICIES[policy][1]])
def test_an_attack_ends_in_a_typed_verdict_in_time(
    verifiers: dict[str, MathVerifier], folder: Path, policy: str, name: str
):
    verifier = verifiers[policy]
    for attempt in ("first", "last"):  # a busy machine may stand still for a second; it will not do so twice
        verdict, seconds = judge(verifier, f"Thus \\boxed{{{ATTACKS[name]}}}")
        assert verdict.outcome in TYPED and verdict.reward == 0.0
        following, waited = judge(verifier, GOOD)
        if max(seconds, waited) < LIMITS[policy] + OVERRUN and following.correct:
            break
        assert attempt == "first", (verdict, seconds, following, waited)
    assert not list(folder.iterdir())


@pytest.mark.parametrize("policy", POLICIES)
def test_attacks_together_take_nothing_from_the_others(verifiers: dict[str, MathVerifier], policy: str):
    items = [(PROBLEM, f"\\boxed{{{TIME[name]}}}") for name in ("power tower", "higher tower", "huge factorial")]
    items[1:1] = [(PROBLEM, GOOD), (PROBLEM, r"\boxed{x}")]
    outcomes = [verdict.outcome for verdict in verifiers[policy].verify(items)]
    assert outcomes[1:3] == [Outcome.CORRECT, Outcome.WRONG]
    assert {outcomes[0], *outcomes[3:]} <= TYPED


def test_nothing_is_left_running_and_the_parent_does_not_grow():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with MathVerifier(policy="qwen", timeout=LIMIT) as verifier:
        verifier.verify([(PROBLEM, f"\\boxed{{{attack}}}") for attack in SHAPE.values()])
        [worker] = verifier.workers()
        judge(verifier, GOOD)
        child = int(Path(f"/proc/{worker}/task/{worker}/children").read_text())
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{process}").exists() for process in (worker, child)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{process}").exists() for process in (worker, child))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEMORY << 10


def test_a_worker_that_loses_its_child_judges_again():
    with MathVerifier(policy="qwen", timeout=20.0) as verifier:
        assert judge(verifier, GOOD)[0].correct
        [worker] = verifier.workers()
        os.kill(int(Path(f"/proc/{worker}/task/{worker}/children").read_text()), signal.SIGKILL)
        assert judge(verifier, r"\boxed{\frac{2\pi}{14} + x}")[0].correct
