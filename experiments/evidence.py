"""The tables of docs/results/findings.md, from the published counts: python -m experiments.evidence [--counts FOLDER]

Every interval is Student's 95 % interval over worlds or over runs, and none is over the problems of one run, with two
exceptions: the core comparison, whose page is experiments/results/tiny-core.md, has intervals over seeds and problems
together, and the additions to GRPO, which have one seed, over problems.
"""

import argparse
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean

import numpy as np
import pyarrow.parquet as pq

from dph.measure.intervals import mean_interval
from experiments.core import core_table
from experiments.intervals import student_interval
from experiments.minisql import MiniSql
from experiments.mixing import Counts, mean_of, missed, mix_at, mixed, pass_of

K = 32
WORLDS = range(1, 7)
"""Seeds of the bench's test worlds."""
TUNED = "grpo-lr5e-05"
FAST = "grpo-lr0.0001"
BENCH = {
    TUNED: ("`grpo`, lr 5e-5 (tuned)", 1.0),
    FAST: ("`grpo`, lr 1e-4", 1.0),
    "dapo-lr5e-05": ("`dapo`, lr 5e-5", 1.5),
    "rkl-kl_coef0.1-lr0.0001": ("`rkl` (k3), β 0.1, lr 1e-4", 1.0),
    "dph_f-eta0.3-lr0.0001": ("`dph_f`, η 0.3, lr 1e-4", 1.3),
    "dph_js-eta0.7-lr0.0001": ("`dph_js`, η 0.7, lr 1e-4", 1.3),
    "grpo_wise-trained_share0.5-lr0.0001": ("`grpo`, lr 1e-4, weights halfway", 1.0),
    "grpo_wise-trained_share0.5-lr0.0002": ("`grpo`, lr 2e-4, weights halfway", 1.0),
    "dapo_wise-trained_share0.5-lr0.0002": ("`dapo`, lr 2e-4, weights halfway", 1.8),
    "dapo_wise-trained_share0.5-lr0.0002-steps50": ("the same, as many rollouts as `grpo`", 1.0),
    "cispo-lr0.0001": ("`cispo`, lr 1e-4", 1.0),
}
"""Arms of the bench: their names on the page, and responses drawn in training and pre-sampling, in units of GRPO's 80
steps of 8 × 16. Pre-sampling draws 8 for each of 420 prompts; experiments/bench/design.toml has DAPO's refills."""
COUNTED_BASE = 11
"""The training seed whose base models the counts of the bench hold. Those of seed 12 were trained anew on another kind
of processor and have no counts; mixes and classes of problems take seed 11's for both."""
MIXES = ((FAST, 2), (FAST, 4), ("cispo-lr0.0001", 2))
"""Arms, and how many of 32 samples come from the base model instead."""
LANGUAGE = (("llm_embedded", 1), ("second-base/llm_embedded", 2), ("second-base/llm_embedded", 3))
"""File of counts and training seed of each run of the language model; the last two have one base model."""
PAIRS = {
    "dapo": ("DAPO", "dapo_js"),
    "kl_cov": ("KL-Cov", "kl_cov_js"),
    "entropy": ("entropy bonus", "entropy_js"),
}
"""Additions to GRPO by their arms in the grid `orthogonal`: name, and the arm with DPH-JS."""
ALMOST = range(29, 33)
"""Numbers of correct samples at which styles are compared: of 32."""

Runs = Mapping[tuple[str, int, str], list[dict]]
"""Rows of problems by run, seed and split, in the order of their ids."""


def load(folder: Path, name: str) -> Runs:
    """The runs of a file of counts."""
    columns = ["run", "seed", "split", "id", "kind", "samples", "correct", "styles_correct"]
    runs: dict[tuple[str, int, str], list[dict]] = {}
    for row in pq.read_table(folder / f"{name}.parquet", columns=columns).to_pylist():
        runs.setdefault((row["run"], row["seed"], row["split"]), []).append(row)
    return {key: sorted(rows, key=lambda row: row["id"]) for key, rows in runs.items()}


def counts_of(rows: Sequence[dict]) -> list[tuple[int, int]]:
    """Samples and correct samples of each problem."""
    return [(row["samples"], row["correct"]) for row in rows]


def over(values: Sequence[float], digits: int = 1) -> str:
    """Mean of differences in points with Student's interval."""
    found = student_interval([100 * value for value in values])
    return f"{found.estimate:+.{digits}f} ({found.low:+.{digits}f} to {found.high:+.{digits}f})"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines of a Markdown table."""
    yield "| " + " | ".join(head) + " |"
    yield "|---" + "|---:" * (len(head) - 1) + "|"
    for row in rows:
        yield "| " + " | ".join(row) + " |"


# The hidden coin ----------------------------------------------------------------------------------------------------


def readings(seed: int, problems: int) -> dict[str, tuple[bool, bool]]:
    """Of each test problem of a world: whether its two readings differ in result, and whether the gold then follows the
    one that it follows less often."""
    found = MiniSql(seed=seed, test_problems=problems).problems("test")
    return {
        p.id: (bool(p.meta["ambiguous"]), bool(p.meta["ambiguous"]) and p.meta["reading"] == "first") for p in found
    }


def coin(tiny: Runs, bench: Runs) -> Iterator[str]:
    """Where pass@32 is lost, by the reading that the gold follows."""
    five = [counts for (run, _, split), counts in tiny.items() if run == "grpo" and split == "test"]
    worlds = [("core comparison, `grpo`, lr 2e-4", 0, five)]
    for world in WORLDS:
        both = [rows for (run, _, _), rows in bench.items() if run == f"{FAST}.world-{world}"]
        worlds.append((f"test world {world}, `grpo`, lr 1e-4", world, both))
    rows = []
    for name, seed, runs in worlds:
        reading = readings(seed, 400)
        lost = {rare: [] for rare in (True, False)}
        for row in (row for run in runs for row in run):
            lost[reading[row["id"]][1]].append((row["samples"], row["correct"]))
        two, rare = (fmean(pair[i] for pair in reading.values()) for i in (0, 1))
        shown = [f"{100 * value:.1f}" for value in (two, rare, 1 - rare)]
        rows.append([name, *shown, *(f"{100 * pass_of(lost[one], K):.1f}" for one in (True, False))])
    head = ["percent", "two readings", "gold rare", "best greedy", "pass@32 where rare", "pass@32 elsewhere"]
    yield from table(head, rows)


# The bench ----------------------------------------------------------------------------------------------------------


def against_tuned(bench: Runs, arm: str, b: int) -> list[list[float]]:
    """Mean, pass@32 and their differences to tuned GRPO with the same seeds, in each world."""
    found = []
    for world in WORLDS:
        base = counts_of(bench[f"world-{world}", 0, "test"])
        seeds = [seed for (run, seed, _) in bench if run == f"{arm}.world-{world}"]
        values = []
        for seed in seeds:
            one = mixed(counts_of(bench[f"{arm}.world-{world}", seed, "test"]), base, b, K)
            tuned = mixed(counts_of(bench[f"{TUNED}.world-{world}", seed, "test"]), base, 0, K)
            values.append([*one, one[0] - tuned[0], one[1] - tuned[1]])
        found.append([fmean(column) for column in zip(*values, strict=True)])
    return found


def above_mix(bench: Runs, arm: str, seeds: Container[int]) -> list[float]:
    """In each world that has it: pass@32 minus pass@32 of `FAST` mixed with samples of the base model of
    `COUNTED_BASE`, at the same mean and seed, over these training seeds."""
    found = []
    for world in WORLDS:
        base, values = counts_of(bench[f"world-{world}", 0, "test"]), []
        for (run, seed, _), rows in bench.items():
            if run == f"{arm}.world-{world}" and seed in seeds:
                counts = counts_of(rows)
                free = mix_at(counts_of(bench[f"{FAST}.world-{world}", seed, "test"]), base, mean_of(counts), K)
                values += [] if free is None else [pass_of(counts, K) - free]
        found += [fmean(values)] if values else []
    return found


def bench_table(bench: Runs) -> Iterator[str]:
    """Chosen settings of the bench and mixes, against tuned GRPO and against the mix at equal mean."""
    rows = []
    for arm, b in [*((arm, 0) for arm in BENCH), *MIXES]:
        values = against_tuned(bench, arm, b)
        mean, passed, more, kept = ([value[i] for value in values] for i in range(4))
        seeds = len({seed for (run, seed, _) in bench if run == f"{arm}.world-1"})
        plain, draws = BENCH[arm]
        name = f"{plain}, {b} of 32 samples from the base" if b else plain
        both = (range(COUNTED_BASE, COUNTED_BASE + seeds), (COUNTED_BASE,))
        above = [[] if b or arm == FAST else above_mix(bench, arm, chosen) for chosen in both]
        rows.append(
            [
                *(name, str(seeds), f"{draws:.1f}"),
                *(f"{100 * fmean(mean):.1f}", "" if arm == TUNED else over(more)),
                *(f"{100 * fmean(passed):.1f}", "" if arm == TUNED else over(kept)),
                *map(_over_some, above),
            ]
        )
    head = ["six test worlds", "seeds", "rollouts", "mean@64", "− tuned", "pass@32", "− tuned", "pass@32 − mix"]
    yield from table([*head, f"seed {COUNTED_BASE} alone"], rows)


def _over_some(values: Sequence[float]) -> str:
    few = f", {len(values)} world{'s' if len(values) > 1 else ''}" if len(values) < len(WORLDS) else ""
    shown = over(values) if len(values) > 1 else f"{100 * fmean(values):+.1f}" if values else ""
    return shown + few if values else ""


# The language model -------------------------------------------------------------------------------------------------


def language_runs(folder: Path) -> Callable[[str], list[list[dict] | None]]:
    """Rows of an arm's in-domain problems in each run; None for a run without it."""
    files = {name: load(folder, name) for name, _ in LANGUAGE}

    def rows(arm: str) -> list[list[dict] | None]:
        if arm in ("base", "base-again"):
            return [files[name][arm, 0, "test"] for name, _ in LANGUAGE]
        return [files[name].get((arm, seed, "test")) for name, seed in LANGUAGE]

    return rows


def language_table(folder: Path) -> Iterator[str]:
    """Differences of arms of the language model over its runs. A base model counts with both of its evaluations."""
    runs, rows = language_runs(folder), []
    names = {"grpo": "GRPO", "grpo_wise": "halfway", "dph_js": "DPH-JS", "base": "base", "exp_only": "D_exp only"}
    names |= {"rkl": "RKL (k3), β 0.01", "dph_js_wise": "DPH-JS halfway"}
    pairs = [("grpo", "base"), ("grpo_wise", "grpo"), ("dph_js", "grpo"), ("dph_js", "base"), ("dph_js", "grpo_wise")]
    pairs += [("dph_js_wise", "grpo_wise"), ("dph_js", "exp_only"), ("rkl", "grpo"), ("rkl", "dph_js")]
    for one, other in pairs:
        again = runs("base-again") if other == "base" else [None] * len(LANGUAGE)
        every = zip(runs(one), runs(other), again, strict=True)
        both = [(counts_of(a), [counts_of(each) for each in (b, c) if each]) for a, b, c in every if a and b]
        rows.append([f"{names[one]} − {names[other]}", str(len(both)), *_differences(both)])
    for arm in ("grpo_wise", "dph_js"):
        above = []
        for a, g, b in zip(runs(arm), runs("grpo"), runs("base"), strict=True):
            assert a and g and b
            free = mix_at(counts_of(g), counts_of(b), mean_of(counts_of(a)), K)
            above += [] if free is None else [pass_of(counts_of(a), K) - free]
        shown = " / ".join(f"{100 * value:+.1f}" for value in above)
        name = f"{names[arm]} − GRPO mixed with base samples, equal mean"
        rows.append([name, str(len(above)), "", shown, over(above) if len(above) > 1 else ""])
    yield from table(["SmolLM2-135M", "runs", "mean@32, over runs", "pass@32, each run", "pass@32, over runs"], rows)


def _differences(both: Sequence[tuple[Counts, Sequence[Counts]]]) -> list[str]:
    mean = [mean_of(a) - fmean(map(mean_of, others)) for a, others in both]
    passed = [pass_of(a, K) - fmean(pass_of(b, K) for b in others) for a, others in both]
    shown = " / ".join(f"{100 * value:+.1f}" for value in passed)
    return [over(mean) if len(mean) > 2 else f"{100 * fmean(mean):+.1f}", shown, over(passed) if len(both) > 2 else ""]


def styles_table(folder: Path) -> Iterator[str]:
    """Distinct styles among correct samples: as published, and of problems with almost only correct samples."""
    medium, runs = load(folder, "llm_medium"), language_runs(folder)
    names = {"base": "base", "grpo": "GRPO", "exp_only": "D_exp only", "dph_js": "DPH-JS"}
    splits = {"": "SQL world", "heldout_phrasing": "Spider, phrasings", "dev": "Spider, databases"}
    rows = []
    for (arm, name), (split, shown) in product(names.items(), splits.items()):
        groups = [rows for (run, _, part), rows in medium.items() if run == arm and part == split] if split else []
        if not split:
            groups = [rows for rows in runs(arm) if rows]
            groups = [groups[0], groups[1]] if arm == "base" else groups
        almost = [[row["styles_correct"] for row in rows if row["correct"] in ALMOST] for rows in groups]
        every = [fmean(row["styles_correct"] for row in rows) for rows in groups]
        cells = [" / ".join(f"{value:.2f}" for value in every), " / ".join(f"{fmean(one):.2f}" for one in almost)]
        rows.append([shown, name, *cells, " / ".join(str(len(one)) for one in almost)])
    rows.sort(key=lambda row: row[0])
    yield from table(["", "each run or start", "styles, all problems", "styles, 29–32 correct", "problems"], rows)


# Rehearsal with other additions -------------------------------------------------------------------------------------


def chosen_eta(runs: Runs, addition: str, etas: Mapping[str, float]) -> str:
    """The pair's arm by the rule of grids/orthogonal.toml, on `dev`, over the seeds that all of these have: the largest
    pass@32 among those whose mean is at most a point below that of the addition alone; else the smallest η."""

    def on_dev(arm: str) -> tuple[float, float]:
        counts = [counts_of(runs[arm, seed, "dev"]) for seed in seeds_of(runs, [addition, *etas])]
        return fmean(map(mean_of, counts)), fmean(pass_of(one, K) for one in counts)

    least = on_dev(addition)[0] - 0.01
    allowed = [arm for arm in etas if on_dev(arm)[0] >= least]
    return max(allowed, key=lambda arm: on_dev(arm)[1]) if allowed else min(etas, key=lambda arm: etas[arm])


def seeds_of(runs: Runs, arms: Sequence[str]) -> list[int]:
    """The training seeds that all of some arms have."""
    sets = [{seed for run, seed, _ in runs if run == arm} for arm in arms]
    return sorted(set[int].intersection(*sets))


def pairs_table(folder: Path) -> Iterator[str]:
    """Additions to GRPO alone and with DPH-JS at three strengths, on `test`: means over seeds; the chosen η is bold.
    With one seed, the difference in pass@32 has its interval over problems."""
    runs, rows = load(folder, "orthogonal"), []
    rows.append(_pair_row("base model", "", [runs["base", 0, "test"]]))
    if grpo := seeds_of(runs, ["grpo"]):
        rows.append(_pair_row("GRPO", "", [runs["grpo", seed, "test"] for seed in grpo]))
    for addition, (name, pair) in PAIRS.items():
        etas = {f"{pair}-eta_{addition}-0.2": 0.2, pair: 0.6, f"{pair}-eta_{addition}-2": 2.0}
        seeds = seeds_of(runs, [addition, *etas])
        if not seeds:  # not all of this pair was run
            continue
        chosen = chosen_eta(runs, addition, etas)
        alone = [runs[addition, seed, "test"] for seed in seeds]
        rows.append(_pair_row(name, "", alone))
        for arm, eta in etas.items():
            shown = f"**{eta:g}**" if arm == chosen else f"{eta:g}"
            rows.append(_pair_row(f"{name} + DPH-JS", shown, [runs[arm, seed, "test"] for seed in seeds], alone))
    head = ["Countdown, test", "η", "seeds", "mean@32", "pass@32", "solutions (correct)", "− alone: mean@32", "pass@32"]
    yield from table(head, rows)


def _pair_row(name: str, eta: str, own: Sequence[list[dict]], alone: Sequence[list[dict]] = ()) -> list[str]:
    def levels(one: Sequence[dict]) -> tuple[float, float]:
        return 100 * mean_of(counts_of(one)), 100 * pass_of(counts_of(one), K)

    mean, passed = (fmean(levels(one)[i] for one in own) for i in (0, 1))
    kinds = fmean(fmean(row["styles_correct"] for row in one) for one in own)
    pairs = list(zip(own, alone, strict=True)) if alone else []
    more = [" / ".join(f"{levels(one)[i] - levels(other)[i]:+.1f}" for one, other in pairs) for i in (0, 1)]
    if len(pairs) == 1:
        solved = (1 - missed(counts_of(rows), K) for rows in pairs[0])
        found = mean_interval(np.subtract(*solved), -1, 1)
        more[1] += f" ({100 * found.low:+.1f} to {100 * found.high:+.1f})"
    return [name, eta, str(len(own)), f"{mean:.1f}", f"{passed:.1f}", f"{kinds:.2f}", *more]


def main() -> None:
    """Print every table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", type=Path, default=Path("experiments/counts"))
    folder = parser.parse_args().counts
    bench = load(folder, "bench-test")
    for title, lines in {
        "The core comparison": core_table(folder),
        "The hidden coin": coin(load(folder, "tiny"), bench),
        "The bench": bench_table(bench),
        "The language model": language_table(folder),
        "Styles": styles_table(folder),
        "Rehearsal with other additions": pairs_table(folder),
    }.items():
        print(f"## {title}\n", *lines, sep="\n", end="\n\n")


if __name__ == "__main__":
    main()
