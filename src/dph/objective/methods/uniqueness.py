"""Uniqueness-aware advantages (arXiv 2601.08763): the more common a response's kind, the less it moves the policy."""

from collections import Counter

import torch
from torch import Tensor

from dph.errors import UserError
from dph.objective.advantages import GroupView, group, register_advantage


@register_advantage("uniqueness")
def uniqueness(view: GroupView, *, alpha: float = 0.5, by: str = "style") -> Tensor:
    """A = Â·f^(−alpha), [G], with f the number of the group's responses of the same kind, correct or not.

    The kind is a response's solution style (by = "style"), its answer in one way of writing ("answer": of SQL the
    normalised query), or its text ("text"). The paper has a language model judge the kind. alpha = 0 is GRPO.

    Raises UserError for another `by`, for a negative alpha, and if the task has no styles.
    """
    if not alpha >= 0:
        raise UserError(f"advantage.options alpha must not be negative, but is {alpha}")
    kinds = _kinds(view, by)
    counts = Counter(kind for kind, judged in zip(kinds, view.valid.tolist(), strict=True) if judged)
    weight = torch.tensor([max(1, counts[kind]) ** -alpha for kind in kinds])
    return group(view) * weight.to(view.rewards.dtype)


def _kinds(view: GroupView, by: str) -> list[str]:
    if by == "text":
        return list(view.texts)
    if by == "answer":
        return [view.answer_of(text) or text for text in view.texts]
    if by != "style":
        raise UserError(f"advantage.options by must be style, answer or text, not {by!r}")
    styles = [style for style in view.styles if style is not None]
    if len(styles) < len(view.texts):
        raise UserError("this task has no solution styles; set advantage.options by to answer or text")
    return styles
