"""Diversity metrics against enumeration of all subsets, all pairs and hand-computed values."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dph.evaluation.measures import canonical_sql, expected_distinct, ngram_overlap, pass_area, token_entropy


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
