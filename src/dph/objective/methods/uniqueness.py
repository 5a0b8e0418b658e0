"""Uniqueness-aware advantages (arXiv 2601.08763): a correct response of a rare kind gains more."""

from collections import Counter

import torch
from torch import Tensor

from dph.errors import UserError
from dph.objective.advantages import GroupView, group, register_advantage


@register_advantage("uniqueness")
def uniqueness(view: GroupView, *, alpha: float = 0.5, by: str = "style") -> Tensor:
    """A = Â/f^alpha for correct responses, Â for the others, [G].

    f is the share of the response's kind among the group's correct responses: its solution style (by = "style"), its
    answer in one way of writing ("answer": of SQL the normalised query), or its text ("text"). The paper has a language
    model judge the kind.

    Raises UserError for another `by`, and where the task has no styles.
    """
    kinds = _kinds(view, by)
    correct = view.correct
    counts = Counter(kind for kind, yes in zip(kinds, correct.tolist(), strict=True) if yes)
    share = torch.tensor([counts[kind] / max(1, counts.total()) or 1.0 for kind in kinds])
    return group(view) * torch.where(correct, share**-alpha, 1.0)


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
