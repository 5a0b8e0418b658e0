"""The rule that divides the prompts into D_exp and D_pef (paper §4.1), from judged draws of the reference policy.

n draws of a prompt, correct ≥ threshold? ─yes─► one more draw, correct? ─yes─► D_pef, with responses to rehearse
                                 └──no──► D_exp ◄──── move (or discard) ───no──┘
"""

from collections.abc import Sequence
from typing import Literal

from dph.config.stages import Refinement
from dph.sampling.seeding import derive_key
from dph.types import Group, Rollout

Set = Literal["explore", "perfect", "dropped", "certify"]
"""D_exp, D_pef, neither, or kept aside of D_pef to certify what training keeps."""


def is_near_perfect(correct: int, samples: int, threshold: int, n: int) -> bool:
    """Whether the reference policy masters a prompt: the share of correct draws reaches threshold/n.

    samples: judged draws; draws that could not be judged are not counted. Without a judged draw the answer is no.
    """
    return samples > 0 and correct * n >= threshold * samples


def can_be_lost(correct: int, samples: int, k: int) -> bool:
    """Whether training can take pass@k of a prompt away: at least 1/k, and less than 4/k, of its draws are correct.

    With a chance p of a correct response pass@k is 1 − (1 − p)^k: 63 % at 1/k, 98 % at 4/k, so that a prompt above 4/k
    has to fall far before it loses any, and one below 1/k had little. The relative change of p matters most at 1/k.
    samples: judged draws; without any the answer is no. docs/results/findings.md has the losses by class.
    """
    return 0 < samples <= correct * k < 4 * samples


def missed_by(samples: int, k: int) -> float:
    """The chance that none of so many draws of a prompt with a chance of 1/k, the lowest of `can_be_lost`, is
    correct: such a prompt is not recognised."""
    return (1 - 1 / k) ** samples


def place_of(
    group: Group,
    extra: Rollout | None,
    *,
    refine: Refinement = "move",
    drop_unsolved: bool = False,
    certify_share: float = 0.0,
) -> tuple[Set, str]:
    """The set of a prompt, and what its further draw did: "", "kept", "moved" or "discarded".

    group: the judged draws of the prompt. extra: the further draw of a prompt that is mastered; None for the others.
    drop_unsolved: whether a prompt without a correct draw is dropped. certify_share: the share of the mastered prompts
    that is kept aside; a hash of the problem's id decides, so that the choice depends on nothing else.
    """
    correct, samples = group.counts
    if extra is None:
        return "dropped" if samples == 0 or (drop_unsolved and correct == 0) else "explore", ""
    aside = derive_key(0, "certify", group.problem.id) < certify_share * 2**63
    mastered: Set = "certify" if aside else "perfect"
    if extra.verdict.correct:
        return mastered, "kept"
    if refine == "keep" or not extra.verdict.scored:  # a draw that could not be judged says nothing
        return mastered, ""
    return ("dropped", "discarded") if refine == "discard" else ("explore", "moved")


def is_rehearsed(group: Group, place: Set, for_k: int) -> bool:
    """Whether responses to a prompt are stored, given its judged draws and its set: with `for_k` if the prompt can lose
    pass@k, otherwise if it is near-perfect. A prompt that was dropped or is kept aside never is."""
    if not for_k:
        return place == "perfect"
    return place in ("explore", "perfect") and can_be_lost(*group.counts, for_k)


def responses_to_store(drawn: Sequence[Rollout], count: int, distinct: bool = False) -> list[Rollout]:
    """The first correct, finished responses to a prompt, up to `count`.

    They are samples of π_ref given that a response is correct, because the set of a prompt depends only on which draws
    are correct. A response that was drawn twice is stored twice, unless `distinct` is set: without repeats rare
    responses are rehearsed as often as common ones.
    """
    stored = [r for r in drawn if r.verdict.correct and r.completion.finish_reason == "stop"][:count]
    return [*{tuple(r.completion.token_ids): r for r in stored}.values()] if distinct else stored
