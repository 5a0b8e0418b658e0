"""Pre-sampling (paper §4.1, App. F): split the prompts by what π_ref masters and store its correct responses.

n draws for every prompt ─► correct ≥ threshold? ─yes─► one more draw, correct? ─yes─► D_pef + rehearsal set
                                    └──no──► D_exp ◄──── move (or discard) ───no──┘

A share of D_pef can be kept aside, with new samples, to certify what training keeps.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dph.build import load_problems, make_sampler, make_verifiers
from dph.config import PresampleConfig, absolute
from dph.config.checks import check_presample
from dph.errors import counted
from dph.evaluation.certificate import upper_bound
from dph.models.batch import Tokens, fitting_tokens
from dph.models.loading import settled
from dph.models.policy import Policy
from dph.process.distributed import World
from dph.process.progress import say
from dph.rehearsal.check import check_sampler, file_hashes, sampling_facts
from dph.rehearsal.partition import Set
from dph.rehearsal.store import Rehearsal, write_rehearsal
from dph.runs.chunks import Chunks
from dph.runs.directory import RunDir
from dph.runs.files import written_atomically
from dph.runs.pinned import content_hashes
from dph.runs.samples import ROLLOUTS, Sample
from dph.sampling.rollouts import (
    Prompted,
    encode_problems,
    group_from_json,
    refuse_unjudged,
    rollouts_as_json,
    sample_groups,
    settled_rows,
    still_usable,
)
from dph.sampling.seeding import derive_key
from dph.types import UNPARSED, Group, Outcome, Rollout
from dph.verifiers import judging_versions
from dph.verifiers.function import RewardFunction

ROWS_AT_ONCE = 1024
"""Responses whose log-probabilities are computed before they are saved."""
_SHOWN = 5
"""Responses shown at the end."""


@dataclass(frozen=True, slots=True)
class Placed:
    """The set that one prompt was assigned to."""

    problem_id: str
    set: Set
    correct: int
    """Correct responses among the first `samples` draws."""
    samples: int
    """Draws that could be judged."""
    refined: str
    """Result of the further draw: "", "kept", "moved" or "discarded"."""


def is_near_perfect(correct: int, samples: int, threshold: int, n: int) -> bool:
    """Whether the share of correct draws reaches threshold/n; draws that could not be judged are not counted."""
    return samples > 0 and correct * n >= threshold * samples


def presample(config: PresampleConfig, *, resume: bool = False, reward: RewardFunction | None = None) -> Path:
    """Run the stage; returns its run directory, with partition.parquet and rehearsal.parquet.

    reward: judges every response instead of the verifiers; see `dph.stages.train.train`.

    Raises UserError for bad settings and when no problem can be used.
    """
    check_presample(config)
    world, versions = World.join(), judging_versions()
    run = world.decided(lambda: RunDir.start(config.out, "presample", config, resume=resume, versions=versions))
    if run.complete:
        return run.path
    config = replace(config, model=settled(config.model, run, world))
    (_, problems), policy = world.together(lambda: (load_problems(config.task), Policy.load(config.model)))
    contents = content_hashes(problems)
    hashes = {"weight_hash": policy.weight_hash(), "tokenizer_hash": policy.tokenizer_hash()}
    inputs = {"the model's weights": hashes["weight_hash"], "the tokenizer's rules": hashes["tokenizer_hash"]}
    with Chunks(run.path, inputs, contents, world) as chunks:
        with make_verifiers(config.verifier, config.reward, reward) as verifiers:
            problems = still_usable(chunks, verifiers, problems)
            items = encode_problems(policy, problems, config.rollout.max_prompt_tokens, config.rollout.max_tokens)
            settings = settled_rows(config.sampler, policy, items, config.rollout, run, world)
            sampler = make_sampler(settings, policy, config.model, config.rollout.longest)

            def judged(some: Sequence[Prompted], count: int, purpose: str) -> list[Any]:
                wanted = config.rollout.params(count)
                groups = sample_groups(policy, sampler, verifiers, some, wanted, config.seed, purpose)
                refuse_unjudged(groups, config.max_unjudged)
                return [rollouts_as_json(group) for group in groups]

            def draw(what: str, chosen: Sequence[Prompted], count: int, purpose: str, label: str) -> list[Group]:
                at_once = 2 * max(1, settings.rows // count)  # whole batches of the sampler
                values = chunks.map(what, chosen, at_once, partial(judged, count=count, purpose=purpose), label)
                return list(map(group_from_json, chosen, values))

            first = draw("problems", items, config.rollout.n, "presample", "sampling the reference policy")
            counts = [group.counts for group in first]
            perfect = [is_near_perfect(c, s, config.threshold, config.rollout.n) for c, s in counts]
            masters = [item for item, yes in zip(items, perfect, strict=True) if yes]
            further = draw("further draws", masters, 1, "refine", "refining the near-perfect set")
            again = {group.problem.id: group.rollouts[0] for group in further}
            placed = [
                place_of(config, group, *count, again.get(group.problem.id))
                for group, count in zip(first, counts, strict=True)
            ]
            aside = [item for item, place in zip(items, placed, strict=True) if place.set == "certify"]
            new = draw("new samples", aside, config.certify.samples, "certify", "sampling what is kept aside")
            sampler.close()
        stored = [
            (group, rollout)
            for group, place in zip(first, placed, strict=True)
            if place.set == "perfect"
            for rollout in responses_to_store([again[place.problem_id], *group.rollouts], config.stored)
        ]
        rows = _rehearsals(policy, stored, config, chunks)
        if not world.leads:
            world.wait()
            return run.path
        tried = {group.problem.id: group.counts for group in new}
        partition: list[dict[str, Any]] = []
        for place in placed:
            correct, judgeable = tried.get(place.problem_id, (0, 0))
            new_draws = {"new_correct": correct, "new_samples": judgeable}
            partition.append(asdict(place) | new_draws | {"content": contents[place.problem_id]})
        facts = _write(run, config, hashes | {"precision": policy.precision}, partition, rows)
    perfect = f"{facts['perfect']} near-perfect ({counted(len(rows), 'stored response')})"
    say(f"{counted(facts['explore'], 'prompt')} to explore, {perfect}, {facts['dropped']} dropped")
    if facts.get("certify"):
        least = float(upper_bound(np.zeros(facts["certify"])))
        say(f"kept aside: {facts['certify']} near-perfect, which can certify a loss of {least:.3f} or more")
    _show(first)
    world.wait()
    return run.path


def _show(groups: Sequence[Group]) -> None:
    """Say how the judging of all responses ended, and show one response of problems that are evenly spread."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    outcomes = Counter(rollout.verdict.outcome for rollout in rollouts)
    counts = ", ".join(f"{outcome} {outcomes[outcome]}" for outcome in Outcome if outcomes[outcome])
    cut = sum(rollout.completion.finish_reason == "length" for rollout in rollouts)
    unparsed = sum(rollout.verdict.detail == UNPARSED for rollout in rollouts)
    unread = f"; answers that could not be read: {unparsed}" if unparsed else ""
    say(f"{counted(len(rollouts), 'response')}: {counts}; cut off at rollout.max_tokens: {cut}{unread}")
    if 50 * outcomes[Outcome.CORRECT] < sum(rollout.verdict.scored for rollout in rollouts):
        say("fewer than 2 % are right; docs/guides/your-data.md says what helps when the model solves nothing")
    shown = min(_SHOWN, len(groups))
    for group in (groups[i * len(groups) // shown] for i in range(shown)):
        say(Sample.of(0, ROLLOUTS, group.problem, 0, group.rollouts[0]).line())


def place_of(config: PresampleConfig, group: Group, correct: int, samples: int, extra: Rollout | None) -> Placed:
    """The set of a prompt whose draws were judged; `extra` is its further draw, None for one that is not mastered."""

    def place(where: Set, refined: str = "") -> Placed:
        return Placed(group.problem.id, where, correct, samples, refined)

    if samples == 0:
        return place("dropped")
    if extra is None:
        return place("dropped" if config.drop_unsolved and correct == 0 else "explore")
    aside = derive_key(0, "certify", group.problem.id) < config.certify.share * 2**63  # the ids alone decide
    mastered: Set = "certify" if aside else "perfect"
    if extra.verdict.correct:
        return place(mastered, "kept")
    if config.refine == "keep" or not extra.verdict.scored:  # a draw that could not be judged says nothing
        return place(mastered)
    return place("dropped", "discarded") if config.refine == "discard" else place("explore", "moved")


def responses_to_store(drawn: Sequence[Rollout], count: int) -> list[Rollout]:
    """The first correct, finished responses to a prompt, up to `count`.

    Each is a sample of π_ref given that the response is correct and finished: which set the prompt belongs to depends
    only on which draws are correct. A response that was drawn twice is stored twice, because without repeats rare
    responses would be as frequent as common ones.
    """
    return [r for r in drawn if r.verdict.correct and r.completion.finish_reason == "stop"][:count]


def _rehearsals(
    policy: Policy, stored: Sequence[tuple[Group, Rollout]], config: PresampleConfig, chunks: Chunks
) -> list[Rehearsal]:
    """Stored responses with log π_ref from the trainer's own forward pass, at the sampling temperature.

    Raises UserError if the sampler's log-probabilities show that it sampled from another distribution.
    """
    rows = [Tokens(list(group.prompt_ids), list(r.completion.token_ids)) for group, r in stored]
    # the same micro-batches after a pause: how much memory is free may have changed
    budget = chunks.once("budget", lambda: config.tokens_per_microbatch or fitting_tokens(policy))
    computed = partial(policy.response_logprobs, temperature=config.rollout.temperature, token_budget=budget)
    logprobs = chunks.map("stored responses", rows, ROWS_AT_ONCE, computed, "log-probabilities")
    check_sampler([r.completion.logprobs for _, r in stored], logprobs, policy.precision)
    return [
        Rehearsal(row.prompt_ids, row.response_ids, group.problem.id, values, r.text)
        for row, (group, r), values in zip(rows, stored, logprobs, strict=True)
    ]


def _write(
    run: RunDir,
    config: PresampleConfig,
    model: Mapping[str, str],
    partition: list[dict[str, Any]],
    rows: Sequence[Rehearsal],
) -> dict[str, int]:
    with written_atomically(run.path / "partition.parquet") as file:
        pq.write_table(pa.Table.from_pylist(partition), file)
    write_rehearsal(run.path / "rehearsal.parquet", rows)
    names = ("explore", "perfect", "dropped", *(("certify",) if config.certify.share else ()))
    sizes = {name: sum(row["set"] == name for row in partition) for name in names}
    run.finish(
        sizes=sizes,
        stored_responses=len(rows),
        model=absolute(config.model.path),
        **model,
        **sampling_facts(config.rollout),
        threshold=[config.threshold, config.rollout.n],
        seed=config.seed,
        task=asdict(config.task) | {"options": {name: absolute(value) for name, value in config.task.options.items()}},
        files=file_hashes(run.path),
    )
    return sizes
