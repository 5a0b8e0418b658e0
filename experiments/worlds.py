"""Rehearsal and lost pass@k outside Countdown, from the published counts: the SQL worlds, the language model, mastered
problems. `python -m experiments.claim` prints these tables with its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean

import numpy as np

from dph.measure.intervals import student_quantile
from dph.measure.losses import right_among
from experiments.anchor.counts import Evaluated
from experiments.certificates import read_checks
from experiments.evidence import COUNTED_BASE, FAST, LANGUAGE, WORLDS, Runs, counts_of, load, over, table
from experiments.factorial.tables import CLASSES, Start, by_class, class_shares
from experiments.mixing import Counts, mean_of, missed, pass_of

CERTIFICATES = Path("experiments/results/certificates.parquet")
TITLES = ("none", *(f"{100 * low:g}–{100 * high:g} %" for low, high in CLASSES[1:]))
"""The classes of problems, by the base model's share of correct samples."""


def signed(value: float, digits: int = 2) -> str:
    """A number with its sign, and no −0."""
    return f"{round(float(value), digits) + 0.0:+.{digits}f}"


@cache
def runs_of(folder: Path, name: str) -> Runs:
    """The runs of a file of counts."""
    return load(folder, name)


def _levels(rows: Sequence[dict]) -> list[float]:
    counts: Counts = counts_of(rows)
    return [mean_of(counts), pass_of(counts, 8), pass_of(counts, 32)]


def worlds_table(folder: Path) -> Iterator[str]:
    """Rehearsal at one learning rate in the SQL worlds and with the language model."""
    tiny, bench, rows = runs_of(folder, "tiny"), runs_of(folder, "bench-test"), []
    for one, other in (("dph_js", "grpo"), ("dph_f", "grpo"), ("dph_js", "exp_only"), ("dph_f", "exp_only")):
        pairs = [(_levels(tiny[one, s, "test"]), _levels(tiny[other, s, "test"])) for s in range(1, 6)]
        rows.append([f"SQL core, lr 2e-4: `{one}` − `{other}`", "5 runs", *_over_pairs(pairs)])
    names = {"dph_js-eta0.7-lr0.0001": "`dph_js`", "dph_f-eta0.3-lr0.0001": "`dph_f`"}
    names |= {"rkl-kl_coef0.1-lr0.0001": "`rkl`", "grpo_wise-trained_share0.5-lr0.0001": "halfway weights"}
    for one, title in names.items():
        pairs = []
        for world in WORLDS:
            seeds = [seed for (run, seed, _) in bench if run == f"{one}.world-{world}"]
            both = ([_levels(bench[f"{arm}.world-{world}", s, "test"]) for s in seeds] for arm in (one, FAST))
            pairs.append(tuple(np.mean(side, axis=0).tolist() for side in both))
        rows.append([f"six SQL worlds, lr 1e-4: {title} − `grpo`", "6 worlds", *_over_pairs(pairs)])
    files = {name: runs_of(folder, name) for name, _ in LANGUAGE}
    runs = [(files[name], seed) for name, seed in LANGUAGE]
    pairs = [(_levels(file["dph_js", s, "test"]), _levels(file["grpo", s, "test"])) for file, s in runs]
    rows.append(["SmolLM2, lr 2e-5: `dph_js` − `grpo`", "3 runs", *_over_pairs(pairs)])
    yield from table(["at one learning rate", "over", "mean", "pass@8", "pass@32"], rows)


def _over_pairs(pairs: Sequence[tuple[list[float], list[float]]]) -> list[str]:
    return [over([one[i] - other[i] for one, other in pairs]) for i in range(3)]


def elsewhere_table(folder: Path) -> Iterator[str]:
    """pass@32 by how often the base model solves a problem, in the SQL worlds and with the language model. In the SQL
    worlds the base models are those of training seed `COUNTED_BASE`, because those of seed 12 have no counts."""
    bench, rows = runs_of(folder, "bench-test"), []
    for title, seeds in (("", (COUNTED_BASE, COUNTED_BASE + 1)), (f", seed {COUNTED_BASE} alone", (COUNTED_BASE,))):
        groups = []
        for world in WORLDS:
            own = {"base": (f"world-{world}", 0), "base-again": (f"world-{world}-again", 0)}
            own |= {f"seed {seed}": (f"{FAST}.world-{world}", seed) for seed in seeds}
            groups.append({name: _evaluated(bench[run, seed, "test"]) for name, (run, seed) in own.items()})
        rows.append(_class_row(f"six SQL worlds: GRPO, lr 1e-4{title}", groups))
    for arm, title in (("grpo", "GRPO"), ("dph_js", "DPH-JS")):
        groups = []
        for name, seed in LANGUAGE:
            file = runs_of(folder, name)
            own = {"base": file["base", 0, "test"], "base-again": file["base-again", 0, "test"]}
            groups.append({key: _evaluated(value) for key, value in (own | {arm: file[arm, seed, "test"]}).items()})
        rows.append(_class_row(f"SmolLM2, three runs: {title}", groups))
    yield from table(["points of pass@32", *TITLES, "all problems"], rows)


def _evaluated(rows: Sequence[dict]) -> Evaluated:
    return Evaluated(counts_of(rows), [], [], 0)


def _class_row(title: str, groups: Sequence[Start]) -> list[str]:
    names = [[name for name in one if not name.startswith("base")] for one in groups]
    parts = 100 * np.array([by_class(one, own, 32) for one, own in zip(groups, names, strict=True)])
    shares = np.mean([class_shares(one, ("base", "base-again")) for one in groups], axis=0)
    cells = [f"{signed(part)} on {100 * share:.0f} %" for part, share in zip(parts.mean(0), shares, strict=True)]
    return [title, *cells, over([part.sum() / 100 for part in parts])]


def mastered_table(file: Path = CERTIFICATES) -> Iterator[str]:
    """pass@k on unseen near-perfect problems of the SQL world at the end of training: what its certificates measure."""
    ks, changes = (1, 2, 4, 8), {}
    for run in read_checks(file):
        for k in ks:
            base, end = (1 - missed(list(zip(run.samples[i], run.correct[i], strict=True)), k) for i in (0, -1))
            changes.setdefault((run.method, k), {})[run.seed] = float((end - base).mean())
    methods = list(dict.fromkeys(method for method, _ in changes))
    rows = [[f"`{method}` − base", *(over(list(changes[method, k].values()), 2) for k in ks)] for method in methods]
    pairs = [(method, "exp_only") for method in ("dph_f", "dph_js", "grpo_kl", "dapo")]
    for one, other in [*pairs, ("dph_js", "dph_f")]:
        values = ([changes[one, k][s] - changes[other, k][s] for s in changes[one, k]] for k in ks)
        rows.append([f"`{one}` − `{other}`", *(over(each, 2) for each in values)])
    yield from table(["ten runs of each method", *(f"pass@{k}" for k in ks)], rows)


def shift_table(folder: Path) -> Iterator[str]:
    """DPH-JS minus the control without rehearsal in the three runs of the language model that have it: under shift, and
    on problems like those of training."""
    embedded, medium = runs_of(folder, "second-base/llm_embedded"), runs_of(folder, "llm_medium")
    spider = [("seed 1", medium, 1), ("seed 2", medium, 2)]
    groups = {
        "under shift": [
            ("SQL world, held-out combinations", embedded, 2, "cross"),
            *((f"Spider, new databases, {title}", file, seed, "dev") for title, file, seed in spider),
        ],
        "like training": [
            ("SQL world, unseen problems", embedded, 2, "test"),
            *((f"Spider, other phrasings, {title}", file, seed, "heldout_phrasing") for title, file, seed in spider),
        ],
    }
    rows = []
    for name, runs in groups.items():
        pairs = [(_levels(file["dph_js", s, split]), _levels(file["exp_only", s, split])) for _, file, s, split in runs]
        for (title, *_), pair in zip(runs, pairs, strict=True):
            rows.append([title, *(f"{100 * (a - b):+.1f}" for a, b in zip(*pair, strict=True))])
        rows.append([f"**{name}, over the three runs**", *_over_pairs(pairs)])
    yield from table(["DPH-JS − D_exp only", "mean", "pass@8", "pass@32"], rows)


def setting_table(folder: Path, starts: Mapping[int, Start]) -> Iterator[str]:
    """The share of problems that a pre-sampling with 8 draws would call near-perfect (6 of 8), expected from the base
    models' counts. starts: those of Countdown."""
    b = [one[name].counts for one in starts.values() for name in ("base", "base-again")]
    tiny, bench = runs_of(folder, "tiny"), runs_of(folder, "bench-test")
    worlds = [counts_of(bench[f"world-{world}", 0, "test"]) for world in WORLDS]
    language = [counts_of(runs_of(folder, name)["base", 0, "test"]) for name, seed in LANGUAGE if seed != 3]
    medium = [counts_of(runs_of(folder, "llm_medium")["base", 0, "heldout_phrasing"])]
    every = {"Countdown": b, "SQL core": [counts_of(tiny["base", 0, "test"])], "six SQL worlds": worlds}
    every |= {"SmolLM2, SQL world": language, "SmolLM2, Spider's phrasings": medium}
    rows = [[name, f"{100 * fmean(map(_near_perfect, found)):.1f}"] for name, found in every.items()]
    yield from table(["test problems", "near-perfect by 6 of 8, %"], rows)


def _near_perfect(counts: Counts) -> float:
    n, c = np.array(counts).T
    return float(np.sum([right_among(n, c, 8, j) for j in (6, 7, 8)], axis=0).mean())


def power_table(folder: Path) -> Iterator[str]:
    """The chance that three runs show an effect of the paper's size, by the spread of SmolLM2's runs."""
    files = {name: runs_of(folder, name) for name, _ in LANGUAGE}
    gaps = [
        100 * (_levels(files[name]["dph_js", s, "test"])[2] - _levels(files[name]["grpo", s, "test"])[2])
        for name, s in LANGUAGE
    ]
    spread, rows = float(np.std(gaps, ddof=1)), []
    for effect in (4.7, 8.2):
        rows.append([f"{effect:.1f} points", f"{spread:.1f}", f"{100 * power(effect, spread, len(gaps)):.0f} %"])
    yield from table(["true effect on pass@32", "standard deviation of a run", "chance that three runs show it"], rows)


def power(effect: float, spread: float, runs: int, draws: int = 400_000) -> float:
    """The chance that Student's 95 % interval over so many runs lies above 0, by simulation with one seed."""
    samples = np.random.default_rng(0).normal(effect, spread, (draws, runs))
    reach = student_quantile(0.975, runs - 1.0) * samples.std(1, ddof=1) / runs**0.5
    return float((samples.mean(1) > reach).mean())
