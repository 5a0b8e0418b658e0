"""Plain TRL scripts with TRL's defaults, run from a folder that is not the repository: prompts are shared in them.

They run in an environment with the extra `trl`: scripts/test-trl. Each script is in the folder trl_scripts.
"""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from engine_marks import needs
from helpers import folder, tiny_policy

pytestmark = [*needs("trl"), pytest.mark.timeout(600)]
SCRIPTS = Path(__file__).parent / "trl_scripts"


@cache
def model():
    tiny_policy().save(saved := folder())
    return str(saved)


def run(name, where, *arguments, processes=1):
    """What a script prints, and its complaints."""
    paths = [str(SCRIPTS), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"] if processes > 1 else []
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *launch, str(SCRIPTS / f"{name}.py"), *arguments],
        cwd=where,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout, done.stderr


@pytest.mark.parametrize(
    ("name", "processes"),
    [
        ("defaults", 1),
        *(
            pytest.param(name, processes, marks=pytest.mark.slow)
            for name, processes in [("lora", 1), ("evaluation", 1), ("compiled", 1), ("two_processes", 2), ("fsdp2", 2)]
        ),
    ],
)
def test_a_plain_script_shares_prompts(name, processes, tmp_path):
    said, complaints = run(name, tmp_path, model(), processes=processes)
    assert said.count("accepted") == processes
    assert complaints.count("shared prompts: ") >= 1 and "once for each response" not in complaints
