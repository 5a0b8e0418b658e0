"""The metrics of an evaluation (paper §6), of problems and of splits: greedy accuracy, unbiased pass@k, mean@k, styles,
and the diversity of repeated samples.

METRICS is the one table of what `dph eval` measures and how a report shows it; docs/reference/metrics.md says which
problems have each, over which a mean is taken. A new measure is an entry there and a value in `diversity_of`.

Every count of distinct items is *rarefied*: it is the expected number in a random subset of m of the n samples. Like
pass@k, it is unbiased and uses all samples, and it makes runs with different n comparable.
"""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import combinations
from typing import Any, Literal

import numpy as np
import sqlglot
from numpy.typing import ArrayLike, NDArray
from sqlglot import exp
from sqlglot.errors import SqlglotError

from dph.config.sampling import SamplingParams
from dph.measure.intervals import mean_interval
from dph.measure.passk import majority_at_k, mean_at_k, pass_at_k, powers_of_two, sample_metrics
from dph.tasks import Task, style_of
from dph.types import UNPARSED, Group, Problem
from dph.verifiers.sql.text import extract_sql
from dph.verifiers.thoughts import without_thoughts
from mathequal.extract import find_answer

AMONG = 32
"""Distinct things are counted among this many samples (styles: paper App. B), or among all if there are fewer."""
_VOTERS = (8, 32)
_MOST_SHARES = 24
"""Shares of more styles are left out: they belong to single problems, as solutions do."""
_PRECISION = 4  # decimals of the entropy: log-probabilities vary by less, with what else was sampled together


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of an evaluation: its values lie between 0 and `highest`, and it is shown times `scale`."""

    name: str
    """As in scores.json and problems.parquet."""
    title: str
    """Its heading in tables."""
    scale: float = 100
    """100 for percent."""
    digits: int = 1
    """Decimals in tables."""
    highest: float = 1.0
    table: Literal["main", "diversity"] = "diversity"
    """The table of a report that shows it."""
    measured: bool = True
    """Whether `diversity_of` takes it from a problem's samples."""


_count = partial(Metric, scale=1, digits=2, highest=math.inf)
"""A number of things for each problem."""
METRICS = (
    Metric("greedy", "greedy", table="main", measured=False),
    Metric("pass@k", "pass@k", table="main", measured=False),  # for the k that a table shows
    _count("distinct_sql", "distinct SQL"),  # queries, up to layout, letter case and aliases
    _count("distinct_sql_correct", "distinct SQL (correct)"),
    _count("distinct_answers", "distinct answers"),
    _count("distinct_answers_correct", "distinct answers (correct)"),
    _count("distinct_solutions", "distinct solutions"),  # as a verifier with a method `solutions` tells them
    _count("distinct_solutions_correct", "distinct solutions (correct)"),
    Metric("ngram_overlap", "4-gram overlap"),
    Metric("ngram_overlap_correct", "4-gram overlap (correct)"),
    *(Metric(f"maj@{k}", f"maj@{k}", table="main") for k in _VOTERS),
    Metric("pass_area", "area under pass@k"),
    Metric("token_entropy", "entropy a token", scale=1, digits=3, highest=math.inf),  # nats
    Metric("unparsed", "unparsed"),
    _count("tool_calls", "tool calls", measured=False),  # of a response
    Metric("tool_errors", "failed tool calls", measured=False),
    Metric("tool_share", "tokens of tool results", measured=False),
    _count("styles", "styles", table="main", measured=False),
    _count("styles_correct", "styles (correct)", table="main", measured=False),
)
"""In the order in which they are reported."""
DIVERSITY_METRICS = tuple(entry.name for entry in METRICS if entry.measured)
"""The names of those that `diversity_of` measures."""
TOOL_METRICS = tuple(entry.name for entry in METRICS if entry.name.startswith("tool_"))
"""The names of those that `tool_use` measures, for responses that may have several turns."""


def metric(name: str) -> Metric:
    """The entry of METRICS; a metric that has none, such as pass@8 or mean@4, is a share under its own name."""
    return next((entry for entry in METRICS if entry.name == name), Metric(name, name))


def expected_distinct(classes: Iterable[Hashable], m: int) -> float:
    """Expected number of distinct classes among m samples drawn without replacement, or among all if there are fewer.

    Σ over classes of 1 − C(n − c, m) / C(n, m), for a class with c of the n samples (Hurlbert 1971). None marks a
    sample without a class, such as a response without an answer: it is drawn like any other and adds no class.
    """
    counts = Counter(classes)
    n = counts.total()
    del counts[None]
    if not counts:
        return 0.0
    return float(pass_at_k(n, list(counts.values()), min(m, n)).sum())


def ngram_overlap(texts: Sequence[str], n: int = 4) -> float:
    """Mean Jaccard overlap of the sets of word n-grams over all pairs of texts: 1 if all are equal, 0 for no overlap,
    NaN for fewer than two texts. A text of fewer than n words counts as one n-gram."""
    if len(texts) < 2:
        return float("nan")
    # Equal texts are common: each pair of distinct texts is compared once and counted as often as it occurs.
    words = [(count, text.split()) for text, count in Counter(texts).items()]
    groups = [(count, {tuple(w[i : i + n]) for i in range(max(1, len(w) - n + 1))}) for count, w in words]
    total = sum(count * (count - 1) / 2 for count, _ in groups)
    for (count, grams), (other_count, other) in combinations(groups, 2):
        common = len(grams & other)
        total += count * other_count * common / (len(grams) + len(other) - common)
    return total / (len(texts) * (len(texts) - 1) / 2)


@lru_cache(1024)  # equal queries are common
def canonical_sql(sql: str) -> str:
    """A query without layout and comments, with normalised letter case and quoting of identifiers and names of table
    aliases; the order of conditions and columns is kept. If it does not parse, only its white space is collapsed."""
    try:
        tree = sqlglot.parse_one(sql, read="sqlite")
    except (SqlglotError, RecursionError):
        return " ".join(sql.split())
    for identifier in tree.find_all(exp.Identifier):
        # SQLite's names are case-insensitive even when quoted.
        identifier.replace(exp.to_identifier(identifier.name.lower()))
    aliased = [table for table in tree.find_all(exp.Table) if table.alias]
    names = {alias: f"t{i}" for i, alias in enumerate(dict.fromkeys(table.alias for table in aliased), 1)}
    for table in aliased:
        table.set("alias", exp.TableAlias(this=exp.to_identifier(names[table.alias])))
    for column in tree.find_all(exp.Column):
        if column.table in names:
            column.set("table", exp.to_identifier(names[column.table]))
    return tree.sql(dialect="sqlite", comments=False)


def pass_area(n: ArrayLike, c: ArrayLike, largest: int) -> np.ndarray:
    """Area under each problem's pass@k over log₂ k from 1 to `largest`, by the trapezoidal rule over the powers of two,
    divided by the width: a mean pass@k in [0, 1]. Shapes and errors are as in `dph.measure.passk.pass_at_k`."""
    doublings = max(1, largest).bit_length() - 1
    curve = np.stack([pass_at_k(n, c, 1 << i) for i in range(doublings + 1)])
    if doublings == 0:
        return mean_at_k(n, c)
    return ((curve[1:] + curve[:-1]) / 2).mean(0)


def token_entropy(logprobs: Iterable[Sequence[float]]) -> float:
    """The policy's entropy per token in nats, estimated as the mean of −log p over all tokens of its own samples:
    unbiased if it sampled at the temperature of the log-probabilities. NaN without tokens."""
    rows = list(logprobs)
    count = sum(map(len, rows))
    return -sum(map(sum, rows)) / count if count else float("nan")


def diversity_of(
    group: Group,
    params: SamplingParams,
    answers: Sequence[str | None] = (),
    solutions: Sequence[str | None] = (),
) -> dict[str, float]:
    """The measures of one problem, without those that do not apply to it or that need more samples than it has.

    answers, solutions: of each response by the problem's verifier (`Verifiers.tell`), if it tells any. Without answers,
    those of mathematics and exact answers are compared as texts. If no response has one, maj@k is 0; a problem lacks
    maj@k only if nobody reads its answers.
    """
    scored = [rollout for rollout in group.rollouts if rollout.verdict.scored]
    if not scored:
        return {}
    values: dict[str, float] = {}
    classes: dict[str, list[str | None]] = {}
    if group.problem.verifier in _ANSWERS:
        name = "sql" if group.problem.verifier == "sql" else "answers"
        classes[name] = [answer_of(group.problem, rollout.text) for rollout in scored]
    if solutions:
        classes["solutions"] = _of_scored(solutions, group)
    votes = _of_scored(answers, group) if answers else []
    if not any(votes):
        votes = classes.get("answers", votes)
    for k in _VOTERS:
        if len(votes) >= k:
            values[f"maj@{k}"] = majority_at_k(votes, [rollout.verdict.correct for rollout in scored], k)
    for name, of_samples in classes.items():
        correct = [answer for answer, rollout in zip(of_samples, scored, strict=True) if rollout.verdict.correct]
        values[f"distinct_{name}"] = expected_distinct(of_samples, AMONG)
        values[f"distinct_{name}_correct"] = expected_distinct(correct, AMONG)
    correct_texts = [rollout.text for rollout in scored if rollout.verdict.correct]
    texts = [rollout.text for rollout in scored]
    for name, compared in (("ngram_overlap", texts), ("ngram_overlap_correct", correct_texts)):
        if len(compared) > 1:
            values[name] = ngram_overlap(compared)
    if len(scored) >= params.n:
        values["pass_area"] = float(pass_area(len(scored), len(correct_texts), params.n))
    if group.problem.verifier == "math":
        values["unparsed"] = sum(rollout.verdict.detail == UNPARSED for rollout in scored) / len(scored)
    logprobs = [rollout.completion.own_logprobs for rollout in group.rollouts]
    if params.temperature > 0 and not params.truncations and any(logprobs):
        values["token_entropy"] = round(token_entropy(logprobs), _PRECISION)
    return values


def tool_use(groups: Iterable[Group]) -> dict[str, float]:
    """How the responses of groups used a tool: calls of a response, the share of the calls that failed, and the share
    of the tokens of responses that a tool wrote. Without calls there is no share of failed ones."""
    drawn = [rollout.completion for group in groups for rollout in group.rollouts]
    own = sum(one.length for one in drawn)
    return tool_rates(
        responses=len(drawn),
        calls=sum(one.calls for one in drawn),
        failed=sum(one.failed_calls for one in drawn),
        written=own,
        read=sum(len(one.token_ids) for one in drawn) - own,
    )


def tool_rates(*, responses: float, calls: float, failed: float, written: float, read: float) -> dict[str, float]:
    """`tool_use` from sums over responses: their number, that of their calls and of the calls that failed, and the
    numbers of the tokens that the policy wrote and that it read."""
    return {
        "tool_calls": calls / max(1, responses),
        **({"tool_errors": failed / calls} if calls else {}),
        "tool_share": read / max(1, written + read),
    }


def _of_scored(texts: Sequence[str | None], group: Group) -> list[str | None]:
    """The texts of the responses that could be judged."""
    return [text for text, rollout in zip(texts, group.rollouts, strict=True) if rollout.verdict.scored]


def answer_of(problem: Problem, response: str) -> str | None:
    """The answer of a response, its query or its final answer, without differences of writing. None without one."""
    read = _ANSWERS.get(problem.verifier)
    return read(without_thoughts(response, problem.prompt)) if read else None


def _query(response: str) -> str | None:
    query = extract_sql(response)
    return None if query is None else canonical_sql(query)


def _math_answer(response: str) -> str | None:
    from mathequal import answer_key

    answer = find_answer(response, "last_number")
    return None if answer is None else answer_key(answer)


def _last_line(response: str) -> str | None:
    lines = response.strip().splitlines()
    return lines[-1].strip() if lines else None


_ANSWERS: dict[str, Callable[[str], str | None]] = {"sql": _query, "math": _math_answer, "exact": _last_line}


Scores = dict[str, Any]
"""One problem's results, as problems.parquet has them (docs/reference/runs.md), and `style_counts`, the number of the
first AMONG judged samples of each style."""


def score_group(task: Task, group: Group, greedy_group: Group | None) -> Scores:
    """Results of one problem from its samples and its greedy response. Styles (paper App. B) are those of the first
    AMONG judged samples, None if the task knows none; "other" does not count among the correct ones."""
    correct, judged = group.counts
    counts, right = Counter[str](), set[str]()
    for rollout in [rollout for rollout in group.rollouts if rollout.verdict.scored][:AMONG]:
        style = style_of(task, group.problem, rollout.text)
        if style is not None:
            counts[style] += 1
            right |= {style} - {"other"} if rollout.verdict.correct else set()
    greedy = greedy_verdict(greedy_group) if greedy_group else None
    styles = {"styles": len(counts) or None, "styles_correct": len(right) if counts else None}
    return {"samples": judged, "correct": correct, "greedy": greedy, **styles, "style_counts": dict(counts)}


def greedy_verdict(group: Group) -> bool | None:
    """Whether the only response of a group is correct; None if it could not be judged."""
    verdict = group.rollouts[0].verdict
    return verdict.correct if verdict.scored else None


def summarise(scored: Sequence[Scores], n: int) -> dict[str, Any]:
    """Metrics of a split with 95 % intervals over the "problems" that have each: with fewer than n judged
    samples only pass@k for those k that they reach. Layout: docs/reference/metrics.md."""
    metrics = {name: _with_interval(values, metric(name).highest) for name, values in metric_values(scored, n).items()}
    styles = sum((Counter(item.get("style_counts")) for item in scored), Counter[str]())
    return {
        "problems": len(scored),
        "samples": n,
        "metrics": metrics,
        "pass_curve": {str(k): metrics[f"pass@{k}"] for k in powers_of_two(n) if f"pass@{k}" in metrics},
        "style_shares": {
            name: count / styles.total() for name, count in sorted(styles.items()) if len(styles) <= _MOST_SHARES
        },
    }


def metric_values(scored: Sequence[Scores], n: int) -> dict[str, NDArray[np.float64]]:
    """Every metric's value for each problem that has one; a metric that no problem has is left out."""

    def of(*names: str) -> dict[str, Iterable[float]]:
        return {name: [item[name] for item in scored if item.get(name) is not None] for name in names}

    counts = [(item["samples"], item["correct"]) for item in scored]
    further = ("styles", "styles_correct", *DIVERSITY_METRICS, *TOOL_METRICS)
    metrics = of("greedy") | sample_metrics(counts, n) | of(*further)
    arrays = {name: np.asarray(values, dtype=float) for name, values in metrics.items()}
    return {name: values for name, values in arrays.items() if values.size}


def _with_interval(values: NDArray[np.float64], highest: float) -> dict[str, float]:
    interval = mean_interval(values, 0.0, highest)
    return {"mean": interval.estimate, "low": interval.low, "high": interval.high, "problems": len(values)}
