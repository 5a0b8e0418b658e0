"""Where pass@k is lost and what keeps it: the tables of the pages against the published counts, and the parts against
numbers that are known beforehand."""

import math
import re
from math import comb
from pathlib import Path

import pytest

from experiments.anchor.counts import Evaluated
from experiments.claim import COUNTS, TABLES, _first_step, _losable, crossing, main
from experiments.factorial.tables import by_class, class_shares, mean_at
from experiments.worlds import power

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    "where": ["docs/results/findings.md"],
    "losable": ["docs/results/findings.md"],
    "elsewhere": ["docs/results/findings.md"],
    "rate": ["docs/results/findings.md", "experiments/results/anchor.md"],
    "worlds": ["docs/results/findings.md"],
    "speed": ["docs/concepts/theory.md"],
    "equal": ["docs/results/findings.md", "experiments/results/anchor.md"],
    "crossing": ["experiments/results/anchor.md"],
    "direction": ["experiments/results/anchor.md"],
    "free": ["docs/results/findings.md"],
    "sft": ["docs/results/findings.md"],
    "mastered": ["docs/results/findings.md", "experiments/results/certificates.md"],
    "shift": ["docs/results/findings.md"],
}
"""The pages that have a table of the command as it is printed."""


_PRINTED: dict[str, list[str]] = {}


def printed(name: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines of a table of the command, computed once."""
    monkeypatch.chdir(ROOT)
    if name not in _PRINTED:
        _PRINTED[name] = list(TABLES[name][1](COUNTS))
    return _PRINTED[name]


@pytest.mark.parametrize("name", PAGES)
def test_every_table_of_the_pages_is_computed_from_the_counts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = printed(name, monkeypatch)
    assert len(lines) > 2
    for page in PAGES[name]:
        known = (ROOT / page).read_text(encoding="utf-8").splitlines()
        assert [line for line in lines if line not in known] == [], page


def test_the_step_that_first_reached_a_level() -> None:
    curve = [(0, 0.3), (50, 0.4), (75, 0.35), (125, 0.5)]
    # A quarter of the way from 0.3 to 0.4; at the start; 0.4 first at step 50, although the curve falls again
    assert [_first_step(curve, level) for level in (0.325, 0.2, 0.4, 0.5, 0.6)] == pytest.approx(
        [12.5, 0, 50, 125, 125]
    )


def test_the_mean_at_equal_pass_at_k_by_both_rules() -> None:
    """Lines that fall in pass@k while the mean rises and falls; then a level above all of them."""
    frontier = [(0.30, 0.90), (0.40, 0.88), (0.36, 0.80)]
    assert crossing(frontier, 0.89) == pytest.approx(0.35) == mean_at(frontier, 0.89)
    # the highest mean with at least 84 % is that of the second point; where it is equal, half-way to the third
    assert crossing(frontier, 0.84) == pytest.approx(0.38) and mean_at(frontier, 0.84) == pytest.approx(0.40)
    assert crossing(frontier, 0.91) is None and mean_at(frontier, 0.91) == 0.30, "above the lines"


def test_starts_above_the_lines_are_counted_and_left_out_of_the_other_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [printed(name, monkeypatch) for name in ("equal", "crossing")]
    rows = [[[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]] for lines in both]
    assert len(rows[0]) == len(rows[1]) == 15
    for equal, other in zip(*rows, strict=True):
        assert equal[:2] == other[:2]
        below = [int(equal[1]) - int(equal[i]) - int(other[i]) for i in (3, 5)]
        one = equal[0].startswith("k3, β 0.3,")  # which in one start has less pass@32 than every point of the lines
        assert below == [0, int(one)], equal[0]


FINDINGS, KNOWN = "docs/results/findings.md", "docs/results/what-we-know.md"


@pytest.mark.parametrize(
    ("name", "row", "column", "page", "words"),
    [
        ("direction", "stored rows: reverse", 2, "README.md", "(−0.7 to −0.0), not planned"),
        (
            "direction",
            "stored rows: reverse",
            2,
            KNOWN,
            "−0.4 points of pass@32 (−0.7 to −0.0)",
        ),
        (
            "direction",
            "stored rows: reverse",
            4,
            KNOWN,
            "−0.5 of the mean at equal pass@32 (−0.9 to −0.0)",
        ),
        ("direction", "rollouts: k2", 4, KNOWN, "undecided: −0.3 of that mean (−1.1 to 0.6;"),
        (
            "direction",
            "stored rows: reverse",
            4,
            FINDINGS,
            "mean at equal pass@32 −0.5 (−0.9 to −0.0)",
        ),
        (
            "direction",
            "k3 on the rollouts, β 0.1 −",
            4,
            FINDINGS,
            "near-perfect rows +0.8 (0.3 to 1.4)",
        ),
        ("rate", "η 0.3 alone", 1, FINDINGS, "η 0.3 alone: +0.6 (−0.2 to 1.3)"),
        ("rate", "η 0.3 alone", 2, FINDINGS, "and +0.5 (−0.7 to 1.6)"),
        ("rate", "η 0.3 alone", 1, "docs/guides/methods.md", "pass@8 +0.6, −0.2 to 1.3"),
        ("sft", "halfway weights", 1, "experiments/results/anchor.md", "1.0 points above the mix (0.4 to 1.7, eleven"),
        ("crossing", "all problems + near-perfect", 3, FINDINGS, "+0.5 (0.3 to 0.8) at pass@32"),
        ("worlds", "six SQL worlds, lr 1e-4: halfway", 3, FINDINGS, "SQL worlds at 1e-4 (3.1 of"),
    ],
)
def test_statements_about_readings_and_directions_are_those_of_the_commands(
    name: str, row: str, column: int, page: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every number of the words is one of the cell, in size, and the words are on the page."""
    text = cells(printed(name, monkeypatch), row)[column]
    known = {f"{abs(float(number)):.1f}" for number in re.findall(r"[+-]\d+\.\d+", text)[:3]}
    stated = set(re.findall(r"\d+\.\d", words.replace("η 0.3", "")))
    assert stated and stated <= known, (stated, known)
    assert words in " ".join((ROOT / page).read_text(encoding="utf-8").split())


def cells(lines: list[str], row: str) -> list[str]:
    """The entries of the row that begins with a text."""
    (line,) = [line for line in lines if line.startswith(f"| {row}")]
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def interval(text: str) -> list[str]:
    """The numbers of "+1.1 (+0.7 to +1.5)" as the pages write them: "+1.1", "0.7", "1.5"; "−" for minus."""
    mean, low, high = re.findall(r"[+-]\d+\.\d", text)[:3]
    return [mean.replace("-", "−"), *(end.lstrip("+").replace("-", "−") for end in (low, high))]


@pytest.mark.parametrize(
    ("name", "row", "column"),
    [
        ("rate", "near-perfect rows", 1),  # pass@8
        ("rate", "near-perfect rows", 2),  # pass@32
        ("rate", "near-perfect rows", 0),  # mean
        ("worlds", "six SQL worlds, lr 1e-4: `dph_js`", 1),
        ("rate", "k3 β 0.1 − GRPO", 2),
        ("free", "GRPO 2e-4: halfway weights", 0),
        ("shift", "**under shift", 2),
        ("mastered", "`grpo` − base", 0),
    ],
)
def test_the_page_of_what_we_know_has_the_numbers_of_the_counts(
    name: str, row: str, column: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = cells(printed(name, monkeypatch), row)[column]
    mean, low, high = (f"{float(number):+.1f}" for number in re.findall(r"[+-]\d+\.\d+", text)[:3])
    shown = interval(f"{mean} ({low} to {high})")
    page = (ROOT / "docs" / "results" / "what-we-know.md").read_text(encoding="utf-8")
    assert f"{shown[0]} ({shown[1]} to {shown[2]})" in page


def test_the_guides_table_of_thresholds_is_computed_from_the_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    lines, guide = (
        printed("losable", monkeypatch),
        (ROOT / "docs" / "guides" / "methods.md").read_text(encoding="utf-8"),
    )
    for k in (8, 16, 32):
        *_, inside, _, near, whole = cells(lines, f"pass@{k} ")
        part, share = re.fullmatch(r"-(\S+) on (\d+) %", inside).groups()  # type: ignore[union-attr]
        (row,) = [line for line in guide.splitlines() if line.startswith(f"| pass@{k} |")]
        assert f"{part} of {whole.lstrip('-')} points, on" in row and f"on {share} %" in row.replace(
            "of the problems", ""
        )
        assert row.rstrip(" |").endswith(near.split()[0].lstrip("-"))


def start(base: list[int], again: list[int], trained: list[int]) -> dict[str, Evaluated]:
    def one(correct: list[int]) -> Evaluated:
        return Evaluated([(64, c) for c in correct], [], [], 0)

    names = ("grpo-1e-4", "grpo-1e-4-again")
    return {"base": one(base), "base-again": one(again)} | dict.fromkeys(names, one(trained))


def test_parts_come_from_other_samples_than_classes_and_add_up() -> None:
    found = start([0, 16, 64], [4, 20, 64], [0, 8, 60])
    parts, shares = _losable({1: found}, 32)

    def solved(c: int) -> float:
        return 1 - comb(64 - c, 32) / comb(64, 32)

    # classes by `base`: unsolved, 16 of 64 is 8 of 32, all; by `base-again` 4 of 64 is 2 of 32
    unsolved = (solved(0) - solved(4)) / 3 / 2
    losable = (solved(0) - solved(0)) / 3 / 2
    above = ((solved(8) - solved(20)) + (solved(8) - solved(16)) + 2 * (solved(60) - 1)) / 3 / 2
    assert parts[:4] == pytest.approx([100 * unsolved, 0, 100 * losable, 100 * above], abs=1e-9)
    assert shares[:4] == pytest.approx([1 / 6, 0, 1 / 6, 4 / 6]) and shares[4] == pytest.approx(1 / 3)
    classes = by_class(found, ("grpo-1e-4",), 32)
    assert 100 * classes.sum() == pytest.approx(sum(parts[:4]))
    assert class_shares(found, ("base",)).tolist() == pytest.approx([1 / 3, 1 / 3, 0, 0, 1 / 3])


def test_the_power_of_students_interval() -> None:
    assert power(0.0, 1.0, 3) == pytest.approx(0.025, abs=0.002), "one side of 5 %"
    # with many runs Student's t is normal: an effect of 2.8 standard errors is found in 80 % of cases
    assert power(2.8 / math.sqrt(200), 1.0, 200, draws=20_000) == pytest.approx(0.8, abs=0.02)


def test_the_command_prints_and_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(ROOT)
    main(["power", "setting", "--figure", str(tmp_path / "where.png")])
    said = capsys.readouterr().out
    assert "## Near-perfect problems" in said and "## What three runs can show" in said
    assert (tmp_path / "where.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(SystemExit):
        main(["nowhere"])


def test_the_page_on_faithfulness_has_the_shares_of_near_perfect_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    page, lines = (ROOT / "docs/concepts/faithfulness.md").read_text(encoding="utf-8"), printed("setting", monkeypatch)
    for row, name in (("Countdown", "Countdown"), ("six SQL worlds", "SQL worlds")):
        assert f"{name} {float(cells(lines, row)[0]):.0f} %" in page
    low, high = (float(cells(lines, row)[0]) for row in ("SmolLM2, SQL world", "SmolLM2, Spider"))
    assert f"SmolLM2 {low:.0f} to {high:.0f} %" in page
