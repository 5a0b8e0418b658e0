"""The verifier for reward functions: the function returns the reward, and a threshold decides what is correct."""

import inspect
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dph.config import Named, require
from dph.errors import UserError
from dph.process.progress import say
from dph.types import Outcome, Problem, Verdict
from dph.verifiers.function_worker import RewardFunction, call, load_function, split_reference
from dph.verifiers.protocol import register_verifier, require_positive
from dph.verifiers.sandbox.pool import WorkerPool, read_reply
from dph.verifiers.sandbox.worker import GRACE, Reply, Request, WorkersFailed

_NOT_COLUMNS = ("prompt", "completion")


@register_verifier("function")
class FunctionVerifier:
    """Rewards responses with a Python function `(prompt, completion, **columns) -> float | None`.

    `prompt` is the problem's prompt (text or a list of messages), `completion` the text of the response; the columns
    are `id`, `answer` and everything in `Problem.meta`. If the function returns None or a value that is not a finite
    number, raises, crashes or times out, the response counts as not judged: it leaves its group and never counts as
    wrong. Every such failure except None is reported once for each line of the function.
    """

    def __init__(
        self,
        *,
        function: str | RewardFunction = "",
        correct_from: float = 1.0,
        in_process: bool = False,
        workers: int = 1,
        timeout: float = 5.0,
        memory_mb: int = 4096,
    ) -> None:
        """
        Args:
            function: FILE.py:NAME, or the function itself, which is called in this process.
            correct_from: the lowest reward at which a response counts as correct.
            in_process: call the function in this process without limits, rather than in killable workers.
            workers: number of processes; timeout: seconds per response; memory_mb: address space of each worker.
        Raises:
            UserError: the file is missing, no flag of the present command names it, an option is out of range, or (in
                process) the file cannot be loaded.
        """
        require_positive("reward function", workers=workers, timeout=timeout, memory_mb=memory_mb)
        self._correct_from, self._timeout = correct_from, timeout
        self._reported: set[str] = set()
        self._function: RewardFunction | None = None
        self._pool: WorkerPool | None = None
        if callable(function):
            code = getattr(inspect.unwrap(function), "__code__", None)
            self._function, self._path = function, code.co_filename if code else repr(function)
            return
        path, name = split_reference(function)
        require(Named("reward.function", function, "--reward"))
        self._path = str(path)
        if in_process:
            self._function = load_function(path, name)
            return
        options = {"memory_mb": memory_mb, "path": str(path), "name": name}
        imports = [*sys.path, str(Path(__file__).parents[2])]
        self._pool = WorkerPool(f"{__package__}.function_worker", options, workers, imports)

    def verify(self, items: Sequence[tuple[Problem, str]]) -> list[Verdict]:
        """Call the function once for each (problem, response) pair."""
        requests = [_request(problem, response) for problem, response in items]
        if self._pool is None:
            assert self._function is not None
            answers: list[Mapping[str, Any]] = [call(self._function, self._path, request) for request in requests]
        else:
            limit = self._timeout + GRACE
            replies = self._pool.run([[Request(r | {"timeout": self._timeout}, limit)] for r in requests])
            answers = [_answer(reply) for [reply] in replies]
        return [self._verdict(answer) for answer in answers]

    def check(self, problems: Sequence[Problem]) -> dict[str, str]:
        """Accepts every problem. Raises UserError if a worker cannot load the function."""
        if self._pool is not None:
            try:
                [[reply]] = self._pool.run_all([[Request({"timeout": self._timeout}, self._timeout + GRACE)]])
            except WorkersFailed as error:
                raise UserError(f"the reward function of {self._path} cannot be loaded: {error}") from error
            if reply.status != "ok" or reply.value.get("problem"):
                raise UserError(reply.value.get("problem") or f"cannot load the reward function of {self._path}")
        return {}

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()

    def _verdict(self, answer: Mapping[str, Any]) -> Verdict:
        reward = answer.get("reward")
        if reward is not None:
            return Verdict(Outcome.CORRECT if reward >= self._correct_from else Outcome.WRONG, reward)
        failure: str = answer["failure"]
        kind = failure.partition(":")[0]
        if kind not in self._reported and not failure.endswith("returned None"):
            self._reported.add(kind)
            say(f"a response could not be judged by {self._path}: {failure} (failures like this one are not repeated)")
        return Verdict(Outcome.INFRA_ERROR, 0.0, failure)


def _request(problem: Problem, response: str) -> dict[str, Any]:
    prompt = problem.prompt if isinstance(problem.prompt, str) else list(problem.prompt)
    columns = {key: value for key, value in problem.meta.items() if key not in _NOT_COLUMNS}
    columns |= {"id": problem.id, "answer": problem.answer}
    return {"prompt": prompt, "completion": response, "columns": columns}


def _answer(reply: Reply) -> Mapping[str, Any]:
    """The worker's answer, or a failure if the worker or its forked child was stopped or crashed."""
    if "reward" in reply.value or "failure" in reply.value:
        return reply.value
    return {"failure": read_reply(reply)[1]}
