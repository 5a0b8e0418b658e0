"""The core comparison in the SQL world: differences that the tables of `scripts/reproduce` do not have."""

from collections.abc import Iterator
from pathlib import Path

from experiments.finished import CROSS_DOMAIN, IN_DOMAIN, OUT_OF_DOMAIN, difference, read_results
from experiments.grid import read_grid
from experiments.plan import Choice, RunPaths

GRID = "tiny"
SEEDS = (1, 2, 3, 4, 5)
ROLLOUTS = "dapo_rollouts"
"""DAPO, stopped when it has drawn as many prompts as the others."""
METHODS = ("grpo", "dapo", "exp_only", "dph_f", "dph_js")
PAIRS = (
    *((method, "base") for method in METHODS),
    *((method, "grpo") for method in METHODS[1:]),
    ("dph_f", "dph_js"),
    *((ROLLOUTS, method) for method in ("grpo", "dapo", "dph_f", "dph_js")),
)
COLUMNS = (
    ("greedy", IN_DOMAIN, "greedy"),
    ("mean@64", IN_DOMAIN, "mean"),
    ("pass@8", IN_DOMAIN, "pass@8"),
    ("pass@32", IN_DOMAIN, "pass@32"),
    ("cross-domain: pass@32", CROSS_DOMAIN, "pass@32"),
    ("out-of-domain: greedy", OUT_OF_DOMAIN, "greedy"),
    ("out-of-domain: mean@64", OUT_OF_DOMAIN, "mean"),
)
"""Title, domain and metric of each column."""


def core_table(folder: Path) -> Iterator[str]:
    """Differences in points with 95 % intervals over training seeds and problems together, the problems paired: the
    intervals of the tables of `scripts/reproduce`, not Student's over the five seeds."""
    from experiments.count_files import read_counts

    grid = read_grid(GRID)
    choice = Choice(grid, dict.fromkeys((*METHODS, ROLLOUTS), SEEDS))
    results = read_results(choice, RunPaths(folder / "nowhere"), read_counts(choice, folder))
    runs = {"base": [results.bases["base"]], **results.arms}
    labels = {name: grid.arms[name].label if name in grid.arms else "base" for name in runs}
    yield "| five seeds each | " + " | ".join(title for title, _, _ in COLUMNS) + " |"
    yield "|---" + "|---:" * len(COLUMNS) + "|"
    for one, other in PAIRS:
        found = [difference(runs[one], runs[other], results.split(domain), metric) for _, domain, metric in COLUMNS]
        cells = [f"{100 * each.mean:+.1f} ({100 * each.low:+.1f} to {100 * each.high:+.1f})" for each in found]
        yield f"| {labels[one]} − {labels[other]} | " + " | ".join(cells) + " |"
