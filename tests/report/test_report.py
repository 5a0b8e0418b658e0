"""Reports from small synthetic run directories whose every number is known."""

import base64
import copy
import gzip
import json
import math
import re
import shutil
import subprocess
from html import escape, unescape
from html.parser import HTMLParser
from importlib import resources
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dph.errors import RunError, SettingsError
from dph.measure.metrics import METRICS, Metric
from dph.report import plots
from dph.report.comparison import retention, summarise_label, tabulate
from dph.report.data import MetricValue, by_label, read_answers, read_eval, read_runs
from dph.report.page import render, timelines, visible, within
from dph.report.plots import training_curves, training_figure
from dph.report.tables import Cell, ReportTable, as_markdown, cell, coverage_table, to_markdown
from dph.report.write import report
from dph.runs.coverage import CERTIFICATE, write_visits
from report_support import ATTACK, SAMPLES, interval, write_eval, write_train


def page_data(path: Path) -> Any:
    """What the page's script reads: the compressed JSON within the page."""
    found = re.search(r'id="data">(.*?)</script>', path.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return json.loads(gzip.decompress(base64.b64decode(found[1])))


class Page(HTMLParser):
    """What a browser would see: tags with attributes, and the text outside style."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    return [
        write_eval(tmp_path / "base", "base", [4, 2, 1, 0]),
        write_eval(tmp_path / "grpo", "GRPO|x", [4, 4, 0, 0], text=ATTACK, model=tmp_path / "train" / "model"),
        write_train(tmp_path / "train", "grpo", [0.25, 0.5, 0.75]),
    ]


def test_the_page_is_self_contained_and_escapes_what_a_model_wrote(runs: list[Path], tmp_path: Path) -> None:
    path = report(runs, tmp_path / "out", base="base", title="A <b>title</b>")
    page = Page(path.read_text(encoding="utf-8"))
    assert page.open == []
    assert {tag for tag, _ in page.tags} & {"iframe", "link", "object", "img"} == set()
    assert not any(name.startswith("on") or name == "src" for _, attributes in page.tags for name in attributes)
    assert "A <b>title</b>" in page.text and not re.search(r"https?://", path.read_text(encoding="utf-8"))
    # One script runs, the page's own, by a nonce that the policy names; the others are data.
    scripts = [attributes for tag, attributes in page.tags if tag == "script"]
    assert [set(attributes) for attributes in scripts] == [{"type", "id"}, {"type", "id"}, {"nonce"}]
    policy = next(dict(attributes)["content"] for tag, attributes in page.tags if "http-equiv" in attributes) or ""
    assert f"script-src 'nonce-{scripts[-1]['nonce']}'" in policy and policy.startswith("default-src 'none'")
    # What a model wrote is nowhere in the page but within the compressed data.
    assert "alert(1)" not in path.read_text(encoding="utf-8")
    data = page_data(path)
    answers = [a for p in data["problems"]["test"] for side in p["runs"].values() for a in side["answers"]]
    assert [ATTACK, "correct", "direct", 4, True] in answers
    assert {p["prompt"] for p in data["problems"]["test"]} == {f"question {i} & more" for i in range(4)}


def test_the_page_has_every_run_and_metric_for_its_charts(runs: list[Path], tmp_path: Path) -> None:
    data = page_data(report(runs, tmp_path / "out", base="base", title="T"))
    assert data["labels"] == ["base", "GRPO|x"] and data["looks"]["base"]["linestyle"] == "--"
    assert data["curves"]["test"]["base"] == {
        "x": [1, 2, 4],
        "y": [0.4375, 0.6, 0.75],
        "low": [pytest.approx(y - 0.05) for y in (0.4375, 0.6, 0.75)],
        "high": [pytest.approx(y + 0.05) for y in (0.4375, 0.6, 0.75)],
    }
    (training,) = data["training"]
    assert training["metrics"] == {key: [[0, 1, 2], [0.25, 0.5, 0.75]] for key in ("reward", "eval/pass@8")}
    assert data["styles"] == {key: {"direct": 0.75, "other": 0.25} for key in ["base", "GRPO|x"]}
    assert set(data["style_colors"]) == {"direct", "other"}


def test_the_page_has_every_problem_and_completion_up_to_a_bound(tmp_path: Path) -> None:
    runs = [
        write_eval(tmp_path / "a", "a", [0] * 70, samples=12, wrong=12),
        write_eval(tmp_path / "b", "b", [0] * 70, samples=12, wrong=12, splits=["test"]),
    ]
    problems = page_data(report(runs, tmp_path / "out", base=None, title="T"))["problems"]
    assert {split: (len(found), {len(p["runs"]) for p in found}) for split, found in problems.items()} == {
        "test": (70, {2}),
        "ood": (70, {1}),
    }
    sides = [side for found in problems.values() for p in found for side in p["runs"].values()]
    assert {(len(side["answers"]), side["more"]) for side in sides} == {(13, 0)}
    # The greedy "select 1" has 8 characters, "wrong 0" to "wrong 9" have 7.
    for longest, kept in [(210 * (8 + 4 * 7), 5), (210 * (8 + 4 * 7) - 1, 4), (1, 1)]:
        cut = copy.deepcopy(problems)
        bounded = [side for found in within(cut, longest).values() for p in found for side in p["runs"].values()]
        assert {(len(side["answers"]), side["more"]) for side in bounded} == {(kept, 13 - kept)}
        assert all(short["answers"] == full["answers"][:kept] for short, full in zip(bounded, sides, strict=True))


def test_the_page_shows_monitored_problems_through_training(tmp_path: Path) -> None:
    answers = {
        "p0": ["right", "right", "right"],
        "p1": ["wrong a", "right", "wrong b"],
        "p2": ["wrong a"] * 2 + [ATTACK],
    }
    runs = [
        write_eval(tmp_path / "base", "base", [1]),
        write_train(tmp_path / "one", "grpo", [0.5, 0.5, 0.5], answers),
        write_train(tmp_path / "older", "dapo", [0.5]),  # a run of an earlier version kept no responses
    ]
    (timeline,) = page_data(report(runs, tmp_path / "out", base="base", title="T"))["timelines"]
    assert (timeline["label"], timeline["run"], timeline["left_out"]) == ("grpo", "one", 0)
    assert [(p["id"], p["prompt"], p["changes"]) for p in timeline["problems"]] == [
        ("p1", "prompt of p1", 2),
        ("p0", "prompt of p0", 0),
        ("p2", "prompt of p2", 0),
    ]
    right, wrong = ["right", "correct", "2 tokens", 0, True], ["wrong a", "wrong", "2 tokens", 0, True]
    assert [p["spans"] for p in timeline["problems"]] == [
        [[0, 0, [wrong]], [1, 1, [right]], [2, 2, [["wrong b", *wrong[1:]]]]],
        [[0, 2, [right]]],
        [[0, 1, [wrong]], [2, 2, [[ATTACK, *wrong[1:]]]]],
    ]
    _, (run, _) = read_runs(runs)
    # p1 has 7 + 5 + 7 characters, p0 has 5
    assert [len(timelines([run], longest)[0]["problems"]) for longest in (0, 23, 24)] == [1, 1, 2]
    assert timelines([run, run], 48)[0]["left_out"] == 1


def test_every_set_that_training_measured_is_drawn(runs: list[Path], tmp_path: Path) -> None:
    lines = [json.loads(line) for line in (runs[2] / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line |= {"monitor/spider/pass@8": 0.5, "monitor/spider/problems/pass@8": 3.0, "monitor/few/pass@2": 1.0}
    (runs[2] / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    _, trains = read_runs(runs)
    drawn = {
        title: [(curve.label, list(curve.y)) for curve in curves] for title, curves in training_curves(trains).items()
    }
    assert drawn == {
        "the training task: pass@8": [("GRPO|x", [0.25, 0.5, 0.75])],
        "spider: pass@8": [("GRPO|x", [0.5, 0.5, 0.5])],
        "few: pass@2": [("GRPO|x", [1.0, 1.0, 1.0])],
    }
    report(runs, tmp_path / "out", base="base", title="T")
    assert "figures/training.png" in (tmp_path / "out" / "report.md").read_text()
    assert len(training_figure(training_curves(trains)).axes) == 3


def test_the_ways_in_a_bank_are_drawn_through_training(tmp_path: Path) -> None:
    runs = [
        write_eval(tmp_path / "base", "base", [1, 2]),
        write_train(tmp_path / "bank", "bank", [0.1, 0.2, 0.3]),
        write_train(tmp_path / "grpo", "grpo", [0.1, 0.2, 0.3]),
    ]
    lines = [json.loads(line) for line in (runs[1] / "metrics.jsonl").read_text().splitlines()]
    for line, (modes, retained) in zip(lines, ((None, None), (4.0, None), (9.0, 0.75)), strict=True):
        line |= {"bank/modes": modes} if modes else {}
        line |= {"bank/retained": retained} if retained else {}
    (runs[1] / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    evals, trains = read_runs(runs)
    figure, _ = plots.figures(tabulate(evals, "base"), trains)["bank"]
    found, kept = figure.axes
    assert [line.get_xydata().tolist() for line in found.lines] == [[[1, 4], [2, 9]]]  # type: ignore[union-attr]
    assert [line.get_xydata().tolist() for line in kept.lines] == [[[2, 0.75]]]  # type: ignore[union-attr]
    report(runs, tmp_path / "out", base="base", title="T")
    assert "figures/bank.png" in (tmp_path / "out" / "report.md").read_text()
    report([runs[0], runs[2]], tmp_path / "plain", base="base", title="T")
    assert "bank.png" not in (tmp_path / "plain" / "report.md").read_text()


def test_a_launch_of_verl_has_its_curves_before_and_after_a_second_start(tmp_path: Path) -> None:
    folder = tmp_path / "launch"
    folder.mkdir()
    (folder / "verl.toml").write_text('method = "dph_js"')

    def logged(step: int, value: float) -> str:
        names = ("val-core/bird/acc/pass@8", "val-core/monitor/spider/acc/pass@8", "val-core/bird/acc/pass@8/low")
        return json.dumps({"step": step, "data": dict.fromkeys(names, value) | {"actor/lr": 1e-6}}) + "\n"

    (folder / "metrics-before.jsonl").write_text(logged(0, 0.1) + logged(20, 0.2) + logged(21, 0.9))
    (folder / "metrics.jsonl").write_text(logged(20, 0.3) + logged(40, 0.4))
    runs = [write_eval(tmp_path / "a", "DPH", [4, 1], model=folder / "models" / "step-40"), folder]
    _, [train] = read_runs(runs)
    assert train.label == "DPH" and [row["step"] for row in train.metrics] == [0, 20, 21, 40]
    for name in ("eval/pass@8", "monitor/spider/pass@8"):
        assert [row[name] for row in train.metrics] == [0.1, 0.3, 0.9, 0.4]
    assert {"actor/lr", "val-core/bird/acc/pass@8/low"} <= train.metrics[0].keys()
    report(runs, tmp_path / "out", base=None, title="T")
    (folder / "metrics.jsonl").write_text('{"step": 1, "loss": 2}\n')
    with pytest.raises(RunError, match="is not what verl writes"):
        read_runs(runs)


def test_unknown_numbers_are_left_out_of_charts(runs: list[Path], tmp_path: Path) -> None:
    with (runs[2] / "metrics.jsonl").open("a") as lines:
        lines.write('{"step": 3, "reward": NaN, "eval/pass@8": 0.5}\n')
    (training,) = page_data(report(runs, tmp_path / "out", base="base", title="T"))["training"]
    assert training["metrics"]["reward"][0] == [0, 1, 2] and training["metrics"]["eval/pass@8"][0] == [0, 1, 2, 3]


def test_tables_show_the_numbers_of_the_runs(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report(runs, tmp_path / "out", base="base", title="T")
    text = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    # pass@1 of base: (4 + 2 + 1 + 0) / 4 samples / 4 problems = 7/16 = 43.75 %, intervals ± 5 %.
    row = next(line for line in text.splitlines() if line.startswith("| base"))
    assert row.startswith("| base | 50.0 (45.0–55.0) | 43.8 (38.8–48.8) |")
    assert "3.25 (3.20–3.30)" in row
    assert "GRPO\\|x" in text
    assert "Keep and exploration rates need at least 8 samples" in text
    for name in re.findall(r"\(figures/(.*?)\)", text):
        assert (tmp_path / "out" / "figures" / name).read_bytes().startswith(b"\x89PNG")
    assert "overview.png" in text
    assert "43.8" in capsys.readouterr().out


def test_a_training_run_takes_the_label_under_which_its_model_was_evaluated(runs: list[Path], tmp_path: Path) -> None:
    other = write_train(tmp_path / "other", "dapo", [0.5])
    _, trains = read_runs([*runs, other])
    assert [run.label for run in trains] == ["GRPO|x", "dapo"]


def solved_share(base: int, trained: int, n: int, k: int) -> float:
    """P(k of n samples of each of two policies both hold a correct one), by enumeration."""
    draws = list(combinations(range(n), k))
    first = sum(any(i < base for i in draw) for draw in draws) / len(draws)
    return first * sum(any(i < trained for i in draw) for draw in draws) / len(draws)


def test_keep_and_exploration_rates_by_enumeration(tmp_path: Path) -> None:
    base, trained, k = [4, 2, 1, 0] * 5, [4, 0, 3, 1] * 5, 2
    paths = [write_eval(tmp_path / "a", "base", base), write_eval(tmp_path / "b", "T", trained)]
    (reference, run), _ = read_runs(paths)
    both = sum(solved_share(b, t, SAMPLES, k) for b, t in zip(base, trained, strict=True))
    alone = [sum(solved_share(c, SAMPLES, SAMPLES, k) for c in counts) for counts in (base, trained)]
    found = retention([run], reference, "test", k)
    assert found["keep@2"].mean == pytest.approx(both / alone[0], abs=1e-12)  # fp64 sums of twenty terms
    assert found["explore@2"].mean == pytest.approx((alone[1] - both) / (len(base) - alone[0]), abs=1e-12)
    assert 0 <= found["keep@2"].low <= found["keep@2"].mean <= found["keep@2"].high <= 1


def test_rates_over_seeds_have_the_spread_of_the_seeds_rates(tmp_path: Path) -> None:
    base = [4, 2, 1, 0] * 10
    trained = [[4, 4, 0, 0] * 10, [4, 0, 3, 1] * 10]
    reference, *seeds = (
        read_eval(write_eval(tmp_path / str(i), "T", counts)) for i, counts in enumerate([base, *trained])
    )
    apart = [retention([run], reference, "test", 2) for run in seeds]
    together = retention(seeds, reference, "test", 2)
    for name in ("keep@2", "explore@2"):
        first, second = (found[name].mean for found in apart)
        assert together[name].mean == pytest.approx((first + second) / 2, abs=1e-12)
        # Two seeds: Student's t with one degree of freedom reaches 12.7 · |difference| / 2, within [0, 1].
        reach = 12.7062 * abs(first - second) / 2
        assert 0 <= together[name].low <= max(together[name].mean - reach, 0)
        assert 1 >= together[name].high >= min(together[name].mean + reach, 1)
    assert retention([seeds[0]] * 3, reference, "test", 2) == apart[0]  # seeds that agree add nothing


def test_the_base_against_itself_is_the_noise_floor_of_disjoint_samples(tmp_path: Path) -> None:
    counts, k = [4, 2, 1, 0] * 5, 2
    (reference,), _ = read_runs([write_eval(tmp_path / "a", "base", counts)])
    both = alone = 0.0
    for c in counts:  # two disjoint sets of k = 2 of the n = 4 samples: every way of splitting them
        splits = [(set(draw), set(range(SAMPLES)) - set(draw)) for draw in combinations(range(SAMPLES), k)]
        both += sum(min(a) < c and min(b) < c for a, b in splits) / len(splits)
        alone += sum(min(a) < c for a, _ in splits) / len(splits)
    found = retention([reference], reference, "test", k)
    assert found["keep@2"].mean == pytest.approx(both / alone, abs=1e-12)  # fp64 sums of twenty terms
    assert found["explore@2"].mean == pytest.approx((alone - both) / (len(counts) - alone), abs=1e-12)
    assert retention([reference], reference, "test", 4) == {}  # 2k = 8 samples are not there


def test_rates_enter_the_table_with_enough_samples(tmp_path: Path) -> None:
    paths = [
        write_eval(tmp_path / "a", "base", [16, 8, 0] * 5, samples=16),
        write_eval(tmp_path / "b", "T", [16, 0, 16] * 5, samples=16),
    ]
    report(paths, tmp_path / "out", base="base", title="T")
    text = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    header = next(line for line in text.splitlines() if line.startswith("|  |")).split(" | ")
    row = next(line for line in text.splitlines() if line.startswith("| T")).split(" | ")
    # pass@8 of base: 1, 1 − C(8,8)/C(16,8) = 1 − 1/12870, 0; T solves the first and the third always, the second never.
    kept = 1 / (2 - 1 / 12870)
    assert row[header.index("keep@8")].startswith(f"{100 * kept:.1f} ")
    found = 1 / (1 + 1 / 12870)  # 99.99 %
    assert row[header.index("explore@8")].startswith(f"{100 * found:.1f} ")


def test_a_report_says_where_pass_at_k_changed(tmp_path: Path) -> None:
    paths = [
        write_eval(tmp_path / "a", "base", [32] * 10 + [4] * 10, samples=32),
        write_eval(tmp_path / "b", "T", [32] * 10 + [0] * 10, samples=32),
        write_eval(tmp_path / "c", "T", [32] * 10 + [4] * 10, samples=32),
    ]
    report(paths, tmp_path / "out", base="base", title="T")
    text = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    (found,) = [block for block in text.split("\n\n") if block.startswith("|  | none (")]
    rows = {line.split(" | ")[0].strip("| "): line.split(" | ")[1:] for line in found.splitlines()[2:]}
    assert set(rows) == {f"T, pass@{k}: {what}" for k in (8, 16) for what in ("part of the change", "in the class")}
    parts = [float(entry.split()[0].replace("−", "-")) for entry in rows["T, pass@16: part of the change"]]
    one = 100 * (1 - math.comb(28, 16) / math.comb(32, 16)) / 4  # half of the problems, in half of the runs
    assert sum(parts) == pytest.approx(-one, abs=0.15) and parts[4] == 0
    none, all_solve = rows["T, pass@8: in the class"][3:]
    assert none == "–" and all_solve.startswith("+0.0 (−"), "fewer than five problems have no mean; ten have"
    report(paths[1:], tmp_path / "other", base="base", title="T")
    assert "where pass@k changed" not in (tmp_path / "other" / "report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("base", "known"),
    [
        # pass@8 of 16 samples is 1 − 4e-5 with 8 correct and 0 or 1 with none or all: Σ (1 − pass@8) is 5 or 4.001.
        ([16] * 20 + [0] * 5, {"keep@8", "explore@8"}),
        ([16] * 20 + [8] * 20 + [0] * 4, {"keep@8"}),
        ([16] * 4 + [0] * 20, {"explore@8"}),
        ([16] * 4 + [0] * 4, set()),
    ],
)
def test_a_rate_needs_five_problems_behind_it(tmp_path: Path, base: list[int], known: set[str]) -> None:
    paths = [
        write_eval(tmp_path / "a", "base", base, samples=16),
        write_eval(tmp_path / "b", "T", [8] * len(base), samples=16),
    ]
    (reference, run), _ = read_runs(paths)
    for runs in ([run], [reference], [reference, run, run]):  # a method, the noise floor, seeds
        assert retention(runs, reference, "test").keys() == known
    report(paths, tmp_path / "out", base="base", title="T")
    text = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    header = next(line for line in text.splitlines() if line.startswith("|  |")).split(" | ")
    row = next(line for line in text.splitlines() if line.startswith("| T")).split(" | ")
    assert {"keep@8", "explore@8"} & set(header) == ({"keep@8", "explore@8"} if known else set())
    blank = {name for name in ("keep@8", "explore@8") if name in header and row[header.index(name)] == "–"}
    assert blank == ({"keep@8", "explore@8"} - known if known else set())


def test_runs_with_one_label_are_averaged(tmp_path: Path) -> None:
    paths = [
        write_eval(tmp_path / "s0", "GRPO", [4, 4, 0, 0], metrics={"mean@4": interval(0.2)}),
        write_eval(tmp_path / "s1", "GRPO", [4, 0, 2, 0], metrics={"mean@4": interval(0.4)}),
    ]
    evals, _ = read_runs(paths)
    summary = summarise_label(by_label(evals)["GRPO"], "test")
    # Greedy is right where any sample is: (1, 1, 0, 0) and (1, 0, 1, 0), so 4/8. pass@1: 8/16 and 6/16, so 7/16.
    assert summary.metrics["greedy"].mean == pytest.approx(0.5)
    assert summary.metrics["pass@1"].mean == pytest.approx(7 / 16)
    # pass@2 of 2 correct in 4: 1 − C(2,2)/C(4,2) = 5/6; the problems give 1, 1, 0, 0 and 1, 0, 5/6, 0.
    assert summary.pass_curve[2].mean == pytest.approx((3 + 5 / 6) / 8)
    assert summary.metrics["mean@4"].mean == pytest.approx(0.3) and math.isnan(summary.metrics["mean@4"].low)
    assert summary.metrics["greedy"].low < 0.5 < summary.metrics["greedy"].high


def test_seeds_are_averaged_over_the_problems_that_each_of_them_has_a_metric_for(tmp_path: Path) -> None:
    votes = [None, 1.0, 0.5, 0.0]
    first = {"maj@8": votes, "ngram_overlap": votes, "samples": [4, 4, 4, 1], "correct": [4, 0, 2, 0]}
    votes = [1.0, None, 0.5, 1.0]
    second = {"maj@8": votes, "ngram_overlap": [None] * 4, "samples": [1, 4, 4, 4], "correct": [1, 0, 1, 0]}
    measured = {name: interval(0.1) for name in ("maj@8", "ngram_overlap")}
    paths = [
        write_eval(tmp_path / str(seed), "GRPO", [4, 4, 0, 0], metrics=measured, columns=columns)
        for seed, columns in enumerate((first, second))
    ]
    summary = summarise_label([read_eval(path) for path in paths], "test")
    value = summary.metrics["maj@8"]
    assert (value.mean, value.problems, value.of) == (pytest.approx((0.5 + 0 + 0.5 + 1) / 4), 2, 4)
    assert value.low < value.mean < value.high
    assert math.isnan(summary.metrics["ngram_overlap"].mean)  # no problem has it with both seeds
    value = summary.pass_curve[2]  # of 2 and of 1 correct in 4: 5/6 and 1/2
    assert (value.mean, value.problems) == (pytest.approx((0 + 5 / 6 + 0 + 1 / 2) / 4), 2)
    assert (summary.metrics["pass@1"].problems, summary.metrics["pass@1"].over) == (4, "")


def test_no_problem_with_enough_samples_in_every_seed_is_blank(tmp_path: Path) -> None:
    paths = [
        write_eval(tmp_path / str(seed), "GRPO", [1, 1], columns={"samples": samples, "correct": [1, 1]})
        for seed, samples in enumerate(([4, 1], [1, 4]))
    ]
    runs = [read_eval(path) for path in paths]
    curve = summarise_label(runs, "test").pass_curve
    assert list(curve) == [1] and curve[1].mean == pytest.approx((1 / 4 + 1) / 2)
    report(paths, tmp_path / "out", base=None, title="T")


def test_a_mean_over_fewer_problems_has_their_number_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("maj@8", "ngram_overlap_correct")
    measured = {name: interval(0.3) for name in names}
    base = {"maj@8": [0.5, 0.5, 0.0, None, 0.0, 0.0], "ngram_overlap_correct": [0.2, 0.4, None, 0.6, None, None]}
    other = {"maj@8": [1.0] * 6, "ngram_overlap_correct": [None, 0.8, 0.9, 1.0, None, None]}
    judged = {"samples": [16] * 5 + [3], "correct": [16] * 3 + [0] * 3, "greedy": [True, False, None, None, True, True]}
    paths = [
        write_eval(tmp_path / "a", "base", [16] * 6, samples=16, metrics=measured, columns=base | judged),
        write_eval(tmp_path / "b", "T", [16] * 3 + [0] * 3, samples=16, metrics=measured, columns=other),
    ]
    path = report(paths, tmp_path / "out", base=None, title="T")
    text = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    main, varied = text.split("diversity of the samples")
    assert "| base | 50.0 (45.0–55.0; 4 of 6) |" in main and "| 30.0 (25.0–35.0; 5 of 6) |" in main
    assert "| T | 50.0 (45.0–55.0) |" in main
    assert "| base | 30.0 (25.0–35.0; 3 of 6) |" in varied and "| T | 30.0 (25.0–35.0; 3 of 6) |" in varied
    assert "over 35 of the 40 problems" in main and "over 35 of the 40 problems" in varied
    page = Page(path.read_text(encoding="utf-8")).text
    curves = page_data(path)["curves"]["test"]
    assert curves["base"]["over"] == ["", "", ", 5 of 6 problems"] and "over" not in curves["T"]
    assert page.count("3 of 6") == 2
    assert "5 of 6" in capsys.readouterr().out


def test_a_report_of_runs_that_have_everything_says_nothing_of_problems(tmp_path: Path) -> None:
    columns = {"maj@8": [0.5, 1.0], "samples": [8, 8]}
    path = write_eval(tmp_path / "a", "a", [1, 2], metrics={"maj@8": interval(0.75)}, columns=columns)
    report([path], tmp_path / "out", base=None, title="T")
    text = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    assert "75.0 (70.0–80.0) |" in text
    assert not re.search(r"of the 40|in every row|; \d of 2", text)


def test_runs_of_other_problems_are_refused(tmp_path: Path) -> None:
    hashes = [["hash 0", "hash 1"], ["hash 0", "changed"]]
    runs = [write_eval(tmp_path / f"{i}", "base", [1, 2], columns={"content": own}) for i, own in enumerate(hashes)]
    with pytest.raises(RunError, match="on different problems: 'p1'"):
        report(runs, tmp_path / "out", base=None, title="T")


def test_rates_say_how_many_problems_they_compare(tmp_path: Path) -> None:
    columns = {"samples": [16] * 19 + [7], "correct": [16] * 10 + [0] * 10}
    base = read_eval(write_eval(tmp_path / "a", "base", [16] * 10 + [0] * 10, samples=16))
    run = read_eval(write_eval(tmp_path / "b", "T", [16] * 20, samples=16, columns=columns))
    found = retention([run], base, "test")
    assert {(value.problems, value.of) for value in found.values()} == {(19, 20)}
    assert {value.over for value in retention([base], base, "test").values()} == {""}


def test_equal_completions_are_counted_together(tmp_path: Path) -> None:
    (run,), _ = read_runs([write_eval(tmp_path / "a", "base", [1, 0])])
    answers = read_answers(run, "test")
    # p0: greedy and sample 0 are "select 1"; samples 1, 2 and 3 are "wrong 1", "wrong 0" and "wrong 1".
    assert [(text, count, greedy) for text, _, _, count, greedy in answers["p0"]] == [
        ("select 1", 1, True),
        ("wrong 1", 2, False),
        ("wrong 0", 1, False),
    ]
    assert sum(count for *_, count, _ in answers["p1"]) == SAMPLES


NO_SPLIT = '{"label": "x", "model": "m", "splits": {}}'


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda run: run.rename(run.with_name("moved")), "there is no run directory"),
        (lambda run: (run / "scores.json").unlink(), "is not a finished run of `dph eval`"),
        (lambda run: (run / "scores.json").write_text('{"label": '), "scores.json is damaged"),
        (lambda run: (run / "scores.json").write_text('{"label": "x", "model": "m"}'), "scores.json is damaged"),
        (lambda run: (run / "scores.json").write_text(NO_SPLIT), "holds no split"),
        (lambda run: (run / "problems.parquet").unlink(), "problems.parquet is missing"),
        (lambda run: (run / "problems.parquet").write_bytes(b"PAR1"), "problems.parquet is damaged"),
        (lambda run: (run / "completions.parquet").write_text("no"), "completions.parquet is damaged"),
    ],
)
def test_a_bad_run_directory_is_one_sentence(tmp_path: Path, spoil: Any, message: str) -> None:
    run = write_eval(tmp_path / "run", "base", [1, 2])
    spoil(run)
    with pytest.raises(RunError, match=re.escape(message)) as caught:
        report([run], tmp_path / "out", base=None, title="T")
    assert "\n" not in str(caught.value) and str(run) in str(caught.value)


def test_runs_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    one = write_eval(tmp_path / "one", "base", [1, 2])
    with pytest.raises(RunError, match="not evaluated on the same problems"):
        report([one, write_eval(tmp_path / "two", "T", [1, 2], prefix="q")], tmp_path / "o", base="base", title="T")
    with pytest.raises(SettingsError, match="no split in common"):
        report([one, write_eval(tmp_path / "three", "T", [1, 2], splits=["x"])], tmp_path / "o", base=None, title="T")
    with pytest.raises(SettingsError, match="at least one run directory of `dph eval`"):
        report([write_train(tmp_path / "train", "grpo", [0.5])], tmp_path / "o", base=None, title="T")


def test_a_base_that_is_not_there_is_said_and_not_fatal(tmp_path: Path) -> None:
    run = write_eval(tmp_path / "one", "T", [1, 2])
    report([run], tmp_path / "out", base="base", title="T")
    assert "No evaluation is labelled 'base'" in (tmp_path / "out" / "report.md").read_text(encoding="utf-8")


def test_a_place_that_cannot_be_written_is_one_sentence(runs: list[Path], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot write the report"):
        report(runs, tmp_path / "file" / "out", base="base", title="T")


def test_diversity_has_a_table_where_it_was_measured(tmp_path: Path) -> None:
    measured = {"distinct_sql": interval(4.5), "token_entropy": interval(0.25)}
    runs = [write_eval(tmp_path / "a", "base", [4, 0], metrics=measured), write_eval(tmp_path / "b", "T", [4, 2])]
    report(runs, tmp_path / "out", base="base", title="T")
    text = (tmp_path / "out" / "report.md").read_text(encoding="utf-8").split("diversity of the samples")[1]
    assert "|  | distinct SQL | entropy a token |" in text
    assert "| base | 4.50 (4.45–4.55) | 0.250 (0.200–0.300) |" in text and "| T | – | – |" in text


@pytest.mark.parametrize("entry", [entry for entry in METRICS if entry.name != "pass@k"], ids=lambda entry: entry.name)
def test_every_metric_is_in_the_report_under_its_title_and_in_its_unit(tmp_path: Path, entry: Metric) -> None:
    values = {"mean": 0.5, "low": 0.25, "high": 0.75}
    run = write_eval(tmp_path / "a", "base", [4, 0], metrics={entry.name: values})
    report([run], tmp_path / "out", base=None, title="T")
    main, _, varied = (tmp_path / "out" / "report.md").read_text(encoding="utf-8").partition("diversity of the samples")
    head, _, row, *_ = [line for line in (main if entry.table == "main" else varied).splitlines() if line[:1] == "|"]
    shown = dict(zip(*([cell.strip() for cell in line.split("|")] for line in (head, row)), strict=True))
    mean, low, high = (f"{entry.scale * value:.{entry.digits}f}" for value in values.values())
    assert shown[entry.title].startswith(f"{mean} ({low}–{high}")


def test_without_the_extra_a_report_has_its_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dph.report.write.missing_of", list)
    path = report([write_eval(tmp_path / "a", "base", [4, 2])], tmp_path / "out", base="base", title="T")
    printed = capsys.readouterr()
    assert path.name == "report.md" and [file.name for file in path.parent.iterdir()] == ["report.md"]
    assert "75.0" in printed.out and "pip install '.[report]'" in printed.err
    assert "| base | 50.0" in path.read_text(encoding="utf-8") and "figures/" not in path.read_text(encoding="utf-8")


def test_what_training_loses_has_a_table_by_difficulty(tmp_path: Path) -> None:
    """e (8 of 8), m (4 of 8), h (1 of 8), n (0 of 8) and one that was not pre-sampled. At its last visit m is lost and
    falling: (5·6·7·8) / (10·11·12·13) = 0.098; h is lost, which the reference policy would be too often (0.60); e was
    solved in one of four: falling."""
    run = write_train(tmp_path / "grpo", "grpo", [0.1, 0.2])
    write_visits(run, 0, [("e", 8, 8), ("m", 4, 8), ("h", 1, 8), ("n", 0, 8), ("unseen", 1, 8)])
    write_visits(run, 1, [("e", 4, 4), ("m", 0, 4), ("new", 1, 4)])
    write_visits(run, 2, [("e", 1, 4), ("h", 0, 4), ("n", 0, 4), ("new", 0, 4)])
    without = write_train(tmp_path / "plain", "plain", [0.1])
    write_visits(without, 1, [("e", 1, 4)])
    table = coverage_table(read_runs([write_eval(tmp_path / "eval", "base", [1]), run, without])[1])
    assert table is not None
    [row] = ([entry.text for entry in line] for line in table.rows)
    assert list(table.columns[1:3]) == ["hard: lost", "hard: falling"]
    assert row == ["grpo", "1 of 2", "0 of 2", "1 of 1", "1 of 1", "0 of 1", "1 of 1"]
    assert coverage_table([]) is None


def test_cells_show_percent_and_counts() -> None:
    assert (cell("pass@8", MetricValue(0.8149, 0.78, 0.85)).text, cell("styles", MetricValue(4.6249)).text) == (
        "81.5",
        "4.62",
    )
    assert cell("pass@8", MetricValue(0.8149, 0.78, 0.85)).interval == "78.0–85.0"
    assert cell("greedy", None).text == cell("greedy", MetricValue(math.nan)).text == "–"


def test_text_is_escaped_and_nothing_hides_in_it() -> None:
    hostile = '<i x="y">&\'\x1b[31m\u202e\x00'
    shown = '<i x="y">&\'\ufffd[31m\ufffd\ufffd'
    table = ReportTable(hostile, [hostile], [[Cell(hostile, hostile)]], hostile)
    data = {"styles": {}, "training": []}
    text = render(
        hostile, data, tables=[table], images=[(b"", hostile)], settings=[(hostile, hostile), ("long", "y" * 5000)]
    )
    page = Page(text)
    # The title twice, four texts of a table and the heading of its column, a figure's caption, two of the settings.
    assert page.text.count(shown) == 10 and [a["alt"] for tag, a in page.tags if tag == "img"] == [shown]
    assert not {tag for tag, _ in page.tags} & {"i"} and not {"\x1b", "\u202e", "\x00"} & set(text)
    assert "yyy … (5000 characters in all)" in page.text
    assert visible("a<b>\n\tc") == "a<b>\n\tc"  # for the script, which shows text as text


def test_one_label_looks_the_same_everywhere_and_base_is_grey() -> None:
    found = plots.looks(["GRPO", "base", "DPH-JS", "GRPO"], base="base")
    assert found["GRPO"] == plots.looks(["base", "GRPO"], base="base")["GRPO"]
    assert len({look.color for look in found.values()}) == 3
    assert found["base"].linestyle == "--"


def test_figures_draw_the_data_they_are_given() -> None:
    curve = plots.Series("GRPO", [1, 2, 4], [0.5, 0.6, 0.7], [0.4, 0.5, 0.6], [0.6, 0.7, 0.8])
    shares = {"base": {"other": 0.25, "cte": 0.75}}
    axes, bars = plots.overview_figure([curve], [], shares).axes
    assert axes.lines[0].get_xydata().tolist() == [[1, 0.5], [2, 0.6], [4, 0.7]]  # type: ignore[union-attr]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "2", "4"]
    band = axes.collections[0].get_paths()[0].vertices
    assert {(1.0, 0.4), (1.0, 0.6), (4.0, 0.6), (4.0, 0.8)} <= set(map(tuple, np.asarray(band).tolist()))
    parts = [(bar.get_x(), bar.get_width()) for bar in bars.patches]  # type: ignore[attr-defined]
    assert parts == [(0.0, 75.0), (75.0, 25.0)]
    solutions = {
        "base": MetricValue(3.0, 2.5, 3.5),
        "GRPO": MetricValue(1.25),
    }  # of one run of base, and without an interval
    _, bars = plots.overview_figure([curve], [], {}, solutions, base="base").axes
    assert [bar.get_width() for bar in bars.patches] == [3.0, 1.25]  # type: ignore[attr-defined]
    assert bars.lines[0].get_xydata().tolist() == [[2.5, 0], [3.5, 0]]  # type: ignore[union-attr]
    assert [text.get_text().strip() for text in bars.texts] == ["3.00", "1.25"]
    assert len(plots.overview_figure([curve], [], {}).axes) == 1
    one, other = (plots.to_png(plots.overview_figure([curve], [], shares)) for _ in range(2))
    assert one == other


# Labels that look like markup ---------------------------------------------------------------------------------------

MARKUP = [
    "<a href=y>z</a>",
    "<b>bold</b> & <br> &lt;",
    "[link](http://evil.example) ![image](x.png)",
    "`code` | **strong** __strong__ _em_ ~~gone~~",
    r"\| \<b> \\",
    "$x^2$ and $\\frac",
    "[/red] [bold]rich[/bold]",
    "https://evil.example www.evil.example",
    "two\nlines\u2028three",
    "%{y} %{fullData.x} %%",
]
NODE = shutil.which("node")


@pytest.mark.parametrize("label", MARKUP)
def test_a_label_is_text_in_markdown(label: str) -> None:
    from markdown_it import MarkdownIt  # comes with rich

    table = ReportTable(label, ["", label], [[Cell(label), Cell("1.0")], [Cell("x"), Cell(label, "0–1")]], label)
    html = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(to_markdown(table))
    tags = {"p", "strong", "table", "thead", "tbody", "tr", "th", "td"}
    assert set(re.findall(r"</?(\w+)", html)) == tags  # only the table's own
    shown = escape(" ".join(label.splitlines()), quote=False)
    assert html.replace("&quot;", '"').count(shown) == 5
    assert not re.search(r"\w://|www\.", to_markdown(table))


def test_what_looks_like_no_markup_stays_readable() -> None:
    for text in ("dph_js", "pass@8", "-3.5 to +1.0", "4-gram overlap", "a: b", "D_exp, 50 %", "x > y", "A & B"):
        assert as_markdown(text) == text


def test_a_report_of_labels_that_look_like_markup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [write_eval(tmp_path / "base", "base", [4, 2, 1, 0])]
    for number, label in enumerate([MARKUP[0], *MARKUP[4:7]]):
        shares = {label: 0.75, "other": 0.25}
        model = tmp_path / f"train{number}" / "model"
        runs.append(write_eval(tmp_path / f"eval{number}", label, [4, 2, 1, 0], shares=shares, model=model))
    runs.append(write_train(tmp_path / "train0", "grpo", [0.25, 0.5]))
    report(runs, tmp_path / "out", base="base", title=MARKUP[0])
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert "<a href=y>" not in page and "&lt;a href=y&gt;z&lt;/a&gt;" in page
    assert not re.search(r"(?<!\\)<a |(?<!\\)\[link", (tmp_path / "out" / "report.md").read_text(encoding="utf-8"))
    assert "[/red]" in capsys.readouterr().out


CHARTS = """
const drawn = {}, part = { textContent: "", value: "", checked: false, append() {}, replaceChildren() {} };
const chosen = { "pass-split": "test", "training-metric": "<b>metric</b>" };
globalThis.document = { currentScript: { nonce: "" }, documentElement: {}, body: { dataset: {} },
  getElementById: (id) => ({ ...part, value: chosen[id] ?? "", checked: globalThis.each }) };
globalThis.window = { matchMedia: () => ({ matches: false, addEventListener() {} }) };
globalThis.getComputedStyle = () => ({ getPropertyValue: () => "#000" });
globalThis.Plotly = { react: (id, traces, layout) => { drawn[id] = { traces, layout }; } };
"""


@pytest.mark.skipif(not NODE, reason="no node on this machine")
@pytest.mark.parametrize("label", MARKUP)
def test_charts_get_labels_without_markup(tmp_path: Path, label: str) -> None:
    """Plotly's own reading of a text: tags are between angle brackets, and entities become characters."""
    look = {"color": "#000", "marker": "o", "linestyle": "-"}
    runs = [{"label": label, "run": "r", "metrics": {"<b>metric</b>": [[1, 2], [0.5, 1.0]]}}] * 2
    points = {"x": [1, 2], "y": [0.5, 1], "low": [0.25, 0.5], "high": [0.75, 1]}
    data = {
        "looks": {label: look}, "curves": {"test": {label: points}}, "training": runs,
        "styles": {label: {label: 0.75}}, "style_colors": {label: "#111"},
    }  # fmt: skip
    script = (resources.files("dph.report") / "assets" / "report.js").read_text(encoding="utf-8")
    assert script.endswith("\nstart();\n")
    run = "const all = []; for (globalThis.each of [false, true]) {"
    run += "drawTraining(data); all.push(drawn['training-chart']); }"
    run += "drawPass(data); drawStyles(data); all.push(drawn['pass-chart'], drawn['styles-chart']);"
    run += "console.log(JSON.stringify(all));"
    code = f"{CHARTS}\n{script.removesuffix('start();' + chr(10))}\nconst data = {json.dumps(data)};\n{run}"
    (tmp_path / "charts.js").write_text(code, encoding="utf-8")
    done = subprocess.run([str(NODE), str(tmp_path / "charts.js")], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    mean, each, passes, styles = json.loads(done.stdout)

    def shown(text: str) -> str:
        assert not re.search(r"<[^<>]*>", text), text
        return unescape(text)

    for chart in (mean, each, passes, styles):
        for trace in chart["traces"]:
            if trace.get("showlegend") is not False or "name" in trace:
                assert shown(trace["name"]) == label
                assert label not in trace["hovertemplate"] or label in "%{y}%{x}"
    assert [len(chart["traces"]) for chart in (mean, each, passes, styles)] == [2, 2, 2, 1]
    assert shown(mean["layout"]["yaxis"]["title"]["text"]) == "<b>metric</b>"
    axis = styles["layout"]["yaxis"]
    assert [shown(one) for one in axis["ticktext"]] == [label] and axis["type"] == "category"
    assert styles["traces"][0]["y"] == axis["tickvals"] and shown(axis["tickvals"][0]) == label


def test_certificates_have_rows_in_the_ledger(tmp_path: Path) -> None:
    """Of three problems that the base model solves, the checkpoint of step 2 solves one in no sample."""
    run = write_train(tmp_path / "grpo", "grpo", [0.1, 0.2])
    write_visits(run, 0, [("a", 4, 4), ("b", 4, 4), ("c", 3, 4)], CERTIFICATE)
    write_visits(run, 2, [("a", 4, 4), ("b", 0, 4), ("c", 4, 4)], CERTIFICATE)
    table = coverage_table(read_runs([write_eval(tmp_path / "eval", "base", [1]), run])[1])
    assert table is not None
    [row] = ([entry.text for entry in line] for line in table.rows)
    assert row == ["grpo, certification set", "0 of 0", "0 of 0", "0 of 1", "0 of 1", "1 of 2", "1 of 2"]


def test_runs_that_other_rules_judged_are_named_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [write_eval(tmp_path / name, name, [1, 2]) for name in ("base", "new", "old")]
    for run, rules in zip(runs, ({"mathequal rules": "2"}, {"mathequal rules": "1"}, {}), strict=True):
        (run / "manifest.json").write_text(json.dumps({"stage": "eval", "versions": {"sql rules": "a@1"} | rules}))
    said = f"judged by different rules (mathequal rules 2 in {runs[0]} but 1 in {runs[1]})"
    page = report(runs, tmp_path / "report", base="base", title="t")
    assert said in " ".join(capsys.readouterr().out.split()).replace("/ ", "/")
    brief = said.partition(" (")[0]
    assert brief in unescape(page.read_text()) and brief in (page.parent / "report.md").read_text()
    report([runs[0], runs[2]], tmp_path / "alike", base="base", title="t")
    assert "different rules" not in (tmp_path / "alike" / "report.md").read_text()
