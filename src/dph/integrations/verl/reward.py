"""Our verifiers as verl's reward function (`reward.custom_reward_function`), with typed outcomes.

verl calls `compute_score` for one response at a time, from an event loop. Responses that arrive while others are being
judged are judged together afterwards, so that all worker processes of the verifiers are used.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from dph.build import load_plugin, make_verifiers
from dph.config import VerifierConfig, from_dict
from dph.integrations.problems import read_problem
from dph.types import Outcome, Problem, Verdict


class Judge:
    """Judges responses in batches, in a thread of its own."""

    def __init__(self, verify: Callable[[Sequence[tuple[Problem, str]]], list[Verdict]]) -> None:
        self._verify = verify
        self._waiting: list[tuple[Problem, str, Callable[[Verdict | Exception], None]]] = []
        self._changed = threading.Condition()
        threading.Thread(target=self._work, name="judge", daemon=True).start()

    async def verdict(self, problem: Problem, response: str) -> Verdict:
        """The verdict on one response."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Verdict] = loop.create_future()

        def settle(result: Verdict | Exception) -> None:
            if future.cancelled():
                return
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)

        with self._changed:
            self._waiting.append((problem, response, lambda result: loop.call_soon_threadsafe(settle, result) and None))
            self._changed.notify()
        return await future

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._waiting))
                batch, self._waiting = self._waiting, []
            results: Sequence[Verdict | Exception]
            try:
                results = self._verify([(problem, response) for problem, response, _ in batch])
            except Exception as error:  # every waiting caller gets it; verl names the rollout that failed
                results = [error] * len(batch)
            for (_, _, settle), result in zip(batch, results, strict=True):
                settle(result)


@cache
def _judge(config: VerifierConfig, plugins: tuple[str, ...]) -> Judge:
    for plugin in plugins:
        load_plugin(plugin)
    return Judge(make_verifiers(config).verify)


def score(verdict: Verdict) -> dict[str, Any]:
    """A verdict as verl stores it.

    Where the judging failed there is no `acc`, so verl's validation leaves the response out, and `scored` is 0, so
    training masks it.
    """
    info: dict[str, Any] = {
        "score": float(verdict.reward) if verdict.scored else 0.0,
        "outcome": str(verdict.outcome),
        "scored": float(verdict.scored),
    }
    return {**info, "acc": float(verdict.correct)} if verdict.scored else info


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: dict[str, Any],
    *,
    plugins: Sequence[str] = (),
    reward_router_address: object = None,
    reward_model_tokenizer: object = None,
    **options: Any,
) -> dict[str, Any]:
    """Judge one response (see verl's custom_reward_function; the options come from its `reward_kwargs`).

    Args:
        extra_info: of the row that `dph.integrations.verl.data` wrote; its key `problem` holds the problem.
        plugins: Python files or modules that register verifiers.
        reward_router_address, reward_model_tokenizer: verl passes them when it serves a reward model; not used.
        options: fields of `VerifierConfig`; each reward process of verl starts as many workers as they say.
    """
    judge = _judge(from_dict(VerifierConfig, options, "reward_kwargs"), tuple(plugins))
    try:
        verdict = await judge.verdict(read_problem(extra_info["problem"]), solution_str)
    except (OSError, RuntimeError) as error:
        verdict = Verdict(Outcome.INFRA_ERROR, 0.0, str(error))
    return score(verdict)
