"""The page that compares tools says of this package what its benchmark computes, and the worker asks tools rightly."""

import sys
import types
from pathlib import Path

import pytest

from benchmarks._support import passk_tool
from benchmarks.reliability import passk_tools as tools

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "passk-tools.md"
LOGS = Path(__file__).parents[3] / "shared" / "data" / "harness_logs"


def line(row: list[str]) -> str:
    return f"| {' | '.join(row)} |"


def test_the_page_has_the_rows_of_this_package() -> None:
    page = PAGE.read_text(encoding="utf-8").splitlines()
    assert line(tools.ours_of_pair()) in page
    assert line(tools.ours_of_few()) in page


@pytest.mark.skipif(not LOGS.is_dir(), reason="needs the logs of harnesses in ../shared/data/harness_logs")
def test_the_page_has_the_logs() -> None:
    page = PAGE.read_text(encoding="utf-8")
    _, *rows = tools.of_logs({}, list(tools.logs(LOGS)))
    assert len(rows) == len(tools.LOGS)
    for row in rows:
        assert line(row[:5]).removesuffix(" |") in page  # without what the other tools said


@pytest.mark.slow
def test_the_page_has_the_coverage_of_this_package() -> None:
    page = PAGE.read_text(encoding="utf-8").splitlines()
    assert line(list(tools.coverage_of_one({}, 100))[-1]) in page


def test_a_tool_for_one_model_is_asked_for_every_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """EvalPlus's function, with one of the same name in its place: the mean over problems at each k."""
    module = types.ModuleType("evalplus.eval")
    module.__dict__["estimate_pass_at_k"] = lambda n, c, k: tools.pass_at_k(n, c, min(k, *n))
    monkeypatch.setitem(sys.modules, "evalplus", types.ModuleType("evalplus"))
    monkeypatch.setitem(sys.modules, "evalplus.eval", module)
    sides = {"before": [[1, 4], [0, 4]], "after": [[4, 4], [0, 4]]}
    asked = {
        "pair": sides,
        "ks": [1, 4],
        "k": 4,
        "singles": [],
        "trials": [],
        "logs": {"a": [[[2, 4]], 2]},
        "files": [],
    }
    found = passk_tool.answer("evalplus", asked)
    assert [found["pair"]["before"][k]["mean"] for k in (1, 4)] == [0.125, 0.5]
    assert found["pair"]["after"][1]["mean"] == 0.5 and found["logs"]["a"] == pytest.approx(5 / 6)
    assert found["few"]["2 of 4 right, k = 2"] == pytest.approx(5 / 6)


def test_what_a_tool_says_becomes_a_row() -> None:
    of_one = {"mean": 0.5, "stderr": 0.1}
    pair = {side: {str(k): of_one for k in tools.KS} for side in ("before", "after")}
    few = {name: "nan" for name in tools.FEW}
    answers = {"lm-eval": {"pair": pair, "few": few, "all right": {"mean": 1.0, "stderr": 0.0}}}
    assert list(tools.of_pair(answers))[1][:2] == ["lm-eval", "50.0 ± 10.0 → 50.0 ± 10.0"]
    assert list(tools.of_few(answers))[1] == ["lm-eval", *["not a number"] * 3, "100–100"]
