"""examples/walkthrough.ipynb: its cells run one after the other, at smoke size, as a kernel would run them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "examples" / "walkthrough.ipynb"

RUNNER = """
import json, sys
space = {"__name__": "__main__"}
for number, cell in enumerate(json.load(open(sys.argv[1], encoding="utf-8"))["cells"]):
    if cell["cell_type"] == "code":
        exec(compile("".join(cell["source"]), f"<cell {number}>", "exec"), space)
"""
"""Runs the code cells of a notebook in one namespace; the traceback of an error names the cell."""


def executed(notebook, folder):
    """The finished process that ran a notebook in a folder."""
    words = [sys.executable, "-c", RUNNER, str(notebook)]
    environment = os.environ | {"DPH_SMOKE": "1", "DPH_CACHE": str(folder / "cache")}
    return subprocess.run(words, capture_output=True, text=True, cwd=folder, env=environment)


def test_it_holds_no_outputs():
    cells = json.loads(PATH.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(code) >= 8 and len(code) < len(cells)
    assert [cell for cell in code if cell["outputs"] or cell["execution_count"] is not None] == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_cell_runs(tmp_path):
    done = executed(PATH, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    runs = tmp_path / "runs" / "notebook"
    table = (runs / "report" / "index.html").read_text(encoding="utf-8")
    assert all(name in table for name in ("base", "grpo", "dph_js"))
    assert "step 0 " in done.stdout and "step 2 " in done.stdout  # one problem through training


def test_a_cell_that_fails_fails_the_notebook(tmp_path):
    cells = [{"cell_type": "code", "source": ["x = 1"]}, {"cell_type": "code", "source": ["assert x == 2"]}]
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells}), encoding="utf-8")
    done = executed(tmp_path / "a.ipynb", tmp_path)
    assert done.returncode == 1 and "<cell 1>" in done.stderr
