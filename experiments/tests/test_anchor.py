"""Experiments B and E: arms against the protocols, the measure against worked numbers, counts against the runs."""

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dph.cli.main import parse
from dph.errors import UserError
from dph.runs.directory import RunDir
from experiments.anchor.counts import Evaluated, arm_of, lacks, read, write
from experiments.anchor.design import (
    CONFIRM_STARTS,
    DELETED,
    DISTINCT,
    FAST,
    FOLLOW,
    NEAR,
    NEEDED,
    SOLVED,
    STARTS,
    Arm,
    arm_jobs,
    arms,
    base_jobs,
    follow_arms,
    made,
    made_jobs,
    needed,
)
from experiments.anchor.run import CONFIRM_COUNTS, COUNTS, FOLLOW_COUNTS, run
from experiments.anchor.tables import (
    CANDIDATES,
    COMPARISONS,
    FREE,
    ZERO,
    E,
    F,
    arm_table,
    at_target,
    comparison_table,
    confirm_arms,
    confirm_table,
    families,
    figure,
    place,
    reading_table,
    target_of,
    verdict,
)
from experiments.countdown_english import CountdownEnglish, in_english
from experiments.mixing import interpolated


def settings_of(name: str, among: tuple[Arm, ...] = arms(), below: str = "") -> tuple[Any, dict[str, Any]]:
    """Settings of an arm's training run, and all of its jobs by name."""
    [arm] = [arm for arm in among if arm.name == name]
    jobs = list(arm_jobs(21, Path("out"), arm, {}, below))
    parsed = {
        job.name: parse(job.arguments[0], job.arguments[1:])[0] for job in jobs if job.arguments[0] != "interpolate"
    }
    return parsed[name], {job.name: job for job in jobs}


def test_every_arm_differs_from_grpo_in_its_anchor_or_learning_rate_only() -> None:
    plain, _ = settings_of(ZERO)
    assert (plain.steps, plain.rollout.n, plain.rollout.prompts, plain.optim.lr) == (125, 16, 8, 1e-4)
    assert len({arm.name for arm in arms()}) == len(arms()) == 31
    for arm in arms():
        own, _ = settings_of(arm.name)
        assert own.task.options == {"seed": "21"} and own.loss.clip_high == 0.28 and own.steps == 125
        assert own.prompt_set == ("explore" if arm.name in ("exp_only", "dph_js") else "all")
        anchored = own.rehearsal.rows, own.loss.kl
        if arm.family.startswith((SOLVED, NEAR)):
            assert anchored == (64, "none") and arm.family.endswith(own.loss.divergence)
            assert own.rehearsal.path == f"out/{SOLVED if arm.family.startswith(SOLVED) else NEAR}"
            assert str(own.loss.eta).rstrip("0").rstrip(".") == arm.name.rpartition("-")[2] and own.optim.lr == 1e-4
        elif arm.family.startswith("k"):
            assert anchored == (0, arm.family) and own.loss.eta == 0 and own.optim.lr == 1e-4
        elif arm.family.startswith("grpo"):
            assert (
                anchored == (0, "none")
                and f"{own.optim.lr:g}" == f"{float(arm.name.split('-', 1)[1].removesuffix('-again')):g}"
            )
    assert settings_of("grpo-1e-4-again")[0].seed != plain.seed == settings_of("k3-1")[0].seed


def test_a_start_has_its_own_problems_base_model_and_two_pre_samplings() -> None:
    assert len(STARTS) == 12 and not {11, 12, 13, 101, 102} & set(STARTS)
    jobs = {job.name: parse(job.arguments[0], job.arguments[1:])[0] for job in base_jobs(22, Path("o"), {})}
    assert {one.task.options["seed"] for one in jobs.values()} == {"22"} and jobs["base"].seed == 22
    near, solved = jobs[NEAR], jobs[SOLVED]
    assert (near.threshold, near.rollout.n, near.stored) == (6, 8, 4)
    assert (solved.threshold, solved.rollout.n, solved.stored, solved.refine) == (1, 32, 8, "keep")
    assert len({jobs["eval-base"].seed, jobs["eval-base-again"].seed, 0}) == 3 and jobs["eval-base"].rollout.n == 64
    _, made = settings_of(ZERO)
    assert [name for name in made if name.startswith("eval")] == [
        f"eval-{ZERO}{what}" for what in ("", "-step50", "-step75", "-step100", "-share0.5", "-share0.75")
    ]
    assert "step-00000050/model" in " ".join(made[f"eval-{ZERO}-step50"].arguments)


def evaluated(*correct: int) -> Evaluated:
    """64 samples of each problem, all correct ones alike."""
    return Evaluated(
        [(64, c) for c in correct], [[c] if c else [] for c in correct], ["2 numbers"] * len(correct), 16_000
    )


def test_a_family_is_read_off_its_frontier_at_the_mean_of_grpo() -> None:
    start = {"base": evaluated(16, 16, 16, 16), ZERO: evaluated(64, 64, 0, 0)}
    start |= {"grpo-5e-5": evaluated(64, 32, 16, 0), "grpo-5e-5-again": evaluated(64, 32, 0, 16)}
    start |= {f"k3-{beta}": evaluated(64, 16, 16, 0) for beta in ("0.1", "0.3", "1")}
    assert target_of(start) == pytest.approx(112 / 256)
    assert at_target(start, "k2") is None, "no arms"
    # From (1/2, 1/2) to (3/8, almost 3/4): the middle.
    passed = 1 - sum(math.comb(64 - c, 32) / math.comb(64, 32) for c in (64, 16, 16, 0)) / 4
    assert at_target(start, "k3") == pytest.approx((0.5 + passed) / 2)
    assert at_target(start | {"k3-0.1": evaluated(64, 64, 0, 0)}, "k3") is not None
    assert at_target(start | {ZERO: evaluated(16, 16, 0, 0)}, "k3") is None, "nothing is extrapolated"
    assert at_target({name: one for name, one in start.items() if name != "grpo-5e-5-again"}, "k3") is None
    assert set(families()) >= {name for _, *pair in COMPARISONS for name in pair} - {"mix"}


def test_a_difference_is_established_if_the_interval_for_all_comparisons_excludes_0() -> None:
    spread = [0.2, 0.1, 0.3, 0.2]  # mean 0.2, standard error 0.0408; t(3) is 3.18 at 95 % and 6.44 at 99.3 %
    text = verdict(spread)
    assert text == ("+0.20 (+0.07 to +0.33)", "no")
    assert verdict([0.2, 0.21, 0.19, 0.2]) == ("+0.20 (+0.19 to +0.21)", "yes")
    assert verdict([0.2]) == verdict([]) == ("–", "–")


def test_the_two_readings_of_grpos_learning_rates() -> None:
    """The second seed of GRPO ends below the common mean, so that only the first one's lines reach it."""
    names = families()["k3"] + families()["grpo"] + families()["grpo-again"]
    one = {name: evaluated(40, 20, 10, 0) for name in names} | {"base": evaluated(16, 16, 8, 0)}
    one |= {
        "grpo-2.5e-5": evaluated(40, 20, 6, 0),
        "grpo-5e-5": evaluated(40, 30, 8, 2),
    }  # so the common mean is 75 of 256
    one |= {"k3-1": evaluated(40, 30, 10, 4)}
    again = dict.fromkeys(families()["grpo-again"], evaluated(40, 20, 10, 0))
    one |= again | {"grpo-5e-5-again": evaluated(40, 20, 10, 0)}
    row = list(reading_table({1: one, 2: one}))[2]
    lines, mean = FREE["grpo"], target_of(one)
    value = at_target(one, "k3")
    assert value is not None and mean is not None
    other = interpolated([place(one[name]) for name in lines], mean)
    assert other is not None
    first = value - other
    itself = value - (place(one["grpo-5e-5"])[1] + place(one["grpo-5e-5-again"])[1]) / 2
    shown = [cell.strip() for cell in row.strip("|").split("|")]
    assert shown[0] == "k3 − grpo" and shown[1] == "2 of 2" and shown[3] == "–, 0 starts"
    assert [cell.split()[0] for cell in (shown[2], shown[4])] == [f"{100 * value:+.2f}" for value in (first, itself)]
    assert first != pytest.approx(itself)


def test_tables_and_figure_of_two_starts(tmp_path: Path) -> None:
    names = {name for group in families().values() for name in group}
    starts = {}
    for start in (1, 2):
        made = {name: evaluated(40, 30 - i % 5, 10 - i % 7, i % 3) for i, name in enumerate(sorted(names))}
        starts[start] = made | {"base": evaluated(16, 16, 12, start), "base-again": evaluated(16, 15, 12, start)}
    lines = list(comparison_table(starts))
    assert len(lines) == 2 + len(COMPARISONS) and all("of 2" in line for line in lines[2:])
    rows = list(arm_table(starts))
    assert {row.count("|") for row in rows} == {12} and len(rows) == 2 + len(names) + 2 + 3
    [base] = [row for row in rows if row.startswith("| base |")]
    assert base.split("|")[2:5] == [" 2 ", " 16,000 ", " 17.8 "], "45.5 of 256"
    figure(starts, tmp_path / "f" / "anchor.png")
    assert (tmp_path / "f" / "anchor.png").stat().st_size > 10_000


def test_counts_hold_solutions_rollouts_and_settings_and_are_read_back(tmp_path: Path) -> None:
    root = tmp_path / "start-5"
    for name in ("base", "solved-js-1", "solved-js-1-step50", "unfinished"):
        folder = root / "eval" / name
        folder.mkdir(parents=True)
        common = {"split": "test", "kind": "2 numbers", "samples": 3, "greedy": True}
        problems = [common | {"id": f"p{i}", "correct": 2 - i} for i in (1, 0)]
        pq.write_table(pa.Table.from_pylist(problems), folder / "problems.parquet")
        texts = [("p0", 0, "correct", "(+1+2)"), ("p0", 1, "correct", "(+1+2)"), ("p0", 2, "wrong", "1")]
        texts += [("p0", -1, "correct", "(+1+2)"), ("p1", 0, "correct", "(*1*2)"), ("p1", 1, "wrong", "other")]
        columns = ("id", "sample", "outcome", "style")
        rows = [{"split": "test"} | dict(zip(columns, one, strict=True)) for one in texts]
        pq.write_table(pa.Table.from_pylist(rows), folder / "completions.parquet")
        status = "running" if name == "unfinished" else "complete"
        (folder / "manifest.json").write_text(json.dumps({"status": status}))
    config = parse("train", ["--preset", "grpo", "--loss.eta", "1", "--out", str(root / "train" / "solved-js-1")])[0]
    RunDir.start(config.out, "train", config)
    assert lacks(tmp_path / "counts.parquet", 5, [root], arms())
    write(tmp_path / "counts.parquet", 5, [root], arms())
    assert not lacks(tmp_path / "counts.parquet", 5, [root], arms())
    assert lacks(tmp_path / "counts.parquet", 6, [root], arms()), "another start"
    found = read(tmp_path / "counts.parquet", 5)
    assert set(found) == {"base", "solved-js-1", "solved-js-1-step50"}
    assert found["base"].counts == [(3, 2), (3, 1)] and found["base"].forms == [[2], [1]]
    assert (found["base"].rollouts, found["solved-js-1"].rollouts) == (0, 48_000)
    rows = pq.read_table(tmp_path / "counts.parquet").to_pylist()
    assert rows[0]["forms"] == ["(+1+2)"] and str(tmp_path) not in json.dumps(rows)
    assert json.loads(rows[-1]["settings"])["loss"]["eta"] == 1
    assert read(tmp_path / "counts.parquet", 6) == {}
    write(tmp_path / "counts.parquet", 6, [root], arms())
    write(tmp_path / "counts.parquet", 5, [root], arms())
    assert read(tmp_path / "counts.parquet", 6) == read(tmp_path / "counts.parquet", 5) == found
    assert pq.read_table(tmp_path / "counts.parquet").num_rows == 2 * len(rows)
    (root / "eval/base/manifest.json").unlink()
    write(tmp_path / "counts.parquet", 5, [root], arms())  # what is not made again keeps its counts
    assert read(tmp_path / "counts.parquet", 5) == found


def test_experiment_e_trains_on_the_same_starts_with_what_its_arms_name() -> None:
    names = [arm.name for arm in (*arms(), *follow_arms(), *made())]
    assert len(set(names)) == len(names) and len(follow_arms()) == 9 and len(made()) == 10
    for arm in follow_arms():
        own, jobs = settings_of(arm.name, follow_arms(), FOLLOW)
        assert own.out == f"out/e/train/{arm.name}" and own.model.path == "out/base/model"
        assert (own.task.options, own.loss.clip_high, own.prompt_set) == ({"seed": "21"}, 0.28, "all")
        assert own.seed == settings_of(ZERO)[0].seed and set(jobs) == {arm.name, f"eval-{arm.name}"}
        plain = arm.family == "grpo-24"
        rehearsal, loss = own.rehearsal, own.loss
        assert rehearsal.rows == (0 if plain else 64) and own.optim.lr == (float(arm.name[8:]) if plain else 1e-4)
        assert rehearsal.path == {"": f"out/{NEAR}", SOLVED: f"out/{SOLVED}"}[arm.rows or ""]
        assert arm.rollouts == 125 * own.rollout.prompts * own.rollout.n + (32_000 if arm.rows == SOLVED else 0)
        assert loss.divergence == ("forward_kl_raw" if arm.family.endswith("raw") else "js")
        assert (loss.kl, loss.kl_coef) == (("k3", float(arm.name[13:])) if arm.family.startswith("k3") else ("none", 0))
    assert {arm.family for arm in needed()} == set(NEEDED) and len(needed()) == 14


def test_experiment_f_compares_its_lead_with_families_that_draw_as_much() -> None:
    for arm in confirm_arms():
        own, _ = settings_of(arm.name, confirm_arms())
        assert arm.rollouts == 48_000 and own.optim.lr == float(arm.name[8:] if arm.family == "grpo-24" else FAST)
        assert own.loss.kl_coef == (float(arm.name[6:]) if arm.family == "k3-24" else 0) and own.loss.clip_high == 0.28
        assert (own.rehearsal.path != "") == (arm.name == "distinct-raw-1") and own.prompt_set == "all"
    lead, _ = settings_of("distinct-raw-1", confirm_arms())
    assert (lead.loss.divergence, lead.loss.eta, lead.rehearsal.rows) == ("forward_kl_raw", 1.0, 64)
    [job] = [job for job in base_jobs(41, Path("out"), {}, [DISTINCT]) if job.name == DISTINCT]
    made, solved = (
        parse(words[0], words[1:])[0] for words in (job.arguments, base_jobs(41, Path("o"), {})[-1].arguments)
    )
    assert made.distinct and not solved.distinct and made.threshold == solved.threshold == 1
    assert (made.rollout, made.stored, made.refine) == (solved.rollout, solved.stored, solved.refine)
    points = [evaluated(32, 20, 10, 0), evaluated(16, 12, 8, 2), evaluated(20, 14, 10, 2), evaluated(40, 30, 10, 1)]
    names = ("distinct-raw-1", "base", "grpo-24-1.25e-5", "grpo-24-2.5e-5", "grpo-24-5e-5", "k3-24-1", "k3-24-0.3")
    one: dict[str, Evaluated] = dict(
        zip(names, (points[0], points[1], *points[2:], points[3], *points[2:]), strict=True)
    )
    *_, lead, second = confirm_table({1: one, 2: one})
    assert lead.startswith("| distinct-raw-1 − base, mean@64 ") and "+9.38" in lead, "62 and 38 of 256"
    assert second.startswith("| k3-24-0.3 − grpo-24, at the mean of k3-24-0.3 | ")


def test_made_weights_are_means_and_lie_on_the_line_from_the_base_model() -> None:
    jobs = {one.name: list(made_jobs(21, Path("out"), one, {})) for one in made()}
    step = "out/train/grpo-1e-4/checkpoints/step-00000{}/model".format
    first, second, evaluation = (parse(job.arguments[0], job.arguments[1:])[0] for job in jobs["averaged-75"])
    assert (first.initial, first.run, first.weight) == (step("050"), step("075"), 0.5)
    assert (second.initial, second.run, second.weight) == (first.out, step("100"), 1 / 3)
    assert (evaluation.model.path, evaluation.out) == (second.out, "out/e/eval/averaged-75")
    beyond, _ = (parse(job.arguments[0], job.arguments[1:])[0] for job in jobs["beyond-2.0"])
    last = "out/train/grpo-2.5e-5/checkpoints/step-00000125/model"
    assert (beyond.initial, beyond.run, beyond.weight) == ("out/base/model", last, 2.0)
    soup, _ = (parse(job.arguments[0], job.arguments[1:])[0] for job in jobs["soup-5e-5"])
    assert "grpo-5e-5/" in soup.initial and "grpo-5e-5-again/" in soup.run and soup.weight == 0.5
    assert {one.rollouts for one in made()} == {16_000, 32_000}


def test_experiment_e_compares_every_candidate_with_the_mix_and_with_grpo_at_as_many_rollouts() -> None:
    spent = {arm.family: arm.rollouts for arm in (*arms(), *follow_arms(), *made())}
    counted = read(FOLLOW_COUNTS, 21)
    spent |= {family: counted[names[0]].rollouts for family, names in DELETED.items()}
    for family, grpo in CANDIDATES.values():
        assert spent[grpo] >= spent[family] and len(E.families[family]) >= 3
    assert E.families["beyond"][0] == "grpo-2.5e-5" and E.families["recent-js"][0] == ZERO
    assert set(E.families) >= {name for _, *pair in E.comparisons for name in pair} - {"mix", "base"}
    names = {name for group in E.families.values() for name in group}
    arms_of = {one.name: one.family for one in (*needed(), *follow_arms(), *made())}
    for name in names - {name for deleted in DELETED.values() for name in deleted}:
        found = arm_of(name, (*needed(), *follow_arms(), *made()))
        assert found is not None and (name == found.name or name.startswith((f"{found.name}-s",))), name
    assert arm_of("k3_is-1", needed()) is arm_of("dph_js", needed()) is None and len(arms_of) == 33
    starts = {}
    for start in (1, 2):
        evaluations = {name: evaluated(40, 30 - i % 5, 10 - i % 7, i % 3) for i, name in enumerate(sorted(names))}
        starts[start] = evaluations | {"base": evaluated(16, 16, 12, start)}
    lines = list(comparison_table(starts, E))
    assert len(lines) == 2 + len(E.comparisons) == 2 + 3 * len(CANDIDATES) + 4
    assert [row for row in arm_table(starts, E) if row.startswith("| k2-")] == []
    start = starts[1]
    assert at_target(start, "base", E.families) == pytest.approx(
        1 - sum(math.comb(64 - c, 32) / math.comb(64, 32) for c in (16, 16, 12, 1)) / 4
    )


def test_counts_of_experiment_e_hold_what_it_needs_of_b_and_how_weights_were_made(tmp_path: Path) -> None:
    root = tmp_path / "start-5"
    one = {"split": "test", "id": "p0", "kind": "2 numbers", "samples": 2, "correct": 1, "greedy": True}
    for name in ("eval/base", "eval/k2-1", "eval/k3-1", "e/eval/solved-raw-1", "e/eval/soup-5e-5"):
        folder = root / name
        folder.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist([one]), folder / "problems.parquet")
        texts = [{"split": "test", "id": "p0", "sample": i, "outcome": "correct", "style": "(+1+2)"} for i in (-1, 0)]
        pq.write_table(pa.Table.from_pylist(texts), folder / "completions.parquet")
        (folder / "manifest.json").write_text(json.dumps({"status": "complete"}))
    for out, words in (("train/k3-1", []), ("e/train/solved-raw-1", ["--plugin", str(tmp_path / "own.py")])):
        config = parse("train", ["--preset", "grpo", *words, "--out", str(root / out)])[0]
        RunDir.start(config.out, "train", config)
    write(tmp_path / "counts.parquet", 5, [root, root / FOLLOW], (*needed(), *made(), *follow_arms()))
    rows = {row["run"]: row for row in pq.read_table(tmp_path / "counts.parquet").to_pylist()}
    assert {name: row["rollouts"] for name, row in rows.items()} == {
        **{"base": 0, "k3-1": 16_000, "solved-raw-1": 48_000, "soup-5e-5": 32_000}
    }
    assert json.loads(rows["soup-5e-5"]["settings"]) == {
        "models": [["grpo-5e-5", 125], ["grpo-5e-5-again", 125]],
        "share": 1.0,
    }
    assert json.loads(rows["solved-raw-1"]["settings"])["plugins"] == ["own.py"]
    assert str(tmp_path) not in json.dumps(list(rows.values()))


def test_mistakes_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no arm 'k4'"):
        run(["--arms", "k4"])
    with pytest.raises(UserError, match="experiment E has no arm 'k3-1'"):
        run(["--experiment", "e", "--arms", "k3-1"])
    with pytest.raises(UserError, match="no counts"):
        run(["--report-only", "--counts", str(tmp_path / "none.parquet")])


def published(file: Path) -> dict[int, dict[str, Evaluated]]:
    """The starts of a published file of counts."""
    path = Path(__file__).resolve().parents[2] / file
    starts = pq.read_table(path, columns=["start"]).to_pydict()["start"] if path.exists() else []
    return {start: read(path, start) for start in sorted(set(starts))}


def test_published_counts_are_of_the_protocol() -> None:
    page = (Path(__file__).resolve().parents[1] / "results" / "anchor.md").read_text(encoding="utf-8")
    starts = published(COUNTS)
    assert set(starts) <= set(STARTS)
    evaluations = {job.name.removeprefix("eval-") for arm in arms() for job in arm_jobs(1, Path("o"), arm, {})}
    for found in starts.values():
        assert set(found) <= evaluations | {"base", "base-again"}
        assert all(len(one.counts) == 200 and {n for n, _ in one.counts} == {64} for one in found.values())
        assert all([sum(forms) for forms in one.forms] == [c for _, c in one.counts] for one in found.values())
    if "None yet." not in page:
        lines = (*comparison_table(starts), *reading_table(starts))
        assert [line for line in lines if line not in page.splitlines()] == []
    confirmed = published(CONFIRM_COUNTS)
    assert tuple(confirmed) == CONFIRM_STARTS
    assert [line for line in (*confirm_table(confirmed), *arm_table(confirmed, F)) if line not in page] == []
    follow = published(FOLLOW_COUNTS)
    assert set(follow) <= set(STARTS)
    if follow and "Not run yet." not in page:
        lines = (*comparison_table(follow, E), *reading_table(follow, E))
        assert [line for line in lines if line not in page.splitlines()] == []


def test_countdown_in_english_asks_for_the_same(tmp_path: Path) -> None:
    text = "Use some of the numbers 3, 4, 8 and 9, each at most once, with + - * / and brackets, to make 15."
    assert in_english("3,4,8,9>15:") == f"{text} Write only the expression."
    english = CountdownEnglish(dev_problems=5)
    [problem, *_] = english.problems("dev")
    assert problem.verifier == "countdown" and all(str(n) in problem.prompt for n in problem.meta["numbers"])
    assert english.demonstrations(3, 0)[0]["prompt"].startswith("Use some of the numbers")
