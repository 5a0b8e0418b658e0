"""Our verifiers as verl's reward function (`reward.custom_reward_function`), with typed outcomes.

verl calls `compute_score` for one response at a time, from an event loop. As many threads as each verifier has worker
processes keep all of these busy; responses wait in the threads' queue.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

from dph.config import VerifierConfig, from_dict
from dph.engine import load_plugin, make_verifiers
from dph.errors import SettingsError
from dph.types import Outcome, Verdict, read_problem
from dph.verifiers import Verifiers


@cache
def _judge(config: VerifierConfig, plugins: tuple[str, ...]) -> tuple[Verifiers, ThreadPoolExecutor]:
    for plugin in plugins:
        load_plugin(plugin)
    return make_verifiers(config), ThreadPoolExecutor(config.workers, thread_name_prefix="dph-reward")


def score(verdict: Verdict, problem: str = "") -> dict[str, Any]:
    """A verdict, with the id of its problem, as verl stores it. If the judging failed, there is no `acc`, so verl's
    validation leaves the response out, and `scored` is 0, so training masks it."""
    info: dict[str, Any] = {
        "score": float(verdict.reward) if verdict.scored else 0.0,
        "outcome": str(verdict.outcome),
        "scored": float(verdict.scored),
        "problem": problem,
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
        extra_info: its key `problem` holds the problem, as `dph.integrations.verl.data` wrote it.
        plugins: Python files or modules that register verifiers.
        reward_router_address, reward_model_tokenizer: of a reward model that verl serves; not used.
        options: fields of `VerifierConfig`; each reward process has its own workers.
    """
    verifiers, threads = _judge(from_dict(VerifierConfig, options, "reward_kwargs"), tuple(plugins))
    item = read_problem(extra_info["problem"]), solution_str
    try:
        [verdict] = await asyncio.wrap_future(threads.submit(verifiers.verify, [item]))
    except (OSError, RuntimeError, SettingsError) as error:
        if isinstance(error, SettingsError) and not isinstance(error.__cause__, OSError | RuntimeError):
            raise
        verdict = Verdict(Outcome.INFRA_ERROR, 0.0, str(error))
    return score(verdict, item[0].id)
