"""The worker process of the math verifier: algebraic equivalence by math-verify, which the parent may have to stop."""

import logging
from functools import lru_cache
from typing import Any

from math_verify import LatexExtractionConfig, parse, verify

from dph.verifiers.worker_loop import Message, limit_cpu, serve

# Only the box is read: the library's other extractors would pick a matching number out of a sentence.
_TARGETS = (LatexExtractionConfig(boxed_match_priority=0, try_extract_without_anchor=False),)


@lru_cache(maxsize=4096)
def _parse(answer: str) -> list[Any]:
    """What the library makes of an answer; an empty list where it makes nothing of it."""
    return parse(f"\\boxed{{{answer}}}", list(_TARGETS), parsing_timeout=0)  # the parent keeps the time


def handle(request: Message) -> Message:
    """Whether request["given"] is equivalent to one of request["golds"]."""
    limit_cpu(request["timeout"])
    try:
        given = _parse(request["given"])
        equal = any(verify(_parse(gold), given, timeout_seconds=0) for gold in request["golds"])
        return {"outcome": "correct" if equal else "wrong", "detail": "" if given else "the answer cannot be parsed"}
    except MemoryError:
        return {"outcome": "error", "detail": "out of memory"}
    except Exception as error:  # whatever the text made the algebra system raise
        return {"outcome": "error", "detail": f"{type(error).__name__}: {error}"[:300]}


def main(memory_mb: int) -> None:
    """Entry point of the process."""
    logging.disable(logging.CRITICAL)  # the library warns of every text that it cannot parse
    serve(handle, memory_mb)
