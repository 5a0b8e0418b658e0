"""Pre-sampling (paper §4.1, App. F): the prompts are split by whether π_ref masters them, and its correct responses are
stored.

n draws for every prompt ─► correct ≥ threshold? ─yes─► one more draw, correct? ─yes─► D_pef + rehearsal set
                                    └──no──► D_exp ◄──── move (or discard) ───no──┘

With `for_k` the rehearsal set holds responses to the prompts that can lose pass@k instead, and D_exp and D_pef stay as
they are. A share of D_pef can be kept aside, with new samples, to certify later how much of it training keeps.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dph.build import load_problems, make_sampler, make_verifiers
from dph.config import PresampleConfig, absolute
from dph.config.sampling import sampling_facts
from dph.errors import counted
from dph.measure.certificate import upper_bound
from dph.measure.metrics import tool_use
from dph.models.batch import Tokens
from dph.models.chat import noted_rendering
from dph.models.device import settled
from dph.models.fitting import fitting_tokens
from dph.models.policy import Policy
from dph.process.distributed import World
from dph.process.progress import say
from dph.rehearsal.check import check_sampler
from dph.rehearsal.partition import is_near_perfect, is_rehearsed, missed_by, place_of, responses_to_store
from dph.rehearsal.presampled import file_hashes
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
from dph.types import UNPARSED, Group, Outcome, Rollout, of_policy, on_all
from dph.verifiers import judging_versions
from dph.verifiers.function import RewardFunction

ROWS_AT_ONCE = 1024
"""The number of responses whose log-probabilities are computed before they are saved."""
_SHOWN = 5
"""The number of responses that are shown at the end."""


def presample(config: PresampleConfig, *, resume: bool = False, reward: RewardFunction | None = None) -> Path:
    """Run the stage. Returns its run directory, which holds partition.parquet and rehearsal.parquet.

    reward: a function that judges every response in place of the verifiers (see `dph.stages.train.train`). Raises
    UserError if no problem can be used.
    """
    world, versions = World.join(), judging_versions()
    run = world.decided(lambda: RunDir.start(config.out, "presample", config, resume=resume, versions=versions))
    if run.complete:
        return run.path
    _say_what_is_missed(config)
    config = replace(config, model=settled(config.model, run, world))
    (_, problems), policy = world.together(lambda: (load_problems(config.task), Policy.load(config.model)))
    contents = content_hashes(problems)
    hashes = {"weight_hash": policy.weight_hash(), "tokenizer_hash": policy.tokenizer_hash()}
    rendered = noted_rendering(run, policy, world)
    inputs = {"the model's weights": hashes["weight_hash"], "the tokenizer's rules": hashes["tokenizer_hash"]}
    with Chunks(run.path, inputs, contents, world) as chunks:
        with make_verifiers(config.verifier, config.reward, reward) as verifiers:
            problems = still_usable(chunks, verifiers, problems, training=True)
            items = encode_problems(policy, problems, config.rollout, config.rollout.max_prompt_tokens)
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
            rule = partial(
                place_of,
                refine=config.refine,
                drop_unsolved=config.drop_unsolved,
                certify_share=config.certify.share,
            )
            placed = {group.problem.id: rule(group, again.get(group.problem.id)) for group in first}
            aside = [item for item in items if placed[item.problem.id][0] == "certify"]
            new = draw("new samples", aside, config.certify.samples, "certify", "sampling what is kept aside")
            sampler.close()
        stored = []
        for group in first:
            if is_rehearsed(group, placed[group.problem.id][0], config.for_k):
                drawn = [*([again[group.problem.id]] if group.problem.id in again else []), *group.rollouts]
                stored += [(group, r) for r in responses_to_store(drawn, config.stored, config.distinct)]
        rows = _rehearsals(policy, stored, config, chunks)
        if not world.leads:
            world.wait()
            return run.path
        tried = {group.problem.id: group.counts for group in new}
        partition: list[dict[str, Any]] = []
        for (id, (where, refined)), (correct, samples) in zip(placed.items(), counts, strict=True):
            row = {"problem_id": id, "set": where, "correct": correct, "samples": samples, "refined": refined}
            row["new_correct"], row["new_samples"] = tried.get(id, (0, 0))
            partition.append(row | {"content": contents[id]})
        facts = _write(run, config, hashes | rendered | {"precision": policy.precision}, partition, rows)
    responses = counted(len(rows), "stored response")
    perfect = f"{facts['perfect']} near-perfect" + ("" if config.for_k else f" ({responses})")
    say(f"{counted(facts['explore'], 'prompt')} to explore, {perfect}, {facts['dropped']} dropped")
    if config.for_k:
        prompts = counted(len({row.problem_id for row in rows}), "prompt")
        say(f"to rehearse: {prompts} that can lose pass@{config.for_k} ({responses})")
    if facts.get("certify"):
        least = float(upper_bound(np.zeros(facts["certify"])))
        say(f"kept aside: {facts['certify']} near-perfect, which can certify a loss of {least:.3f} or more")
    _show(first, config.rollout.turns)
    world.wait()
    return run.path


def _say_what_is_missed(config: PresampleConfig) -> None:
    """Say so if there are too few samples to recognise the prompts that can lose pass@k."""
    k, n = config.for_k, config.rollout.n
    if n < k:
        share = 100 * missed_by(n, k)
        say(
            f"{counted(n, 'response')} a prompt are few for pass@{k}: a prompt that is solved in 1 of {k} is solved in "
            f"none of them with a probability of {share:.0f} %, and counts as one that cannot be rehearsed; "
            f"--rollout.n {k} leaves {100 * missed_by(k, k):.0f} % out"
        )


def _show(groups: Sequence[Group], turns: int) -> None:
    """Say how the judging of all responses ended, and show a response to each of some problems that are evenly
    spread."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    outcomes = Counter(rollout.verdict.outcome for rollout in rollouts)
    counts = ", ".join(f"{outcome} {outcomes[outcome]}" for outcome in Outcome if outcomes[outcome])
    cut = sum(rollout.completion.finish_reason == "length" for rollout in rollouts)
    unparsed = sum(rollout.verdict.detail == UNPARSED for rollout in rollouts)
    unread = f"; answers that could not be read: {unparsed}" if unparsed else ""
    say(f"{counted(len(rollouts), 'response')}: {counts}; cut off at rollout.max_tokens: {cut}{unread}")
    if turns > 1:
        used = tool_use(groups)
        failed = f", of which {used['tool_errors']:.0%} failed" if "tool_errors" in used else ""
        never = "" if used["tool_calls"] else "; say in the prompts how to call it, or set rollout.turns to 1"
        say(f"calls of the tool for each response: {used['tool_calls']:.2f}{failed}{never}")
    if 50 * outcomes[Outcome.CORRECT] < sum(rollout.verdict.scored for rollout in rollouts):
        say("fewer than 2 % are right; docs/guides/your-data.md says what helps when the model solves nothing")
    shown = min(_SHOWN, len(groups))
    for group in (groups[i * len(groups) // shown] for i in range(shown)):
        say(Sample.of(0, ROLLOUTS, group.problem, 0, group.rollouts[0]).line())


def _rehearsals(
    policy: Policy, stored: Sequence[tuple[Group, Rollout]], config: PresampleConfig, chunks: Chunks
) -> list[Rehearsal]:
    """The stored responses, with log π_ref of their tokens at the sampling temperature, computed by the forward pass of
    training. Raises UserError if the log-probabilities of the sampler show that it sampled from another
    distribution."""
    rows = [Tokens(list(group.prompt_ids), list(r.completion.token_ids)) for group, r in stored]
    marks = [r.completion.written for _, r in stored]
    # kept for a resumed run, which needs the same micro-batches although the free memory may have changed
    budget = chunks.once("budget", lambda: config.tokens_per_microbatch or fitting_tokens(policy))
    computed = partial(policy.response_logprobs, temperature=config.rollout.temperature, token_budget=budget)
    logprobs = chunks.map("stored responses", rows, ROWS_AT_ONCE, computed, "log-probabilities")
    own = [of_policy(values, written) for values, written in zip(logprobs, marks, strict=True)]
    check_sampler([r.completion.own_logprobs for _, r in stored], own, policy.precision)
    return [
        Rehearsal(row.prompt_ids, row.response_ids, group.problem.id, on_all(values, written, 0.0), r.text, written)
        for row, (group, r), values, written in zip(rows, stored, own, marks, strict=True)
    ]


def _write(
    run: RunDir,
    config: PresampleConfig,
    model: Mapping[str, Any],
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
        **({"for_k": config.for_k} if config.for_k else {}),
        seed=config.seed,
        task=asdict(config.task) | {"options": {name: absolute(value) for name, value in config.task.options.items()}},
        files=file_hashes(run.path),
    )
    return sizes
