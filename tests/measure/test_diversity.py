"""Diversity metrics against enumeration of all subsets, all pairs and hand-computed values. Diversity in `dph eval`:
every measure by hand, what does not apply is absent, the files hold what was measured.
"""

import json
import math
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dph.config import EvalConfig, ModelConfig, RolloutConfig, TaskConfig
from dph.config.sampling import SamplingParams
from dph.measure.metrics import (
    MEASURES,
    Scores,
    canonical_sql,
    diversity_of,
    expected_distinct,
    ngram_overlap,
    pass_area,
    score_group,
    summarise,
    token_entropy,
)
from dph.stages.evaluate import evaluate
from dph.tasks import register_task
from dph.types import Completion, Group, Outcome, Problem, Rollout, Verdict
from dph.verifiers import register_verifier
from helpers import ToyTask, base_run


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=8), st.integers(1, 8))
def test_distinct_kinds_by_enumerating_subsets(kinds: list[str], m: int):
    size = min(m, len(kinds))
    subsets = list(combinations(kinds, size))
    assert expected_distinct(kinds, m) == pytest.approx(sum(len(set(s)) for s in subsets) / len(subsets))


def test_no_samples_hold_no_kinds():
    assert expected_distinct([], 32) == 0.0


@given(st.lists(st.sampled_from(["a", "b", None]), min_size=1, max_size=8), st.integers(1, 8))
def test_samples_of_no_kind_are_drawn_and_add_none(kinds: list[str | None], m: int):
    subsets = list(combinations(kinds, min(m, len(kinds))))
    assert expected_distinct(kinds, m) == pytest.approx(sum(len(set(s) - {None}) for s in subsets) / len(subsets))


def test_overlap_by_hand():
    # Bigrams: {ab, bc}, {ab, bd}, {ab, bc}. Jaccard of the pairs: 1/3, 1, 1/3.
    assert ngram_overlap(["a b c", "a b d", "a b c"], n=2) == pytest.approx((1 / 3 + 1 + 1 / 3) / 3)


@given(st.lists(st.sampled_from(["a b c", "b c", "c d a b", "a", ""]), min_size=2, max_size=6))
def test_overlap_is_between_nothing_and_everything(texts: list[str]):
    assert 0.0 <= ngram_overlap(texts, n=2) <= 1.0
    assert ngram_overlap([texts[0]] * 3, n=2) == 1.0


def test_overlap_of_one_text_is_undefined():
    assert math.isnan(ngram_overlap(["alone"]))


@pytest.mark.parametrize(
    ("one", "same"),
    [
        ("select Name from  singer", "SELECT name FROM Singer"),
        ('SELECT "Name" FROM singer', "SELECT `name` FROM [singer]"),
        ("SELECT a.x FROM t AS a JOIN u AS b ON a.i = b.i", "SELECT T1.x FROM t T1 JOIN u T2 ON T1.i = T2.i"),
        ("SELECT x FROM t -- all of them", "SELECT /* c */ x FROM t"),
        ("SELECT  from where", "SELECT from   where"),
    ],
)
def test_equal_queries(one: str, same: str):
    assert canonical_sql(one) == canonical_sql(same)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("SELECT x FROM t WHERE a = 'B'", "SELECT x FROM t WHERE a = 'b'"),
        ("SELECT x, y FROM t", "SELECT y, x FROM t"),
        ("SELECT x FROM t", "SELECT DISTINCT x FROM t"),
        ("SELECT a.x FROM t AS a JOIN u AS b ON a.i = b.i", "SELECT b.x FROM t AS a JOIN u AS b ON a.i = b.i"),
    ],
)
def test_different_queries(one: str, other: str):
    assert canonical_sql(one) != canonical_sql(other)


@given(st.text(max_size=40))
def test_any_text_has_a_canonical_form(text: str):
    assert isinstance(canonical_sql(text), str)


def test_area_under_the_pass_curve_by_hand():
    # n = 4, c = 1: pass@1, 2, 4 = 1/4, 1/2, 1; trapezoids 3/8 and 3/4, mean 9/16. All correct: 1. None: 0.
    assert pass_area([4, 4, 4], [1, 4, 0], 4) == pytest.approx([9 / 16, 1.0, 0.0])
    assert pass_area([4], [1], 1) == pytest.approx([0.25])


def test_token_entropy_weighs_tokens_equally():
    assert token_entropy([[-1.0, -2.0], [-6.0]]) == pytest.approx(3.0)
    assert math.isnan(token_entropy([]))


def test_token_entropy_of_a_known_distribution():
    p = np.array([0.5, 0.25, 0.25])
    drawn = np.repeat(np.log(p), [50, 25, 25])
    assert token_entropy([drawn.tolist()]) == pytest.approx(-(p * np.log(p)).sum())


GOOD, BAD, LOST, NONE = Outcome.CORRECT, Outcome.WRONG, Outcome.INFRA_ERROR, Outcome.NO_ANSWER


def group(problem: Problem, *pairs, logprobs=(-1.0,)):
    rollouts = [
        Rollout(Completion([7] * len(logprobs), list(logprobs), "stop"), text, Verdict(outcome, 0.0))
        for text, outcome in pairs
    ]
    return Group(problem, [1], rollouts)


def test_queries():
    texts = [
        ("```sql\nSELECT town FROM club\n```", GOOD),
        ("```sql\nselect T.town\nfrom club AS T\n```", GOOD),
        ("```sql\nSELECT  town FROM Club\n```", GOOD),  # the first query again
        ("```sql\nSELECT town FROM club WHERE id = 1\n```", BAD),
        ("```sql\nSELECT nothing FROM club\n```", Outcome.ERROR),  # a query, though it does not run
        ("no SQL", NONE),
        ("```sql\nSELECT 1\n```", LOST),  # never counted
    ]
    found = diversity_of(group(Problem("p", "", "", "sql"), *texts), SamplingParams(7))
    distinct = {name: found[name] for name in found if name.startswith("distinct")}
    assert distinct == pytest.approx({"distinct_sql": 4, "distinct_sql_correct": 2})
    assert "pass_area" not in found  # six of seven samples could be judged


@pytest.mark.parametrize(
    ("task", "texts", "distinct", "correct"),
    [
        ("math", [r"\boxed{\frac{1}{2}}", r"so \boxed{\dfrac12}", r"\boxed{3}", "it is 3"], 2, 1),
        ("exact", ["a\nyes", "yes ", "no", ""], 2, 1),
        ("judged elsewhere", ["a", "b", "c", "d"], None, None),
    ],
)
def test_final_answers(task: str, texts: list[str], distinct: int | None, correct: int | None):
    outcomes = [GOOD, GOOD, BAD, BAD]
    pairs = list(zip(texts, outcomes, strict=True))
    found = diversity_of(group(Problem("p", "", "", task), *pairs), SamplingParams(4))
    assert found.get("distinct_answers") == (None if distinct is None else pytest.approx(distinct))
    assert found.get("distinct_answers_correct") == (None if correct is None else pytest.approx(correct))


def test_a_vote_of_texts_and_a_vote_of_what_the_verifier_reads():
    pairs = [*[("yes", GOOD)] * 3, *[("no", BAD)] * 4, ("", NONE)]
    voters = group(Problem("p", "", "", "exact"), *pairs)
    assert diversity_of(voters, SamplingParams(8))["maj@8"] == 0
    read = ["A", "A", "A", "A", "B", "B", "B", None]  # one of the four answers "A" was judged wrong
    assert diversity_of(voters, SamplingParams(8), read)["maj@8"] == pytest.approx(3 / 4)
    assert "maj@32" not in diversity_of(voters, SamplingParams(8))


@pytest.mark.parametrize(
    ("verifier", "text", "told", "expected"),
    [
        ("sql", "```sql\nSELECT nothing\n```", [None] * 8, 0),  # no query ran
        ("sql", "no query", [None] * 8, 0),
        ("sql", "```sql\nSELECT 1\n```", [], None),  # judged by a reward function, which tells no answers
        ("math", "no number", [], 0),
        ("math", "no number", [None] * 8, 0),
        ("exact", "", [], 0),
        ("exact", "yes", [None] * 8, 1),  # as texts: nobody tells
        ("another", "yes", [None] * 8, 0),  # a plug-in's, which tells that no response has an answer
        ("another", "yes", [], None),
    ],
)
def test_a_vote_without_any_answer_is_lost_if_answers_are_told(verifier, text, told, expected):
    right = GOOD if expected or expected is None else BAD
    voters = group(Problem("p", "", "", verifier), *[(text, right)] * 8)
    found = diversity_of(voters, SamplingParams(8), told)
    assert found.get("maj@8") == expected and "maj@32" not in found
    lost = group(voters.problem, *[(text, right)] * 7, (text, LOST))
    assert "maj@8" not in diversity_of(lost, SamplingParams(8), told)  # seven could be judged


def test_a_tied_vote_is_drawn_and_silent_samples_do_not_vote():
    voters = group(Problem("p", "", "", "sql"), *[("", GOOD)] * 2, *[("", BAD)] * 2, *[("", NONE)] * 4)
    assert diversity_of(voters, SamplingParams(8), [*"AABB", *[None] * 4])["maj@8"] == pytest.approx(1 / 2)


def test_more_than_32_samples_are_thinned_out():
    pairs = [("yes", GOOD)] * 39 + [("no", BAD)]
    found = diversity_of(group(Problem("p", "", "", "exact"), *pairs), SamplingParams(40))
    assert found["distinct_answers"] == pytest.approx(1 + 32 / 40)  # the one "no" is among 32 of 40 with p = 32/40
    assert found["distinct_answers_correct"] == 1


def test_overlap_area_and_entropy():
    pairs = [("a b c d", GOOD), ("a b c d e", GOOD), ("x", BAD), ("x", BAD)]
    toy = Problem("p", "", "", "exact")
    found = diversity_of(group(toy, *pairs, logprobs=(-1.0, -2.0)), SamplingParams(4))
    # 4-grams {abcd}, {abcd, bcde}, {x}, {x}: of the six pairs one overlaps by 1/2 and one wholly.
    assert found["ngram_overlap"] == pytest.approx((1 / 2 + 1) / 6)
    assert found["ngram_overlap_correct"] == pytest.approx(1 / 2)
    # pass@1 = 1/2, pass@2 = 1 − C(2,2)/C(4,2) = 5/6, pass@4 = 1: trapezoids of width 1 over log₂ k in [0, 2]
    assert found["pass_area"] == pytest.approx(((1 / 2 + 5 / 6) / 2 + (5 / 6 + 1) / 2) / 2)
    assert found["token_entropy"] == pytest.approx(1.5)


@pytest.mark.parametrize("params", [SamplingParams(1, top_p=0.9), SamplingParams(1, temperature=0.0)])
def test_no_entropy_where_the_samples_are_not_of_that_distribution(params: SamplingParams):
    found = diversity_of(group(Problem("p", "", "", "exact"), ("yes", GOOD)), params)
    assert "token_entropy" not in found and "ngram_overlap" not in found  # one sample has nothing to overlap with


def test_no_entropy_without_log_probabilities_and_nothing_without_verdicts():
    problem = Problem("p", "", "", "exact")
    silent = diversity_of(group(problem, ("yes", GOOD), logprobs=()), SamplingParams(1))
    assert "token_entropy" not in silent and silent["distinct_answers"] == 1
    assert diversity_of(group(problem, ("yes", LOST)), SamplingParams(1)) == {}


def test_means_are_over_the_problems_that_a_measure_applies_to():
    def item(**diversity: float) -> Scores:
        return score_group(ToyTask(), group(Problem("p", "", "", "exact"), ("yes", GOOD)), None) | diversity

    metrics = summarise([item(distinct_sql=2.0), item(distinct_answers=5.0), item(distinct_sql=3.0)], 1)["metrics"]
    assert metrics["distinct_sql"]["mean"] == 2.5 and metrics["distinct_answers"]["mean"] == 5
    # With the imaginary problems 0 and 6: mean 2.75, spread 2.5, over √4 times 12.7062 (Student's t, 1); not below 0.
    high = 2.75 + 12.7062 * 2.5 / 2
    assert metrics["distinct_sql"]["low"] == 0 and metrics["distinct_sql"]["high"] == pytest.approx(high, rel=1e-4)
    counts = {name: metrics[name]["problems"] for name in ("distinct_sql", "distinct_answers", "pass@1", "mean@1")}
    assert counts == {"distinct_sql": 2, "distinct_answers": 1, "pass@1": 3, "mean@1": 3}
    assert not {"ngram_overlap", "distinct_solutions", "token_entropy"} & metrics.keys()


class Silent:
    """A verifier that finds no answer in any response."""

    def verify(self, items):
        return [Verdict(BAD, 0.0) for _ in items]

    def check(self, problems):
        return {}

    def close(self):
        pass

    def answers(self, items):
        return [None for _ in items]


class Mixed(ToyTask):
    """Problems with and without a verifier that tells answers, with and without styles."""

    def problems(self, split):
        problems = super().problems(split)[:4]
        return [replace(problem, verifier="exact" if i < 3 else "silent") for i, problem in enumerate(problems)]

    def style(self, problem, response):
        return super().style(problem, response) if problem.verifier == "exact" else None


register_verifier("silent")(Silent)
register_task("two-verifiers")(Mixed)


@pytest.mark.parametrize(
    ("judge", "voters", "rows"),
    [
        (None, 4, [None, None, None, 0]),  # the last problem: nobody reads its responses but the verifier, and it none
        (lambda prompt, completion, answer, **_: 0.0, 3, [None, None, None, None]),
    ],
)
def test_a_mixed_split(tmp_path: Path, judge, voters: int, rows, capsys):
    settings = EvalConfig(
        out=str(tmp_path / "run"),
        model=ModelConfig(path=str(base_run() / "model"), device="cpu"),
        task=TaskConfig(name="two-verifiers", split="dev"),
        rollout=RolloutConfig(n=8, max_tokens=4, max_prompt_tokens=8),
    )
    run = evaluate(settings, reward=judge)
    scores = json.loads((run / "scores.json").read_text())
    metrics = scores["splits"]["dev"]["metrics"]
    assert [metrics[name]["problems"] for name in ("maj@8", "styles", "pass@8")] == [voters, 3, 4]
    found = pq.read_table(run / "problems.parquet").to_pylist()
    assert [found[3][name] for name in ("styles", "styles_correct", "distinct_answers", "maj@8")] == rows
    assert metrics["maj@8"]["mean"] == sum(row["maj@8"] or 0 for row in found) / voters
    assert f"styles {metrics['styles']['mean']:.3f} (3 problems)" in capsys.readouterr().err


def test_the_files_of_a_run_hold_them(tmp_path: Path):
    settings = EvalConfig(
        out=str(tmp_path / "run"),
        model=ModelConfig(path=str(base_run() / "model"), device="cpu"),
        task=TaskConfig(name="toy", split="dev", limit=4),
        rollout=RolloutConfig(n=8, max_tokens=4, max_prompt_tokens=8),
    )
    run = evaluate(settings)
    metrics = json.loads((run / "scores.json").read_text())["splits"]["dev"]["metrics"]
    others = {f"distinct_{name}{of}" for name in ("sql", "plans", "solutions") for of in ("", "_correct")}
    wanted = set(MEASURES) - others - {"maj@32", "unparsed"}
    assert wanted <= metrics.keys() and not (set(MEASURES) - wanted) & metrics.keys()
    rows = pq.read_table(run / "problems.parquet").to_pylist()
    texts: dict[str, set[str]] = {row["id"]: set() for row in rows}
    for row in pq.read_table(run / "completions.parquet").to_pylist():
        if row["sample"] >= 0 and row["text"].strip():
            texts[row["id"]].add(row["text"].strip().splitlines()[-1].strip())
    for row in rows:
        assert row["distinct_answers"] == pytest.approx(len(texts[row["id"]])) and row["distinct_sql"] is None
    for name in wanted:
        values = [row[name] for row in rows if row[name] is not None]
        assert metrics[name]["mean"] == pytest.approx(math.fsum(values) / len(values))
        assert metrics[name]["low"] <= metrics[name]["mean"] <= metrics[name]["high"]
    # The base model is sure of "easy" prompts and torn between two words on "hard" ones: ln 2 over two tokens at most.
    entropy = {row["kind"]: row["token_entropy"] for row in rows}
    assert entropy["easy"] < 0.1 < entropy["hard"] < math.log(2)
