"""The package as a whole: what importing it costs, and that its parts depend on each other in one direction."""

import subprocess
import sys
import tomllib
from pathlib import Path

import dph
from dph.config import load as settings

ROOT = Path(__file__).resolve().parents[2]


def loaded_by(statement: str) -> set[str]:
    """Top-level modules that a fresh interpreter holds after a statement."""
    code = f"{statement}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_the_package_loads_no_heavy_library() -> None:
    assert not loaded_by("import dph") & {"torch", "transformers", "numpy", "pyarrow", "matplotlib"}


def test_verifiers_and_reports_load_no_deep_learning_library() -> None:
    loaded = loaded_by("import dph.verifiers, dph.tasks, dph.report.write, dph.cli.main")
    assert not loaded & {"torch", "transformers", "matplotlib", "plotly"}


def test_the_order_of_dependence_holds() -> None:
    from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), cache_dir=None) == EXIT_STATUS_SUCCESS


def test_presets_travel_with_the_package() -> None:
    assert {"grpo", "dapo", "dph_f", "dph_js", "minisql"} <= set(settings.preset_names())


def test_every_dependency_of_the_tests_is_pinned_and_torch_too() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {line.partition("==")[0].lower() for line in lines if "==" in line}
    needed = project["dependencies"] + project["optional-dependencies"]["dev"]
    names = {requirement.partition("[")[0].partition(">")[0].partition("=")[0].lower() for requirement in needed}
    assert names <= pinned
    assert all("==" in line or line.startswith("#") for line in lines)


def test_the_version_is_that_of_the_project_file() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert dph.__version__ in (project["version"], "0+unknown")  # the latter: a source tree that was never installed
