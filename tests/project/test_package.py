"""The package as a whole: what importing it costs, and that its parts depend on each other in one direction."""

import os
import re
import subprocess
import sys
import textwrap
import tomllib
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest

import dph
from dph.config import load as settings
from dph.report import write
from report_support import write_eval

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
ENGINES = {"trl", "verl", "vllm"}
"""Extras that exclude each other."""


def loaded_by(statement: str) -> set[str]:
    """Top-level modules that a fresh interpreter holds after a statement."""
    code = f"{statement}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def requirements_of(extra: str) -> list[str]:
    """The requirements of an extra, with those of the extras of this project that it names in their place."""
    needed = []
    for requirement in EXTRAS[extra]:
        named = re.fullmatch(r"dph-rl\[(.*)\]", requirement)
        needed += [line for name in named[1].split(",") for line in requirements_of(name)] if named else [requirement]
    return needed


def test_importing_the_package_loads_no_heavy_library() -> None:
    assert not loaded_by("import dph") & {"torch", "transformers", "numpy", "pyarrow", "matplotlib"}


def test_verifiers_and_reports_load_no_deep_learning_library() -> None:
    loaded = loaded_by("import dph.verifiers, dph.tasks, dph.report.write, dph.cli.main")
    assert not loaded & {"torch", "transformers", "matplotlib", "plotly"}


def test_the_order_of_dependence_holds() -> None:
    from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), cache_dir=None) == EXIT_STATUS_SUCCESS


def test_presets_travel_with_the_package() -> None:
    assert {"grpo", "dapo", "dph_f", "dph_js", "countdown"} <= set(settings.preset_names())


def test_every_dependency_of_the_tests_is_pinned_and_torch_too() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {line.partition("==")[0].lower() for line in lines if "==" in line}
    needed = PROJECT["dependencies"] + requirements_of("dev")
    names = {requirement.partition(">")[0].partition("=")[0].lower() for requirement in needed}
    assert names <= pinned
    assert all("==" in line or line.startswith("#") for line in lines)


def test_the_lock_file_has_every_tested_version() -> None:
    pins, lock = (
        {
            line.lower().replace("_", "-").split(" ;")[0]
            for line in (ROOT / name).read_text().splitlines()
            if "==" in line
        }
        for name in ("constraints.txt", "requirements-dev.lock")
    )
    named = {line.partition("==")[0] for line in lock}
    assert {line for line in pins if line.partition("==")[0] in named} <= lock
    needed = {re.split("[>=;]", line)[0].strip().lower() for line in PROJECT["dependencies"] + requirements_of("dev")}
    assert {name.replace("_", "-") for name in needed} <= named


def test_the_version_is_that_of_the_project_file() -> None:
    assert dph.__version__ in (PROJECT["version"], "0+unknown")  # the latter: a source tree that was never installed


# A plain install, without extras -----------------------------------------------------------------------------------


def test_a_plain_install_is_small_and_all_is_all_but_the_engines() -> None:
    assert len(PROJECT["dependencies"]) <= 8
    complete = {name: requirements_of(name) for name in EXTRAS.keys() - ENGINES - {"all", "dev", "docs"}}
    assert {*requirements_of("all")} == {line for lines in complete.values() for line in lines}
    assert set(requirements_of("all")) <= set(requirements_of("dev"))


MODULES = ("accelerate", "datasets", "gguf", "matplotlib", "peft", "plotly", "tensorboard", "word2number")
"""Modules that the extra `all` has and the extra `train` lacks."""


def plain(code: str, *words: str, extra: str = "") -> subprocess.CompletedProcess[str]:
    """Run Python code in an interpreter in which the optional packages cannot be imported, but for an extra's."""
    there = needed_by(requirements_of(extra)) if extra else set()
    blocked = f"import sys\nsys.modules.update(dict.fromkeys({sorted(set(MODULES) - there)}))\n"
    command = [sys.executable, "-c", blocked + textwrap.dedent(code), *words]
    return subprocess.run(command, capture_output=True, text=True)


def needed_by(requirements: list[str]) -> set[str]:
    """The distributions that requirements bring, with those that these need."""
    found, waiting = set[str](), list(requirements)
    while waiting:
        line = waiting.pop()
        name = re.split(r"[^A-Za-z0-9_.-]", line)[0].lower()
        if name not in found and "extra ==" not in line:
            found.add(name)
            with suppress(PackageNotFoundError):
                waiting += requires(name) or []
    return found


USES = {
    "report": """
        from dph.report import plots, page
        from torch.utils.tensorboard import SummaryWriter
        assert page.render("t", {"styles": {}, "training": []}, tables=[], settings=[])
    """,
    "math": "from dph.verifiers.math.policy import check_policy\ncheck_policy('qwen')",
    "peft": """
        sys.path[:0] = ["tests", "."]
        from dph.config import ModelConfig
        from dph.models.policy import Policy
        from helpers import tiny_policy
        tiny_policy().save(Path(sys.argv[1]))
        assert Policy.load(ModelConfig(path=sys.argv[1], lora_rank=2)).trainable()
    """,
    "llm": """
        sys.path[:0] = ["tests", "."]
        from benchmarks.gpu.toy_model import write_toy
        from dph.config import ModelConfig
        from dph.models.policy import Policy
        from experiments.smollm2 import folder_of
        write_toy(Path(sys.argv[1]).with_suffix(".gguf"), list("abcdefgh"), ("a b",), context=64)
        folder = folder_of(Path(sys.argv[1] + ".gguf"))
        assert Policy.load(ModelConfig(path=str(folder))).encode_response("ab")
    """,
    "parquet": """
        import pyarrow, pyarrow.parquet as pq
        from dph.runs.parquet import read_parquet
        file = Path(sys.argv[1]).with_suffix(".parquet")
        pq.write_table(pyarrow.table({"correct": [1]}), file)
        assert read_parquet(file).num_rows == 1
    """,
    "train": "from dph.models.policy import Policy\nfrom dph.stages.train import train",
    "hub": "from dph.tasks import load_task\nfrom datasets import Dataset\nload_task('hub', name='owner/name')",
}
"""What each extra is for, in a few lines."""


def test_every_extra_without_an_engine_is_tried_alone() -> None:
    assert USES.keys() == EXTRAS.keys() - ENGINES - {"all", "dev", "docs"}


@pytest.mark.parametrize("extra", USES)
def test_an_extra_is_enough_for_what_it_is_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extra: str) -> None:
    monkeypatch.setenv("DPH_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(ROOT)
    done = plain("from pathlib import Path\n" + textwrap.dedent(USES[extra]), str(tmp_path / "model"), extra=extra)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("extra", USES)
def test_an_extra_is_enough_in_an_empty_environment(tmp_path: Path, extra: str) -> None:
    """Installs the package with one extra into a new environment, where a network and the disk allow it."""
    python = str(tmp_path / "venv" / "bin" / "python")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    words = [python, "-m", "pip", "install", "--quiet", "--constraint", str(ROOT / "constraints.txt")]
    if subprocess.run([*words, "--dry-run", "--no-deps", "packaging"], capture_output=True).returncode:
        pytest.skip("pip reaches no package index")
    torch = next(line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch=="))
    subprocess.run([*words, torch], check=True)
    subprocess.run([*words, f"{ROOT}[{extra}]"], check=True)
    code = "import sys\nfrom pathlib import Path\n" + textwrap.dedent(USES[extra])
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["DPH_CACHE"] = str(tmp_path / "cache")
    command = [python, "-c", code, str(tmp_path / "model")]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_optional_modules_are_those_of_the_extra_all() -> None:
    in_all, in_train = ({re.split("[>=]", line)[0] for line in requirements_of(name)} for name in ("all", "train"))
    assert in_all - in_train - {"math-verify"} == set(MODULES)


def test_every_module_that_needs_no_engine_can_be_imported_without_them() -> None:
    done = plain("import dph.cli.main, dph.stages.train, dph.stages.evaluate, dph.verifiers.math.policy")
    assert done.returncode == 0, done.stderr


def test_the_command_line_explains_itself_without_them() -> None:
    for words in (["--help"], ["train", "--help"]):
        done = plain("from dph.cli.main import main\nmain(sys.argv[1:])", *words)
        assert done.returncode == 0 and "usage" in done.stdout.lower(), done.stderr


def test_the_policy_that_needs_a_library_names_its_extra_before_anything_runs(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"id": "1", "prompt": "p", "answer": "42", "verifier": "math"}\n')
    words = ("verify", "--task.name", "records", "--data", str(rows), "--policy", "qwen", "--predictions", str(rows))
    done = plain("from dph.cli.main import main\nmain(sys.argv[1:])", *words)
    assert done.returncode == 2 and "'.[math]'" in done.stderr and "Traceback" not in done.stderr


def test_metrics_are_logged_without_tensorboard(tmp_path: Path) -> None:
    done = plain(
        """
        from dph.config import TrainConfig
        from dph.process.progress import show_messages
        from dph.runs.directory import RunDir
        from dph.runs.tracking import Metrics

        show_messages()
        run = RunDir.start(sys.argv[1], "train", TrainConfig(out=sys.argv[1]))
        with Metrics(run, "none", True) as metrics:
            metrics.begin(0)
            metrics.log(1, {"reward": 0.5}, {})
            metrics.log_samples(1, "rollouts", [])
        """,
        str(tmp_path / "run"),
    )
    assert done.returncode == 0 and "'.[report]'" in done.stderr, done.stderr
    assert '"reward": 0.5' in (tmp_path / "run" / "metrics.jsonl").read_text()


@pytest.mark.skipif(not hasattr(write, "DRAWN_WITH"), reason="reports load their libraries at the start")
def test_a_report_ends_with_its_table_and_says_what_the_page_needs(tmp_path: Path) -> None:
    for label, correct in {"base": (0, 1, 4), "GRPO": (0, 2, 4)}.items():
        write_eval(tmp_path / label, label, correct)
    words = ("report", *(str(tmp_path / label) for label in ("base", "GRPO")), "--base", "base")
    done = plain("from dph.cli.main import main\nmain(sys.argv[1:])", *words, "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert "GRPO" in done.stdout and "'.[report]'" in done.stderr
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["report.md"]
