"""A reward function for verl as it is: `custom_reward_function.path=pkg://dph.rewards.verl`, `name=compute_score`."""

from collections.abc import Mapping, Sequence
from typing import Any

from dph.rewards import reward_function


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
    """Judge one response. verl cannot leave one out: if the judging failed, `score` is 0 and `scored` is 0. Every
    result has the same keys, which verl requires.

    Args:
        kind, options: as for `reward_function`; they come from `custom_reward_function.reward_kwargs`.
        meta: keys of extra_info that the verifier needs, such as "db" for SQL.
        question: the key of extra_info that holds the prompt, if there is one; verl's own data sets write this key.
            Mathematics copied from it is wrong.
        reward_router_address, reward_model_tokenizer: verl passes them when it serves a reward model; not used.
    """
    extra_info = extra_info or {}
    needed, prompt = {name: extra_info[name] for name in meta}, extra_info.get(question)
    verdict = await reward_function(kind, **options).averdict(solution_str, ground_truth, prompt or "", **needed)
    return {
        "score": verdict.reward if verdict.scored else 0.0,
        "acc": float(verdict.correct),
        "scored": float(verdict.scored),
        "outcome": str(verdict.outcome),
    }
