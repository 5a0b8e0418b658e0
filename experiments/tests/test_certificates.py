"""The comparison at a certified loss: counts of finished runs, and what random certification sets say of them."""

import json
from pathlib import Path

import numpy as np
import pytest

from dph.errors import UserError
from dph.runs.coverage import CERTIFICATE, write_visits
from experiments.certificates import Checks, certify_run, collect, jobs, read_checks, report


def checks(losses, *, problems=1200, n=32, seed=1):
    """A run whose checkpoint i has lost that share of its problems wholly; the base model solves all."""
    rng = np.random.default_rng(seed)
    correct = np.full((1 + len(losses), problems), n)
    for row, loss in zip(correct[1:], losses, strict=True):
        row[rng.permutation(problems)[: round(loss * problems)]] = 0
    steps = [20 * place for place in range(1, 1 + len(losses))]
    return Checks("grpo", seed, steps, np.full(correct.shape, n), correct, [0.5 + 0.1 * i for i in range(len(correct))])


def test_random_sets_certify_what_was_kept_and_seldom_what_was_lost():
    kept = certify_run(checks([0.0, 0.0]), 0.05)
    assert kept.last.tolist() == [2] * 100 and not kept.wrong.any() and not kept.lost.any()
    lost = certify_run(checks([0.0, 0.2, 0.0]), 0.05)  # the third is fine, but comes after the failure
    assert lost.last.tolist() == [1] * 100 and not lost.wrong.any()
    edge = certify_run(checks([0.06, 0.06]), 0.05, choices=400)
    assert 0 < edge.wrong.mean() <= 0.05 and set(edge.last[edge.wrong]) <= {1, 2}
    assert edge.lost[edge.wrong] == pytest.approx(0.06, abs=0.01)


def write_run(out, method, seed, correct):
    run = out / f"{method}-{seed}"
    run.mkdir(parents=True)
    (run / "manifest.json").write_text('{"status": "complete"}')
    lines = [{"step": 20 * place, "eval/greedy": 0.1 * place} for place in range(len(correct))]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for place, counts in enumerate(correct):
        write_visits(run, 20 * place, [(f"p{i}", c, 4) for i, c in enumerate(counts)], CERTIFICATE)


def test_counts_of_finished_runs_become_a_table(tmp_path):
    with pytest.raises(UserError, match="no finished run yet"):
        collect(tmp_path, ["grpo"], [1])
    write_run(tmp_path, "grpo", 1, [[4] * 40, [4] * 39 + [0]])
    write_run(tmp_path, "dph_js", 1, [[4] * 40, [4] * 40])
    file = collect(tmp_path, ["grpo", "dph_js", "dapo"], [1, 2])
    found = list(read_checks(file))
    assert [(one.method, one.seed, one.steps, one.accuracy) for one in found] == [
        ("grpo", 1, [20], [0.0, 0.1]),
        ("dph_js", 1, [20], [0.0, 0.1]),
    ]
    assert found[0].correct.sum() == 4 * 79 and found[0].samples.tolist() == [[4] * 40] * 2
    text = report(file, size=34, n=4)
    assert "2 runs; sets of 34 problems" in text
    assert "| grpo | 1 | 2.5 | 0.0 | 10.0 |" in text and "| dph_js | 1 | 0.0 | 0.0 | 10.0 | 10.0 |" in text


def test_every_run_needs_the_pool_and_names_its_seed(tmp_path):
    planned = jobs(tmp_path, ["grpo", "dph_js"], [1, 2])
    assert [job.name for job in planned] == ["base", "pool", "grpo-1", "dph_js-1", "grpo-2", "dph_js-2"]
    assert all(job.needs == ("pool",) for job in planned[2:])
    from dph.cli.main import parse

    for job in planned:  # every flag is one of the stage
        settings, _ = parse(job.arguments[0], job.arguments[1:])
        assert settings.out == str(tmp_path / job.name)
    settings, _ = parse("train", planned[-1].arguments[1:])
    assert (settings.method, settings.seed, settings.certify.set) == ("dph_js", 2, str(tmp_path / "pool"))


def test_the_published_tables_are_those_of_the_counts():
    root = Path(__file__).parents[1]
    page = (root / "results" / "certificates.md").read_text(encoding="utf-8")
    assert report(root / "results" / "certificates.parquet").strip() in page
