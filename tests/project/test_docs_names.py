"""Files, functions and commands that the documents name exist in the repository."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import dph
from dph.config import STAGES, flatten, to_dict

ROOT = Path(__file__).parents[2]
OLD_NAMES = ROOT / "docs" / "reference" / "renamed.md"
PAGES = sorted(
    {*ROOT.glob("*.md"), *(page for name in ("docs", "experiments") for page in (ROOT / name).rglob("*.md"))}
    - {OLD_NAMES}
)
PLACES = (ROOT, ROOT / "src" / "dph", ROOT / "tests")
FOLDERS = ("src", "tests", "benchmarks", "examples", "experiments", "scripts")
SOURCES = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
OPTIONS = ("task.options", "advantage.options", "loss.policy_options", "loss.divergence_options")
"""Settings that hold the keys of what they configure, so that their defaults are empty."""
YOURS = {"FILE.py", "mine.py"}
"""Files that a page asks its reader to write."""


ELSEWHERE = re.compile(r"^## (?:Comparison with other projects|What this structure costs)\n.*?(?=^## |\Z)", re.M | re.S)
"""Sections of docs/architecture.md that name files of other projects, and names of the past."""


@pytest.fixture(params=PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def page(request: pytest.FixtureRequest) -> str:
    return ELSEWHERE.sub("", request.param.read_text(encoding="utf-8"))


def located(name: str) -> Path | None:
    """The file that a page means: from the repository's root, from the package or the tests, or by its bare name."""
    places = [place / name for place in PLACES if (place / name).exists()]
    return next(iter(places or [path for path in SOURCES if path.name == name]), None)


def bound(node: ast.stmt) -> Iterator[str]:
    """The names that a statement binds in its module or class."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name
        case ast.Import() | ast.ImportFrom():
            yield from (alias.asname or alias.name for alias in node.names)
        case ast.Assign() | ast.AnnAssign():
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def defines(path: Path, dotted: str) -> bool:
    """Whether a file defines `name` or `Class.name`."""
    body: list[ast.stmt] = ast.parse(path.read_text(encoding="utf-8")).body
    for name in dotted.split("."):
        found = [node for node in body if name in bound(node)]
        if not found:
            return False
        body = getattr(found[0], "body", [])
    return True


def resolves(dotted: str) -> bool:
    """Whether dph.a.b.c is a package, a module, or defined in one."""
    place, parts = ROOT / "src", dotted.split(".")
    while parts and (place / parts[0]).is_dir():
        place /= parts.pop(0)
    if not parts:
        return True
    if (place / f"{parts[0]}.py").exists():
        place /= f"{parts.pop(0)}.py"
    else:
        place /= "__init__.py"
    return not parts or defines(place, ".".join(parts))


def verl_settings() -> set[str]:
    """Keys of verl's configuration block `dph`, which pages write as dph.KEY."""
    tree = ast.parse((ROOT / "src/dph/integrations/verl/settings.py").read_text(encoding="utf-8"))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return {f"dph.{name}" for node in classes for statement in node.body for name in bound(statement)}


def test_files_and_what_is_named_in_them_exist(page: str):
    named = set(re.findall(r"(?<![\w/{<…*-])([\w./-]*\w\.py)\b(?:::?([A-Za-z_]\w*(?:\.\w+)*))?", page))
    missing = []
    for name, inside in sorted(named):
        path = located(name)
        if path is None and name not in YOURS:
            missing.append(name)
        elif path and inside and not defines(path, inside):
            missing.append(f"{name}:{inside}")
    assert missing == []


def test_modules_and_functions_exist(page: str):
    public = {f"dph.{name}" for name in dph.__all__}  # the package root loads them at their first use
    named = set(re.findall(r"(?<![\w./-])(dph(?:\.\w+)+)", page)) - verl_settings() - public
    assert [name for name in sorted(named) if not resolves(name) and not name.endswith((".md", ".toml"))] == []


def test_modules_that_a_page_runs_do_something(page: str):
    for name in re.findall(r"\s-m ((?:dph|benchmarks|experiments)(?:\.\w+)*)", page):
        place = (ROOT / "src" if name.startswith("dph") else ROOT).joinpath(*name.split("."))
        code = (place / "__main__.py" if place.is_dir() else place.with_suffix(".py")).read_text(encoding="utf-8")
        assert '__name__ == "__main__"' in code, name


def test_settings_exist(page: str):
    known = {key.replace("-", "_") for stage in STAGES.values() for key in flatten(to_dict(stage()))}
    groups = "|".join({key.partition(".")[0] for key in known if "." in key})
    named = set(re.findall(rf"(?<![\w.`/])(?:--|`)((?:{groups})\.[\w-]+)(?![\w./(])", page))
    named = {name for name in named if not name.endswith((".py", ".parquet", ".jsonl"))}
    missing = [name for name in sorted(named) if name.replace("-", "_").replace(".no_", ".") not in {*known, *OPTIONS}]
    assert missing == []


def test_scripts_benchmarks_examples_and_tests_exist(page: str):
    named = set(re.findall(r"(?<![\w/-])((?:scripts|benchmarks|examples|experiments|tests|src)/[\w./-]*\w)", page))
    assert [name for name in sorted(named) if located(name) is None] == []


def test_the_checks_find_what_is_missing():
    assert located("evaluation/passk.py") and located("passk.py") and not located("evaluation/nothing.py")
    assert resolves("dph.evaluation") and resolves("dph.evaluation.passk.pass_at_k")
    assert not resolves("dph.evaluation.passk.nothing") and not resolves("dph.nothing")
    assert defines(ROOT / "src/dph/types.py", "Problem.verifier")
