"""What a report says was found: its first line, paired differences, reasons of verdicts, runs of `dph verify`."""

import json
import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from complaints import complaint, run
from dph.report import plots
from dph.report.comparison import headline, label_differences, tabulate
from dph.report.data import read_answers, read_eval, read_runs
from dph.report.tables import tables
from report_support import write_eval, write_train

BASE, GRPO = [4, 2, 1, 0], [4, 4, 0, 0]
T3 = 3.182446  # Student's t for 0.975 with 3 degrees of freedom


def compared(tmp_path: Path, **labels: list[int]):
    return tabulate([write_eval_of(tmp_path, label, correct) for label, correct in labels.items()], "base")


def write_eval_of(tmp_path: Path, label: str, correct: list[int]):
    return read_eval(write_eval(tmp_path / label, label, correct))


def test_differences_are_paired_by_problem(tmp_path: Path) -> None:
    [one] = label_differences(compared(tmp_path, base=BASE, GRPO=GRPO))
    assert (one.after, one.before, one.lost, one.gained) == ("GRPO", "base", 1, 0)  # p2 is lost
    values = [0.0, 0.5, -0.25, 0.0]  # of pass@1: (4−4)/4, (4−2)/4, (0−1)/4, 0
    padded = [*values, -1.0, 1.0]
    centre = sum(padded) / 6
    spread = math.sqrt(sum((v - centre) ** 2 for v in padded) / 5 / 6)
    found = one.metrics["pass@1"]
    assert found.mean == pytest.approx(0.0625)
    assert (found.low, found.high) == pytest.approx((centre - T3 * spread, centre + T3 * spread), abs=1e-4)
    assert one.metrics["pass@4"].mean == pytest.approx(-0.25)


def test_every_label_is_compared_with_the_base_and_with_grpo(tmp_path: Path) -> None:
    found = label_differences(compared(tmp_path, base=BASE, GRPO=GRPO, own=[4, 4, 1, 1]))
    pairs = [(one.after, one.before, one.lost, one.gained) for one in found]
    assert pairs == [("GRPO", "base", 1, 0), ("own", "base", 0, 1), ("own", "GRPO", 0, 2)]


def test_more_samples_of_one_side_are_no_gain(tmp_path: Path) -> None:
    """Two runs of one label against one of the base: lost and gained are of one run of each. A run with 2 of the 4
    samples is compared at 2: p2, solved in 2 of 4, is missed by C(2, 2) / C(4, 2) = 1/6 of the pairs."""
    runs = [write_eval_of(tmp_path, "base", [4, 2, 1, 0]), write_eval_of(tmp_path, "a", [4, 0, 1, 1])]
    second = read_eval(write_eval(tmp_path / "a2", "a", [4, 1, 1, 0]))
    [one] = label_differences(tabulate([*runs, second], "base"))
    assert (one.lost, one.gained) == (0.5, 0.5)
    fewer = read_eval(write_eval(tmp_path / "few", "few", [2, 1, 0, 0], samples=2))
    [found] = label_differences(tabulate([runs[0], fewer], "base"))
    assert found.lost == pytest.approx(0.5) and found.gained == pytest.approx(1 / 6)
    assert "0.5 problems lost, 0.2 gained" in headline(tabulate([runs[0], fewer], "base"))


def test_seeds_widen_a_difference(tmp_path: Path) -> None:
    runs = [write_eval_of(tmp_path, "base", BASE * 5), write_eval_of(tmp_path, "a", [4, 2, 2, 0] * 5)]
    other = read_eval(write_eval(tmp_path / "b", "a", [4, 4, 2, 0] * 5))
    [one], [both] = label_differences(tabulate(runs, "base")), label_differences(tabulate([*runs, other], "base"))
    width = {name: value.high - value.low for name, value in one.metrics.items()}
    assert both.metrics["pass@1"].high - both.metrics["pass@1"].low > width["pass@1"]
    assert both.metrics["pass@1"].mean == pytest.approx((0.0625 + 0.1875) / 2)


def test_a_single_problem_has_no_interval(tmp_path: Path) -> None:
    comparison = compared(tmp_path, base=[2], GRPO=[3])
    value = comparison.splits["test"]["base"].metrics["pass@1"]
    assert value.mean == 0.5 and math.isnan(value.low) and math.isnan(value.high)
    assert tables(comparison)[0].title == "Split test (1 problem, 4 samples each)"
    assert not math.isnan(compared(tmp_path / "more", base=[2, 2]).splits["test"]["base"].metrics["pass@1"].low)


def test_the_first_line_says_what_was_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = headline(compared(tmp_path, base=BASE, GRPO=GRPO))
    assert line.startswith("GRPO against base: pass@1 +6.2 (") and "pass@4 −25.0 (" in line
    found, few = line.rsplit("; ", 1)
    assert found.endswith("): 1 problem lost, 0 gained")
    # 1.96·√(0.5·0.5/4) = 0.49
    assert few.startswith("too few problems to decide anything (4): ") and "up to ±49 points" in few
    assert run(capsys, "report", tmp_path / "base", tmp_path / "GRPO", "--out", tmp_path / "report")[0] == 0
    text = (tmp_path / "report" / "report.md").read_text()
    assert text.startswith(f"# DPH-RL report\n\n**{line}**\n\n")
    assert line in (tmp_path / "report" / "index.html").read_text()


def test_one_label_is_described(tmp_path: Path) -> None:
    line = headline(compared(tmp_path, base=BASE * 8))
    assert line == "base: greedy 50.0, pass@1 43.8, pass@2 60.0, pass@4 75.0 on 32 problems"


def test_correct_completions_come_first_and_errors_have_their_reasons(tmp_path: Path) -> None:
    path = write_eval(tmp_path / "a", "base", [1])
    row = {"split": "test", "id": "p0", "reward": 0.0, "style": "", "tokens": 3, "finish_reason": "stop"}
    drawn = [(-1, "x", "error", "no such table: t"), (0, "x", "error", "no such table: t"), (1, "y", "wrong", "")]
    drawn += [(2, "z", "correct", ""), (3, "w", "timeout", "5 s")]
    names = ("sample", "text", "outcome", "detail")
    pq.write_table(
        pa.Table.from_pylist([row | dict(zip(names, one, strict=True)) for one in drawn]), path / "completions.parquet"
    )
    assert read_answers(read_eval(path), "test")["p0"] == [
        ("z", "correct", "", 1, False),
        ("x", "error", "no such table: t", 1, True),
        ("y", "wrong", "", 1, False),
        ("w", "timeout", "5 s", 1, False),
    ]


def test_a_training_run_without_a_monitor_is_named(tmp_path: Path) -> None:
    paths = [write_eval(tmp_path / "base", "base", BASE), write_train(tmp_path / "a", "grpo", [0.1, 0.2])]
    silent = write_train(tmp_path / "b", "dapo", [0.1])
    (silent / "metrics.jsonl").write_text('{"step": 1, "reward": 0.5}\n')
    evals, trains = read_runs([*paths, silent])
    first, *_ = tables(tabulate(evals, "base"), trains)
    assert "Without a curve of pass@8, as they had no monitor: dapo." in first.note
    first, *_ = tables(tabulate(evals, "base"), trains[:1])
    assert "no monitor" not in first.note


@pytest.mark.parametrize("top", [0.013, 0.04, 0.3, 1.0])
def test_ticks_are_whole_percents_and_whole_steps(top: float) -> None:
    curve = plots.Series("a", [1, 2, 4], [0.0, top / 2, top])
    figure = plots.overview_figure([curve], [plots.Series("a", [0, 1, 2], [0.0, top / 3, top])], {})
    for axes in figure.axes:
        labels = [label.get_text() for label in axes.get_yticklabels()]
        assert len(labels) >= 2 and all(label.isdecimal() for label in labels)
        assert [int(label) / 100 for label in labels] == pytest.approx(list(axes.get_yticks()))
    assert all(float(tick).is_integer() for tick in figure.axes[1].get_xticks())


def judged(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, answers: dict[str, list[str]]) -> Path:
    rows = [{"id": id, "prompt": "?", "answer": "yes", "verifier": "exact"} for id in answers]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    texts = [{"id": id, "response": text} for id, drawn in answers.items() for text in drawn]
    (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in texts))
    words = ["--task", "records", "--data", tmp_path / "rows.jsonl", "--predictions", tmp_path / f"{name}.jsonl"]
    assert run(capsys, "verify", *words, "--out", tmp_path / "runs" / name)[0] == 0
    return tmp_path / "runs" / name


def test_runs_of_verify_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = judged(tmp_path, capsys, "base", {"a": ["yes", "no"], "b": ["yes", "yes"], "c": ["no", "no"]})
    after = judged(tmp_path, capsys, "mine", {"a": ["no", "no"], "b": ["yes", "yes"], "c": ["no", "yes"]})
    comparison = tabulate([read_eval(before), read_eval(after)], "base")
    [one] = label_differences(comparison)
    assert (one.before, one.after, one.lost, one.gained) == ("base", "mine", 1, 1)
    answers = [json.loads(row)["extracted_answer"] for row in (after / "verdicts.jsonl").read_text().splitlines()]
    assert answers == ["no", "no", "yes", "yes", "no", "yes"]
    assert one.metrics["mean@2"].mean == pytest.approx(0.0)
    assert read_answers(read_eval(after), comparison.main)["c"] == [
        ("yes", "correct", "", 1, False),
        ("no", "wrong", "", 1, False),
    ]
    assert run(capsys, "report", before, after, "--out", tmp_path / "report")[0] == 0


def test_runs_of_verify_that_are_damaged_or_of_other_problems(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = judged(tmp_path, capsys, "base", {"a": ["yes"]})
    other = judged(tmp_path, capsys, "mine", {"a": ["yes"]})
    text = (other / "verdicts.jsonl").read_text()
    for old, new, expected in (
        ('"gold": "yes"', '"gold": "no"', "evaluated on different problems"),
        ('"outcome": "correct"', '"outcome": "right"', "is damaged (ValueError: 'right' is not a valid Outcome)"),
        ('"prediction": "yes"', '"prediction": null', "row 1: prediction is null"),
    ):
        changed = text.replace(old, new)
        assert changed != text
        (other / "verdicts.jsonl").write_text(changed)
        assert expected in complaint(capsys, "report", path, other, "--out", tmp_path / "report")


def test_a_report_replaces_reports_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["report", write_eval(tmp_path / "base", "base", BASE), "--out", tmp_path / "out"]
    assert run(capsys, *words)[0] == run(capsys, *words)[0] == 0
    (tmp_path / "out" / "report.md").write_text("# My notes\n")
    assert "report.md is there already and would be replaced, but it was not written by" in complaint(capsys, *words)
    assert (tmp_path / "out" / "report.md").read_text() == "# My notes\n"
    (tmp_path / "out" / "report.md").unlink()
    if drawn := sorted((tmp_path / "out" / "figures").glob("*.png")):  # with the libraries that draw
        drawn[0].write_bytes(b"my picture")
        assert f"{drawn[0]} is there already and would be replaced" in complaint(capsys, *words)
        assert drawn[0].read_bytes() == b"my picture"
