"""A reward function for verl as it is: `custom_reward_function.path=pkg://dph.rewards.verl`, `name=compute_score`."""

from collections.abc import Mapping, Sequence
from typing import Any

from dph.errors import DataError, SettingsError
from dph.rewards import reward_function
from dph.types import Outcome, Verdict


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    kind: str = "math",
    meta: Sequence[str] = (),
    question: str = "question",
    reward_router_address: object = None,
    reward_model_tokenizer: object = None,
    **options: Any,
) -> dict[str, Any]:
    """Judge one response. verl cannot leave one out: if the judging failed, or there is no response, `score` is 0 and
    `scored` is 0. Every result has the same keys, which verl requires. Raises UserError for a key of `meta` that
    extra_info lacks.

    Args:
        kind, options: as for `reward_function`; they come from `custom_reward_function.reward_kwargs`.
        meta: keys of extra_info that the verifier needs, such as "db" for SQL.
        question: the key of extra_info that holds the prompt, if there is one; verl's own data sets write this key.
            Mathematics copied from it is wrong.
        reward_router_address, reward_model_tokenizer: verl passes them when it serves a reward model; not used.
    """
    extra_info, meta = extra_info or {}, [meta] if isinstance(meta, str) else meta
    if missing := [name for name in meta if name not in extra_info]:
        has = ", ".join(extra_info) or "nothing"
        raise SettingsError(f"extra_info has no {missing[0]!r}, which reward_kwargs.meta names; it has: {has}")
    needed, prompt = {name: extra_info[name] for name in meta}, extra_info.get(question)
    try:
        verdict = await reward_function(kind, **options).averdict(solution_str, ground_truth, prompt, **needed)
    except DataError as error:
        verdict = Verdict(Outcome.INFRA_ERROR, 0.0, str(error))
    return {
        "score": verdict.reward if verdict.scored else 0.0,
        "acc": float(verdict.correct),
        "scored": float(verdict.scored),
        "outcome": str(verdict.outcome),
    }
