"""The partition of the prompts into D_exp and D_pef (paper §4.1): the rule that makes it from judged draws of the
reference policy, and the reading of the partition that a presample run wrote.

n draws of a prompt, correct ≥ threshold? ─yes─► one more draw, correct? ─yes─► D_pef, with responses to rehearse
                                 └──no──► D_exp ◄──── move (or discard) ───no──┘
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Literal

from dph.config import TaskConfig, comparable, differences
from dph.config.stages import Refinement
from dph.errors import DataError, RunError, counted
from dph.process.progress import say
from dph.runs.coverage import are_counts
from dph.runs.directory import RunDir
from dph.runs.parquet import read_parquet, rows_of
from dph.runs.pinned import compare_problems, content_hashes
from dph.sampling.seeding import derive_key
from dph.types import Group, Problem, Rollout

FILE = "partition.parquet"

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


def check_task(run: RunDir, task: TaskConfig) -> None:
    """Raises RunError for a presample run of another task; it may cover more splits, which are then rehearsed too."""
    made, wanted = run.manifest.get("task"), asdict(task)
    facts = made if isinstance(made, dict) else {}
    covers = _names(task.split) <= _names(str(facts.get("split")))
    if not covers or _apart_from_splits(facts) != _apart_from_splits(wanted):
        differing = "; ".join(differences(comparable(facts), comparable(wanted)))
        raise RunError(f"the presample run {run.path} was made for another task ({differing}); name the same for both")


def _apart_from_splits(task: dict[str, Any]) -> Any:
    """The settings that two tasks must have in common. Without a limit both have the same problems in any order."""
    shuffle = bool(task.get("shuffle") and task.get("limit"))
    return comparable({**task, "split": "", "shuffle": shuffle})


def partition_of(run: RunDir) -> dict[str, Set]:
    """The set of every problem id in a presample run whose files were checked. Raises UserError for another layout."""
    return {row["problem_id"]: row["set"] for row in _rows(run)}


def reference_counts(run: RunDir) -> dict[str, tuple[int, int]]:
    """Correct and all responses of the reference policy for each problem that a presample run sampled. Raises UserError
    when the run cannot be read."""
    return {row["problem_id"]: (row["correct"], row["samples"]) for row in _rows(run)}


def new_counts(run: RunDir) -> dict[str, tuple[int, int]]:
    """Correct and judged new samples of each problem that a presample run kept aside. Raises RunError without any."""
    if not run.manifest.get("sizes", {}).get("certify"):
        raise RunError(
            f"the presample run {run.path} kept no problem aside; run `dph presample` with certify.share above 0"
        )
    rows = _rows(run, "new_correct", "new_samples")
    return {row["problem_id"]: (row["new_correct"], row["new_samples"]) for row in rows if row["set"] == "certify"}


def _rows(run: RunDir, *further: str) -> list[dict[str, Any]]:
    file = run.path / FILE
    try:
        rows = rows_of(read_parquet(file, ["problem_id", "set", "correct", "samples", "content", *further]))
    except (OSError, ValueError) as error:
        raise RunError(f"{file} cannot be read ({error}); run `dph presample` again") from error
    for number, row in enumerate(rows, 1):
        texts = all(isinstance(row[name], str) for name in ("problem_id", "set", "content"))
        new = further and row["set"] == "certify"  # the others have no new samples
        counts = [(row["correct"], row["samples"]), *([[row[name] for name in further]] if new else [])]
        if not texts or not all(are_counts(*each) for each in counts):
            raise RunError(f"{file} is damaged in row {number}; run `dph presample` again")
    return rows


def check_problems(run: RunDir, problems: Sequence[Problem], splits: str) -> None:
    """Raises UserError if one of a task's problems with an id of the partition is not, in prompt, answer, verifier and
    database, what the presample run sampled. Of a run of the same splits every problem must still be there."""
    rows = [row for row in _rows(run) if row["set"] != "dropped"]
    before, now = {row["problem_id"]: row["content"] for row in rows}, content_hashes(problems)
    if _names(splits) != _names(run.manifest["task"]["split"]) and before.keys() & now.keys():
        before = {id: content for id, content in before.items() if id in now}
    compare_problems(run.path, before, {id: now[id] for id in before if id in now}, "run `dph presample` again")


def training_problems(
    run: RunDir,
    task: TaskConfig,
    prompt_set: Literal["all", "explore", "other"],
    problems: Sequence[Problem],
    *,
    fresh: bool = True,
) -> list[Problem]:
    """Of all problems of a task, the exploration set of a presample run (see `open_presampled`), or all that the run
    did not drop, or all because it has none of them. Says how many are in no set.

    The presample run must cover the task, and have sampled the same problems, unless the run is resumed (`fresh` is
    off), which compares them with its own record (`dph.runs.pinned.pin`).
    """
    partition = partition_of(run)
    if prompt_set == "other":
        if common := [problem.id for problem in problems if problem.id in partition]:
            raise DataError(
                f"prompt_set is other, but {len(common)} of {counted(len(problems), 'problem')} are in the presample "
                f"run {run.path} too (first {common[0]!r}); leave them out of one set, or choose explore or all"
            )
        return list(problems)
    check_task(run, task)
    if fresh:
        check_problems(run, problems, task.split)
    unknown = [problem.id for problem in problems if problem.id not in partition]
    if fresh and unknown:
        say(
            f"not trained on: {len(unknown)} of {counted(len(problems), 'problem')} (first {unknown[0]!r}), because "
            f"the presample run {run.path} left them out or they were added later; `dph presample` into a new folder "
            "includes these"
        )
    wanted = {"explore"} if prompt_set == "explore" else {"explore", "perfect"}
    chosen = [problem for problem in problems if partition.get(problem.id) in wanted]
    if not chosen:
        raise DataError(
            f"the presample run {run.path} left no prompt to explore; train on harder ones, or on all "
            "(--prompt-set all)"
        )
    return chosen


def _names(splits: str) -> set[str]:
    return {name.strip() for name in splits.split(",")}
