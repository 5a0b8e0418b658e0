"""The diversity of repeated samples as `dph eval` reports it: the same measures for every problem and every policy.

| name                | over the judged samples of a problem                                                | tasks  |
|---------------------|-------------------------------------------------------------------------------------|--------|
| `distinct_sql`      | distinct queries among 32 samples, up to layout, letter case and aliases            | SQL    |
| `distinct_plans`    | distinct execution plans among 32 samples (SQLite's, without the query's own names) | SQL    |
| `distinct_answers`  | distinct final answers among 32 samples                                             | others |
| `ngram_overlap`     | mean overlap of two responses' word 4-grams: 1 all alike, 0 nothing in common       | all    |
| `…_correct`         | the same among the correct samples only                                             |        |
| `maj@8`, `maj@32`   | accuracy of a majority vote of k samples (SQL: over what the queries return)        | all    |
| `pass_area`         | mean of pass@k over log₂ k from 1 to the number of samples                          | all    |
| `token_entropy`     | entropy per token in nats, estimated from the samples' log-probabilities            | all    |

docs/reference/metrics.md says which problems have each measure. A mean is over the problems that have it.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from dph.metrics.diversity import canonical_sql, expected_distinct, ngram_overlap, pass_area, token_entropy
from dph.metrics.voting import majority_at_k
from dph.types import Group, Problem, Rollout, SamplingParams
from dph.verifiers.math.answer import extract_answer, normalize
from dph.verifiers.sql.plan import PlanReader
from dph.verifiers.sql.text import extract_sql

AMONG = 32
"""Distinct things are counted among so many samples (styles: paper App. B), or among all if there are fewer."""
_VOTERS = (8, 32)
MAJORITY = tuple(f"maj@{k}" for k in _VOTERS)
MEASURES = (
    *("distinct_sql", "distinct_sql_correct", "distinct_plans", "distinct_plans_correct"),
    *("distinct_answers", "distinct_answers_correct", "ngram_overlap", "ngram_overlap_correct"),
    *MAJORITY,
    *("pass_area", "token_entropy"),
)
"""All names, in the order in which they are reported."""
RULES = 2
"""Version of the rules by which problems have a measure, for the record of an evaluation. By the first, which left no
record, maj@k was absent, and not 0, for a problem whose verifier tells answers if no response had one."""
_PRECISION = 4  # decimals of the entropy: log-probabilities vary by less, with what else was sampled together


def diversity_of(
    group: Group, params: SamplingParams, plans: PlanReader, answers: Sequence[str | None] = ()
) -> dict[str, float]:
    """The measures of one problem, without those that do not apply to it or that need more samples than it has.

    answers: what each response answers, if the problem's verifier tells (`Verifiers.answers`); empty if it does not. If
    none is told, the final answers of mathematics and exact answers are compared as texts. Without any answer, maj@k is
    0; only problems of which nobody reads answers have none.
    """
    scored = [rollout for rollout in group.rollouts if rollout.verdict.scored]
    if not scored:
        return {}
    found: dict[str, float] = {}
    of_kind = _kinds(group.problem, scored, plans)
    told = zip(answers, group.rollouts, strict=True) if answers else ()
    votes = [answer for answer, rollout in told if rollout.verdict.scored]
    if not any(votes):
        votes = of_kind.get("answers", votes)
    for k in _VOTERS:
        if len(votes) >= k:
            found[f"maj@{k}"] = majority_at_k(votes, [rollout.verdict.correct for rollout in scored], k)
    for name, kinds in of_kind.items():
        correct = [kind for kind, rollout in zip(kinds, scored, strict=True) if rollout.verdict.correct]
        found[f"distinct_{name}"] = expected_distinct(kinds, AMONG)
        found[f"distinct_{name}_correct"] = expected_distinct(correct, AMONG)
    correct_texts = [rollout.text for rollout in scored if rollout.verdict.correct]
    texts = [rollout.text for rollout in scored]
    for name, compared in (("ngram_overlap", texts), ("ngram_overlap_correct", correct_texts)):
        if len(compared) > 1:
            found[name] = ngram_overlap(compared)
    if len(scored) >= params.n:
        found["pass_area"] = float(pass_area(len(scored), len(correct_texts), params.n))
    logprobs = [rollout.completion.logprobs for rollout in group.rollouts]
    if params.temperature > 0 and params.top_p == 1 and any(logprobs):
        found["token_entropy"] = round(token_entropy(logprobs), _PRECISION)
    return found


def answer_of(problem: Problem, response: str) -> str | None:
    """What a response answers, without differences of writing: its query, or its final answer. None without one."""
    if problem.verifier == "sql":
        query = extract_sql(response)
        return None if query is None else canonical_sql(query)
    return _ANSWERS[problem.verifier](response) if problem.verifier in _ANSWERS else None


def _kinds(problem: Problem, rollouts: Sequence[Rollout], plans: PlanReader) -> dict[str, list[str | None]]:
    """What each sample is, by every notion of sameness that its problem has; None for a sample without an answer."""
    if problem.verifier == "sql":
        queries = [extract_sql(rollout.text) for rollout in rollouts]
        distinct = [sql for sql in dict.fromkeys(queries) if sql is not None]
        plan_of = dict(zip(distinct, plans.plans(Path(problem.meta["db"]), distinct), strict=True))
        text_of = {sql: canonical_sql(sql) for sql in distinct}
        return {
            "sql": [None if sql is None else text_of[sql] for sql in queries],
            "plans": [None if sql is None else plan_of[sql] for sql in queries],
        }
    if problem.verifier in _ANSWERS:
        return {"answers": [_ANSWERS[problem.verifier](rollout.text) for rollout in rollouts]}
    return {}


def _math_answer(response: str) -> str | None:
    answer = extract_answer(response, "last_number")
    return None if answer is None else normalize(answer)


def _last_line(response: str) -> str | None:
    lines = response.strip().splitlines()
    return lines[-1].strip() if lines else None


_ANSWERS: dict[str, Callable[[str], str | None]] = {"math": _math_answer, "exact": _last_line}
