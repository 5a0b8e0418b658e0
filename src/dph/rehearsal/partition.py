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

    correct, samples: the number of correct draws, and of draws that could be judged. Without a judged draw the policy
    does not master the prompt.

    >>> is_near_perfect(6, 8, threshold=6, n=8), is_near_perfect(5, 8, threshold=6, n=8)
    (True, False)
    >>> is_near_perfect(3, 4, threshold=6, n=8)  # four of the eight draws could not be judged
    True
    """
    return samples > 0 and correct * n >= threshold * samples


def can_be_lost(correct: int, samples: int, k: int) -> bool:
    """Whether training can take pass@k of a prompt away: at least 1/k, and less than 4/k, of its draws are correct.

    With a chance p of a correct response, pass@k is 1 − (1 − p)^k, which is about 63 % at p = 1/k and 98 % at p = 4/k.
    A prompt above 4/k has to fall far before its pass@k falls, and a prompt below 1/k had little to lose. The relative
    change of p matters most at 1/k. docs/results/findings.md has the losses by class.

    correct, samples: the number of correct draws, and of draws that could be judged. Without a judged draw the prompt
    cannot be lost.

    >>> [correct for correct in range(9) if can_be_lost(correct, 8, k=8)]
    [1, 2, 3]
    """
    return 0 < samples <= correct * k < 4 * samples


def missed_by(samples: int, k: int) -> float:
    """The chance that a prompt that `can_be_lost` is not recognised as such, because none of its draws is correct.

    The chance of a correct response is taken to be 1/k, the lowest of such prompts. samples: the number of draws.

    >>> missed_by(2, k=4)  # (3/4)²
    0.5625
    """
    return (1 - 1 / k) ** samples


def place_of(
    group: Group,
    extra: Rollout | None,
    *,
    refine: Refinement = "move",
    drop_unsolved: bool = False,
    certify_share: float = 0.0,
) -> tuple[Set, str]:
    """The set of a prompt, and the effect of its further draw.

    Args:
        group: the judged draws of the prompt.
        extra: the further draw of a prompt that the policy masters; None for the other prompts.
        refine: what happens to a mastered prompt whose further draw is wrong: "move" it to D_exp, "discard" it, or
            "keep" it.
        drop_unsolved: whether a prompt without a correct draw is dropped.
        certify_share: the share of the mastered prompts that is kept aside. A hash of the problem's id decides, so that
            the choice depends on nothing else.
    Returns:
        The set, and "kept", "moved" or "discarded", or "" for a prompt whose further draw had no effect.

    >>> from dph.types import Completion, Outcome, Problem, Verdict
    >>> def draw(outcome):
    ...     return Rollout(Completion([5], [-0.1], "stop"), "42", Verdict(outcome, 0.0))
    >>> group = Group(Problem("1", "6 × 7?", "42", "math"), [1, 2], 4 * [draw(Outcome.CORRECT)])
    >>> place_of(group, draw(Outcome.CORRECT)), place_of(group, draw(Outcome.WRONG)), place_of(group, None)
    (('perfect', 'kept'), ('explore', 'moved'), ('explore', ''))
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
    """Whether responses to a prompt are stored, given the judged draws and the set of the prompt.

    for_k: 0 stores responses to near-perfect prompts; a number k stores responses to the prompts that can lose pass@k
    (`can_be_lost`). Responses to a prompt that was dropped, or is kept aside, are never stored.
    """
    if not for_k:
        return place == "perfect"
    return place in ("explore", "perfect") and can_be_lost(*group.counts, for_k)


def responses_to_store(drawn: Sequence[Rollout], count: int, distinct: bool = False) -> list[Rollout]:
    """The first correct, finished responses to a prompt, up to `count`.

    The stored responses are samples of π_ref given that a response is correct, because the set of a prompt depends
    only on which draws are correct.

    distinct: whether a response that was drawn twice is stored once. Rare responses are then rehearsed as often as
    common ones.

    >>> from dph.types import Completion, Outcome, Verdict
    >>> def draw(token, outcome=Outcome.CORRECT):
    ...     return Rollout(Completion([token], [-0.1], "stop"), str(token), Verdict(outcome, 0.0))
    >>> drawn = [draw(5), draw(6, Outcome.WRONG), draw(5), draw(7)]
    >>> [rollout.text for rollout in responses_to_store(drawn, 3)]
    ['5', '5', '7']
    >>> [rollout.text for rollout in responses_to_store(drawn, 3, distinct=True)]
    ['5', '7']
    """
    stored = [r for r in drawn if r.verdict.correct and r.completion.finish_reason == "stop"][:count]
    return [*{tuple(r.completion.token_ids): r for r in stored}.values()] if distinct else stored
