"""Runs in the embedded world are killed at random moments and resumed: `benchmarks/reliability/kill.py` with few kills.

The base model is that of `dph demo --smoke`: from the folder that the variable DPH_DEMO names, else made here.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SMALL = ("--rollout.prompts", "2", "--rollout.n", "4", "--task.limit", "48")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="the kill test reads /proc, which only Linux has")
@pytest.mark.parametrize(("ranks", "kills", "steps"), [(1, 5, 8), (2, 3, 6)])
def test_killed_runs_end_as_if_nothing_had_been(tmp_path, ranks, kills, steps):
    """Kills aimed at one part of a step after the other; weights, moments, cursors and metrics are those of an
    undisturbed run. Of two processes the first is killed, then the second, then torchrun."""
    demo = Path(os.environ.get("DPH_DEMO", ""))
    base = ("--base", str(demo)) if (demo / "presample" / "manifest.json").is_file() else ("--smoke",)
    command = [
        sys.executable,
        "-m",
        "benchmarks.reliability.kill",
        "--out",
        str(tmp_path),
        *base,
        "--steps",
        str(steps),
        *SMALL,
    ]
    command += ["--kills", str(kills), "--ranks", str(ranks)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
    )
    log = (tmp_path / "log").read_text() if (tmp_path / "log").is_file() else ""
    assert done.returncode == 0, "\n".join([done.stdout, done.stderr, log])
    found = json.loads((tmp_path / "kills.json").read_text())
    assert (found["kills"], found["ranks"]) == (kills, ranks)
    assert found["runs_completed"] >= 1 and found["files_compared"] > 15
    assert len(found["by_part"]) >= kills - 2  # the moment drawn may lie beyond the part's end
    assert ranks == 1 or len(found["by_process"]) >= 2
    assert found["orphans"] == 0 and found["files_that_differ"] == []
