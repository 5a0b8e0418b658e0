"""Experiment B2: its arms are the protocol's, its choice and its comparisons read the counts as the protocol says, and
its command prints and draws them from a file of counts whose winners are known."""

import re
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dph.cli.main import parse
from dph.errors import UserError
from experiments.anchor.counts import Evaluated
from experiments.anchor.design import arm_jobs, checkpoint
from experiments.bank.design import (
    DEVELOPMENT,
    HALFWAY,
    LENGTHS,
    LINE,
    STARTS,
    banks,
    choose,
    complete,
    confirm,
    controls,
    develop,
    evaluation_of,
    gain,
    missing,
    primary,
    tables,
)
from experiments.bank.run import SMOKE, run
from experiments.bank.run import parse as parse_options

PROTOCOL = Path(__file__).parents[1] / "results" / "bank.md"


def test_arms_are_the_protocols() -> None:
    names = [arm.name for arm in develop()]
    assert len(names) == len({*names}) == 31
    for arm in develop():
        job, *evaluations = arm_jobs(111, Path("out"), arm, {})
        own = parse(job.arguments[0], job.arguments[1:])[0]
        assert own.task.options == {"seed": "111"} and (own.steps, own.rollout.n, own.prompt_set) == (500, 16, "all")
        assert own.rollout.prompts == (24 if arm.family == "grpo-24" else 8) and own.loss.clip_high == 0.28
        assert own.optim.schedule == "constant" and own.checkpoint_every == 125
        assert arm.trained == 500 * own.rollout.prompts * 16
        assert [job.name for job in evaluations][:2] == [f"eval-{arm.name}", f"eval-{arm.name}-step125"]
        banked = arm in banks()
        assert bool(own.bank.key) == banked and own.rehearsal.rows == (64 if banked or arm.family == "sft" else 0)
        if banked:
            begun = arm.rows is not None
            assert own.bank.begun == begun == bool(own.rehearsal.path) == (not arm.name.startswith("online"))
            key = arm.family.split("-")[-1]
            assert own.bank.key == (key if key in ("style", "once", "every") else "style") and own.bank.capacity == 16
            assert own.loss.divergence == ("js" if arm.family == "js" else "forward_kl_raw")
            assert own.loss.kl == ("k3" if arm.family == "with-k3" else "none")
            assert str(own.loss.eta) in (f"{float(arm.name.removesuffix('-slow').split('-')[-1])}",)
            assert own.optim.lr == (5e-5 if arm.name.endswith("slow") else 1e-4)
    text = PROTOCOL.read_text(encoding="utf-8")
    assert {arm.family for arm in develop()} <= {*re.findall(r"`([\w-]+)`", text)}
    assert f"{DEVELOPMENT[0]} to {DEVELOPMENT[-1]}" in text and f"{STARTS[0]} to {STARTS[-1]}" in text
    used = {11, 12, 13, 14, 101, 102, *range(21, 33), *range(41, 49), *range(51, 54), *range(61, 77)}
    used |= {*range(81, 89), *range(91, 99)}
    assert len(STARTS) == 12 and not {*DEVELOPMENT, *STARTS} & used and not {*DEVELOPMENT} & {*STARTS}


def evaluated(*correct: int) -> Evaluated:
    counts, forms = [(64, c) for c in correct], [[c] for c in correct]
    return Evaluated(counts, forms, [""] * len(correct), 0, [c > 32 for c in correct])


def start_of(better: Mapping[str, int], seed: int = 0) -> dict[str, Evaluated]:
    """GRPO gives up a rare problem for its mean; other arms are its fastest rate, with more correct samples of the rare
    problem where `better` says."""
    found = {"base": evaluated(20, 20, 8)}
    for arm in develop():
        for steps in LENGTHS:
            slow = LINE.index(arm.name) if arm.name in LINE else len(LINE) - 1
            rare = 4 - slow if arm.name in LINE else better.get(arm.name, 1) + seed % 2
            found[evaluation_of(arm.name, steps)] = evaluated(24 + 4 * slow, 24 + 4 * slow, rare)
    return found | {HALFWAY: evaluated(24, 24, 4)}


def test_the_choice_and_the_comparisons_follow_the_counts() -> None:
    better = {"begun-style-3": 9, "begun-style-1": 5, "k3-0.3": 3, "sft-1": 4, "online-once-0.3": 2}
    first = {seed: start_of(better) for seed in DEVELOPMENT}
    assert not missing(first) and missing({111: first[111]})[0] == "base of start 112"
    choice = choose(first)
    assert {choice[name] for name in ("begun-style", "k3", "sft", "online-once")} == {
        *("begun-style-3", "k3-0.3", "sft-1", "online-once-0.3"),
    }
    assert len(confirm(choice)) == 6 + len(choice) == 6 + 10
    starts = {seed: start_of(better, seed) for seed in STARTS}
    assert complete(starts, choice) == starts and gain(starts[122], "grpo-1e-4") == pytest.approx(0, abs=1e-12)
    found = dict(primary(starts, choice))
    assert all(effect is not None and effect.low > 0 and effect.starts == 12 for effect in found.values())
    rows = list(tables(starts, choice))
    assert [row.split("|")[-2].strip() for row in rows[2:5]] == ["holds", "holds", "holds"]
    assert sum(row.startswith("| begun-style-3 |") for row in rows) == 2 and rows[-1].startswith("| base |")
    starts = {seed: start_of({**better, "k3-0.3": 9}, seed) for seed in STARTS}
    rows = list(tables(starts, choice))
    assert [row.split("|")[-2].strip() for row in rows[2:5]] == ["holds", "does not hold", "not read"]
    del starts[121]["sft-1-step125"]
    assert list(complete(starts, choice)) == list(STARTS[1:])


def written(file: Path, starts: Mapping[int, Mapping[str, Evaluated]]) -> Path:
    """A file of counts as the runs write it."""
    common = {"kind": "", "rollouts": 0}
    rows = [
        {"start": seed, "run": run, "id": f"p{place}", "samples": n, "correct": c, "greedy": c > 32, "form_counts": [c]}
        | common
        for seed, start in starts.items()
        for run, one in start.items()
        for place, (n, c) in enumerate(one.counts)
    ]
    pq.write_table(pa.Table.from_pylist(rows), file)
    return file


def cells_of(said: str, row: str) -> list[list[str]]:
    """The cells of each printed row with a title."""
    lines = [line for line in said.splitlines() if line.startswith(f"| {row} |")]
    return [[cell.strip() for cell in line.split("|")[2:-1]] for line in lines]


BETTER = {"begun-style-3": 9, "begun-style-1": 5, "k3-0.3": 3, "sft-1": 4, "online-once-0.3": 2}
ROWS = {name: evaluated(36, 36, 2) for name in ("rows-only-1e-4", "rows-only-5e-5")}


def test_the_command_chooses_prints_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = {seed: start_of(BETTER) for seed in DEVELOPMENT}
    starts = {seed: start_of(BETTER, seed) | ROWS for seed in STARTS}
    counts, figure = written(tmp_path / "counts.parquet", first | starts), tmp_path / "figures" / "b2.png"
    run(["--report-only", "--counts", str(counts), "--figure", str(figure)])
    said = capsys.readouterr().out
    chosen = [row.split("|")[1].strip() for row in said.splitlines() if row.endswith("| chosen |")]
    tied = [*(f"{family}-0.3" for family in ("online-style", "begun-once", "begun-every", "online-every")), "js-3"]
    assert {"begun-style-3", "k3-0.3", "sft-1", "online-once-0.3", *tied, "with-k3-1"} == {*chosen}, "first of equals"
    assert [cells[-1] for cells in cells_of(said, "over GRPO's learning rates")] == ["holds"]
    short, long = cells_of(said, "begun-style-3")[1:]  # the first one is the choice's
    assert (short[0], long[0]) == ("125", "500") and "above 0 in 12 of 12" in long[5]
    assert len(cells_of(said, "rows-only-1e-4 (12 starts)")) == 1
    assert cells_of(said, "grpo-1e-4")[-1][5].startswith("+0.00")
    assert figure.read_bytes().startswith(b"\x89PNG") and figure.stat().st_size > 10_000


def test_a_start_or_an_arm_that_is_missing_changes_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = {seed: start_of(BETTER) for seed in DEVELOPMENT}
    starts = {seed: start_of(BETTER, seed) | ROWS for seed in STARTS if seed != 124}
    del starts[126]["begun-style-3-step125"]  # its run failed
    del starts[127]["rows-only-5e-5"]
    del starts[128]["begun-style-1"]  # not chosen, so that nobody needs it
    counts = written(tmp_path / "counts.parquet", first | starts)
    run(["--report-only", "--counts", str(counts)])
    out, err = capsys.readouterr()
    assert "10 of 12 starts are complete" in err and "in 10 of 10" in cells_of(out, "begun-style-3")[-1][5]
    assert cells_of(out, "rows-only-1e-4 (10 starts)") and cells_of(out, "rows-only-5e-5 (9 starts)")
    run(["--report-only", "--counts", str(written(tmp_path / "first.parquet", first))])
    out, err = capsys.readouterr()
    assert "0 of 12 starts" in err and cells_of(out, "over GRPO's learning rates") == [["–", "does not hold"]]
    del first[112]["js-3"]
    with pytest.raises(UserError, match=r"lacks 1 of .* \(first: js-3 of start 112\); run the command again"):
        run(["--report-only", "--counts", str(written(tmp_path / "less.parquet", first))])
    run(["--report-only", "--development", "111", "--counts", str(tmp_path / "less.parquet")])


def test_the_seeds_of_a_smoke_run_are_few_and_those_of_the_protocol_the_default() -> None:
    smoke, whole, given = parse_options(["--smoke"]), parse_options([]), parse_options(["--smoke", "--starts", "122"])
    assert (smoke.development, smoke.starts) == ((111,), (111, 121)), "one start chooses, and is read again"
    assert (whole.development, whole.starts, given.starts) == (DEVELOPMENT, STARTS, [122])
    assert parse_options(["--starts"]).starts == []
    assert checkpoint("js-3", 125, SMOKE, 500).endswith("step-00000001/model")


def test_controls_come_first_and_what_is_missing_is_one_sentence(tmp_path: Path) -> None:
    assert develop()[: len(controls())] == controls()
    with pytest.raises(UserError, match="lacks 96 of the evaluations that choose the arms"):
        run(["--report-only", "--counts", str(tmp_path / "none.parquet")])
