"""Experiment D1: arms against the protocol, the rule on worked numbers, and effects that are known beforehand."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dph.cli.main import parse
from dph.errors import UserError
from dph.rehearsal.presampled import Presampled, file_hashes
from dph.rehearsal.store import Rehearsal, write_rehearsal
from dph.runs.directory import RunDir
from experiments.anchor.counts import Evaluated
from experiments.anchor.design import NEAR, RARE, SEEN, arm_jobs, base_jobs
from experiments.factorial.design import (
    DEVELOPMENT,
    OPTIONS,
    PRESAMPLES,
    RATES,
    STARTS,
    Choice,
    choice_of,
    chosen_rate,
    primary,
    rates,
    secondary,
    strengths,
)
from experiments.factorial.rare import write_rare
from experiments.factorial.run import run
from experiments.factorial.tables import (
    arm_table,
    class_table,
    complete,
    effect,
    mean_at,
    primary_table,
    secondary_table,
    seeds_of,
)

CHOICE = Choice("1e-4", "3", "1")


def settings_of(arms: Any) -> dict[str, Any]:
    """The settings of every training run by the name of its arm."""
    jobs = [next(iter(arm_jobs(61, Path("out"), arm, {}, options=OPTIONS))) for arm in arms]
    return {job.name: parse(job.arguments[0], job.arguments[1:])[0] for job in jobs}


def test_arms_are_the_protocols() -> None:
    every = settings_of((*primary(CHOICE), *secondary(CHOICE)))
    assert len(every) == 13
    for name, own in every.items():
        assert own.task.options == {"seed": "61", "test_problems": "400"} and own.loss.clip_high == 0.28
        assert (own.steps, own.rollout.prompts, own.rollout.n) == (375, 8, 16)
        assert own.prompt_set == ("explore" if name.startswith("x") else "all")
        assert own.optim.lr == (float(name[2:].removesuffix("-again")) if name.startswith("g-") else 1e-4)
        assert own.seed == (6102 if name.endswith("-again") else 6101)
        rows = {"gr": "near", "xr": "near", "xf": "near", "xs": "rare"}.get(name.split("-")[0])
        assert own.rehearsal.rows == (64 if rows else 0) and (not rows or own.rehearsal.path == f"out/{rows}")
        assert own.loss.kl_coef == (0.1 if name == "k-0.1" else 0.0)
        if rows:
            assert (own.loss.divergence, own.loss.eta) == (("forward_kl_raw", 1) if name == "xf-1" else ("js", 3))
    names = {"g-1e-4", "x", "xr-3", "gr-3", "k-0.1", "xs-3", "xf-1"}
    assert names | {f"{name}-again" for name in ("g-1e-4", "x", "xr-3")} | {f"g-{r}" for r in RATES} == set(every)
    development = settings_of((*rates(), *strengths("5e-5")))
    assert len(development) == 11 and {own.optim.lr for name, own in development.items() if name[0] == "x"} == {5e-5}
    assert not set(DEVELOPMENT) & set(STARTS) and len(STARTS) == 16 and min(DEVELOPMENT) > 48


def test_stops_are_evaluated_and_kept() -> None:
    jobs = {job.name: job for job in arm_jobs(61, Path("o"), primary(CHOICE)[0], {}, options=OPTIONS)}
    assert set(jobs) == {"g-1e-4", *(f"eval-g-1e-4{s}" for s in ("", "-step125", "-step250", "-share0.5"))} | {
        "make-g-1e-4-share0.5"
    }
    assert "step-00000125/model" in " ".join(jobs["eval-g-1e-4-step125"].arguments)
    trained = parse("train", jobs["g-1e-4"].arguments[1:])[0]
    assert (trained.checkpoint_every, trained.keep_checkpoints) == (125, 9)
    made = {job.name: parse(job.arguments[0], job.arguments[1:])[0] for job in base_jobs(61, Path("o"), {}, PRESAMPLES)}
    near, seen = made[NEAR], made[SEEN]
    assert (near.threshold, seen.threshold, seen.refine) == (6, 1, "keep") and near.seed == seen.seed == 61
    assert near.rollout == seen.rollout and near.stored == seen.stored == 4


def evaluated(*correct: int) -> Evaluated:
    """64 samples of each problem; the greedy response is right if most samples are."""
    counts = [(64, c) for c in correct]
    return Evaluated(counts, [[c] for c in correct], ["2 numbers"] * len(correct), 0, [c > 32 for c in correct])


def test_the_rule_takes_the_rate_with_the_highest_mean_and_the_largest_weight_that_costs_little() -> None:
    start: dict[str, Evaluated] = {
        f"g-{rate}": evaluated(mean, mean) for rate, mean in zip(RATES, (30, 34, 33, 20), strict=True)
    }
    assert chosen_rate([start]) == "5e-5" and choice_of([start]) is None
    one_sample = 1 / 64  # of two problems with 64 samples each: 0.78 points of the mean
    assert one_sample / 2 > 0.005
    start |= {"x": evaluated(33, 33), "xr-1": evaluated(33, 33), "xr-3": evaluated(33, 33), "xr-10": evaluated(33, 32)}
    start |= {"xf-0.3": evaluated(30, 30), "xf-1": evaluated(29, 29), "xf-3": evaluated(28, 28)}
    assert choice_of([start]) == Choice("5e-5", "3", "0.3"), (
        "0.78 points are more than half a point; none: the smallest"
    )
    assert choice_of([start, {**start, "xr-10": evaluated(33, 33)}]) == Choice("5e-5", "10", "0.3"), "0.39 over both"
    assert chosen_rate([start, {}]) is None


def faked(gain: int) -> dict[int, Mapping[str, Evaluated]]:
    """Sixteen starts in which XR solves a further problem in 64 · gain / 64 samples more than G."""
    starts: dict[int, Mapping[str, Evaluated]] = {}
    for number, start in enumerate(STARTS):
        plain, noise = (40, 40, 8, 0), number % 3
        own = {name: evaluated(*plain) for name in ("g-1e-4", "g-1e-4-again", "x", "x-again", "k-0.1", "gr-3", "xf-1")}
        own |= {f"g-{rate}": evaluated(40, 40, 8, 0) for rate in RATES}
        own |= {f"g-1e-4{free}": evaluated(*plain) for free in ("-step125", "-step250", "-share0.5")}
        own |= {name: evaluated(40, 40, 8 + noise, gain) for name in ("xr-3", "xr-3-again", "xs-3")}
        own |= {"base": evaluated(30, 30, 16, 4), "base-again": evaluated(30, 30, 16, 4)}
        starts[start] = own
    return starts


def test_primaries_hold_for_an_effect_and_not_without_one() -> None:
    rows = list(primary_table(faked(4), CHOICE))
    assert "| holds |" in rows[2] and rows[4].endswith("| holds |")
    missing = 1 - math.comb(60, 8) / math.comb(64, 8)  # pass@8 of a problem that is solved 4 times of 64
    found = effect(faked(4), seeds_of("xr-3"), seeds_of("g-1e-4"), "pass@8")
    assert found is not None and found.estimate > 100 * missing / 4 and found.above == found.starts == 16
    plain = {start: {**own, "xr-3": own["x"], "xr-3-again": own["x"]} for start, own in faked(0).items()}
    rows = list(primary_table(plain, CHOICE))
    assert "does not hold" in rows[2] and "not read" in rows[4]
    costly = {start: {**own, "xr-3": evaluated(20, 20, 20, 20)} for start, own in faked(0).items()}
    assert "does not hold" in list(primary_table(costly, CHOICE))[2], "pass@8 above, but the mean is lower"
    assert complete(faked(1), CHOICE) == list(STARTS) and complete({61: faked(1)[61]}, CHOICE) == [61]


def test_the_mean_at_equal_passk_is_defined_in_every_start() -> None:
    frontier = [(0.3, 0.9), (0.36, 0.8), (0.4, 0.7), (0.35, 0.5)]
    assert mean_at(frontier, 0.75) == pytest.approx(0.38)
    assert mean_at(frontier, 0.9) == 0.3 and mean_at(frontier, 0.95) == 0.3, "no point has so much: the highest one"
    assert mean_at(frontier, 0.1) == 0.4, "the highest mean that keeps at least so much"


def test_every_table_has_every_arm_and_classes_add_up() -> None:
    starts = faked(2)
    assert all(
        "–" not in line or "|---" in line or line.startswith("| XR −") for line in secondary_table(starts, CHOICE)
    )
    rows = list(class_table(starts, CHOICE))
    cells = [cell.strip() for cell in rows[3].split("|")[2:8]]
    assert rows[3].startswith("| G (16 starts)") and sum(map(float, cells[:5])) == pytest.approx(
        float(cells[5]), abs=0.02
    )
    shares = [float(cell) for cell in rows[2].split("|")[2:7]]
    assert shares == [0, 50, 50, 0, 0], "16 and 4 of 64 are at most a quarter, 30 of 64 at most a half"
    lost = (
        100 * (1 - math.comb(56, 32) / math.comb(64, 32)) / 4
        - 100 * sum(1 - math.comb(64 - c, 32) / math.comb(64, 32) for c in (16, 4)) / 4
    )
    assert float(cells[1]) == pytest.approx(lost, abs=0.006)
    assert {row.count("|") for row in arm_table(starts, CHOICE)} == {8}


def test_what_is_missing_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="development starts"):
        run(["--report-only", "--counts", str(tmp_path / "none.parquet")])


def presampled(path: Path, solved: Mapping[str, int], stored: tuple[str, ...]) -> Path:
    """A finished pre-sampling with so many correct draws of eight, and one stored response to some problems."""
    settings = parse("presample", ["--preset", "countdown", "--model.path", "model", "--out", str(path)])[0]
    made = RunDir.start(settings.out, "presample", settings)
    partition = [
        {"problem_id": id, "set": "perfect" if c > 5 else "explore", "correct": c, "samples": 8, "content": id}
        for id, c in solved.items()
    ]
    pq.write_table(pa.Table.from_pylist(partition), path / "partition.parquet")
    rows = [Rehearsal([1, 2], [3, solved[id]], id, [-0.5, -0.1], id) for id in stored]
    write_rehearsal(path / "rehearsal.parquet", rows)
    made.finish(files=file_hashes(path), stored_responses=len(rows), task=asdict(settings.task))
    return path


def test_rare_rows_are_of_problems_that_are_solved_one_to_three_times(tmp_path: Path) -> None:
    solved = {"never": 0, "once": 1, "thrice": 3, "half": 4, "always": 8}
    near = presampled(tmp_path / NEAR, solved, ("always",))
    seen = presampled(tmp_path / SEEN, solved, ("once", "thrice", "half", "always"))
    write_rare(near, seen, tmp_path / RARE)
    made = Presampled.open(tmp_path / RARE)
    assert [row.problem_id for row in made.stored] == ["once", "thrice"]
    assert made.partition == Presampled.open(near).partition, "the explored problems stay the same"
    assert made.run.manifest["stored_responses"] == 2
    other = presampled(tmp_path / "other", solved | {"half": 5}, ("half",))
    with pytest.raises(ValueError, match="did not draw the same"):
        write_rare(near, other, tmp_path / "else")
    assert not (tmp_path / "else").exists()
