"""Plain TRL scripts with TRL's defaults, run from a folder that is not the repository: prompts are shared in them.

They run in an environment with the extra `trl`: scripts/test-trl. Each script is in the folder trl_scripts.
"""

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from helpers import base_run, folder, needs, presampled, tiny_policy

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
        [
            sys.executable,
            "-W",
            "ignore",
            *launch,
            str(SCRIPTS / f"{name}.py") if isinstance(name, str) else str(name),
            *arguments,
        ],
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


PAGE = Path(__file__).parents[2] / "docs/guides/trl.md"
BEFORE = """
import functools, trl
from datasets import Dataset
import dph.integrations.trl as ours
small = dict(use_cpu=True, max_steps=1, max_completion_length=8, report_to="none")
trl.GRPOConfig = functools.partial(trl.GRPOConfig, **small)
ours.DPHConfig = functools.partial(ours.DPHConfig, **small)
model, run, out = {model!r}, {run!r}, {out!r}
texts = ["easy 1 easy 2", "hard 2", "hard 4 easy 5", "easy 6"]
data = Dataset.from_dict({{"prompt": texts}})
def reward(completion_ids, **_):
    return [float(ids[0] % 3) for ids in completion_ids]
"""
"""What a user's script has before the lines of the page; the settings only make it small."""


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1])
def test_the_examples_of_the_page_run(number, tmp_path):
    """The last block, with a tool, is what test_integrations_trl_tools.py trains."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 3 and "SqlEnvironment" in blocks[2]
    names = {"model": model(), "run": "", "out": str(tmp_path / "out")}
    if number:
        names |= {"model": str(base_run() / "model"), "run": str(presampled())}
    toy = f"import sys; sys.path.append({str(SCRIPTS.parents[1])!r}); import helpers\n"
    script = tmp_path / "script.py"
    script.write_text(toy * number + BEFORE.format(**names) + blocks[number])
    said, complaints = run(script, tmp_path)
    assert "once for each response" not in complaints
    assert "saved)" in said + complaints
