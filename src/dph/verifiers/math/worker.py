"""The worker process of the math verifier: it decides equality by algebra, and the parent may kill it."""

import logging
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from dph.verifiers.sandbox.loop import Forked, Message, limit_cpu, serve

Equality = Callable[[str, str], bool]
"""(answer, gold answer) → whether they are equal."""


def _library_equality(*, boxed: bool) -> Equality:
    from math_verify import LatexExtractionConfig, parse, verify

    # Only the box is read: the library's other extractors could pick a matching number from a sentence.
    box = [LatexExtractionConfig(boxed_match_priority=0, try_extract_without_anchor=False)]

    @lru_cache(maxsize=4096)
    def read(text: str) -> list[Any]:  # the parent enforces the limit
        return parse(f"\\boxed{{{text}}}", box, parsing_timeout=0) if boxed else parse(text, parsing_timeout=0)

    return lambda given, gold: bool(verify(read(gold), read(given), timeout_seconds=0))


def _qwen_equality() -> Equality:
    from dph.verifiers.math.algebra import algebra_equal
    from dph.verifiers.math.qwen import qwen_equal

    return partial(qwen_equal, algebra=algebra_equal)


_EQUALITIES: dict[str, Callable[[], Equality]] = {
    "math_verify": partial(_library_equality, boxed=True),
    "math_verify_text": partial(_library_equality, boxed=False),
    "qwen": _qwen_equality,
}


def handle(request: Message, equal: Equality) -> Message:
    """Whether request["given"] equals one of request["golds"]."""
    limit_cpu(request["timeout"])
    try:
        correct = any(equal(request["given"], gold) for gold in request["golds"])
        return {"outcome": "correct" if correct else "wrong", "detail": ""}
    except MemoryError:
        return {"outcome": "error", "detail": "out of memory"}
    except Exception as error:  # the algebra system can raise anything
        return {"outcome": "error", "detail": f"{type(error).__name__}: {error}"[:300]}


def main(memory_mb: int, algebra: str) -> None:
    """Entry point of the process."""
    logging.disable(logging.CRITICAL)  # the library logs a warning for every text that it cannot parse
    equal = _EQUALITIES[algebra]()
    equal(r"So \boxed{\frac{x+1}{2}}", r"$\frac{1}{2} + 0.5x$")
    equal(r"\frac{x+1}{2}", r"\frac{1}{2} + 0.5x")  # the parsers build their tables before any limit counts
    serve(Forked(partial(handle, equal=equal)), memory_mb)
