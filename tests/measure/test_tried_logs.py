"""Logs that people tried, after public bug reports: each is counted as it should be, or refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from dph.cli.main import main


def counted(folder: Path, capsys: pytest.CaptureFixture[str], case: dict[str, Any]) -> dict[str, list[float]] | str:
    """pass@k of each file of an input, or the sentence that refuses them."""
    files = case["files"]
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    sides = [folder / side for side in dict.fromkeys(name.partition("/")[0] for name in files)]
    if "are one file" in case["note"]:
        sides = [sides[0], sides[0]]
    try:
        main(["passk", *map(str, sides), *case.get("args", []), "--json"])
    except SystemExit as end:
        said = capsys.readouterr().err.strip().splitlines()
        assert end.code == 2 and said[-1].startswith("dph: ")
        return said[-1]
    scores = json.loads(capsys.readouterr().out)["scores"]
    names = {name for of in scores for name in of["metrics"] if name.startswith("pass@")}
    return {name: [of["metrics"][name]["estimate"] for of in scores if name in of["metrics"]] for name in names}


ASKED = {"p1-139"}
"""Iterations of each problem were samples to whom tried it. Those of a refinement look alike, so the user is asked."""


def is_right(found: dict[str, list[float]] | str, expected: Any) -> bool:
    if isinstance(found, str):
        return expected in ("refuse", "refuse|ok") or (isinstance(expected, dict) and "or" in expected)
    if isinstance(expected, str):
        return expected == "refuse|ok"
    wanted = {name: values for name, values in expected.items() if name.startswith("pass@")}
    return all(found.get(name) == pytest.approx(values, abs=1e-6) for name, values in wanted.items())


def test_tried_logs_are_counted_or_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], shared_data: Path
) -> None:
    file = shared_data / "complaints" / "inputs_2.jsonl"
    cases = [json.loads(line) for line in file.read_text().splitlines()]
    # a text of 600 characters was cut
    cases = [c for c in cases if c["kind"].startswith("p") and max(map(len, c["input"]["files"].values())) < 600]
    wrong = []
    for case in cases:
        (folder := tmp_path / case["id"]).mkdir()
        found = counted(folder, capsys, case["input"])
        if not is_right(found, "refuse" if case["id"] in ASKED else case["expected"]):
            wrong.append((case["id"], case["input"]["note"], found, case["expected"]))
    assert len(cases) > 60 and not wrong
