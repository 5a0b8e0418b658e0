"""The table of several judges, by hand, and from what `dph judge --json` prints."""

import json

import pytest

from benchmarks.verifiers.judges import main, table
from dph.cli.main import main as dph
from dph.errors import UserError


def found(refused: int, paid: int, right: int = 4) -> dict:
    kinds = [
        {"name": name, "right": right, "refused": refused, "wrong": 8, "paid": paid, "unjudged": 3}
        for name in ("a", "all")
    ]
    return {"by_type": kinds, "seconds": {"median": 0.0125, "longest": 2.0}}


def test_the_table_by_hand():
    rows = table({"one": found(1, 2), "other": found(0, 8)})
    assert rows == [
        ["answers", "one", "other"],
        ["a", "25.0 / 25.0", "0.0 / 100.0"],
        ["**all**", "25.0 / 25.0", "0.0 / 100.0"],
        ["not judged", "25.0", "25.0"],  # 3 of 4 + 8
        ["median time, ms", "12", "12"],
        ["longest, s", "2", "2"],
    ]


def test_judges_of_different_answers_are_not_compared():
    with pytest.raises(
        UserError, match="other was asked about other answers than one; use one version and one --every"
    ):
        table({"one": found(1, 2), "other": found(1, 2, right=5)})


def test_the_table_of_what_dph_judge_prints(tmp_path, capsys):
    dph(["judge", "--json", "--every", "97"])
    (tmp_path / "ours.json").write_text(capsys.readouterr().out)
    main([f"ours={tmp_path / 'ours.json'}"])
    header, _, *rows = capsys.readouterr().out.splitlines()
    assert header == "| answers | ours |" and "| **all** | 0.0 / 0.0 |" in rows
    kinds = json.loads((tmp_path / "ours.json").read_text())["by_type"]
    assert len(rows) == len(kinds) + 3
